//! Files made shorter or longer, and taken apart.

use super::FfsLive;
use super::actions::Action;
use super::fault::Fault;
use super::map::Way;
use crate::ondisk::DIRECT;
use seekless_cache::{ChangeId, Kind, Role};
use seekless_fs::field::{index, range, wide};
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{BlockNo, Extent, Ino};

/// Runs that leave a file, and the changes that take them out of indirect
/// blocks.
#[derive(Default)]
struct Cut {
    runs: Vec<Extent>,
    cleared: Vec<ChangeId>,
    frags: u64,
}

impl Cut {
    fn push(&mut self, run: Extent, limit: u64, place: Location) -> Result<(), FsError> {
        self.frags = self.frags.saturating_add(run.len);
        // A file that has more than its volume has some of it twice.
        if self.frags > limit {
            return Err(range("mapped fragments", self.frags, limit, place));
        }
        match self.runs.last_mut() {
            Some(last) if last.end() == run.start => last.len = last.len.saturating_add(run.len),
            _ => self.runs.push(run),
        }
        Ok(())
    }
}

impl FfsLive {
    /// Gives a file another length.
    pub(super) fn truncate(&mut self, ino: Ino, len: u64) -> Result<(), FsError> {
        let size = self.node(ino)?.size;
        if len > size {
            self.check_len(ino, Some(len))?;
            let grown = self.lengthen(ino, len);
            if grown.is_err() && self.node(ino)?.size > size {
                self.shrink(ino, size)?;
            }
            return grown;
        }
        if len < size { self.shrink(ino, len) } else { Ok(()) }
    }

    /// The last block of a file is never a hole.
    fn lengthen(&mut self, ino: Ino, len: u64) -> Result<(), FsError> {
        self.open_gap(ino, len)?;
        self.touch_last(ino, len).map(|_| ())
    }

    fn touch_last(&mut self, ino: Ino, len: u64) -> Result<ChangeId, FsError> {
        let bsize = u64::from(self.sb.bsize);
        let last = len.saturating_sub(1);
        let within = index(last.checked_rem(bsize).unwrap_or(0));
        self.write_in_block(ino, last.checked_div(bsize).unwrap_or(0), within, &[0])
    }

    /// Makes a file shorter.
    pub(super) fn shrink(&mut self, ino: Ino, len: u64) -> Result<(), FsError> {
        let bsize = u64::from(self.sb.bsize);
        let kept = len.div_ceil(bsize);
        // The end is never a hole: the block there comes before the length.
        let mut before = Vec::new();
        if kept > 0 && self.lookup_block(ino, kept.saturating_sub(1))?.is_none() {
            before.push(self.touch_last(ino, len)?);
            self.settle_way(ino, kept.saturating_sub(1))?;
        }
        if len.checked_rem(bsize) != Some(0) {
            self.zero(ino, len, kept.saturating_mul(bsize))?;
        }
        self.settle_cut(ino, kept)?;
        let mut cut = Cut::default();
        self.cut_direct(ino, len, kept, &mut cut)?;
        let mut first = wide(DIRECT);
        let mut span = 1u64;
        for tree in 0..3 {
            span = span.saturating_mul(self.sb.pointers());
            self.cut_tree(ino, tree, first, span, kept, &mut cut)?;
            first = first.saturating_add(span);
        }
        let sectors = self.sectors(cut.frags);
        let node = self.node(ino)?;
        node.size = len;
        node.sectors = node.sectors.saturating_sub(sectors);
        // No number past the end stays in an indirect block that stays.
        before.extend(self.unless(Fault::PartialCut, cut.cleared.clone()));
        let role = if len == 0 { Role::PointerClear } else { Role::PointerCut };
        let cleared = self.put_blocks(ino, role, &before)?;
        self.node(ino)?.sized = cleared;
        self.forget_unsettled(ino, &cut.runs);
        self.let_go(cleared, cut);
        Ok(())
    }

