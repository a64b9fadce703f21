//! Block devices and image files that are mounted: what is read of them may change meanwhile.

use crate::error::{Error, ErrorKind};

use seekless_host::block_device::{mounted, mounted_file, number};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The devices that there was a warning of: commands open an image several times.
static WARNED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Where a device is mounted, or a partition of it, or a file through a loop device, so that
/// it may change.
fn changing(path: &Path) -> Option<PathBuf> {
    let mount = number(path).map_or_else(|| mounted_file(path), mounted);
    mount.filter(|mount| mount.is_writable).map(|mount| mount.dir)
}

/// Warns of an image that may change while it is read.
pub fn warn(path: &Path) {
    let Some(dir) = changing(path) else { return };
    if WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(path.into()) {
        tracing::warn!(
            "{}: is mounted read-write on {}, and may change while it is read",
            path.display(),
            dir.display()
        );
    }
}

/// Refuses an image from which something is made that would be of several moments.
///
/// # Errors
/// [`ErrorKind::System`] with the mount point.
pub fn refuse(path: &Path) -> Result<(), Error> {
    let Some(dir) = changing(path) else { return Ok(()) };
    let what = format!("{}: is mounted read-write on {}", path.display(), dir.display());
    let hint = "unmount it, remount it read-only, or use a snapshot";
    Err(Error::new(ErrorKind::System, what).hint(hint))
}

/// Refuses to change a file that the kernel has mounted through a loop device. A device that
/// is mounted is refused when it is opened (`O_EXCL`).
///
/// # Errors
/// [`ErrorKind::System`] with the mount point.
pub fn refuse_mounted(path: &Path) -> Result<(), Error> {
    let Some(mount) = mounted_file(path) else { return Ok(()) };
    let what = format!("{}: is mounted on {}", path.display(), mount.dir.display());
    Err(Error::new(ErrorKind::System, what).hint("unmount it first"))
}
