//! Where a file's contents lie now.

use super::geometry::MapGeometry;
use super::map::BlockMap;
use super::{DIRECT, Indirect, Mapped};
use crate::core::Core;
use hashbrown::HashSet;
use seekless_fs::field::{index, range, wide};
use seekless_fs::{FsError, Location, Mapping};
use seekless_units::{BlockNo, Extent, Ino, Lbn};

/// The result of a walk of a file's map.
struct FoundRuns {
    runs: Vec<Mapping>,
    /// Fragments that may still be found: a file that has more than its volume
    /// has some of them twice.
    left: u64,
}

/// A tree of indirect blocks.
#[derive(Clone, Copy)]
struct Tree {
    number: u64,
    /// The first block of the file that it maps, and how many.
    first: u64,
    span: u64,
    /// Levels below it, itself included.
    levels: u32,
}

/// A walk of the map of a file.
pub(super) struct MapWalk<'a, F: Indirect> {
    maps: &'a mut F,
    core: &'a mut Core<F::Map>,
    geometry: MapGeometry,
}

impl<'a, F: Indirect> MapWalk<'a, F> {
    pub(super) fn new(maps: &'a mut F, core: &'a mut Core<F::Map>) -> Self {
        let geometry = MapGeometry::of(maps);
        Self { maps, core, geometry }
    }

    fn map(&mut self) -> BlockMap<'_, F> {
        BlockMap::new(self.maps, self.core)
    }

    /// The runs of a regular file's contents, counted in fragments.
    pub(super) fn contents(&mut self, ino: Ino) -> Result<Vec<Mapping>, FsError> {
        let node = self.core.node(ino)?;
        let (size, trees) = (node.size, *node.map.trees());
        let blocks = size.div_ceil(self.geometry.block());
        let mut found = FoundRuns { runs: Vec::new(), left: self.maps.volume() };
        for (lbn, &number) in (0..blocks.min(wide(DIRECT))).zip(&trees.direct) {
            let frags = self.geometry.units_at(size, lbn);
            self.find_block(ino, (lbn, number, frags), &mut found)?;
        }
        let (mut first, mut span) = (wide(DIRECT), 1u64);
        for (levels, &number) in (1u32..).zip(&trees.indirect) {
            span *= self.geometry.pointers();
            self.find_tree(ino, Tree { number, first, span, levels }, blocks, &mut found)?;
            first += span;
        }
        Ok(found.runs)
    }

    /// The runs that hold a file: contents and indirect blocks.
    pub(super) fn everything(&mut self, ino: Ino) -> Result<Vec<Extent>, FsError> {
        let node = self.core.node(ino)?;
        let (size, trees) = (node.size, *node.map.trees());
        let mut runs = Vec::new();
        if !node.has_blocks() {
            return Ok(runs);
        }
        let blocks = size.div_ceil(self.geometry.block());
        for lbn in 0..blocks.min(wide(DIRECT)) {
            if let Some(at) = self.map().lookup(ino, lbn)? {
                runs.push(Extent::new(at, u64::from(self.geometry.units_at(size, lbn))));
            }
        }
        for (tree, &number) in trees.indirect.iter().enumerate().filter(|(_, n)| **n != 0) {
            self.runs_of_tree(ino, number, tree, &mut runs)?;
        }
        Ok(runs)
    }

    fn runs_of_tree(
        &mut self,
        ino: Ino,
        number: u64,
        tree: usize,
        runs: &mut Vec<Extent>,
    ) -> Result<(), FsError> {
        let frag = u64::from(self.geometry.per_block());
        let block = self.maps.check_run(ino, number, self.geometry.per_block())?;
        runs.push(Extent::new(block, frag));
        for place in 0..self.geometry.pointers() {
            let number = self.map().pointer(block, place)?;
            match tree.checked_sub(1) {
                _ if number == 0 => {}
                Some(below) => self.runs_of_tree(ino, number, below, runs)?,
                None => {
                    let at = self.maps.check_run(ino, number, self.geometry.per_block())?;
                    runs.push(Extent::new(at, frag));
                }
            }
        }
        Ok(())
    }

    fn find_tree(
        &mut self,
        ino: Ino,
        tree: Tree,
        blocks: u64,
        found: &mut FoundRuns,
    ) -> Result<(), FsError> {
        if tree.number == 0 || tree.first >= blocks {
            return Ok(());
        }
        found.take(u64::from(self.geometry.per_block()), ino)?;
        let block = self.maps.check_run(ino, tree.number, self.geometry.per_block())?;
        let span = (tree.span / self.geometry.pointers()).max(1);
        for place in 0..self.geometry.pointers() {
            let first = tree.first + place * span;
            if first >= blocks {
                break;
            }
            let number = self.map().pointer(block, place)?;
            if tree.levels == 1 {
                self.find_block(ino, (first, number, self.geometry.per_block()), found)?;
            } else {
                let levels = tree.levels - 1;
                self.find_tree(ino, Tree { number, first, span, levels }, blocks, found)?;
            }
        }
        Ok(())
    }

    /// A block of the file, by its number there, where it begins, and how many
    /// fragments it has.
    fn find_block(
        &self,
        ino: Ino,
        (lbn, number, frags): (u64, u64, u32),
        found: &mut FoundRuns,
    ) -> Result<(), FsError> {
        if number == 0 {
            return Ok(());
        }
        found.take(u64::from(frags), ino)?;
        let start = self.maps.check_run(ino, number, frags)?;
        let lbn = Lbn::new(lbn * u64::from(self.geometry.per_block()));
        found.push(lbn, start, frags);
        Ok(())
    }
}

