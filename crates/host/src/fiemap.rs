//! The location of a file's contents on the disk (`FS_IOC_FIEMAP`,
//! Documentation/filesystems/fiemap.rst).

use crate::HostError;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// `_IOWR('f', 11, struct fiemap)`, in the C library's type, which differs between musl and glibc.
const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;
/// Writes the file back first, so that delayed blocks are allocated.
const FIEMAP_FLAG_SYNC: u32 = 1;
/// Number of extents requested per call.
const EXTENTS: usize = 256;

/// Bits of [`MappedExtent::flags`].
pub mod flag {
    /// The file's last extent.
    pub const LAST: u32 = 0x1;
    /// Its location is unknown.
    pub const UNKNOWN: u32 = 0x2;
    /// Its blocks are not allocated yet (delayed allocation).
    pub const DELALLOC: u32 = 0x4;
    /// Its contents are compressed or otherwise encoded on the disk.
    pub const ENCODED: u32 = 0x8;
    /// It is stored in metadata: an inode or a tree.
    pub const INLINE: u32 = 0x200;
    /// It is stored in a block with the ends of other files.
    pub const TAIL: u32 = 0x400;
    /// Allocated but never written: it reads as zeros.
    pub const UNWRITTEN: u32 = 0x800;
    /// Its blocks are shared with other files.
    pub const SHARED: u32 = 0x2000;

    /// Extents without blocks of their own at a known location.
    pub const NOWHERE: u32 = UNKNOWN | DELALLOC | ENCODED | INLINE | TAIL;
}

/// `struct fiemap_extent`: a contiguous run of a file's bytes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MappedExtent {
    /// Its first byte in the file.
    pub logical: u64,
    /// Its first byte on the disk.
    pub physical: u64,
    /// Bytes.
    pub len: u64,
    reserved64: [u64; 2],
    /// Bits of [`flag`].
    pub flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap`, with room for `EXTENTS` extents.
#[repr(C)]
struct FiemapRequest {
    start: u64,
    len: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [MappedExtent; EXTENTS],
}

const _: () = assert!(size_of::<MappedExtent>() == 56);
const _: () = assert!(std::mem::offset_of!(FiemapRequest, extents) == 32);

/// The extents of a regular file, in file order. Uncovered ranges are holes.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] on a file system without FIEMAP; other errors of the system
/// calls.
pub fn extents(path: &Path) -> Result<Vec<MappedExtent>, HostError> {
    let failed = |error: io::Error| match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOTTY) => HostError::lacking(
            path.display().to_string(),
            "this file system does not report where files are stored (FIEMAP)",
        ),
        _ => HostError::new(path.display().to_string(), error),
    };
    let file = File::open(path).map_err(failed)?;
    extents_of(&file, 0, u64::MAX).map_err(failed)
}

/// The extents of the `len` bytes from `start` on of an open regular file, as [`extents`]. An
/// extent may begin before and end after this range.
///
/// # Errors
/// `EOPNOTSUPP` or `ENOTTY` on a file system without FIEMAP; other errors of the system call.
pub fn extents_of(file: &File, start: u64, len: u64) -> io::Result<Vec<MappedExtent>> {
    let end = start.saturating_add(len);
    let mut found: Vec<MappedExtent> = Vec::new();
    let mut at = start;
    while at < end {
        let some = ask(file, at, end - at)?;
        let last = some.last().copied();
        found.extend(some);
        // Stops at an extent that ends no later than `at`: the loop would never end.
        match last {
            Some(last) if last.flags & flag::LAST == 0 => {
                let next = last.logical.saturating_add(last.len);
                if next <= at {
                    break;
                }
                at = next;
            }
            _ => break,
        }
    }
    Ok(found)
}

/// The extents from a byte on, at most `EXTENTS`.
fn ask(file: &File, start: u64, len: u64) -> io::Result<Vec<MappedExtent>> {
    let mut request = FiemapRequest {
        start,
        len: len.min(u64::MAX - start),
        flags: FIEMAP_FLAG_SYNC,
        mapped: 0,
        count: EXTENTS as u32,
        reserved: 0,
        extents: [MappedExtent::default(); EXTENTS],
    };
    // SAFETY: the kernel reads and writes a `struct fiemap` with room for
    // `count` extents behind it, which `request` is; it outlives the call.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let mapped = (request.mapped as usize).min(EXTENTS);
    Ok(request.extents[..mapped].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_file_with_many_holes_is_told_in_full() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let file = named.as_file();
        let pieces = EXTENTS as u64 + 50;
        for n in 0..pieces {
            file.write_all_at(&[7; 4096], n * 64 * 1024).unwrap();
        }
        let found = match extents(named.path()) {
            Err(error) if error.source.kind() == io::ErrorKind::Unsupported => {
                eprintln!("skipped: {error}");
                return;
            }
            found => found.unwrap(),
        };
        let places: Vec<u64> = found.iter().map(|extent| extent.logical).collect();
        assert_eq!(places, (0..pieces).map(|n| n * 64 * 1024).collect::<Vec<_>>());
        assert!(found.iter().all(|extent| extent.len >= 4096 && extent.physical > 0));
        assert!(extents(Path::new("/dev/null")).is_err());
    }
}
