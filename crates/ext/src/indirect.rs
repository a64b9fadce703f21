//! Block maps of ext2 and ext3: direct, indirect, double and triple indirect.

use crate::bmap::{MappedRuns, clip};
use crate::inode::Inode;
use crate::volume::Volume;
use seekless_fs::field::{le32, truncated};
use seekless_fs::{Corruption, FsError, IndexBlock, Location, Mapping};
use seekless_units::{BlockNo, Extent, Lbn};
use std::collections::HashSet;
use std::ops::Range;

/// Bytes of a block number.
const POINTER: usize = 4;
/// Direct pointers in `i_block`.
const DIRECT: usize = 12;

/// The index of the pointer to the double indirect block.
const DOUBLE: usize = 13;

/// One walk over a file's map. In a sound file each block of the map is met only once; `seen` turns
/// a second meeting into an error and so bounds the walk.
struct IndirectWalk<'a> {
    volume: &'a Volume,
    inode: &'a Inode,
    wanted: &'a Range<u64>,
    found: &'a mut MappedRuns,
    seen: HashSet<BlockNo>,
}

/// Walks the map of an inode over a range of logical blocks.
pub(crate) fn walk(
    volume: &Volume,
    inode: &Inode,
    wanted: &Range<u64>,
    found: &mut MappedRuns,
) -> Result<(), FsError> {
    let mut walk = IndirectWalk { volume, inode, wanted, found, seen: HashSet::new() };
    let pointers = &inode.core.i_block.0;
    let place = Location::of("block map").in_inode(inode.ino);
    let (direct, rest) = pointers.split_at(DIRECT * POINTER);
    walk.pointers(direct, 0, 0, 0, place)?;
    let mut first = 12;
    for (levels, pointer) in (1u8..).zip(rest.chunks_exact(POINTER)) {
        walk.pointers(pointer, levels, 0, first, place)?;
        first += walk.span(levels);
    }
    Ok(())
}

/// The double indirect block of an inode, if it has one.
pub(crate) fn double_block(inode: &Inode) -> Option<BlockNo> {
    let number = le32(&inode.core.i_block.0, DOUBLE * POINTER)?;
    (number != 0).then(|| BlockNo::new(u64::from(number)))
}

impl IndirectWalk<'_> {
    /// Logical blocks below one pointer with `levels` blocks of map under it.
    fn span(&self, levels: u8) -> u64 {
        let per_block = self.volume.sb.block_size >> 2;
        u64::from(per_block).pow(u32::from(levels))
    }

    /// Follows the pointers of `bytes`, the first of which maps logical block
    /// `first`, each with `levels` levels of blocks below it.
    fn pointers(
        &mut self,
        bytes: &[u8],
        levels: u8,
        depth: u8,
        first: u64,
        place: Location,
    ) -> Result<(), FsError> {
        let span = self.span(levels);
        // Skip the numbers before the wanted range without looking at them.
        let skip = (self.wanted.start.max(first) - first) / span;
        let from = first + skip * span;
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let mut at = from;
        for pointer in bytes.chunks_exact(POINTER).skip(skip) {
            if at >= self.wanted.end {
                break;
            }
            let number = le32(pointer, 0).ok_or_else(|| truncated(place))?;
            if number != 0 {
                self.follow(BlockNo::new(u64::from(number)), levels, depth, at, place)?;
            }
            at += span;
        }
        Ok(())
    }

    fn follow(
        &mut self,
        number: BlockNo,
        levels: u8,
        depth: u8,
        first: u64,
        place: Location,
    ) -> Result<(), FsError> {
        self.volume.check_block(number, place)?;
        let Some(below) = levels.checked_sub(1) else {
            let run =
                Mapping { lbn: Lbn::new(first), extent: Extent::new(number, 1), unwritten: false };
            return match clip(run, self.wanted) {
                Some(run) => self.found.push(run, place),
                None => Ok(()),
            };
        };
        let here = Location::of("indirect block").in_inode(self.inode.ino).in_block(number);
        if !self.seen.insert(number) {
            return Err(FsError::corrupt(Corruption::Cycle, here));
        }
        let depth = depth + 1;
        self.found.push_index(IndexBlock {
            block: number,
            len: 1,
            first: Lbn::new(first),
            last: Lbn::new(first + self.span(levels) - 1),
            depth,
        });
        let block = self.volume.block(number, place)?;
        self.pointers(&block, below, depth, first, here)
    }
}
