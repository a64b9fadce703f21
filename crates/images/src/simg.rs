//! Android sparse images: read by all commands, changed by none.

use crate::error::{Error, ErrorKind};
use seekless_device::{BlockDevice, FileDevice};
use seekless_fs::FsError;
use seekless_simg::SimgError;
use std::path::Path;
use std::sync::Arc;

/// The disk in a sparse image, or another device as it is.
pub(crate) fn disk(
    device: Arc<dyn BlockDevice>,
    path: &Path,
) -> Result<Arc<dyn BlockDevice>, Error> {
    seekless_simg::disk_in(device).map_err(|error| {
        let error = match error {
            SimgError::Unsupported(why) => Error::new(ErrorKind::Unsupported, why),
            SimgError::Device(error) => Error::from(FsError::from(error)),
        };
        error.about(path.display())
    })
}

/// Whether a file is a sparse image, if it can be opened.
pub(crate) fn is_simg(path: &Path) -> bool {
    FileDevice::open(path).is_ok_and(|file| seekless_simg::is_image(&file))
}
