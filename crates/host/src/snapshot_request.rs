//! The request of a mounted volume to convert an empty file into a snapshot: an ioctl of ours, which
//! reaches the server of the mount through FUSE.

use rustix::fs::{AtFlags, StatxFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `_IO('s', 0x53)`: no argument.
pub const TAKE_SNAPSHOT: u32 = 0x7353;

/// Asks the file system of an empty file to convert it into a snapshot of itself.
///
/// # Errors
/// The ioctl's error: `ENOTTY` for a file system that does not support the request, `EOPNOTSUPP` for a
/// format without snapshots, `ENOSPC`, `EPERM`.
pub fn take_snapshot(file: &File) -> io::Result<()> {
    let request = TAKE_SNAPSHOT as libc::Ioctl;
    // SAFETY: takes no argument and touches no memory of ours.
    let failed = unsafe { libc::ioctl(file.as_raw_fd(), request) } < 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    // The kernel has the attributes of the empty file in its cache, and asks for them again. The
    // snapshot is taken, whatever comes of that.
    let (flags, mask) = (AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
    let _ = rustix::fs::statx(file, "", flags, mask);
    Ok(())
}
