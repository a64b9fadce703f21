//! Exchanges ranges of two files, unless the first was changed meanwhile (`XFS_IOC_START_COMMIT`,
//! `XFS_IOC_COMMIT_RANGE`: `fs/xfs/xfs_exchrange.c`, ioctl_xfs_commit_range(2); since Linux 6.12,
//! on volumes with `XFS_SB_FEAT_INCOMPAT_EXCHRANGE`).

use super::{READ, WRITE, number};
use rustix::time::ClockId;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// `struct xfs_commit_range`.
#[repr(C)]
#[derive(Default)]
struct CommitRange {
    file1: i32,
    pad: u32,
    /// Offset in bytes; so are `at2` and `len`.
    at1: u64,
    at2: u64,
    len: u64,
    flags: u64,
    freshness: [u64; 6],
}

const _: () = assert!(size_of::<CommitRange>() == 88);

const XFS_IOC_START_COMMIT: libc::Ioctl = number::<CommitRange>(READ, 130);
const XFS_IOC_COMMIT_RANGE: libc::Ioctl = number::<CommitRange>(WRITE, 131);

/// `XFS_EXCHANGE_RANGE_DRY_RUN`.
const DRY_RUN: u64 = 1 << 2;

/// The state of a file at a moment. Any change of its contents makes it stale.
#[derive(Clone, Debug)]
pub struct Freshness([u64; 6]);

/// The present state of `file`; `None` if it was changed within the same tick of the kernel's
/// clock. The kernel compares times of changes, so a further change in that tick could not be
/// detected. A call some milliseconds later succeeds. Directories are supported, too.
///
/// # Errors
/// `ENOTTY` if the kernel lacks the call; other errors of the system calls.
pub fn start_commit(file: &File) -> io::Result<Option<Freshness>> {
    let tick = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
    let mut request = CommitRange::default();
    // SAFETY: the kernel writes one `struct xfs_commit_range`, which `request` is; it
    // outlives the call.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), XFS_IOC_START_COMMIT, &raw mut request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let changed = file.metadata()?;
    // Every change of contents sets ctime; mtime can be set to any value.
    let is_known = (changed.ctime(), changed.ctime_nsec()) < (tick.tv_sec, tick.tv_nsec);
    Ok(is_known.then_some(Freshness(request.freshness)))
}

/// Exchanges `len` bytes of `file` from byte `at` on for as many of `donor` from `donor_at` on,
/// contents and blocks, if `file` is unchanged since `fresh`. Both are regular files of one mount
/// of an XFS, open for reading and writing. `at` and `donor_at` are multiples of a block; `len` is,
/// or both files end there. Pages of both ranges are written back and dropped. The exchange is
/// atomic, also if the machine stops.
///
/// # Errors
/// `EBUSY` when `file` was changed, `EINVAL` for an invalid range, `ETXTBSY` (swap file), `EPERM`
/// (immutable), `ENOSPC` and `EDQUOT` (no block for an extent tree that grows), `EOPNOTSUPP` (a
/// volume without the feature), `ENOTTY` (another file system or an older kernel), `EIO`.
pub fn commit(
    file: &File,
    fresh: &Freshness,
    at: u64,
    donor: &File,
    donor_at: u64,
    len: u64,
) -> io::Result<()> {
    call(file, fresh, at, donor, donor_at, len, 0)
}

/// Does all that [`commit`] does but the exchange. So when it succeeds, writes that were in flight
/// when freshness was taken, to mapped pages and by direct I/O, have ended and are in the file.
/// Later writes make `fresh` stale: pages of the range are no longer mapped, and a write to one
/// changes the file's times first.
///
/// # Errors
/// As [`commit`].
pub fn try_commit(
    file: &File,
    fresh: &Freshness,
    at: u64,
    donor: &File,
    donor_at: u64,
    len: u64,
) -> io::Result<()> {
    call(file, fresh, at, donor, donor_at, len, DRY_RUN)
}

fn call(
    file: &File,
    fresh: &Freshness,
    at: u64,
    donor: &File,
    donor_at: u64,
    len: u64,
    flags: u64,
) -> io::Result<()> {
    let (file1, freshness) = (donor.as_raw_fd(), fresh.0);
    let request = CommitRange { file1, pad: 0, at1: donor_at, at2: at, len, flags, freshness };
    // SAFETY: the kernel reads one `struct xfs_commit_range`, which `request` is; it
    // outlives the call.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), XFS_IOC_COMMIT_RANGE, &raw const request) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
