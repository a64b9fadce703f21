//! The map of the resize inode: a double-indirect block whose slots lead to the reserved
//! descriptor blocks of group 0, each of which lists its copies in the groups with a
//! superblock (e2fsprogs `lib/ext2fs/res_gdt.c` has the order).

use seekless_fs::field::{index, low32};
use seekless_units::BlockNo;

/// Bytes of a block number.
const POINTER: usize = 4;

/// Parameters of the map of the resize inode.
pub(crate) struct ResizeMap {
    /// Bytes in a block.
    pub(crate) block_size: u32,
    /// Blocks of group descriptors in front of the reserved ones.
    pub(crate) descriptor_blocks: u64,
    /// Reserved blocks in each group with a superblock.
    pub(crate) reserved: u64,
    /// The first reserved block.
    pub(crate) first: u64,
    /// The distances from group 0 of the other groups with a superblock, in blocks.
    pub(crate) copies: Vec<u64>,
}

impl ResizeMap {
    /// Blocks that are counted in the inode.
    pub(crate) fn count(&self) -> u64 {
        let groups = seekless_fs::field::wide(self.copies.len()) + 1;
        self.reserved * groups + 1
    }

    /// All blocks of the map with their contents; `double` is the double-indirect one.
    pub(crate) fn blocks(&self, double: BlockNo) -> Vec<(BlockNo, Vec<u8>)> {
        let slots = u64::from(self.block_size >> 2);
        let mut double_bytes = vec![0; index(self.block_size)];
        let mut blocks = Vec::new();
        for reserved in 0..self.reserved {
            let primary = self.first + reserved;
            let slot = (self.descriptor_blocks + reserved) % slots;
            put(&mut double_bytes, index(slot), primary);
            let mut bytes = vec![0; index(self.block_size)];
            for (slot, &distance) in self.copies.iter().enumerate() {
                put(&mut bytes, slot, primary + distance);
            }
            blocks.push((BlockNo::new(primary), bytes));
        }
        blocks.push((double, double_bytes));
        blocks
    }
}

/// Writes a block number into a slot of a block of them.
fn put(block: &mut [u8], slot: usize, number: u64) {
    let at = slot * POINTER;
    if let Some(to) = block.get_mut(at..at + POINTER) {
        to.copy_from_slice(&low32(number).to_le_bytes());
    }
}
