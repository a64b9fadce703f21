//! Where the blocks of a file are, and its other fields that only ext has.

use crate::ondisk::IBlock;
use seekless_live::indirect::{Mapped, Trees};
use seekless_units::BlockNo;
use std::ops::Range;

/// The cache, and the inodes in memory.
pub(super) type Core = seekless_live::Core<Map>;
/// An inode in memory.
pub(super) type Node = seekless_live::Node<Map>;

/// The map of a file.
#[derive(Clone, Debug, Default)]
pub struct Map {
    pub(super) trees: Trees,
    /// The map's bytes in the inode. With extents: the root of the tree; with inline data: the
    /// first part of that.
    pub(super) root: IBlock,
    /// The last lookup in that map.
    pub(super) near: Option<Near>,
    /// The block of its attributes.
    pub(super) attributes: Option<BlockNo>,
    /// The new bytes of its attributes inside the inode; `None` where those on the disk stay.
    pub(super) inner: Option<Box<[u8]>>,
    /// The block that was allocated last, and for which block of the file: the next one in the file
    /// shall follow it on the disk.
    pub(super) last: Option<(u64, BlockNo)>,
    /// Its deletion time, in seconds, or the next inode on the list of orphans.
    pub(super) deleted: u32,
}

impl Mapped for Map {
    fn trees(&self) -> &Trees {
        &self.trees
    }

    fn trees_mut(&mut self) -> &mut Trees {
        &mut self.trees
    }
}

/// The last lookup in a file's map: a run, or a hole.
#[derive(Clone, Debug)]
pub(super) struct Near {
    /// Logical blocks of the run or hole.
    pub(super) blocks: Range<u64>,
    /// The first of their blocks on the disk, and whether it was never written.
    pub(super) at: Option<(BlockNo, bool)>,
}

impl Near {
    /// The first block of the file behind the run or hole.
    pub(super) fn end(&self) -> u64 {
        self.blocks.end
    }

    /// The place of one of the blocks, and whether it was never written; `None` for a hole.
    pub(super) fn at(&self, lbn: u64) -> Option<(BlockNo, bool)> {
        debug_assert!(self.blocks.contains(&lbn), "{lbn} is in {self:?}");
        let skip = lbn - self.blocks.start;
        self.at.map(|(at, unwritten)| (at + skip, unwritten))
    }
}

/// The mapped blocks of a file before and behind a block: which block of it, and where.
#[derive(Clone, Copy, Default)]
pub(super) struct Around {
    pub(super) left: Option<(u64, BlockNo)>,
    pub(super) right: Option<(u64, BlockNo)>,
}
