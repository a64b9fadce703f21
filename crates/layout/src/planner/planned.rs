//! An image as a plan lays it out, without a copy of it.

use seekless_fs::plan::{Demand, InodeTable, ObjectId, Placed, Plan, Space};
use seekless_fs::{
    Attr, BlockMap, DirEntry, FsError, Geometry, GroupSummary, IndexBlock, InodeLocation, Inspect,
    Mapping, Xattr,
};
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino, Lbn};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// Other places of an image's files and inodes.
pub trait Places: Send + Sync {
    /// The map of a file, whose map in the image is `map`.
    fn moved(&self, ino: Ino, map: BlockMap) -> BlockMap;

    /// The inode number whose place in the tables an inode has.
    fn number(&self, ino: Ino) -> Ino {
        ino
    }

    /// The end of the used part of an inode table, if it differs from the image's.
    fn used_end(&self, _table: Extent) -> Option<BlockNo> {
        None
    }
}

/// A view of an image in which files and inodes have other places. Numbers, names and contents are
/// those of the image.
pub struct Relocated<'a, P> {
    image: &'a dyn Inspect,
    places: P,
}

impl<'a, P: Places> Relocated<'a, P> {
    /// The view of `image` with these places.
    pub fn new(image: &'a dyn Inspect, places: P) -> Self {
        Self { image, places }
    }
}

/// The places of a plan.
///
/// The ranges of a map's blocks are estimated where the plan has another number of them than the
/// image: the runs of the file are then spread evenly over them, on one level.
pub struct Planned<'a> {
    demand: &'a dyn Demand,
    plan: &'a Plan,
    objects: &'a HashMap<Ino, ObjectId>,
    /// The ends of the used parts of inode tables, by their first blocks, if the volume counts them.
    used_ends: HashMap<BlockNo, BlockNo>,
}

impl<'a> Planned<'a> {
    /// The places of a plan for `demand` in `space`, of which a unit is one block of the image.
    /// Inodes without an object stay where they are.
    #[must_use]
    pub fn new(
        demand: &'a dyn Demand,
        space: &Space,
        plan: &'a Plan,
        objects: &'a HashMap<Ino, ObjectId>,
    ) -> Self {
        Self { demand, plan, objects, used_ends: used_ends(space, &plan.inodes) }
    }

    /// The object of an inode, if the plan places it.
    fn placed(&self, ino: Ino) -> Option<ObjectId> {
        self.objects.get(&ino).copied().filter(|&object| !self.demand.is_pinned(object))
    }
}

impl Places for Planned<'_> {
    fn moved(&self, ino: Ino, mut map: BlockMap) -> BlockMap {
        let Some(object) = self.placed(ino) else { return map };
        let attributes = usize::try_from(self.demand.attribute_blocks(object)).expect("few blocks");
        let of_map: Vec<BlockNo> = self.plan.overhead(object).skip(attributes).collect();
        let data = self.plan.data(object);
        let mut runs = mappings(data, &map.runs);
        // A run that the plan does not place stays.
        runs.extend(map.runs.iter().filter(|run| !is_placed(data, run)));
        runs.sort_unstable_by_key(|run| run.lbn);
        map.runs = runs;
        map.index = index(&of_map, &map.index, &map.runs);
        let owner = self.demand.attribute_owner(object);
        map.xattr_block =
            owner.and_then(|owner| self.plan.overhead(owner).next()).or(map.xattr_block);
        map
    }

    fn number(&self, ino: Ino) -> Ino {
        self.placed(ino).map_or(ino, |object| self.plan.inodes[object.index()])
    }

    fn used_end(&self, table: Extent) -> Option<BlockNo> {
        self.used_ends.get(&table.start).copied()
    }
}

/// The ends of the used parts of inode tables, in whole blocks: a last block that is used in part is
/// not counted. Numbers before a table's first free one are in use.
fn used_ends(space: &Space, inodes: &[Ino]) -> HashMap<BlockNo, BlockNo> {
    if !space.counts_unused {
        return HashMap::new();
    }
    let mut used: Vec<u32> = space.tables.iter().map(|table| space.used_before(table)).collect();
    for &ino in inodes {
        let at = space.tables.partition_point(|table| table.first <= ino);
        if let Some(at) = at.checked_sub(1) {
            used[at] = used[at].max(ino - space.tables[at].first + 1);
        }
    }
    let end = |(table, used): (&InodeTable, u32)| {
        (table.blocks.start, table.blocks.start + u64::from(used / space.inodes_per_block))
    };
    space.tables.iter().zip(used).map(end).collect()
}

/// Converts placed data to mappings; the old runs tell which parts are unwritten.
#[must_use]
pub fn mappings(data: &[Placed], old: &[Mapping]) -> Vec<Mapping> {
    let mut new = Vec::with_capacity(data.len());
    for placed in data {
        let (low, high) = (placed.lbn.get(), placed.lbn.get() + placed.extent.len);
        let first = old.partition_point(|run| run.lbn.get() + run.extent.len <= low);
        for run in old[first..].iter().take_while(|run| run.lbn.get() < high) {
            let from = run.lbn.get().max(low);
            let to = (run.lbn.get() + run.extent.len).min(high);
            let start = placed.extent.start + (from - low);
            let extent = Extent::new(start, to - from);
            new.push(Mapping { lbn: Lbn::new(from), extent, unwritten: run.unwritten });
        }
    }
    new
}

