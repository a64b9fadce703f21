//! Waiting for changes, and taking them back: actions deferred until the disk
//! has them, changes undone before it does, blocks whose contents matter no more.

use super::Changes;
use crate::change::{ChangeId, Kind};
use seekless_units::Extent;
use smallvec::SmallVec;

impl<A> Changes<'_, A> {
    /// Does an action once all of `after` is on the disk; at once, if it is.
    pub fn defer(&mut self, after: &[ChangeId], kind: Kind, action: A) {
        self.blocks.order.defer(&mut self.blocks.memory, after, kind, action);
    }

    /// The fewest changes that are on the disk when all of `after` is: one at most under soft
    /// updates. For callers that wait for a growing number of changes, as those that make each
    /// block of a directory reachable: of `n` names that wait for each of `n` changes the graph
    /// would have to keep the square.
    pub fn join(&mut self, after: &[ChangeId]) -> SmallVec<[ChangeId; 3]> {
        self.blocks.order.join(after)
    }

    /// An action that need wait no longer. The format does them between its
    /// operations, until there are none.
    pub fn next_ready(&mut self) -> Option<A> {
        self.blocks.order.next_ready()
    }

    /// Undoes a change that has not been written, if no other change builds
    /// upon it or has been taken in by it; actions that wait for it need wait
    /// no longer. False when it is too late for that, or another change waits
    /// for it (the removal of the old name of a file that was given a new one,
    /// say).
    pub fn revert(&mut self, id: ChangeId) -> bool {
        self.blocks.order.can_revert(id) && self.discard(id)
    }

    /// As [`Changes::revert`], and later changes to these bytes go with it: they
    /// are those of something that is no more, a new inode say.
    pub fn discard(&mut self, id: ChangeId) -> bool {
        self.blocks.order.discard(&mut self.blocks.memory, id)
    }

    /// As [`Changes::discard`], of changes in the order in which they were made, those of a new
    /// inode say: all of them, or none where the disk may have something of one or another
    /// change builds upon one.
    pub fn discard_all(&mut self, ids: &[ChangeId]) -> bool {
        self.blocks.order.discard_all(&mut self.blocks.memory, ids)
    }

    /// The contents of a run of fragments do not matter any more: none of them are written, except
    /// for changes that others still wait for. Actions that wait for changes in it wait for `until`
    /// instead, the change that takes the run out of its file.
    pub fn forget(&mut self, run: Extent, until: ChangeId) {
        for (block, mask) in self.blocks.memory.shape.blocks_of(run) {
            self.blocks.order.forget(&mut self.blocks.memory, block, mask, until);
        }
    }
}
