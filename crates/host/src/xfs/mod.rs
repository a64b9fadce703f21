//! What XFS alone has: its geometry, flags of its files, files opened so that their
//! times stay, and ranges of two files exchanged (`fs/xfs/libxfs/xfs_fs.h`).

mod attributes;
mod donor;
mod exchange;
mod geometry;
mod handle;

pub use attributes::{FileFlags, flags_of};
pub use donor::Donor;
pub use exchange::{Freshness, commit, start_commit, try_commit};
pub use geometry::Geometry;
pub use handle::open_keeping_times;

/// The direction of an ioctl whose argument the kernel reads, writes, or both
/// (`include/uapi/asm-generic/ioctl.h`).
const READ: u32 = 2;
const WRITE: u32 = 1;

/// The number of an ioctl of XFS whose argument is a `T`, as the C library takes it: musl
/// has another type for it than glibc.
const fn number<T>(direction: u32, nr: u32) -> libc::Ioctl {
    ((direction << 30) | ((size_of::<T>() as u32) << 16) | ((b'X' as u32) << 8) | nr) as libc::Ioctl
}
