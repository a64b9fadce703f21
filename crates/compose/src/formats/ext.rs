//! ext2, ext3 and ext4.

use crate::older::{Continued, OlderVolume};
use crate::opened::Rearrangeable;
use crate::options::{TouchesIn, VolumeOptions};
use seekless_device::BlockDevice;
use seekless_ext as ext;
use seekless_fs::format::{Format, OpenOptions};
use seekless_fs::plan::Rearrange;
use seekless_fs::source::Source;
use seekless_fs::term::Text;
use seekless_fs::{FsError, Inspect};
use seekless_layout::replay::{Replayed, add_symlinks};
use seekless_units::ByteLen;
use std::sync::Arc;

/// The way to repair an ext volume that is damaged.
pub const E2FSCK: &str = "repair it with e2fsck first";

impl VolumeOptions for ext::BuildOptions {
    type Older = ext::BaseVolume;

    fn check(&self) -> Result<(), FsError> {
        self.check()
    }

    fn unit(&self) -> u32 {
        self.block_size
    }

    fn kept_flags(&self) -> u32 {
        ext::kept_flags(self.features)
    }

    fn volume<'a>(
        &self,
        source: &'a dyn Source,
        _touches: TouchesIn<'_>,
    ) -> Result<ext::Builder<'a>, FsError> {
        ext::Builder::new(source, self)
    }
}

impl Rearrangeable for Arc<ext::ExtImage> {
    fn inspect(&self) -> &dyn Inspect {
        self.as_ref()
    }

    fn relayout(&self) -> Result<Box<dyn Rearrange + '_>, FsError> {
        Ok(Box::new(ext::Relayout::new(self)?))
    }

    fn add_unread(&self, replays: &mut [Replayed]) -> Result<(), FsError> {
        add_symlinks(self.as_ref(), replays)
    }

    fn repair(&self) -> Text {
        E2FSCK.into()
    }

    fn ext(&self) -> Option<&Arc<ext::ExtImage>> {
        Some(self)
    }
}

/// Opens an image to be rearranged.
///
/// # Errors
/// As [`Format::open`].
pub(super) fn open(
    device: Arc<dyn BlockDevice>,
    options: OpenOptions,
) -> Result<Box<dyn Rearrangeable>, FsError> {
    Ok(Box::new(Arc::new(ext::ExtImage::open(device, options)?)))
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

    fn add_nothing(options: &mut Self::Options) {
        options.makes_lost_and_found = false;
    }

    fn refuse_damage(image: &Self::Image) -> Result<(), FsError> {
        image.refuse_damage()
    }

    fn of(image: Arc<Self::Image>) -> Result<Self, FsError> {
        Self::new(image)
    }

    fn options(&self) -> Self::Options {
        self.options()
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

    fn continue_files(
        builder: &mut Self::Builder<'_>,
        continued: &Continued<'_, Self::Image>,
    ) -> Result<(), FsError> {
        builder.continue_files(continued.images, continued.files, continued.inodes)
    }

    fn grow(options: &mut Self::Options, bytes: ByteLen) -> bool {
        options.spare.bytes = ByteLen::new(options.spare.bytes.get() + bytes.get());
        options.size.is_none()
    }
}
