//! The images of a rearrangement: the one there is, and the new one.

use super::OptimizeArgs;
use crate::failure::Failure;
use seekless_device::BlockDevice;
use seekless_ext::ExtImage;
use seekless_fat::FatImage;
use seekless_fs::format::{Format, OpenOptions, Probe};
use seekless_fs::{FsError, Inspect};
use seekless_images::refuse_others;
use seekless_images::target::Target;
use std::path::Path;
use std::sync::Arc;

/// An image that can be rearranged.
pub(super) enum Opened {
    Ext(Arc<ExtImage>),
    Fat(Box<FatImage>),
}

impl Opened {
    fn new(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Self, FsError> {
        let is_ext = (seekless_ext::FORMAT.probe)(device.as_ref()) != Probe::No;
        if !is_ext && (seekless_fat::FORMAT.probe)(device.as_ref()) != Probe::No {
            return Ok(Self::Fat(Box::new(FatImage::open(device, options)?)));
        }
        Ok(Self::Ext(Arc::new(ExtImage::open(device, options)?)))
    }

    pub(super) fn inspect(&self) -> &dyn Inspect {
        match self {
            Self::Ext(image) => image.as_ref(),
            Self::Fat(image) => image.as_ref(),
        }
    }
}

/// The formats that can be rearranged.
const FORMATS: &[Format] = &[seekless_ext::FORMAT, seekless_fat::FORMAT];

pub(super) fn open(args: &OptimizeArgs) -> Result<Opened, Failure> {
    let path = args.image.as_path();
    seekless_images::in_use::refuse(path)?;
    let device = seekless_images::device(path, &args.place.place())?;
    let only = "optimize rearranges ext2, ext3, ext4 and FAT images";
    refuse_others(path, device.as_ref(), FORMATS, only)?;
    Opened::new(device, args.open.options())
        .map_err(|error| Failure::from(error).about(path.display()))
}

/// The image just written, before it has its name.
pub(super) fn open_written(
    args: &OptimizeArgs,
    target: &Target,
    path: &Path,
) -> Result<Opened, Failure> {
    let missing = || Failure::usage(format!("{}: nothing was written", path.display()));
    let device =
        seekless_images::part(path, target.written().ok_or_else(missing)?, &args.place.place())?;
    Ok(Opened::new(device, OpenOptions::default())?)
}
