//! The blocks that a file loses, cut out of its map.

use super::geometry::{BlockPath, MapGeometry};
use super::map::BlockMap;
use super::{DIRECT, Indirect, Mapped};
use crate::core::Core;
use crate::cut::Cut;
use seekless_cache::Role;
use seekless_fs::field::{index, wide};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Extent, Ino};

/// A cut of the map of a file, and the blocks that were found behind it.
pub(super) struct MapCut<'a, F: Indirect> {
    maps: &'a mut F,
    core: &'a mut Core<F::Map>,
    geometry: MapGeometry,
    ino: Ino,
    cut: Cut,
}

impl<'a, F: Indirect> MapCut<'a, F> {
    pub(super) fn new(maps: &'a mut F, core: &'a mut Core<F::Map>, ino: Ino) -> Self {
        let geometry = MapGeometry::of(maps);
        Self { maps, core, geometry, ino, cut: Cut::default() }
    }

    fn map(&mut self) -> BlockMap<'_, F> {
        BlockMap::new(self.maps, self.core)
    }

    /// Cuts the map behind a length.
    pub(super) fn behind(mut self, len: u64) -> Result<Cut, FsError> {
        let kept = len.div_ceil(self.geometry.block());
        self.direct(len, kept)?;
        let mut first = wide(DIRECT);
        let mut span = 1u64;
        for tree in 0..3 {
            span *= self.geometry.pointers();
            self.tree(tree, (first, span), kept)?;
            first += span;
        }
        Ok(self.cut)
    }

    /// All runs of the file: its contents and indirect blocks.
    pub(super) fn everything(mut self) -> Result<Cut, FsError> {
        let node = self.core.node(self.ino)?;
        let (has_blocks, trees) = (node.has_blocks(), *node.map.trees());
        if has_blocks {
            self.direct(0, 0)?;
            for (tree, &number) in trees.indirect.iter().enumerate().filter(|(_, n)| **n != 0) {
                self.collect_tree(number, tree)?;
            }
        }
        Ok(self.cut)
    }

    fn direct(&mut self, len: u64, kept: u64) -> Result<(), FsError> {
        let bsize = self.geometry.block();
        let node = self.core.node(self.ino)?;
        let (size, trees) = (node.size, *node.map.trees());
        for (lbn, &number) in (0u64..).zip(&trees.direct) {
            let have = self.geometry.units_at(size, lbn);
            if number == 0 || lbn + 1 < kept || have == 0 {
                continue;
            }
            let left = len.saturating_sub(lbn * bsize).min(bsize);
            let keep = self.geometry.units(left);
            if keep >= have {
                continue;
            }
            let at = self.maps.check_run(self.ino, number, have)? + u64::from(keep);
            let run = Extent::new(at, u64::from(have - keep));
            self.cut.push(run, self.maps.volume(), Location::of("block map").in_inode(self.ino))?;
            let node = self.core.node(self.ino)?;
            if let Some(number) =
                node.map.trees_mut().direct.get_mut(index(lbn)).filter(|_| keep == 0)
            {
                *number = 0;
            }
        }
        Ok(())
    }

    /// Cuts one of the three trees behind `kept` blocks of the file.
    fn tree(&mut self, tree: usize, (first, span): (u64, u64), kept: u64) -> Result<(), FsError> {
        let number = self.core.node(self.ino)?.map.trees().indirect.get(tree).copied().unwrap_or(0);
        if number == 0 || kept >= first + span {
            return Ok(());
        }
        if kept <= first {
            self.collect_tree(number, tree)?;
            if let Some(top) = self.core.node(self.ino)?.map.trees_mut().indirect.get_mut(tree) {
                *top = 0;
            }
            return Ok(());
        }
        // The way to the first block that goes divides the kept blocks from the rest.
        let Some(BlockPath::Indirect { places, .. }) = self.geometry.way(kept) else {
            return Ok(());
        };
        self.along(number, &places)
    }

    /// Clears the numbers behind a way in an indirect block, and goes down it.
    fn along(&mut self, number: u64, places: &[u64]) -> Result<(), FsError> {
        let Some((&place, below)) = places.split_first() else { return Ok(()) };
        let block = self.maps.check_run(self.ino, number, self.geometry.per_block())?;
        // Blocks on the way itself stay in part, unless it begins there.
        let whole = below.iter().all(|&place| place == 0);
        if !whole {
            let next = self.map().pointer(block, place)?;
            if next != 0 {
                self.along(next, below)?;
            }
        }
        let from = if whole { place } else { place + 1 };
        self.clear_from(block, from, below.len())
    }

    fn clear_from(&mut self, block: BlockNo, from: u64, levels: usize) -> Result<(), FsError> {
        let mut any = false;
        for place in from..self.geometry.pointers() {
            let number = self.map().pointer(block, place)?;
            if number != 0 {
                any = true;
                self.collect(number, levels)?;
            }
        }
        if any {
            let width = self.maps.pointer_width();
            let skip = index(from) * width;
            let len = index(self.geometry.block()) - skip;
            let blank = |to: &mut [u8]| {
                to.fill(0);
                Ok(())
            };
            let ((), id) =
                self.core.cache.changes().edit(block, skip, len, Role::IndirectClear, blank)?;
            self.core
                .note_unsettled(self.ino, Extent::new(block, u64::from(self.geometry.per_block())));
            self.cut.cleared.push(id);
        }
        Ok(())
    }

    /// All of a tree with `levels` of indirect blocks, or a block of data.
    fn collect(&mut self, number: u64, levels: usize) -> Result<(), FsError> {
        match levels.checked_sub(1) {
            Some(tree) => self.collect_tree(number, tree),
            None => {
                let at = self.maps.check_run(self.ino, number, self.geometry.per_block())?;
                let place = Location::of("block map").in_inode(self.ino);
                self.cut.push(
                    Extent::new(at, u64::from(self.geometry.per_block())),
                    self.maps.volume(),
                    place,
                )
            }
        }
    }

    fn collect_tree(&mut self, number: u64, tree: usize) -> Result<(), FsError> {
        let block = self.maps.check_run(self.ino, number, self.geometry.per_block())?;
        let place = Location::of("indirect block").in_inode(self.ino).in_block(block);
        self.cut.push(
            Extent::new(block, u64::from(self.geometry.per_block())),
            self.maps.volume(),
            place,
        )?;
        for at in 0..self.geometry.pointers() {
            let number = self.map().pointer(block, at)?;
            if number != 0 {
                self.collect(number, tree)?;
            }
        }
        Ok(())
    }
}
