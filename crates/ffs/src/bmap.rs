//! The map of a file's blocks: twelve numbers in the inode, then one, two and three levels of
//! indirect blocks. Everything is counted in fragments.

use crate::inode::Inode;
use crate::ondisk::{BLK_NOCOPY, BLK_SNAP, DIRECT};
use crate::volume::Volume;
use seekless_fs::field::{index, range, wide};
use seekless_fs::{BlockMap, FsError, IndexBlock, Location, Mapping};
use seekless_units::{BlockNo, ByteLen, Extent, Lbn};
use std::ops::Range;

/// Every block of a file.
pub(crate) const EVERYTHING: Range<u64> = 0..u64::MAX;

/// The runs of blocks that a walk over a map reads, neighbours joined.
struct MappedRuns {
    runs: Vec<Mapping>,
    index: Option<Vec<IndexBlock>>,
    /// Fragments that may still be found: a file with more than its volume has some of them twice.
    left: u64,
}

impl MappedRuns {
    fn take(&mut self, count: u64, place: Location) -> Result<(), FsError> {
        let left = self.left.checked_sub(count);
        self.left = left.ok_or_else(|| range("mapped fragments", count, self.left, place))?;
        Ok(())
    }

    fn push(&mut self, run: Mapping, place: Location) -> Result<(), FsError> {
        debug_assert!(run.extent.len > 0, "a run has fragments");
        self.take(run.extent.len, place)?;
        if let Some(last) = self.runs.last_mut() {
            debug_assert!(last.lbn + last.extent.len <= run.lbn, "runs are found in order");
            let follows =
                last.lbn + last.extent.len == run.lbn && last.extent.end() == run.extent.start;
            if follows {
                last.extent.len += run.extent.len;
                return Ok(());
            }
        }
        self.runs.push(run);
        Ok(())
    }
}

/// A tree of indirect blocks.
#[derive(Clone, Copy)]
struct IndirectTree {
    block: BlockNo,
    /// The first block of the file that it maps, and the number of blocks.
    first: u64,
    span: u64,
    /// Levels below it, itself included.
    levels: u32,
    depth: u8,
}

impl Volume {
    /// The runs of a range of the file's blocks (not fragments).
    fn walk(
        &self,
        inode: &Inode,
        wanted: &Range<u64>,
        found: &mut MappedRuns,
    ) -> Result<(), FsError> {
        let blocks = inode.len.div_ceil(u64::from(self.sb.bsize));
        let end = wanted.end.min(blocks);
        for at in wanted.start..end.min(wide(DIRECT)) {
            if let Some(start) = inode.direct_block(at) {
                self.block_at(inode, at, start, found)?;
            }
        }
        let (mut first, mut span) = (wide(DIRECT), 1u64);
        for (levels, &number) in (1u32..).zip(&inode.indirect) {
            span *= self.sb.pointers();
            let tree = IndirectTree { block: BlockNo::new(number), first, span, levels, depth: 1 };
            first += span;
            if number != 0 {
                self.walk_tree(inode, tree, &(wanted.start..end), found)?;
            }
        }
        Ok(())
    }

    fn walk_tree(
        &self,
        inode: &Inode,
        tree: IndirectTree,
        wanted: &Range<u64>,
        found: &mut MappedRuns,
    ) -> Result<(), FsError> {
        debug_assert!((1..=3).contains(&tree.levels), "three levels of indirect blocks");
        debug_assert!(tree.span.is_multiple_of(self.sb.pointers()), "it maps whole blocks");
        let last = tree.first + tree.span;
        if tree.first >= wanted.end || last <= wanted.start {
            return Ok(());
        }
        let place = Location::of("indirect block").in_inode(inode.ino).in_block(tree.block);
        let frags = u64::from(self.sb.frag);
        found.take(frags, place)?;
        if let Some(index) = &mut found.index {
            index.push(IndexBlock {
                block: tree.block,
                len: frags,
                first: Lbn::new(tree.first * frags),
                last: Lbn::new(last * frags - 1),
                depth: tree.depth,
            });
        }
        let block = self.block(tree.block, index(self.sb.bsize), place)?;
        let step = tree.span / self.sb.pointers();
        let skip = (wanted.start.max(tree.first) - tree.first) / step;
        for at in skip..self.sb.pointers() {
            let first = tree.first + at * step;
            if first >= wanted.end {
                break;
            }
            let number = BlockNo::new(self.sb.pointer(&block, at));
            if number == BlockNo::ZERO {
                continue;
            }
            if tree.levels == 1 {
                self.block_at(inode, first, number, found)?;
                continue;
            }
            let (levels, depth) = (tree.levels - 1, tree.depth + 1);
            let below = IndirectTree { block: number, first, span: step, levels, depth };
            self.walk_tree(inode, below, wanted, found)?;
        }
        Ok(())
    }