    /// Sees on the disk, under every discipline, what leads to a block by way of
    /// indirect blocks.
    fn settle_way(&mut self, ino: Ino, lbn: u64) -> Result<(), FsError> {
        let Some(Way::Indirect { tree, places }) = self.way(lbn) else { return Ok(()) };
        let frag = u64::from(self.sb.frag);
        let path = self.existing_path(ino, tree, &places)?;
        let runs: Vec<Extent> = path.iter().map(|&at| Extent::new(at, frag)).collect();
        self.cache.settle_runs(&runs)?;
        self.settle_inode(ino)
    }

    /// Where a tree of indirect blocks is cut in two, nothing of it may be under
    /// way: what stays of it would wait for what goes. That happens rarely, and
    /// `ffs_truncate` writes the whole file first in this case.
    fn settle_cut(&mut self, ino: Ino, kept: u64) -> Result<(), FsError> {
        let Some(Way::Indirect { tree, places }) = self.way(kept) else { return Ok(()) };
        let path = self.existing_path(ino, tree, &places)?;
        if path.is_empty() || places.iter().all(|&place| place == 0) {
            return Ok(());
        }
        self.settle_blocks(&path)?;
        self.settle_inode(ino)
    }

    /// What has left a file is not written any more, and freed once the disk
    /// does not lead there.
    fn let_go(&mut self, cleared: ChangeId, mut cut: Cut) {
        for &run in &cut.runs {
            self.cache.forget(run, cleared);
        }
        cut.cleared.push(cleared);
        let first = self.unless(Fault::ReuseBeforeClear, cut.cleared);
        self.defer_free(&first, Kind::FreeBlks, cut.runs);
    }

