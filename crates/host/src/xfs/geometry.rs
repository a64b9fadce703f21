//! The geometry of a mounted XFS (`XFS_IOC_FSGEOMETRY`).

use super::{READ, number};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `struct xfs_fsop_geom`.
#[repr(C)]
#[derive(Default)]
struct FsopGeometry {
    block_size: u32,
    rt_extent_size: u32,
    ag_blocks: u32,
    ag_count: u32,
    log_blocks: u32,
    sector_size: u32,
    inode_size: u32,
    inode_max_percent: u32,
    data_blocks: u64,
    rt_blocks: u64,
    rt_extents: u64,
    log_start: u64,
    uuid: [u8; 16],
    stripe_unit: u32,
    stripe_width: u32,
    version: i32,
    flags: u32,
    log_sector_size: u32,
    rt_sector_size: u32,
    dir_block_size: u32,
    log_stripe_unit: u32,
    sick: u32,
    checked: u32,
    rt_group_extents: u32,
    rt_groups: u32,
    reserved: [u64; 16],
}

const _: () = assert!(size_of::<FsopGeometry>() == 256);
const _: () = assert!(std::mem::offset_of!(FsopGeometry, flags) == 92);
const _: () = assert!(std::mem::offset_of!(FsopGeometry, sick) == 112);

const XFS_IOC_FSGEOMETRY: libc::Ioctl = number::<FsopGeometry>(READ, 126);

/// `XFS_FSOP_GEOM_FLAGS_EXCHANGE_RANGE`.
const EXCHANGE_RANGE: u32 = 1 << 24;

/// The geometry of a mounted XFS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks in the data section.
    pub blocks: u64,
    /// Blocks in an allocation group; the last may have fewer.
    pub ag_blocks: u32,
    /// Bytes in an inode.
    pub inode_size: u32,
    /// Whether ranges of its files can be exchanged
    /// (`XFS_SB_FEAT_INCOMPAT_EXCHRANGE`).
    pub exchange_range: bool,
    /// Whether the kernel has found corruption in the volume's own structures.
    pub sick: bool,
}

impl Geometry {
    /// The geometry of the file system that contains a file or directory.
    ///
    /// # Errors
    /// `ENOTTY` if it is no XFS; other errors of the ioctl.
    pub fn of(on: &File) -> io::Result<Self> {
        let mut raw = FsopGeometry::default();
        // SAFETY: the kernel writes one `struct xfs_fsop_geom`, which `raw` is; it
        // outlives the call.
        let done = unsafe { libc::ioctl(on.as_raw_fd(), XFS_IOC_FSGEOMETRY, &raw mut raw) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            block_size: raw.block_size,
            blocks: raw.data_blocks,
            ag_blocks: raw.ag_blocks.max(1),
            inode_size: raw.inode_size,
            exchange_range: raw.flags & EXCHANGE_RANGE != 0,
            sick: raw.sick != 0,
        })
    }

    /// The allocation group of an inode number: below the bits of the group are those of the block
    /// in the group and of the inode in the block (`XFS_INO_TO_AGNO`,
    /// `fs/xfs/libxfs/xfs_inode_util.h`).
    #[must_use]
    pub fn group_of_inode(&self, ino: u64) -> u64 {
        let block_bits = u32::BITS - (self.ag_blocks - 1).leading_zeros();
        let inodes = (self.block_size / self.inode_size.max(1)).max(1);
        ino >> (block_bits + inodes.ilog2())
    }

    /// The allocation group of a byte of the data device.
    #[must_use]
    pub fn group_of_byte(&self, byte: u64) -> u64 {
        byte / u64::from(self.block_size.max(1)) / u64::from(self.ag_blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_inodes_and_bytes() {
        let geometry = Geometry {
            block_size: 4096,
            blocks: 400_000,
            ag_blocks: 100_000,
            inode_size: 512,
            exchange_range: false,
            sick: false,
        };
        // 17 bits of block, 3 of inode.
        assert_eq!(geometry.group_of_inode(128), 0);
        assert_eq!(geometry.group_of_inode((1 << 20) - 1), 0);
        assert_eq!(geometry.group_of_inode((3 << 20) + 131), 3);
        assert_eq!(geometry.group_of_byte(4096 * 100_000 - 1), 0);
        assert_eq!(geometry.group_of_byte(4096 * 200_000), 2);
    }

    #[test]
    fn other_file_systems_have_none() {
        let error = Geometry::of(&File::open("/proc/self/status").unwrap()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }
}
