//! The parts of a group that its descriptor points to, and replacement pointers to them, in memory.

use crate::group::Group;
use crate::ondisk::GroupDesc;
use seekless_fs::field::low32;
use seekless_units::{BlockNo, Extent};
use std::mem::offset_of;

/// A part of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Part {
    BlockBitmap,
    InodeBitmap,
    Table,
}

impl Part {
    /// The table first: of two parts in one place, a bitmap can be made again.
    pub(crate) const ALL: [Self; 3] = [Self::Table, Self::BlockBitmap, Self::InodeBitmap];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BlockBitmap => "block bitmap",
            Self::InodeBitmap => "inode bitmap",
            Self::Table => "inode table",
        }
    }

    /// Its place by the descriptor; tables have `table_blocks` blocks.
    pub(crate) fn of(self, group: &Group, table_blocks: u64) -> Extent {
        match self {
            Self::BlockBitmap => Extent::new(group.block_bitmap(), 1),
            Self::InodeBitmap => Extent::new(group.inode_bitmap(), 1),
            Self::Table => Extent::new(group.inode_table(), table_blocks),
        }
    }

    /// The offsets of the halves of its pointer in a descriptor.
    pub(crate) fn pointer(self) -> [usize; 2] {
        match self {
            Self::BlockBitmap => [
                offset_of!(GroupDesc, bg_block_bitmap_lo),
                offset_of!(GroupDesc, bg_block_bitmap_hi),
            ],
            Self::InodeBitmap => [
                offset_of!(GroupDesc, bg_inode_bitmap_lo),
                offset_of!(GroupDesc, bg_inode_bitmap_hi),
            ],
            Self::Table => {
                [offset_of!(GroupDesc, bg_inode_table_lo), offset_of!(GroupDesc, bg_inode_table_hi)]
            }
        }
    }
}

impl Part {
    /// Points a descriptor to this block.
    pub(crate) fn point(self, descriptor: &mut [u8], block: BlockNo) {
        let halves = [low32(block.get()), low32(block.get() >> 32)];
        // The upper half is missing in a short descriptor, and zero.
        for (at, half) in self.pointer().into_iter().zip(halves) {
            if let Some(word) = descriptor.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
                *word = half.to_le_bytes();
            }
        }
    }
}