    fn cut_direct(&mut self, ino: Ino, len: u64, kept: u64, cut: &mut Cut) -> Result<(), FsError> {
        let bsize = u64::from(self.sb.bsize);
        let node = self.node(ino)?.clone();
        for (lbn, &number) in (0u64..).zip(&node.direct) {
            let have = self.frags_at(&node, lbn);
            if number == 0 || lbn.saturating_add(1) < kept || have == 0 {
                continue;
            }
            let left = len.saturating_sub(lbn.saturating_mul(bsize)).min(bsize);
            let keep = self.frags(left);
            if keep >= have {
                continue;
            }
            let at = self.check_run(ino, number, have)?.saturating_add(u64::from(keep));
            let run = Extent::new(at, u64::from(have.saturating_sub(keep)));
            cut.push(run, self.sb.size, Location::of("block map").in_inode(ino))?;
            let node = self.node(ino)?;
            if let Some(number) = node.direct.get_mut(index(lbn)).filter(|_| keep == 0) {
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
        first: u64,
        span: u64,
        kept: u64,
        cut: &mut Cut,
    ) -> Result<(), FsError> {
        let number = self.node(ino)?.indirect.get(tree).copied().unwrap_or(0);
        if number == 0 || kept >= first.saturating_add(span) {
            return Ok(());
        }
        if kept <= first {
            self.collect_tree(ino, number, tree, cut)?;
            if let Some(top) = self.node(ino)?.indirect.get_mut(tree) {
                *top = 0;
            }
            return Ok(());
        }
        // The way to the first block that goes divides what stays from the rest.
        let Some(Way::Indirect { places, .. }) = self.way(kept) else { return Ok(()) };
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
        let block = self.check_run(ino, number, self.sb.frag)?;
        // What lies on the way itself stays in part, unless it begins there.
        let whole = below.iter().all(|&place| place == 0);
        if !whole {
            let next = self.pointer(block, place)?;
            if next != 0 {
                self.cut_along(ino, next, below, cut)?;
            }
        }
        let from = if whole { place } else { place.saturating_add(1) };
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
        for place in from..self.sb.pointers() {
            let number = self.pointer(block, place)?;
            if number != 0 {
                any = true;
                self.collect(ino, number, levels, cut)?;
            }
        }
        if any {
            let width = index(self.sb.pointer_size());
            let skip = index(from).saturating_mul(width);
            let len = index(self.sb.bsize).saturating_sub(skip);
            let blank = |to: &mut [u8]| {
                to.fill(0);
                Ok(())
            };
            let ((), id) = self.cache.edit(block, skip, len, Role::IndirectClear, blank)?;
            self.note_unsettled(ino, Extent::new(block, u64::from(self.sb.frag)));
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
                let at = self.check_run(ino, number, self.sb.frag)?;
                let place = Location::of("block map").in_inode(ino);
                cut.push(Extent::new(at, u64::from(self.sb.frag)), self.sb.size, place)
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
        let block = self.check_run(ino, number, self.sb.frag)?;
        let place = Location::of("indirect block").in_inode(ino).in_block(block);
        cut.push(Extent::new(block, u64::from(self.sb.frag)), self.sb.size, place)?;
        for at in 0..self.sb.pointers() {
            let number = self.pointer(block, at)?;
            if number != 0 {
                self.collect(ino, number, tree, cut)?;
            }
        }
        Ok(())
    }

    /// All runs of a file: its contents, indirect blocks and attributes.
    fn everything(&mut self, ino: Ino) -> Result<Cut, FsError> {
        let mut cut = Cut::default();
        let node = self.node(ino)?.clone();
        if node.has_blocks() {
            self.cut_direct(ino, 0, 0, &mut cut)?;
            for (tree, &number) in node.indirect.iter().enumerate().filter(|(_, n)| **n != 0) {
                self.collect_tree(ino, number, tree, &mut cut)?;
            }
        }
        for run in self.ext_runs(ino)? {
            cut.push(run, self.sb.size, Location::of("extended attributes").in_inode(ino))?;
        }
        Ok(cut)
    }

    /// Takes a file apart that nothing leads to and nobody holds.
    pub(super) fn destroy(&mut self, ino: Ino) -> Result<(), FsError> {
        let parent = self.nodes.get(&ino).and_then(|node| node.counted_in);
        let cleared = self.take_apart(ino)?;
        if let Some(parent) = parent {
            self.cache.defer(&[cleared], Kind::DirRem, Action::DropLink(parent));
        }
        Ok(())
    }

    /// What is returned must be on the disk for the file to be gone.
    fn take_apart(&mut self, ino: Ino) -> Result<ChangeId, FsError> {
        let cut = self.everything(ino)?;
        let Some(node) = self.nodes.get(&ino) else { return Ok(ChangeId::COMMITTED) };
        let is_directory = node.kind == FileKind::Directory;
        self.drop_index(ino);
        self.uncount(ino);
        if self.never_was(ino) {
            for &run in &cut.runs {
                self.cache.forget(run, ChangeId::COMMITTED);
            }
            self.nodes.remove(&ino);
            self.free_runs(&cut.runs)?;
            self.free_inode(ino, is_directory)?;
            return Ok(ChangeId::COMMITTED);
        }
        let cleared = self.put_cleared(ino, !cut.runs.is_empty())?;
        self.nodes.remove(&ino);
        self.let_go(cleared, cut);
        self.pending.inodes = self.pending.inodes.saturating_add(1);
        let first = self.unless(Fault::InodeReusedEarly, vec![cleared]);
        self.cache.defer(&first, Kind::FreeFile, Action::FreeInode { ino, is_directory });
        Ok(cleared)
    }

    /// Undoes all changes of a new inode, if the disk has nothing of it.
    fn never_was(&mut self, ino: Ino) -> bool {
        let Some(node) = self.nodes.get(&ino) else { return false };
        let fresh = node.fresh.clone();
        let Some(&init) = fresh.first() else { return false };
        if self.cache.is_committed(init) {
            return false;
        }
        fresh.iter().rev().all(|&id| self.cache.is_committed(id) || self.cache.discard(id))
    }
}
