//! File flags that `stat` does not show (`FS_IOC_FSGETXATTR`, ioctl_xfs_fsgetxattr(2)).

use super::{READ, WRITE, number};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `struct fsxattr` of `include/uapi/linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct FsXattr {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    pad: [u8; 8],
}

const _: () = assert!(size_of::<FsXattr>() == 28);

const FS_IOC_FSGETXATTR: libc::Ioctl = number::<FsXattr>(READ, 31);
const FS_IOC_FSSETXATTR: libc::Ioctl = number::<FsXattr>(WRITE, 32);

/// Bits of `fsx_xflags`.
const REALTIME: u32 = 0x1;
const IMMUTABLE: u32 = 0x8;
const APPEND: u32 = 0x10;
const EXTENT_SIZE: u32 = 0x800;
const DAX: u32 = 0x8000;
const COW_EXTENT_SIZE: u32 = 0x1_0000;

/// Flags of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileFlags {
    /// Its contents are on the real-time device.
    pub realtime: bool,
    /// It is immutable or append-only.
    pub protected: bool,
    /// It is accessed without the page cache.
    pub dax: bool,
}

/// The flags of a file.
///
/// # Errors
/// The ioctl's error.
pub fn flags_of(file: &File) -> io::Result<FileFlags> {
    let FsXattr { flags, .. } = get(file)?;
    let has = |bits: u32| flags & bits != 0;
    Ok(FileFlags { realtime: has(REALTIME), protected: has(IMMUTABLE | APPEND), dax: has(DAX) })
}

fn get(file: &File) -> io::Result<FsXattr> {
    let mut raw = FsXattr::default();
    // SAFETY: the kernel writes one `struct fsxattr`, which `raw` is; it outlives the call.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut raw) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(raw) }
}

/// Clears the settings that an empty file has inherited from its directory: another device, extent
/// size hints, DAX, a project whose quota it counts towards.
///
/// # Errors
/// The ioctl's error.
pub(super) fn make_plain(file: &File) -> io::Result<()> {
    let mut raw = get(file)?;
    let inherited = REALTIME | EXTENT_SIZE | COW_EXTENT_SIZE | DAX;
    if raw.flags & inherited == 0 && raw.project == 0 {
        return Ok(());
    }
    raw.flags &= !inherited;
    (raw.extent_size, raw.cow_extent_size, raw.project) = (0, 0, 0);
    // SAFETY: the kernel reads one `struct fsxattr`, which `raw` is; it outlives the call.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FSSETXATTR, &raw const raw) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
