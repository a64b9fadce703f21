//! Waiting for changes, and taking them back: actions deferred until the disk
//! has them, changes undone before it does, blocks whose contents matter no more.

use crate::buffer::Buffer;
use crate::cache::{Cache, bits};
use crate::change::{ChangeId, Kind};
use seekless_units::Extent;

impl<A> Cache<A> {
    /// Does an action once all of `after` is on the disk; at once, if it is.
    pub fn defer(&mut self, after: &[ChangeId], kind: Kind, action: A) {
        self.graph.defer(after, kind, action, &mut self.counters);
    }

    /// An action that need wait no longer. The format does them between its
    /// operations, until there are none.
    pub fn next_ready(&mut self) -> Option<A> {
        self.graph.next_ready()
    }

    /// Whether a change is on the disk.
    #[must_use]
    pub fn is_committed(&self, id: ChangeId) -> bool {
        self.graph.get(id).is_none()
    }

    /// The changes to a run of fragments that wait for something.
    #[must_use]
    pub fn waiting_in(&self, run: Extent) -> Vec<ChangeId> {
        self.found_in(run, Buffer::blocked_ids)
    }

    /// The changes to a run of fragments that are not on the disk, whether they
    /// wait for something or not.
    #[must_use]
    pub fn changes_in(&self, run: Extent) -> Vec<ChangeId> {
        self.found_in(run, |buffer| buffer.blocked_ids().chain(buffer.open.iter().copied()))
    }

    /// Whether anything in a run of fragments is not on the disk, whether it may
    /// be written now or waits for something.
    #[must_use]
    pub fn is_unsettled(&self, run: Extent) -> bool {
        self.blocks_of(run).any(|(block, mask)| {
            let waits = |id| self.graph.get(id).is_some_and(|record| record.mask & mask != 0);
            let holds = |b: &Buffer| b.dirty & mask != 0 || b.blocked_ids().any(waits);
            self.buffers.get(block).is_some_and(holds)
        })
    }

    /// Whether all of a run of fragments is in the cache and not on the disk.
    #[must_use]
    pub fn is_unwritten(&self, run: Extent) -> bool {
        self.blocks_of(run).all(|(block, mask)| {
            self.buffers.get(block).is_some_and(|buffer| buffer.dirty & mask == mask)
        })
    }