impl FoundRuns {
    fn take(&mut self, frags: u64, ino: Ino) -> Result<(), FsError> {
        let place = Location::of("block map").in_inode(ino);
        let left = self.left.checked_sub(frags);
        self.left = left.ok_or_else(|| range("mapped fragments", frags, self.left, place))?;
        Ok(())
    }

    fn push(&mut self, lbn: Lbn, start: BlockNo, frags: u32) {
        if let Some(last) = self.runs.last_mut() {
            let next = last.lbn + last.extent.len;
            if next == lbn && last.extent.end() == start {
                last.extent.len += u64::from(frags);
                return;
            }
        }
        let extent = Extent::new(start, u64::from(frags));
        self.runs.push(Mapping { lbn, extent, unwritten: false });
    }
}

/// A fragment of a file, as far as its map is in the cache, that is not on the
/// disk and in none of some runs: there should be none. Nothing is read for
/// it, so that builds which check do the same as those which do not.
pub(super) fn unnoted<F: Indirect>(
    maps: &F,
    core: &Core<F::Map>,
    ino: Ino,
    noted: &[Extent],
) -> Option<BlockNo> {
    let node = core.nodes.get(&ino)?;
    let geometry = MapGeometry::of(maps);
    let frag = u64::from(geometry.per_block());
    let mut runs: Vec<Extent> = (0..)
        .zip(&node.map.trees().direct)
        .filter(|&(_, &number)| number != 0)
        .map(|(lbn, &number)| (BlockNo::new(number), geometry.units_at(node.size, lbn)))
        .map(|(at, frags)| Extent::new(at, u64::from(frags)))
        .collect();
    let mut trees: Vec<(u64, usize)> = node.map.trees().indirect.iter().copied().zip(1..).collect();
    while let Some((number, levels)) = trees.pop() {
        if number == 0 {
            continue;
        }
        let at = BlockNo::new(number);
        runs.push(Extent::new(at, frag));
        if let Some(below) = levels.checked_sub(1) {
            let inside = (0..geometry.pointers()).map_while(|place| peek(maps, core, at, place));
            trees.extend(inside.map(|number| (number, below)));
        }
    }
    let frags = |runs: &[Extent]| -> HashSet<BlockNo> {
        runs.iter().flat_map(|run| run.start.get()..run.end().get()).map(BlockNo::new).collect()
    };
    let is_unsettled = |at: &BlockNo| core.cache.is_unsettled(Extent::new(*at, 1));
    frags(&runs).difference(&frags(noted)).copied().filter(is_unsettled).min()
}

/// A block number in an indirect block that is in the cache.
fn peek<F: Indirect>(maps: &F, core: &Core<F::Map>, block: BlockNo, place: u64) -> Option<u64> {
    let at = index(place) * maps.pointer_width();
    let bytes = core.cache.blocks().peek(block, 0, index(u64::from(maps.units().block)))?;
    Some(maps.pointer_at(bytes, at))
}
