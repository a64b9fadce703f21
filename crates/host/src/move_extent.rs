//! Exchanges blocks of two files under the running ext4 (`EXT4_IOC_MOVE_EXT`:
//! `fs/ext4/move_extent.c`, `fs/ext4/ioctl.c`; since Linux 2.6.31).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `_IOWR('f', 15, struct move_extent)`, in the C library's type.
const EXT4_IOC_MOVE_EXT: libc::Ioctl = 0xC028_660F_u32 as libc::Ioctl;

/// `struct move_extent` of `fs/ext4/ext4.h`: file-system blocks throughout.
#[repr(C)]
struct MoveExtentRequest {
    reserved: u32,
    donor_fd: u32,
    orig_start: u64,
    donor_start: u64,
    len: u64,
    moved_len: u64,
}

const _: () = assert!(size_of::<MoveExtentRequest>() == 40);

/// The result of an exchange.
#[derive(Debug)]
pub struct Exchanged {
    /// Number of blocks exchanged, from the first one on. Holes skipped in either file count in
    /// some kernels and not in others.
    pub blocks: u64,
    /// The error that ended the exchange, if any.
    pub outcome: io::Result<()>,
}

/// Exchanges `len` blocks of `original` from logical block `at` on for those of `donor` from
/// `donor_at` on. The contents of `original` stay: the kernel copies them, one transaction per
/// page, so the file is whole at any moment. Unwritten blocks stay unwritten; the donor's blocks
/// are unwritten afterwards. Times do not change.
///
/// Both are regular files of one ext4 file system, mapped by extents; `original` is open for
/// reading and writing, `donor` for writing. If a page contains several blocks, `at` and `donor_at`
/// have equal offsets within a page. `len` is cut where either file ends.
///
/// # Errors
/// In [`Exchanged::outcome`]: `ETXTBSY` (swap file), `EBUSY` (pages in use), `ENOSPC` and
/// `EDQUOT` (no block for an extent tree that grows), `EOPNOTSUPP` (encrypted, DAX,
/// journalled data, `bigalloc`), `EINVAL`, `ENOTTY` (no ext4), `EIO`.
#[must_use]
pub fn exchange(original: &File, at: u64, donor: &File, donor_at: u64, len: u64) -> Exchanged {
    let donor_fd = donor.as_raw_fd().cast_unsigned();
    let (orig_start, donor_start) = (at, donor_at);
    let mut request =
        MoveExtentRequest { reserved: 0, donor_fd, orig_start, donor_start, len, moved_len: 0 };
    // SAFETY: the kernel reads and writes one `struct move_extent`, which `request` is;
    // it outlives the call.
    let done = unsafe { libc::ioctl(original.as_raw_fd(), EXT4_IOC_MOVE_EXT, &raw mut request) };
    let outcome = if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // The kernel sets `moved_len` on errors too.
    Exchanged { blocks: request.moved_len.min(len), outcome }
}
