//! The formats whose images can be built on the base of older ones.

use seekless_device::BlockDevice;
use seekless_ext as ext;
use seekless_fat as fat;
use seekless_ffs as ufs;
use seekless_fs::format::{Format, OpenOptions};
use seekless_fs::plan::{NewVolume, ObjectId, OlderFile};
use seekless_fs::source::Source;
use seekless_fs::term::{Term, Text};
use seekless_fs::{FsError, Inspect};
use seekless_images::Error;
use seekless_units::ByteLen;
use std::path::Path;
use std::sync::Arc;

/// The way to repair an ext volume that is damaged.
pub const E2FSCK: &str = "repair it with e2fsck first";

/// The files of older images that a new volume continues.
pub struct Continued<'a, I> {
    /// The images.
    pub images: &'a [Arc<I>],
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

    /// The way to repair an image that is damaged.
    fn repair() -> Text;

    /// Bytes of the unit in which a new volume of the same shape allocates contents.
    fn unit(image: &Self::Image) -> u32 {
        image.geometry().block_size
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

impl OlderVolume for ext::BaseVolume {
    type Image = ext::ExtImage;
    type Options = ext::BuildOptions;
    type Builder<'a> = ext::Builder<'a>;

    const FORMAT: Format = ext::FORMAT;
    const ONLY: &'static str = "an ext image is built on the base of ext images";
    const HAS_INODES: bool = true;

    fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Self::Image, FsError> {
        ext::ExtImage::open(device, options)
    }

    fn refuse_damage(image: &Self::Image) -> Result<(), FsError> {
        image.refuse_damage()
    }

    fn of(image: Arc<Self::Image>) -> Result<Self, FsError> {
        Self::new(image)
    }

    fn repair() -> Text {
        E2FSCK.into()
    }

    fn build<'a>(
        &'a self,
        source: &'a dyn Source,
        options: &Self::Options,
    ) -> Result<Self::Builder<'a>, FsError> {
        ext::Builder::on_base(source, options, self)
    }

    fn build_apart<'a>(
        &'a self,
        source: &'a dyn Source,
        options: &Self::Options,
    ) -> Result<Self::Builder<'a>, FsError> {
        ext::Builder::with_marks_of(source, options, self)
    }

    fn grow(options: &mut Self::Options, bytes: ByteLen) -> bool {
        options.spare.bytes = ByteLen::new(options.spare.bytes.get() + bytes.get());
        options.size.is_none()
    }
}

impl OlderVolume for fat::BaseVolume {
    type Image = fat::FatImage;
    type Options = fat::BuildOptions;
    type Builder<'a> = fat::Builder<'a>;

    const FORMAT: Format = fat::FORMAT;
    const ONLY: &'static str = "a FAT image is built on the base of FAT images";
    const HAS_INODES: bool = false;

    fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Self::Image, FsError> {
        fat::FatImage::open(device, options)
    }

    fn refuse_damage(image: &Self::Image) -> Result<(), FsError> {
        Self::refuse_damage(image)
    }

    fn of(image: Arc<Self::Image>) -> Result<Self, FsError> {
        Self::new(image)
    }

    fn repair() -> Text {
        Text::from("repair it with ").then(Term::Repair).then(" first")
    }

    fn unit(image: &Self::Image) -> u32 {
        let shape = image.geometry();
        shape.block_size * shape.cluster_blocks
    }

    fn build<'a>(
        &'a self,
        source: &'a dyn Source,
        options: &Self::Options,
    ) -> Result<Self::Builder<'a>, FsError> {
        fat::Builder::on_base(source, options, self)
    }

    fn build_apart<'a>(
        &'a self,
        source: &'a dyn Source,
        options: &Self::Options,
    ) -> Result<Self::Builder<'a>, FsError> {
        fat::Builder::with_marks_of(source, options, self)
    }

    fn grow(options: &mut Self::Options, bytes: ByteLen) -> bool {
        options.spare.bytes = ByteLen::new(options.spare.bytes.get() + bytes.get());
        options.is_fitted
    }
}

impl OlderVolume for ufs::BaseVolume {
    type Image = ufs::FfsImage;
    type Options = ufs::BuildOptions;
    type Builder<'a> = ufs::Builder<'a>;

    const FORMAT: Format = ufs::FORMAT;
    const ONLY: &'static str = "a UFS image is built on the base of UFS images";
    const HAS_INODES: bool = true;

    fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Self::Image, FsError> {
        ufs::FfsImage::open(device, options)
    }

    fn refuse_damage(image: &Self::Image) -> Result<(), FsError> {
        Self::refuse_damage(image)
    }

    fn of(image: Arc<Self::Image>) -> Result<Self, FsError> {
        Self::new(image)
    }

    fn repair() -> Text {
        Text::from("repair it with ").then(Term::Repair).then(" first")
    }

    fn build<'a>(
        &'a self,
        source: &'a dyn Source,
        options: &Self::Options,
    ) -> Result<Self::Builder<'a>, FsError> {
        ufs::Builder::on_base(source, options, self)
    }

    fn build_apart<'a>(
        &'a self,
        source: &'a dyn Source,
        options: &Self::Options,
    ) -> Result<Self::Builder<'a>, FsError> {
        ufs::Builder::with_marks_of(source, options, self)
    }

    fn continue_files(
        builder: &mut Self::Builder<'_>,
        continued: &Continued<'_, Self::Image>,
    ) -> Result<(), FsError> {
        builder.continue_files(
            (continued.images, continued.files),
            continued.hot,
            continued.keeps_freed,
        )
    }

    fn grow(options: &mut Self::Options, bytes: ByteLen) -> bool {
        options.spare.bytes = ByteLen::new(options.spare.bytes.get() + bytes.get());
        options.is_fitted
    }
}

/// The error of an older image, with a hint if it is damaged.
pub(crate) fn damaged<V: OlderVolume>(error: FsError, path: &Path) -> Error {
    let is_damaged = matches!(error, FsError::Damaged { .. });
    let error = Error::from(error).about(path.display());
    if is_damaged { error.hint(V::repair()) } else { error }
}