/// Whether some of a run is among placed data.
fn is_placed(data: &[Placed], run: &Mapping) -> bool {
    let end = run.lbn.get() + run.extent.len;
    let first = data.partition_point(|it| it.lbn.get() + it.extent.len <= run.lbn.get());
    data.get(first).is_some_and(|it| it.lbn.get() < end)
}

/// The blocks of a map whose runs are `runs`: with the ranges of the old ones if there are as many.
fn index(blocks: &[BlockNo], old: &[IndexBlock], runs: &[Mapping]) -> Vec<IndexBlock> {
    if blocks.len() == old.len() {
        let moved = |(&block, old): (&BlockNo, &IndexBlock)| IndexBlock { block, ..*old };
        return blocks.iter().zip(old).map(moved).collect();
    }
    let each = runs.len().div_ceil(blocks.len().max(1)).max(1);
    let mut firsts: Vec<Lbn> = runs.chunks(each).map(|runs| runs[0].lbn).collect();
    if let Some(first) = firsts.first_mut() {
        *first = Lbn::ZERO;
    }
    let last = |at: usize| match firsts.get(at + 1) {
        Some(next) => Lbn::new(next.get() - 1),
        None => Lbn::new(u64::MAX),
    };
    let block = |(at, &block): (usize, &BlockNo)| {
        let first = *firsts.get(at)?;
        Some(IndexBlock { block, len: 1, first, last: last(at), depth: 1 })
    };
    blocks.iter().enumerate().filter_map(block).collect()
}

impl<P: Places> Inspect for Relocated<'_, P> {
    fn geometry(&self) -> &Geometry {
        self.image.geometry()
    }

    fn root(&self) -> Ino {
        self.image.root()
    }

    fn attr(&self, ino: Ino) -> Result<Attr, FsError> {
        self.image.attr(ino)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>, FsError> {
        self.image.xattrs(ino)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        self.image.read_link(ino)
    }

    fn read(&self, ino: Ino, offset: ByteLen, buf: &mut [u8]) -> Result<usize, FsError> {
        self.image.read(ino, offset, buf)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        self.image.lookup(dir, name)
    }

    fn read_dir(
        &self,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        self.image.read_dir(dir, after, visit)
    }

    fn block_map(&self, ino: Ino) -> Result<BlockMap, FsError> {
        Ok(self.places.moved(ino, self.image.block_map(ino)?))
    }

    fn inode_location(&self, ino: Ino) -> Result<InodeLocation, FsError> {
        let at = self.image.inode_location(self.places.number(ino))?;
        Ok(InodeLocation { used_end: self.places.used_end(at.table).unwrap_or(at.used_end), ..at })
    }

    fn lookup_blocks(&self, dir: Ino, name: &[u8]) -> Result<Vec<Lbn>, FsError> {
        self.image.lookup_blocks(dir, name)
    }

    fn unindexed_blocks(&self, dir: Ino) -> Result<Option<Vec<Lbn>>, FsError> {
        self.image.unindexed_blocks(dir)
    }

    fn listing_blocks(&self, dir: Ino) -> Result<Vec<Lbn>, FsError> {
        self.image.listing_blocks(dir)
    }

    fn group(&self, group: GroupNo) -> Result<GroupSummary, FsError> {
        self.image.group(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, len: u64) -> Extent {
        Extent::new(BlockNo::new(start), len)
    }

    fn mapping(lbn: u64, start: u64, len: u64) -> Mapping {
        Mapping { lbn: Lbn::new(lbn), extent: extent(start, len), unwritten: false }
    }

    #[test]
    fn what_was_not_written_stays_so() {
        let unwritten = Mapping { unwritten: true, ..mapping(4, 104, 2) };
        let old = [mapping(0, 100, 4), unwritten, mapping(10, 300, 3)];
        let place = |lbn, start, len| Placed { lbn: Lbn::new(lbn), extent: extent(start, len) };
        let new = mappings(&[place(0, 50, 3), place(3, 70, 3), place(10, 90, 3)], &old);
        let expected = [
            mapping(0, 50, 3),
            mapping(3, 70, 1),
            Mapping { unwritten: true, ..mapping(4, 71, 2) },
            mapping(10, 90, 3),
        ];
        assert_eq!(new, expected);
    }

    #[test]
    fn every_run_has_a_block_that_leads_to_it() {
        let runs: Vec<Mapping> = (0..10).map(|n| mapping(3 + n * 10, 1000 + n * 50, 4)).collect();
        let blocks: Vec<BlockNo> = [7, 9, 11].map(BlockNo::new).to_vec();
        let new = index(&blocks, &[], &runs);
        assert_eq!(new.iter().map(|block| block.block).collect::<Vec<_>>(), blocks);
        for run in &runs {
            let leads = |block: &&IndexBlock| block.first <= run.lbn && run.lbn <= block.last;
            assert_eq!(new.iter().filter(leads).count(), 1, "{run:?}");
        }
        let old = IndexBlock { block: BlockNo::new(1), ..new[1] };
        assert_eq!(index(&blocks[1..2], &[old], &runs), [new[1]]);
        assert!(index(&[], &new, &runs).is_empty());
    }
}
