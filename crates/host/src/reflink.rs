//! Blocks shared between files (`FICLONERANGE`, Linux 4.5; `fs/remap_range.c`).

use rustix::fs::fstatfs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Block sizes of file systems that are used, in bytes.
const BLOCK_SIZES: std::ops::RangeInclusive<u64> = 512..=65536;

/// The block size of the file system of an empty file that is open for writing, if that file system
/// can share blocks between files.
///
/// # Errors
/// `EOPNOTSUPP` without the operation (ext4, tmpfs, XFS without `reflink`); other errors of the
/// system.
pub fn block_size(file: impl AsFd) -> io::Result<u64> {
    let file = file.as_fd();
    // Nothing, of a file that has nothing: only the support is tested.
    clone_range(file, 0, file, 0, 0)?;
    let size = u64::try_from(fstatfs(file)?.f_bsize).unwrap_or(0);
    if BLOCK_SIZES.contains(&size) && size.is_power_of_two() {
        return Ok(size);
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("blocks of {size} bytes")))
}

/// Makes `len` bytes of `to` from byte `at` on those of `from` from byte `offset` on: both files
/// then have the same blocks on the disk until one of them is written to. Dirty pages of `from` are
/// written first; its holes become holes. All three numbers are multiples of the block size, and
/// the range is within `from`. Length 0 stands for everything up to the end of `from`.
///
/// # Errors
/// `EXDEV` for files of two file systems; `EOPNOTSUPP`, `ENOTTY` and `ENOSYS` without support;
/// `EINVAL` for a range that is not made of blocks or not within `from`, and for files whose
/// properties differ (`nodatacow` of Btrfs); `ETXTBSY` for swap files; `EPERM`, `ENOSPC`, `EDQUOT`,
/// `EIO`. Part of the range may have been cloned then.
pub fn clone_range(
    to: BorrowedFd<'_>,
    at: u64,
    from: BorrowedFd<'_>,
    offset: u64,
    len: u64,
) -> io::Result<()> {
    let range = libc::file_clone_range {
        src_fd: i64::from(from.as_raw_fd()),
        src_offset: offset,
        src_length: len,
        dest_offset: at,
    };
    loop {
        // SAFETY: the kernel reads one `struct file_clone_range`, which `range` is; it and both
        // descriptors outlive the call.
        let done = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONERANGE, &raw const range) };
        if done >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
