//! Block devices and image files that are mounted, and may change while they are read.

use crate::error::{Error, ErrorKind};
use crate::snapshot_path;

use seekless_host::block_device::{self, mounted, mounted_file, number};
use std::path::{Path, PathBuf};

/// The mount point of a writable mount of a device, of a partition of it, or of a file through a
/// loop device.
fn changing(path: &Path) -> Option<PathBuf> {
    let path = &*snapshot_path::file_of(path);
    let mount = number(path).map_or_else(|| mounted_file(path), mounted);
    mount.filter(|mount| mount.is_writable).map(|mount| mount.dir)
}

/// The directory on which an image is mounted, if this process sees that: a block device, a disk
/// with a mounted partition, or a file through a loop device.
#[must_use]
pub fn mounted_on(path: &Path) -> Option<PathBuf> {
    let mount = number(path).map_or_else(|| mounted_file(path), mounted);
    mount.map(|mount| mount.dir)
}

/// Whether an image is the block device of the root of this process, mounted read-only. A boot repairs
/// it before it mounts the root for writing.
#[must_use]
pub fn is_read_only_root(path: &Path) -> bool {
    number(path).is_some_and(block_device::is_read_only_root)
}

/// Warns of an image that may change while it is read. An image may be opened several times: the
/// event has the field `once`, with which one that was told already need not be told again.
pub fn warn(path: &Path) {
    if let Some(dir) = changing(path) {
        let (path, dir) = (path.display(), dir.display());
        tracing::warn!(
            once = true,
            "{path}: is mounted read-write on {dir}, and may change while it is read"
        );
    }
}

/// Refuses an image that may change, as the source of a result that would be inconsistent.
///
/// # Errors
/// [`ErrorKind::System`] with the mount point.
pub fn refuse(path: &Path) -> Result<(), Error> {
    let Some(dir) = changing(path) else { return Ok(()) };
    let what = format!("{}: is mounted read-write on {}", path.display(), dir.display());
    let hint = "unmount it, remount it read-only, or use a snapshot";
    Err(Error::new(ErrorKind::System, what).hint(hint))
}

/// Refuses to change a file that the kernel has mounted through a loop device. Opening a mounted
/// device fails by itself (`O_EXCL`).
///
/// # Errors
/// [`ErrorKind::System`] with the mount point.
pub fn refuse_mounted(path: &Path) -> Result<(), Error> {
    let Some(mount) = mounted_file(path) else { return Ok(()) };
    let what = format!("{}: is mounted on {}", path.display(), mount.dir.display());
    Err(Error::new(ErrorKind::System, what).hint("unmount it first"))
}
