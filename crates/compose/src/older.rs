//! Older volumes, on the base of which new ones are built.

use seekless_device::BlockDevice;
use seekless_fs::format::{Format, OpenOptions};
use seekless_fs::plan::{NewVolume, ObjectId, OlderFile};
use seekless_fs::source::Source;
use seekless_fs::term::{Term, Text};
use seekless_fs::{FsError, Inspect};
use seekless_images::Error;
use seekless_units::{ByteLen, Ino};
use std::path::Path;
use std::sync::Arc;

/// The files of older images that a new volume continues.
pub struct Continued<'a, I> {
    /// The images.
    pub images: &'a [Arc<I>],
    /// The inodes of the files of each image.
    pub inodes: &'a [&'a [Ino]],
    /// By node of the source.
    pub files: &'a [Option<OlderFile>],
    /// The objects whose blocks traces touched, in order of first touch.
    pub hot: &'a [ObjectId],
    /// Whether free space has the bytes of the first image.
    pub keeps_freed: bool,
}

/// An older volume, whose shape new ones of its format take over.
pub trait OlderVolume: Sized + 'static {
    /// An open image.
    type Image: Inspect + 'static;
    /// Options of a build.
    type Options: Clone;
    /// A new volume.
    type Builder<'a>: NewVolume;

    /// The format.
    const FORMAT: Format;
    /// The reason why images of other formats are refused.
    const ONLY: &'static str;
    /// Whether files have inodes, and keep their numbers.
    const HAS_INODES: bool;

    /// Opens an image.
    ///
    /// # Errors
    /// As [`Format::open`].
    fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Self::Image, FsError>;

    /// Refuses an image with an error, or one that was not unmounted.
    ///
    /// # Errors
    /// [`FsError::Damaged`], and errors of reading it.
    fn refuse_damage(image: &Self::Image) -> Result<(), FsError>;

    /// Reads the shape of an image.
    ///
    /// # Errors
    /// As [`OlderVolume::refuse_damage`].
    fn of(image: Arc<Self::Image>) -> Result<Self, FsError>;

    /// Options of a build that give a volume of this shape with the marks of this one.
    fn options(&self) -> Self::Options;

    /// The way to repair an image that is damaged.
    fn repair() -> Text {
        repair_first()
    }

    /// Bytes of the unit in which a new volume of the same shape allocates contents.
    fn unit(image: &Self::Image) -> u32 {
        image.geometry().block_size
    }

    /// Lets a build add no file to those of its source.
    fn add_nothing(_options: &mut Self::Options) {}

    /// The version of the format, and of its encoding.
    fn version(image: &Self::Image) -> String {
        image.geometry().format.to_string()
    }

    /// A new volume of this shape.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] where the contents or the options need another shape; all others
    /// exclude a volume of any shape.
    fn build<'a>(
        &'a self,
        source: &'a dyn Source,
        options: &Self::Options,
    ) -> Result<Self::Builder<'a>, FsError>;

    /// A new volume with the marks of this one, and a shape of its own.
    ///
    /// # Errors
    /// Those of a build without an older image.
    fn build_apart<'a>(
        &'a self,
        source: &'a dyn Source,
        options: &Self::Options,
    ) -> Result<Self::Builder<'a>, FsError>;

    /// Lets files keep places that are no whole units of allocation, and directories their entries.
    /// By default there are no such places that a build itself does not know.
    ///
    /// # Errors
    /// As [`OlderVolume::build`], and errors of the images.
    fn continue_files(
        _builder: &mut Self::Builder<'_>,
        _continued: &Continued<'_, Self::Image>,
    ) -> Result<(), FsError> {
        Ok(())
    }

    /// Adds free space to a volume that is fitted to its contents; false if it has a requested size.
    fn grow(options: &mut Self::Options, bytes: ByteLen) -> bool;
}

/// The way to repair an image with our own check.
pub(crate) fn repair_first() -> Text {
    Text::from("repair it with ").then(Term::Repair).then(" first")
}

/// The error of an older image, with a hint if it is damaged.
pub(crate) fn damaged<V: OlderVolume>(error: FsError, path: &Path) -> Error {
    let is_damaged = matches!(error, FsError::Damaged { .. });
    let error = Error::from(error).about(path.display());
    if is_damaged { error.hint(V::repair()) } else { error }
}
