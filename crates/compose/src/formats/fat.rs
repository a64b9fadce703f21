//! FAT12, FAT16 and FAT32.

use crate::older::OlderVolume;
use crate::opened::Rearrangeable;
use crate::options::{TouchesIn, VolumeOptions};
use seekless_device::BlockDevice;
use seekless_fat::{self as fat, LossCounts};
use seekless_fs::format::{Format, OpenOptions};
use seekless_fs::plan::Rearrange;
use seekless_fs::source::Source;
use seekless_fs::{FsError, Inspect};
use seekless_units::ByteLen;
use std::sync::Arc;
use tracing::warn;

impl VolumeOptions for fat::BuildOptions {
    type Older = fat::BaseVolume;

    const FOLDS_CASE: bool = true;

    fn check(&self) -> Result<(), FsError> {
        self.check()
    }

    fn unit(&self) -> u32 {
        self.make.sector_size
    }

    fn kept_flags(&self) -> u32 {
        fat::KEPT_FLAGS
    }

    fn volume<'a>(
        &self,
        source: &'a dyn Source,
        _touches: TouchesIn<'_>,
    ) -> Result<fat::Builder<'a>, FsError> {
        fat::Builder::new(source, self)
    }

    fn warn_of_lost(volume: &fat::Builder<'_>) {
        if let Some(clusters) = volume.ambiguous_clusters() {
            warn_of_width(clusters);
        }
        if let Some(lost) = in_words(&volume.lost()) {
            warn!("{lost}");
        }
    }
}

impl Rearrangeable for fat::FatImage {
    fn inspect(&self) -> &dyn Inspect {
        self
    }

    fn relayout(&self) -> Result<Box<dyn Rearrange + '_>, FsError> {
        Ok(Box::new(fat::Relayout::new(self)?))
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
    Ok(Box::new(fat::FatImage::open(device, options)?))
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

    fn options(&self) -> Self::Options {
        self.options()
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

/// Losses as text; `None` without any.
fn in_words(lost: &LossCounts) -> Option<String> {
    let counted = |count: u64, one: &str, many: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{count} {many}")),
    };
    let parts: Vec<String> = [
        counted(lost.owners, "owner", "owners"),
        counted(lost.modes, "mode", "modes"),
        counted(lost.xattrs, "file's extended attributes", "files' extended attributes"),
        counted(lost.symlinks, "symlink", "symlinks"),
        counted(lost.devices, "device, FIFO or socket", "devices, FIFOs and sockets"),
        counted(lost.names, "file with an impossible name", "files with impossible names"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut text = match parts.is_empty() {
        true => String::new(),
        false => format!("dropped: {}", parts.join(", ")),
    };
    if let Some(links) = counted(lost.links, "hard link", "hard links") {
        let gap = if text.is_empty() { "" } else { "; " };
        text += &format!("{gap}{links} became files of their own");
    }
    (!text.is_empty()).then_some(text)
}

/// Warns of a FAT32 volume with few clusters.
pub fn warn_of_width(clusters: u32) {
    warn!(
        "{clusters} clusters are fewer than the 65525 of FAT32: systems that go by their number take the volume for FAT16 or FAT12"
    );
}
