//! Blocks of a file exchanged for those of another one, under the running ext4
//! (`EXT4_IOC_MOVE_EXT`: `fs/ext4/move_extent.c`, `fs/ext4/ioctl.c`; since Linux
//! 2.6.31).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `_IOWR('f', 15, struct move_extent)`, as the C library takes it.
const EXT4_IOC_MOVE_EXT: libc::Ioctl = 0xC028_660F_u32 as libc::Ioctl;

/// `struct move_extent` of `fs/ext4/ext4.h`: file-system blocks throughout.
#[repr(C)]
struct Request {
    reserved: u32,
    donor_fd: u32,
    orig_start: u64,
    donor_start: u64,
    len: u64,
    moved_len: u64,
}

const _: () = assert!(size_of::<Request>() == 40);

/// What an exchange came to.
#[derive(Debug)]
pub struct Exchanged {
    /// Blocks that were exchanged, from the first one on; holes of either file that
    /// were passed over count in some kernels and not in others.
    pub blocks: u64,
    /// Why it went no further.
    pub outcome: io::Result<()>,
}

/// Lets `original` have the blocks that `donor` has from logical block `donor_at` on, for
/// `len` of its own from `at` on, and gives its own to the donor. What `original` holds
/// stays: the kernel copies it, and each page of it is one transaction, so that a file is
/// whole at any moment. Unwritten blocks stay unwritten; the donor's blocks are so
/// afterwards. Times do not change.
///
/// Both are regular files of one ext4 file system, mapped by extents; `original` is open
/// for reading and writing, `donor` for writing. Where a page holds several blocks, `at`
/// and `donor_at` lie equally far behind the beginning of a page. `len` is cut where
/// either file ends.
///
/// # Errors
/// In [`Exchanged::outcome`]: `ETXTBSY` (swap file), `EBUSY` (pages in use), `ENOSPC` and
/// `EDQUOT` (no block for an extent tree that grows), `EOPNOTSUPP` (encrypted, DAX,
/// journalled data, `bigalloc`), `EINVAL`, `ENOTTY` (no ext4), `EIO`.
#[must_use]
pub fn exchange(original: &File, at: u64, donor: &File, donor_at: u64, len: u64) -> Exchanged {
    let donor_fd = donor.as_raw_fd().cast_unsigned();
    let (orig_start, donor_start) = (at, donor_at);
    let mut request = Request { reserved: 0, donor_fd, orig_start, donor_start, len, moved_len: 0 };
    // SAFETY: the kernel reads and writes one `struct move_extent`, which `request` is;
    // it outlives the call.
    let done = unsafe { libc::ioctl(original.as_raw_fd(), EXT4_IOC_MOVE_EXT, &raw mut request) };
    let outcome = if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // The kernel says so on errors too.
    Exchanged { blocks: request.moved_len.min(len), outcome }
}