    fn found_in<'a, I>(&'a self, run: Extent, changes: impl Fn(&'a Buffer) -> I) -> Vec<ChangeId>
    where
        I: Iterator<Item = ChangeId>,
    {
        let mut found = Vec::new();
        for (block, mask) in self.blocks_of(run) {
            let Some(buffer) = self.buffers.get(block) else { continue };
            let touches = |id: &ChangeId| self.graph.get(*id).is_some_and(|r| r.mask & mask != 0);
            found.extend(changes(buffer).filter(touches));
        }
        found
    }

    /// Undoes a change that has not been written, if no other change builds
    /// upon it or has been taken in by it; actions that wait for it need wait
    /// no longer. False when it is too late for that, or another change waits
    /// for it (the removal of the old name of a file that was given a new one,
    /// say).
    pub fn revert(&mut self, id: ChangeId) -> bool {
        self.can_revert(id) && self.discard(id)
    }

    /// Whether [`Cache::revert`] would undo a change now.
    #[must_use]
    pub fn can_revert(&self, id: ChangeId) -> bool {
        self.graph.get(id).is_some_and(|record| {
            !record.took_in && record.waiting > 0 && !self.graph.is_built_upon(record)
        })
    }

    /// As [`Cache::revert`], and later changes to these bytes go with it: they
    /// are those of something that is no more, a new inode say.
    pub fn discard(&mut self, id: ChangeId) -> bool {
        let Some(record) = self.graph.get(id) else { return false };
        if record.waiting == 0 || self.graph.is_built_upon(record) {
            return false;
        }
        let block = record.block;
        let Some(buffer) = self.buffers.get_mut(block) else {
            debug_assert!(false, "blocks with changes that wait are kept");
            return false;
        };
        for undo in record.undo.iter().rev() {
            let start = undo.offset as usize;
            buffer.bytes[start..start + undo.bytes.len()].copy_from_slice(&undo.bytes);
        }
        buffer.unblock(id);
        self.release(id);
        true
    }

    /// A record is as good as on the disk.
    fn release(&mut self, id: ChangeId) {
        let mut freed = Vec::new();
        self.graph.revoke(id, &mut freed, &mut self.counters);
        self.unblock(&freed);
    }

    /// The contents of a run of fragments do not matter any more: nothing of
    /// them is written, but for what other changes wait for still. Actions
    /// that wait for changes in it wait for `until` instead, the change that
    /// takes the run out of its file.
    pub fn forget(&mut self, run: Extent, until: ChangeId) {
        for (block, mask) in self.blocks_of(run) {
            let Some(buffer) = self.buffers.get(block) else { continue };
            let ids: Vec<ChangeId> =
                buffer.open.iter().copied().chain(buffer.blocked_ids()).collect();
            let waited_for = |id: &&ChangeId| {
                self.graph.get(**id).is_some_and(|record| self.graph.is_waited_for(record))
            };
            let kept = ids.iter().filter(waited_for).filter_map(|&id| self.graph.get(id));
            let mask = mask & !kept.fold(0, |mask, record| mask | record.mask);
            self.forget_in(block, mask, &ids, until);
        }
    }

    /// Forgets some fragments of a block, and the changes that lie in them.
    fn forget_in(&mut self, block: u64, mask: u64, ids: &[ChangeId], until: ChangeId) {
        let mut gone = Vec::new();
        for &id in ids {
            let Some(record) = self.graph.get_mut(id) else { continue };
            // What remains of it is elsewhere in the block, and so is what it
            // undoes: whatever comes into these fragments is another's.
            record.mask &= !mask;
            if record.mask == 0 {
                gone.push(id);
            } else {
                self.graph.forget_undo(id, self.shape.fragment, mask);
            }
        }
        let Some(buffer) = self.buffers.get_mut(block) else { return };
        buffer.dirty &= !mask;
        buffer.valid &= !mask;
        buffer.open.retain(|id| !gone.contains(id));
        buffer.blocked.retain(|blocked| !gone.contains(&blocked.id));
        if buffer.valid == 0 && !buffer.holds_changes() {
            self.buffers.remove(block);
        }
        self.buffers.note_loss(block);
        let mut freed = Vec::new();
        for id in gone {
            self.graph.dissolve(id, until, &mut freed, &mut self.counters);
        }
        self.unblock(&freed);
    }

    /// The blocks of a run, each with the mask of its fragments in it.
    pub(crate) fn blocks_of(&self, run: Extent) -> impl Iterator<Item = (u64, u64)> + use<A> {
        let per_block = u64::from(self.shape.per_block);
        let (start, end) = (run.start.get(), run.end().get());
        (start / per_block..end.div_ceil(per_block)).map(move |block| {
            let base = block * per_block;
            let first = start.saturating_sub(base).min(per_block) as usize;
            let last = end.saturating_sub(base).min(per_block) as usize;
            (block, bits(last) & !bits(first))
        })
    }

    /// Changes may now be written: their blocks are dirty with them.
    pub(crate) fn unblock(&mut self, freed: &[ChangeId]) {
        for &id in freed {
            let Some(record) = self.graph.get(id) else { continue };
            let (block, mask, role) = (record.block, record.mask, record.role);
            debug_assert!(self.buffers.get(block).is_some(), "blocks with changes are kept");
            if let Some(buffer) = self.buffers.get_mut(block) {
                buffer.unblock(id);
                buffer.open.push(id);
                buffer.dirty |= mask;
            }
            self.schedule(block, role);
        }
    }
}
