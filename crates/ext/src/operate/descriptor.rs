//! A group's descriptor and bitmaps.

use crate::group::Group;
use crate::ondisk::{BG_BLOCK_UNINIT, BG_INODE_UNINIT};
use crate::superblock::Super;

/// The fields of a group descriptor besides pointers and counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct DescriptorFields {
    pub(super) flags: u16,
    /// Inodes at the end of the table that were never used.
    pub(super) unused: u32,
    pub(super) block_sum: u32,
    pub(super) inode_sum: u32,
}

impl DescriptorFields {
    pub(super) fn of(group: &Group) -> Self {
        let raw = group.raw();
        let join = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
        Self {
            flags: raw.bg_flags.get(),
            unused: group.itable_unused(),
            block_sum: join(raw.bg_block_bitmap_csum_hi.get(), raw.bg_block_bitmap_csum_lo.get()),
            inode_sum: join(raw.bg_inode_bitmap_csum_hi.get(), raw.bg_inode_bitmap_csum_lo.get()),
        }
    }
}

/// A bitmap of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bitmap {
    Blocks,
    Inodes,
}

impl Bitmap {
    /// The flag of a group whose bitmap was never written.
    pub(super) const fn uninit(self) -> u16 {
        match self {
            Self::Blocks => BG_BLOCK_UNINIT,
            Self::Inodes => BG_INODE_UNINIT,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Blocks => "block bitmap",
            Self::Inodes => "inode bitmap",
        }
    }

    /// The bits that a checksum covers.
    pub(super) fn bits(self, sb: &Super) -> u32 {
        match self {
            Self::Blocks => sb.blocks_per_group,
            Self::Inodes => sb.inodes_per_group,
        }
    }
}
