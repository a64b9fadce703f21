//! Waiting for changes, and taking them back: actions deferred until the disk
//! has them, changes undone before it does, blocks whose contents matter no more.

use crate::buffer::Buffer;
use crate::cache::Cache;
use crate::change::{ChangeId, Kind};
use crate::order::Order;
use seekless_units::Extent;
use smallvec::SmallVec;

impl<A> Cache<A> {
    /// Does an action once all of `after` is on the disk; at once, if it is.
    pub fn defer(&mut self, after: &[ChangeId], kind: Kind, action: A) {
        self.order.defer(&mut self.memory, after, kind, action);
    }

    /// The fewest changes that are on the disk when all of `after` is: one at most under soft
    /// updates. For callers that wait for a growing number of changes, as those that make each
    /// block of a directory reachable: of `n` names that wait for each of `n` changes the graph
    /// would have to keep the square.
    pub fn join(&mut self, after: &[ChangeId]) -> SmallVec<[ChangeId; 3]> {
        self.order.join(after)
    }

    /// An action that need wait no longer. The format does them between its
    /// operations, until there are none.
    pub fn next_ready(&mut self) -> Option<A> {
        self.order.next_ready()
    }

    /// The actions that [`Cache::next_ready`] gives next, in that order.
    pub fn ready(&self) -> impl Iterator<Item = &A> {
        self.order.ready()
    }

    /// The first invariant of docs/design/order.md that does not hold, in words.
    /// For tests: it looks at everything.
    #[must_use]
    pub fn broken_invariant(&self) -> Option<String> {
        let order = self.order.broken_invariant(&self.memory);
        order.or_else(|| self.flights.broken_invariant(&self.memory, self.failed.is_some()))
    }

    /// Whether a change is on the disk.
    #[must_use]
    pub fn is_committed(&self, id: ChangeId) -> bool {
        self.order.is_committed(id)
    }

    /// The changes to a run of fragments that wait for something.
    #[must_use]
    pub fn waiting_in(&self, run: Extent) -> Vec<ChangeId> {
        self.found_in(run, Order::waiting_in)
    }

    /// The changes to a run of fragments that are not on the disk, whether they
    /// wait for something or not.
    #[must_use]
    pub fn changes_in(&self, run: Extent) -> Vec<ChangeId> {
        self.found_in(run, Order::changes_in)
    }

    /// Whether any change in a run of fragments is not on the disk, whether it may be written now,
    /// waits or is being written. A change without an order counts as being on the disk once its
    /// write has completed; a caller that wants it durable flushes ([`Cache::flush`]).
    #[must_use]
    pub fn is_unsettled(&self, run: Extent) -> bool {
        self.memory.shape.blocks_of(run).any(|(block, mask)| {
            self.memory.buffers.get(block).is_some_and(|buffer| {
                // Logged blocks are on the disk.
                let is_logged = buffer.held.journal.logged || buffer.held.journal.homing;
                let changed = (buffer.dirty | buffer.changed_under_way()) & mask != 0;
                changed && !is_logged || !self.order.held_in(buffer, mask).is_empty()
            })
        })
    }

    /// Whether all of a run of fragments is in the cache and not on the disk.
    #[must_use]
    pub fn is_unwritten(&self, run: Extent) -> bool {
        self.memory.shape.blocks_of(run).all(|(block, mask)| {
            self.memory
                .buffers
                .get(block)
                .is_some_and(|buffer| buffer.dirty & mask == mask && !buffer.held.journal.logged)
        })
    }

    fn found_in(
        &self,
        run: Extent,
        changes: impl Fn(&Order<A>, &Buffer, u64) -> Vec<ChangeId>,
    ) -> Vec<ChangeId> {
        let mut found = Vec::new();
        for (block, mask) in self.memory.shape.blocks_of(run) {
            if let Some(buffer) = self.memory.buffers.get(block) {
                found.append(&mut changes(&self.order, buffer, mask));
            }
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
        self.order.can_revert(id)
    }

    /// As [`Cache::revert`], and later changes to these bytes go with it: they
    /// are those of something that is no more, a new inode say.
    pub fn discard(&mut self, id: ChangeId) -> bool {
        self.order.discard(&mut self.memory, id)
    }

    /// As [`Cache::discard`], of changes in the order in which they were made, those of a new
    /// inode say: all of them, or none where the disk may have something of one or another
    /// change builds upon one.
    pub fn discard_all(&mut self, ids: &[ChangeId]) -> bool {
        self.order.discard_all(&mut self.memory, ids)
    }

    /// The contents of a run of fragments do not matter any more: none of them are written, except
    /// for changes that others still wait for. Actions that wait for changes in it wait for `until`
    /// instead, the change that takes the run out of its file.
    pub fn forget(&mut self, run: Extent, until: ChangeId) {
        for (block, mask) in self.memory.shape.blocks_of(run) {
            self.order.forget(&mut self.memory, block, mask, until);
        }
    }
}
