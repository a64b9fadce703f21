//! What an order holds back in one block.

use crate::change::ChangeId;

/// A change that may not be written yet, and between which bytes of its block
/// it lies: most can be passed over without a look into the graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked {
    pub(crate) id: ChangeId,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// What a journal does with a block, if there is one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Journalled {
    /// Changed by the running transaction.
    pub(crate) running: bool,
    /// Its copy is on its way to the log.
    pub(crate) committing: bool,
    /// The log has it as it is, and its home has not.
    pub(crate) logged: bool,
    /// Submitted to go home, and not known to be there: being written, or waiting for
    /// a flush.
    pub(crate) sent: bool,
    /// What was submitted is what the log has of it last.
    pub(crate) homing: bool,
    /// Contents on their way home before a commit.
    pub(crate) writing: bool,
    /// Contents that have changed meanwhile.
    pub(crate) again: bool,
}

/// The changes to a block that are not on the disk.
///
/// A record is in exactly one of the four lists while it is in the graph, and in
/// none when it is not (invariant 4 of docs/design/order.md). All are short: what
/// may be written has one record for each fragment at most.
#[derive(Default, Debug)]
pub(crate) struct Held {
    /// Changes that may not be written yet, oldest first: undone from the last
    /// to the first they leave the block as the disk may show it.
    pub(super) blocked: Vec<Blocked>,
    /// Changes that may be written, and that somebody may wait for.
    pub(super) open: Vec<ChangeId>,
    /// Changes that are being written.
    pub(super) sent: Vec<ChangeId>,
    /// Changes whose write has completed, until the device is flushed.
    pub(super) unflushed: Vec<ChangeId>,
    pub(crate) journal: Journalled,
}

impl Held {
    /// Whether something in the block may not be written yet.
    pub(crate) fn waits(&self) -> bool {
        let Journalled { running, committing, writing, .. } = self.journal;
        running || committing || writing || !self.blocked.is_empty()
    }

    /// Whether nothing is held at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocked.is_empty()
            && self.open.is_empty()
            && self.sent.is_empty()
            && self.unflushed.is_empty()
            && self.journal == Journalled::default()
    }

    /// The changes that may not be written yet, oldest first.
    pub(super) fn blocked_ids(&self) -> impl DoubleEndedIterator<Item = ChangeId> {
        self.blocked.iter().map(|blocked| blocked.id)
    }

    /// The changes that were written and are not known to be on the disk.
    pub(super) fn written_ids(&self) -> impl Iterator<Item = ChangeId> {
        self.sent.iter().chain(&self.unflushed).copied()
    }

    /// All of them: first those that wait.
    pub(super) fn ids(&self) -> impl Iterator<Item = ChangeId> {
        self.blocked_ids().chain(self.open.iter().copied()).chain(self.written_ids())
    }

    /// A change is no longer one that may not be written.
    pub(super) fn unblock(&mut self, id: ChangeId) {
        self.blocked.retain(|blocked| blocked.id != id);
    }

    /// Changes that are still to be written are so no more.
    pub(super) fn drop_all(&mut self, gone: &[ChangeId]) {
        self.open.retain(|id| !gone.contains(id));
        self.blocked.retain(|blocked| !gone.contains(&blocked.id));
    }
}
