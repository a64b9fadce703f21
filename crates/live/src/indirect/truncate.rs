//! Files made shorter or longer, and taken apart.

use super::map::BlockPath;
use super::{DIRECT, Files, Indirect, Mapped, units_at};
use crate::{Cut, Fault};
use seekless_cache::{ChangeId, Role};
use seekless_fs::field::{index, wide};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Extent, Ino};

impl<F: Indirect> Files<'_, F> {
    /// Gives a file another length.
    pub fn truncate(&mut self, ino: Ino, len: u64) -> Result<(), FsError> {
        let size = self.core.node(ino)?.size;
        if len > size {
            self.check_len(ino, Some(len))?;
            let grown = self.lengthen(ino, len);
            if grown.is_err() && self.core.node(ino)?.size > size {
                self.shrink(ino, size)?;
            }
            return grown;
        }
        if len < size { self.shrink(ino, len) } else { Ok(()) }
    }

    /// The last block of a file is no hole, where the format wants that.
    fn lengthen(&mut self, ino: Ino, len: u64) -> Result<(), FsError> {
        self.open_gap(ino, len)?;
        if self.format.may_end_in_hole() {
            return self.announce(ino, len).map(drop);
        }
        self.touch_last(ino, len).map(|_| ())
    }

    fn touch_last(&mut self, ino: Ino, len: u64) -> Result<ChangeId, FsError> {
        let bsize = self.block();
        let last = len.saturating_sub(1);
        let within = index(last % bsize);
        self.write_in_block(ino, last / bsize, within, &[0])
    }

    /// Makes a file shorter.
    pub(super) fn shrink(&mut self, ino: Ino, len: u64) -> Result<(), FsError> {
        let bsize = self.block();
        let kept = len.div_ceil(bsize);
        // Where the end is to be no hole the block there comes before the length.
        let mut before = Vec::new();
        let solid = kept > 0 && !self.format.may_end_in_hole();
        if solid && self.lookup_block(ino, kept - 1)?.is_none() {
            before.push(self.touch_last(ino, len)?);
            self.settle_way(ino, kept - 1)?;
        }
        if !len.is_multiple_of(bsize) {
            self.zero(ino, len, kept * bsize)?;
        }
        self.settle_cut(ino, kept)?;
        let mut cut = Cut::default();
        self.cut_direct(ino, len, kept, &mut cut)?;
        let mut first = wide(DIRECT);
        let mut span = 1u64;
        for tree in 0..3 {
            span *= self.pointers();
            self.cut_tree(ino, tree, (first, span), kept, &mut cut)?;
            first += span;
        }
        let sectors = self.sectors(cut.blocks);
        let node = self.core.node(ino)?;
        node.size = len;
        node.drop_sectors(sectors);
        // No number past the end stays in an indirect block that stays.
        before.extend(self.core.unless(Fault::PartialCut, cut.cleared.clone()));
        let role = if len == 0 { Role::PointerClear } else { Role::PointerCut };
        let cleared = self.put_blocks(ino, role, &before)?;
        self.core.node(ino)?.pending.sized = cleared;
        self.core.forget_unsettled(ino, &cut.runs);
        self.core.let_go(cleared, cut);
        Ok(())
    }

    /// Waits, under every discipline, until the indirect blocks that lead to a block are on the
    /// disk.
    fn settle_way(&mut self, ino: Ino, lbn: u64) -> Result<(), FsError> {
        let Some(BlockPath::Indirect { tree, places }) = self.way(lbn) else { return Ok(()) };
        let frag = u64::from(self.per_block());
        let path = self.existing_path(ino, tree, &places)?;
        let runs: Vec<Extent> = path.iter().map(|&at| Extent::new(at, frag)).collect();
        self.core.cache.settle_runs(&runs)?;
        {
            let run = self.format.inode_run(ino)?;
            self.core.cache.settle_runs(&[run])
        }
    }

    /// Where a tree of indirect blocks is cut in two, none of its changes may be under way: those
    /// of the kept part would wait for those of the cut one. That happens rarely, and
    /// `ffs_truncate` writes the whole file first in this case.
    fn settle_cut(&mut self, ino: Ino, kept: u64) -> Result<(), FsError> {
        let Some(BlockPath::Indirect { tree, places }) = self.way(kept) else { return Ok(()) };
        let path = self.existing_path(ino, tree, &places)?;
        if path.is_empty() || places.iter().all(|&place| place == 0) {
            return Ok(());
        }
        self.settle_blocks(&path)?;
        {
            let run = self.format.inode_run(ino)?;
            self.core.cache.settle_runs(&[run])
        }
    }

    fn cut_direct(&mut self, ino: Ino, len: u64, kept: u64, cut: &mut Cut) -> Result<(), FsError> {
        let bsize = self.block();
        let node = self.core.node(ino)?;
        let (size, trees) = (node.size, *node.map.trees());
        for (lbn, &number) in (0u64..).zip(&trees.direct) {
            let have = units_at(self.format.limits(), size, lbn);
            if number == 0 || lbn + 1 < kept || have == 0 {
                continue;
            }
            let left = len.saturating_sub(lbn * bsize).min(bsize);
            let keep = self.units(left);
            if keep >= have {
                continue;
            }
            let at = self.format.check_run(ino, number, have)? + u64::from(keep);
            let run = Extent::new(at, u64::from(have - keep));
            cut.push(run, self.format.volume(), Location::of("block map").in_inode(ino))?;
            let node = self.core.node(ino)?;
            if let Some(number) =
                node.map.trees_mut().direct.get_mut(index(lbn)).filter(|_| keep == 0)
            {
                *number = 0;
            }
        }
        Ok(())
    }

    /// Cuts one of the three trees behind `kept` blocks of the file.
    fn cut_tree(
        &mut self,
        ino: Ino,
        tree: usize,
        (first, span): (u64, u64),
        kept: u64,
        cut: &mut Cut,
    ) -> Result<(), FsError> {
        let number = self.core.node(ino)?.map.trees().indirect.get(tree).copied().unwrap_or(0);
        if number == 0 || kept >= first + span {
            return Ok(());
        }
        if kept <= first {
            self.collect_tree(ino, number, tree, cut)?;
            if let Some(top) = self.core.node(ino)?.map.trees_mut().indirect.get_mut(tree) {
                *top = 0;
            }
            return Ok(());
        }
        // The way to the first block that goes divides the kept blocks from the rest.
        let Some(BlockPath::Indirect { places, .. }) = self.way(kept) else { return Ok(()) };
        self.cut_along(ino, number, &places, cut)
    }

    /// Clears the numbers behind a way in an indirect block, and goes down it.
    fn cut_along(
        &mut self,
        ino: Ino,
        number: u64,
        places: &[u64],
        cut: &mut Cut,
    ) -> Result<(), FsError> {
        let Some((&place, below)) = places.split_first() else { return Ok(()) };
        let block = self.format.check_run(ino, number, self.per_block())?;
        // Blocks on the way itself stay in part, unless it begins there.
        let whole = below.iter().all(|&place| place == 0);
        if !whole {
            let next = self.pointer(block, place)?;
            if next != 0 {
                self.cut_along(ino, next, below, cut)?;
            }
        }
        let from = if whole { place } else { place + 1 };
        self.clear_from(ino, block, from, below.len(), cut)
    }

    fn clear_from(
        &mut self,
        ino: Ino,
        block: BlockNo,
        from: u64,
        levels: usize,
        cut: &mut Cut,
    ) -> Result<(), FsError> {
        let mut any = false;
        for place in from..self.pointers() {
            let number = self.pointer(block, place)?;
            if number != 0 {
                any = true;
                self.collect(ino, number, levels, cut)?;
            }
        }
        if any {
            let width = self.format.pointer_width();
            let skip = index(from) * width;
            let len = index(self.block()) - skip;
            let blank = |to: &mut [u8]| {
                to.fill(0);
                Ok(())
            };
            let ((), id) =
                self.core.cache.changes().edit(block, skip, len, Role::IndirectClear, blank)?;
            self.core.note_unsettled(ino, Extent::new(block, u64::from(self.per_block())));
            cut.cleared.push(id);
        }
        Ok(())
    }

    /// All of a tree with `levels` of indirect blocks, or a block of data.
    fn collect(
        &mut self,
        ino: Ino,
        number: u64,
        levels: usize,
        cut: &mut Cut,
    ) -> Result<(), FsError> {
        match levels.checked_sub(1) {
            Some(tree) => self.collect_tree(ino, number, tree, cut),
            None => {
                let at = self.format.check_run(ino, number, self.per_block())?;
                let place = Location::of("block map").in_inode(ino);
                cut.push(Extent::new(at, u64::from(self.per_block())), self.format.volume(), place)
            }
        }
    }

    fn collect_tree(
        &mut self,
        ino: Ino,
        number: u64,
        tree: usize,
        cut: &mut Cut,
    ) -> Result<(), FsError> {
        let block = self.format.check_run(ino, number, self.per_block())?;
        let place = Location::of("indirect block").in_inode(ino).in_block(block);
        cut.push(Extent::new(block, u64::from(self.per_block())), self.format.volume(), place)?;
        for at in 0..self.pointers() {
            let number = self.pointer(block, at)?;
            if number != 0 {
                self.collect(ino, number, tree, cut)?;
            }
        }
        Ok(())
    }

    /// All runs of a file: its contents and indirect blocks.
    pub fn all_blocks(&mut self, ino: Ino) -> Result<Cut, FsError> {
        let mut cut = Cut::default();
        let node = self.core.node(ino)?;
        let (has_blocks, trees) = (node.has_blocks(), *node.map.trees());
        if has_blocks {
            self.cut_direct(ino, 0, 0, &mut cut)?;
            for (tree, &number) in trees.indirect.iter().enumerate().filter(|(_, n)| **n != 0) {
                self.collect_tree(ino, number, tree, &mut cut)?;
            }
        }
        Ok(cut)
    }
}
