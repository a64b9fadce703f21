//! Changes taken back before the disk has them, and contents that matter no more.

use super::{ChangeId, Memory, Soft};

impl<A> Soft<A> {
    pub(in crate::order) fn can_revert(&self, id: ChangeId) -> bool {
        self.graph.get(id).is_some_and(|record| {
            !record.took_in && record.waiting > 0 && !self.graph.is_built_upon(record)
        })
    }

    /// Undoes some changes, the last of them first: all of them or none.
    pub(in crate::order) fn discard_all(&mut self, memory: &mut Memory, ids: &[ChangeId]) -> bool {
        if !self.graph.stand_alone(ids) {
            return false;
        }
        for &id in ids.iter().rev() {
            let undone = self.discard(memory, id);
            debug_assert!(undone, "those behind it are gone");
        }
        true
    }

    pub(in crate::order) fn discard(&mut self, memory: &mut Memory, id: ChangeId) -> bool {
        let Some(record) = self.graph.get(id) else { return false };
        if record.waiting == 0 || self.graph.is_built_upon(record) {
            return false;
        }
        let Some(buffer) = memory.buffers.get_mut(record.block) else {
            debug_assert!(false, "blocks with changes that wait are kept");
            return false;
        };
        record.undo.iter().for_each(|undo| undo.apply(&mut buffer.bytes));
        buffer.held.unblock(&[id]);
        let mut freed = Vec::new();
        self.graph.revoke(id, &mut freed, &mut memory.counters);
        self.unblock(memory, &freed);
        true
    }

    /// Changes that others elsewhere wait for are kept, and written all the same: the waiters may
    /// be on the disk only after them.
    pub(in crate::order) fn forget(
        &mut self,
        memory: &mut Memory,
        block: u64,
        mask: u64,
        until: ChangeId,
    ) {
        let Some(buffer) = memory.buffers.get(block) else { return };
        let held = &buffer.held;
        let ids: Vec<ChangeId> = held.open.iter().copied().chain(held.blocked_ids()).collect();
        let waited_for = |id: &&ChangeId| {
            self.graph.get(**id).is_some_and(|record| self.graph.is_waited_for(record))
        };
        let kept = ids.iter().filter(waited_for).filter_map(|&id| self.graph.get(id));
        let mask = mask & !kept.fold(0, |mask, record| mask | record.mask);
        let mut gone = Vec::new();
        for &id in &ids {
            let Some(record) = self.graph.get_mut(id) else { continue };
            // The rest of it is elsewhere in the block, and so is its undo data: later contents of
            // these fragments belong to other changes.
            record.mask &= !mask;
            if record.mask == 0 {
                gone.push(id);
            } else {
                self.graph.forget_undo(id, memory.shape.fragment, mask);
            }
        }
        if let Some(buffer) = memory.buffers.get_mut(block) {
            buffer.held.drop_all(&gone);
        }
        memory.drop_contents(block, mask);
        let mut freed = Vec::new();
        for id in gone {
            self.graph.dissolve(id, until, &mut freed, &mut memory.counters);
        }
        self.unblock(memory, &freed);
    }
}
