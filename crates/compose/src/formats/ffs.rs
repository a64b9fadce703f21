//! UFS1 and UFS2.

use crate::older::{Continued, OlderVolume};
use crate::options::{TouchesIn, VolumeOptions};
use crate::touched::hot_objects;
use seekless_device::BlockDevice;
use seekless_ffs as ufs;
use seekless_fs::format::{Format, OpenOptions};
use seekless_fs::source::Source;
use seekless_fs::{FsError, Inspect};
use seekless_units::ByteLen;
use std::sync::Arc;

impl VolumeOptions for ufs::BuildOptions {
    type Older = ufs::BaseVolume;

    fn check(&self) -> Result<(), FsError> {
        self.check()
    }

    fn unit(&self) -> u32 {
        self.make.fragment_size
    }

    fn kept_flags(&self) -> u32 {
        ufs::KEPT_FLAGS
    }

    fn volume<'a>(
        &self,
        source: &'a dyn Source,
        touches: TouchesIn<'_>,
    ) -> Result<ufs::Builder<'a>, FsError> {
        ufs::Builder::new(source, self, &hot_objects(&touches(self.make.block_size)))
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

    fn version(image: &Self::Image) -> String {
        let order = if image.is_big_endian() { "big" } else { "little" };
        format!("{}, {order}-endian", image.geometry().format)
    }

    fn refuse_damage(image: &Self::Image) -> Result<(), FsError> {
        Self::refuse_damage(image)
    }

    fn of(image: Arc<Self::Image>) -> Result<Self, FsError> {
        Self::new(image)
    }

    fn options(&self) -> Self::Options {
        self.options()
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
