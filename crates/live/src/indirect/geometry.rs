//! The shape of maps: how many block numbers an indirect block has, and the way to a block.

use super::{DIRECT, Indirect, Units};
use seekless_fs::field::{index, wide};
use smallvec::SmallVec;

/// The way to a block's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockPath {
    /// Its number is in the inode.
    Direct(usize),
    /// It is reached from one of the inode's three numbers, through places in
    /// indirect blocks.
    Indirect {
        /// Which of the three.
        tree: usize,
        /// Places in the indirect blocks, from the top.
        places: SmallVec<[u64; 3]>,
    },
}

/// The shape of maps.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapGeometry {
    bytes: Units,
    pointer_width: usize,
}

impl MapGeometry {
    pub(super) fn of<F: Indirect>(maps: &F) -> Self {
        let bytes = maps.units();
        debug_assert!(bytes.block.is_multiple_of(bytes.unit), "whole units: {bytes:?}");
        Self { bytes, pointer_width: maps.pointer_width() }
    }

    /// Bytes of a block of a file.
    pub(super) fn block(self) -> u64 {
        u64::from(self.bytes.block)
    }

    /// Bytes of a unit of block numbers.
    pub(super) fn unit(self) -> u64 {
        u64::from(self.bytes.unit)
    }

    /// Units of a block.
    pub(super) fn per_block(self) -> u32 {
        (self.bytes.block / self.bytes.unit).max(1)
    }

    /// Block numbers in an indirect block.
    pub(super) fn pointers(self) -> u64 {
        let width = u64::try_from(self.pointer_width).unwrap_or(8).max(1);
        self.block() / width
    }

    /// Units that bytes take.
    pub(super) fn units(self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(self.unit().max(1))).unwrap_or(u32::MAX)
    }

    /// Units of a block of a file of this size: the last of those whose numbers are in the inode
    /// may be a tail.
    pub(super) fn units_at(self, size: u64, lbn: u64) -> u32 {
        if lbn >= wide(DIRECT) {
            return self.per_block();
        }
        self.units(size.saturating_sub(lbn * self.block()).min(self.block()))
    }

    /// Sectors of 512 bytes that units take.
    pub(super) fn sectors(self, units: u64) -> u64 {
        units * (self.unit() / 512)
    }

    /// The way to a block, if the format can map it.
    pub(super) fn way(self, lbn: u64) -> Option<BlockPath> {
        if lbn < wide(DIRECT) {
            return Some(BlockPath::Direct(index(lbn)));
        }
        let width = self.pointers();
        let mut left = lbn - wide(DIRECT);
        let mut span = width;
        for tree in 0..3 {
            if left >= span {
                left -= span;
                span *= width;
                continue;
            }
            let mut places = SmallVec::new();
            for _ in 0..=tree {
                span = (span / width).max(1);
                places.push(left / span);
                left %= span;
            }
            return Some(BlockPath::Indirect { tree, places });
        }
        None
    }
}