    /// Notes the fragments of one block of a file: all of it, except for the last of a file that
    /// ends among its direct blocks (`blksize` in `fs.h`).
    fn block_at(
        &self,
        inode: &Inode,
        at: u64,
        start: BlockNo,
        found: &mut MappedRuns,
    ) -> Result<(), FsError> {
        let place = Location::of("block map").in_inode(inode.ino);
        let frags = u64::from(self.sb.frag);
        let left = inode.len - at * u64::from(self.sb.bsize);
        debug_assert!(left > 0, "block {at} lies in front of the end");
        let len = if at < wide(DIRECT) {
            left.div_ceil(u64::from(self.sb.fsize)).min(frags)
        } else {
            frags
        };
        if inode.is_snapshot() && matches!(start.get(), BLK_NOCOPY | BLK_SNAP) {
            return Ok(());
        }
        let extent = Extent::new(start, len);
        self.check_extent(extent, place)?;
        let lbn = Lbn::new(at * frags);
        found.push(Mapping { lbn, extent, unwritten: false }, place)
    }

    /// The runs of a range of the file's blocks, in order.
    pub(crate) fn runs(&self, inode: &Inode, wanted: &Range<u64>) -> Result<Vec<Mapping>, FsError> {
        let mut found = MappedRuns { runs: Vec::new(), index: None, left: self.sb.size };
        self.walk(inode, wanted, &mut found)?;
        Ok(found.runs)
    }

    /// The whole map with its own blocks.
    pub(crate) fn block_map(&self, inode: &Inode) -> Result<BlockMap, FsError> {
        let mut found =
            MappedRuns { runs: Vec::new(), index: Some(Vec::new()), left: self.sb.size };
        self.walk(inode, &EVERYTHING, &mut found)?;
        Ok(BlockMap {
            runs: found.runs,
            index: found.index.unwrap_or_default(),
            xattr_block: self.attribute_block(inode)?,
            xattr_inodes: Vec::new(),
        })
    }

    /// The first block of an inode's extended attributes (UFS2).
    fn attribute_block(&self, inode: &Inode) -> Result<Option<BlockNo>, FsError> {
        let Some(&number) = inode.ext_blocks.first().filter(|&&number| number != 0) else {
            return Ok(None);
        };
        let start = BlockNo::new(number);
        let place = Location::of("extended attributes").in_inode(inode.ino);
        self.check_extent(Extent::new(start, 1), place)?;
        Ok(Some(start))
    }

    /// Reads bytes of a file: one request for each run, zeros for holes. The
    /// range must lie within the file.
    pub(crate) fn read_mapped(
        &self,
        inode: &Inode,
        offset: ByteLen,
        buf: &mut [u8],
    ) -> Result<(), FsError> {
        let bsize = u64::from(self.sb.bsize);
        let fsize = u64::from(self.sb.fsize);
        let end = offset.get() + wide(buf.len());
        debug_assert!(end <= inode.len, "bytes up to {end} of {}", inode.len);
        let first = offset.get() / bsize;
        buf.fill(0);
        for run in self.runs(inode, &(first..end.div_ceil(bsize)))? {
            let start = run.lbn.get() * fsize;
            let stop = (start + run.extent.len * fsize).min(end);
            let from = start.max(offset.get());
            if from >= stop {
                continue;
            }
            let low = index(from - offset.get());
            let high = index(stop - offset.get());
            let part = buf.get_mut(low..high).unwrap_or_default();
            self.read_bytes(run.extent.start, from - start, part)?;
        }
        Ok(())
    }
}
