//! Block devices: writing zeros without data, rereading partition tables, finding mounts in use.

use crate::mounts::{self, DeviceNumber, Mount};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// `BLKSSZGET`, `BLKZEROOUT` and `BLKRRPART` of `include/uapi/linux/fs.h`.
const BLKSSZGET: libc::Ioctl = 0x1268;
const BLKZEROOUT: libc::Ioctl = 0x127F;
const BLKRRPART: libc::Ioctl = 0x125F;

/// Makes `len` bytes of a block device from `start` on read as zeros. The device does it without
/// transferring data if it can (`REQ_OP_WRITE_ZEROES`, which unmaps); otherwise the kernel writes
/// zeros. Both are multiples of the device's logical block size.
///
/// # Errors
/// The ioctl's error, for example for a file other than a block device or a failed write.
pub fn zero(device: &File, start: u64, len: u64) -> io::Result<()> {
    let range = [start, len];
    // SAFETY: the kernel reads two numbers of 64 bits, which `range` is, and keeps no pointer
    // to them.
    let failed = unsafe { libc::ioctl(device.as_raw_fd(), BLKZEROOUT, range.as_ptr()) } < 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The size of a block device's logical sectors in bytes: the minimum block size of a file system
/// on it, and the unit of its partition table.
///
/// # Errors
/// The ioctl's error, for a file other than a block device.
pub fn sector(device: &File) -> io::Result<u32> {
    let mut size: libc::c_int = 0;
    // SAFETY: the kernel writes one `int`, which `size` is, and keeps no pointer to it.
    let failed = unsafe { libc::ioctl(device.as_raw_fd(), BLKSSZGET, &raw mut size) } < 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    u32::try_from(size).map_err(io::Error::other)
}

/// Makes the kernel read the partition table of a disk again.
///
/// # Errors
/// The ioctl's error: `EBUSY` when a partition is in use, `EINVAL` for a device without partitions.
pub fn reread_partitions(disk: &File) -> io::Result<()> {
    // SAFETY: takes no argument and touches no memory of ours.
    let failed = unsafe { libc::ioctl(disk.as_raw_fd(), BLKRRPART) } < 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The number of a block device's node; `None` for other files.
#[must_use]
pub fn number(path: &Path) -> Option<DeviceNumber> {
    let meta = path.metadata().ok()?;
    meta.file_type().is_block_device().then(|| DeviceNumber::from_stat(meta.rdev()))
}

/// Whether one of two devices is the other or a partition of it.
#[must_use]
pub fn overlap(one: DeviceNumber, other: DeviceNumber) -> bool {
    if one == other {
        return true;
    }
    let place = |device: DeviceNumber| fs::canonicalize(device.in_sysfs());
    match (place(one), place(other)) {
        // A partition's directory is in that of its disk.
        (Ok(one), Ok(other)) => one.starts_with(&other) || other.starts_with(&one),
        _ => false,
    }
}

/// The file behind a loop device, or behind the loop device that contains this partition; `None`
/// for other devices.
#[must_use]
pub fn backing_file(device: DeviceNumber) -> Option<PathBuf> {
    let place = fs::canonicalize(device.in_sysfs()).ok()?;
    let disks = [Some(place.as_path()), place.parent()];
    let read = |disk: &Path| fs::read_to_string(disk.join("loop/backing_file")).ok();
    let name = disks.into_iter().flatten().find_map(read)?;
    Some(name.trim_end_matches('\n').into())
}

/// A mount of a device, of its disk or of a partition of it, if this process sees one. Writable
/// mounts are preferred.
#[must_use]
pub fn mounted(device: DeviceNumber) -> Option<Mount> {
    let mounts = mounts::all().ok()?;
    let uses = |mount: &Mount| mount.device.major != 0 && overlap(mount.device, device);
    mounts.into_iter().filter(uses).max_by_key(|mount| mount.is_writable)
}

/// Whether a device is the root of this process, and is mounted read-only wherever it is mounted.
#[must_use]
pub fn is_read_only_root(device: DeviceNumber) -> bool {
    let Ok(mounts) = mounts::all() else { return false };
    let mut mounts = mounts.into_iter().filter(|mount| mount.device == device);
    let mut is_root = false;
    mounts.all(|mount| {
        is_root |= mount.dir == Path::new("/");
        !mount.is_writable
    }) && is_root
}

/// A mount of a loop device on a file, or on a part of it, if this process sees one.
#[must_use]
pub fn mounted_file(path: &Path) -> Option<Mount> {
    let same = |one: &fs::Metadata, other: &fs::Metadata| {
        (one.dev(), one.ino()) == (other.dev(), other.ino())
    };
    let file = path.metadata().ok().filter(|meta| meta.file_type().is_file())?;
    let uses = |mount: &Mount| {
        mount.device.major != 0
            && backing_file(mount.device)
                .and_then(|behind| behind.metadata().ok())
                .is_some_and(|behind| same(&behind, &file))
    };
    mounts::all().ok()?.into_iter().filter(uses).max_by_key(|mount| mount.is_writable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_no_block_device() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(number(file.path()), None);
        assert!(sector(file.as_file()).is_err());
        assert!(zero(file.as_file(), 0, 4096).is_err());
        assert!(reread_partitions(file.as_file()).is_err());
    }
}
