//! Fixed VHD images: read by all commands, changed by none.

use crate::error::{Error, ErrorKind};
use seekless_device::{BlockDevice, FileDevice};
use seekless_fs::FsError;
use std::path::Path;
use std::sync::Arc;

/// The disk in a VHD image, or another device as it is.
pub(crate) fn disk(
    device: Arc<dyn BlockDevice>,
    path: &Path,
) -> Result<Arc<dyn BlockDevice>, Error> {
    seekless_vhd::disk_in(device)
        .map_err(|error| Error::from(FsError::from(error)).about(path.display()))
}

/// Refuses to change a VHD image: a volume that grows would write over its footer.
pub(crate) fn refuse_change(path: &Path) -> Result<(), Error> {
    if !FileDevice::open(path).is_ok_and(|file| seekless_vhd::is_image(&file)) {
        return Ok(());
    }
    let what = format!("{}: is a VHD image, which is only read here", path.display());
    let hint = "remove its footer, the last 512 bytes: truncate -s -512";
    Err(Error::new(ErrorKind::Unsupported, what).hint(hint))
}
