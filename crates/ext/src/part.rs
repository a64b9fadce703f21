//! The parts of a group that its descriptor points to, and replacement pointers to them, in memory.

use crate::group::{CHECKSUM_AT, Group, OLD_SIZE};
use crate::ondisk::GroupDesc;
use crate::volume::Volume;
use seekless_fs::field::{index, low16, low32};
use seekless_units::{BlockNo, Extent, GroupNo};
use std::mem::offset_of;

/// A part of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    BlockBitmap,
    InodeBitmap,
    Table,
}

impl Part {
    pub(crate) const ALL: [Self; 3] = [Self::BlockBitmap, Self::InodeBitmap, Self::Table];

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
    fn pointer(self) -> [usize; 2] {
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

impl Volume {
    /// Takes the pointer to a part of a group from another version of its descriptor. Nothing is
    /// written.
    pub(crate) fn replace_pointer(&mut self, number: GroupNo, part: Part, from: &[u8]) {
        let size = index(self.sb.desc_size);
        let start = index(number.get()) * size;
        let Some(own) = self.descriptors.get_mut(start..start + size) else { return };
        for at in part.pointer() {
            let word = at..at + 4;
            if let (Some(to), Some(from)) = (own.get_mut(word.clone()), from.get(word)) {
                to.copy_from_slice(from);
            }
        }
    }

    /// Sets the right checksum of a descriptor in memory.
    pub(crate) fn reseal_descriptor(&mut self, number: GroupNo) {
        let size = index(self.sb.desc_size);
        let start = index(number.get()) * size;
        let own = start..start + size;
        let bytes = self.descriptors.get(own.clone()).unwrap_or_default();
        let Some(sum) = self.descriptor_sum(number, bytes) else { return };
        let own = self.descriptors.get_mut(own).unwrap_or_default();
        if let Some(slot) = own.get_mut(CHECKSUM_AT..OLD_SIZE) {
            slot.copy_from_slice(&low16(sum).to_le_bytes());
        }
    }
}
