//! XFS's own ioctls: geometry, file flags, files opened so that their times stay, and exchanges of
//! file ranges (`fs/xfs/libxfs/xfs_fs.h`).

mod attributes;
mod donor;
mod exchange;
mod geometry;
mod handle;

pub use attributes::{FileFlags, flags_of};
pub use donor::XfsDonor;
pub use exchange::{Freshness, commit, start_commit, try_commit};
pub use geometry::Geometry;
pub use handle::open_keeping_times;

/// The direction of an ioctl's argument: read or written by user space
/// (`include/uapi/asm-generic/ioctl.h`).
const READ: u32 = 2;
const WRITE: u32 = 1;

/// The number of an ioctl of XFS whose argument is a `T`, in the C library's type, which differs
/// between musl and glibc.
const fn number<T>(direction: u32, nr: u32) -> libc::Ioctl {
    ((direction << 30) | ((size_of::<T>() as u32) << 16) | ((b'X' as u32) << 8) | nr) as libc::Ioctl
}
