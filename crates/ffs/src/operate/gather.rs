//! Gathering the blocks that a file was just given, where they do not lie in one
//! piece, into a cluster (`ffs_reallocblks`): before any of them is written.

use super::FfsLive;
use super::map::Way;
use seekless_cache::{ChangeId, Role};
use seekless_fs::field::{index, wide};
use seekless_fs::{FileKind, FsError};
use seekless_placement::block::Wanted;
use seekless_placement::reallocblks::{Cluster, groups, permit};
use seekless_units::{BlockNo, Extent, Ino, Lbn};

impl FfsLive {
    /// Moves a new block of a file, and those in front of it that are not on
    /// the disk yet, into one piece; if it does not lie behind the one in front
    /// of it, and there is such a piece.
    pub(super) fn gather(
        &mut self,
        ino: Ino,
        lbn: u64,
        wanted: Wanted,
        at: BlockNo,
    ) -> Result<(), FsError> {
        let Wanted::Data { previous: Some(previous), .. } = wanted else { return Ok(()) };
        let frag = u64::from(self.sb.frag);
        let is_file = self.node(ino)?.kind == FileKind::Regular;
        if !self.reallocblks || !is_file || previous.saturating_add(frag) == at {
            return Ok(());
        }
        let blocks = self.unwritten_up_to(ino, lbn)?;
        let Some((run, bitmap)) = self.take_cluster(ino, lbn, &blocks)? else { return Ok(()) };
        let first = lbn.saturating_sub(wide(blocks.len()).saturating_sub(1));
        let places = (run.start.get()..).step_by(index(frag)).map(BlockNo::new);
        for ((lbn, &old), new) in (first..).zip(&blocks).zip(places) {
            self.move_block(ino, lbn, old, (new, bitmap))?;
        }
        Ok(())
    }

    /// The blocks up to this one, at most a cluster of them, that stand in one
    /// map and of which the disk has nothing; in the order of the file.
    fn unwritten_up_to(&mut self, ino: Ino, lbn: u64) -> Result<Vec<BlockNo>, FsError> {
        let frag = u64::from(self.sb.frag);
        let longest = self.sb.tuning.maxcontig.min(self.sb.tuning.contigsumsize);
        let in_map = match self.way(lbn) {
            Some(Way::Indirect { places, .. }) => places.last().copied().unwrap_or(0),
            _ => lbn,
        };
        let count = u64::from(longest).min(in_map.saturating_add(1));
        let node = self.node(ino)?.clone();
        let mut blocks = Vec::new();
        for lbn in (lbn.saturating_add(1).saturating_sub(count)..=lbn).rev() {
            let whole = self.frags_at(&node, lbn) == self.sb.frag;
            match self.lookup_block(ino, lbn)? {
                Some(at) if whole && self.cache.is_unwritten(Extent::new(at, frag)) => {
                    blocks.push(at);
                }
                _ => break,
            }
        }
        blocks.reverse();
        Ok(blocks)
    }

    /// Takes as many blocks in one piece, where the policy would like the first.
    fn take_cluster(
        &mut self,
        ino: Ino,
        lbn: u64,
        blocks: &[BlockNo],
    ) -> Result<Option<(Extent, ChangeId)>, FsError> {
        let (&[first, .., last], Ok(len)) = (blocks, u32::try_from(blocks.len())) else {
            return Ok(None);
        };
        let start = lbn.saturating_sub(u64::from(len).saturating_sub(1));
        let cluster = Cluster { start: Lbn::new(start), len, first, last };
        let tuning = &self.sb.tuning;
        if permit(&self.groups, tuning.contigsumsize, tuning.dsize, &cluster).is_err() {
            return Ok(None);
        }
        let wanted = self.wanted(ino, start)?;
        let (group, preference) = self.preference(ino, start, wanted)?;
        let preference = preference.filter(|at| at.get() < self.sb.size);
        let from = preference.map_or(group, |at| self.groups.shape().group_of(at));
        for number in groups(self.sb.ncg, from) {
            let taken = self.change_group(number, Role::BitmapSet, |group| {
                Ok(group.alloc_cluster(len, preference)?.map(|taken| (taken.run, taken.delta)))
            })?;
            if let Some((run, bitmap)) = taken {
                let frag = u64::from(self.sb.frag);
                self.blocks.allocated(BlockNo::new(run.end().get().saturating_sub(frag)));
                return Ok(Some((run, bitmap)));
            }
        }
        Ok(None)
    }

    /// Moves one block of a file to a new place.
    fn move_block(
        &mut self,
        ino: Ino,
        lbn: u64,
        old: BlockNo,
        (new, bitmap): (BlockNo, ChangeId),
    ) -> Result<(), FsError> {
        let bsize = index(self.sb.bsize);
        let bytes = self.cache.read(old, 0, bsize)?.to_vec();
        let ((), data) = self.cache.fill(new, bsize, Role::DataMove, |to| {
            to.copy_from_slice(&bytes);
            Ok(())
        })?;
        let frag = u64::from(self.sb.frag);
        let old = Extent::new(old, frag);
        self.note_unsettled(ino, Extent::new(new, frag));
        self.forget_unsettled(ino, &[old]);
        let after = [bitmap, data];
        match self.way(lbn) {
            Some(Way::Direct(at)) => {
                if let Some(number) = self.node(ino)?.direct.get_mut(at) {
                    *number = new.get();
                }
                self.move_run(ino, old, &after)?;
            }
            Some(Way::Indirect { tree, places }) => {
                let path = self.existing_path(ino, tree, &places)?;
                if let (Some(&block), Some(&place)) = (path.last(), places.last()) {
                    let dropped = self.cache.changes_in(old);
                    let number = new.get();
                    let role = Role::PointerMove;
                    let changed =
                        self.put_pointer(block, place, number, role, &after, Some(&dropped))?;
                    self.note_unsettled(ino, Extent::new(block, frag));
                    self.free_moved(old, changed)?;
                }
            }
            None => {}
        }
        Ok(())
    }
}
