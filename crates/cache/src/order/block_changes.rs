//! The changes that an order holds back in one block.

use crate::change::ChangeId;
use crate::shape::Shape;
use smallvec::SmallVec;

/// A change that may not be written yet, and between which bytes of its block
/// it lies: most can be passed over without a look into the graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked {
    pub(crate) id: ChangeId,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// The state of a block in a journal, if there is one.
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
    /// The submitted bytes are the log's last copy of it.
    pub(crate) homing: bool,
    /// Contents on their way home before a commit.
    pub(crate) writing: bool,
    /// Contents that have changed meanwhile.
    pub(crate) again: bool,
}

/// The changes to a block that are not on the disk.
///
/// A record is in exactly one of the four lists while it is in the graph, and in none when it is
/// not (invariant 4 of docs/design/order.md). All are short: there is one writable record for each
/// fragment at most.
#[derive(Default, Debug)]
pub(crate) struct BlockChanges {
    /// Changes that may not be written yet, oldest first: undone from the last
    /// to the first they leave the block as the disk may show it.
    blocked: SmallVec<[Blocked; 1]>,
    /// In which parts of the block (see [`Shape::parts`]) one of these lies, and maybe
    /// some more: most changes lie over none and need not look for it.
    near: u64,
    /// In which fragments one of these lies, and maybe some more.
    waiting: u64,
    /// Changes that may be written, and that others may wait for.
    pub(super) open: SmallVec<[ChangeId; 2]>,
    /// Changes that are being written.
    pub(super) sent: SmallVec<[ChangeId; 2]>,
    /// Changes whose write has completed, until the device is flushed.
    pub(super) unflushed: SmallVec<[ChangeId; 2]>,
    pub(crate) journal: Journalled,
}

impl BlockChanges {
    /// Whether something in the block may not be written yet.
    pub(crate) fn waits(&self) -> bool {
        let Journalled { running, committing, writing, .. } = self.journal;
        running || committing || writing || !self.blocked.is_empty()
    }

    /// Whether something may not be written yet in some fragments of the block.
    pub(crate) fn waits_in(&self, fragments: u64) -> bool {
        let Journalled { running, committing, writing, .. } = self.journal;
        running || committing || writing || self.waiting & fragments != 0
    }

    /// Whether more may be written than may not.
    pub(crate) fn may_mostly_go(&self) -> bool {
        self.open.len() > self.blocked.len()
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
    pub(super) fn blocked_ids(
        &self,
    ) -> impl DoubleEndedIterator<Item = ChangeId> + ExactSizeIterator {
        self.blocked.iter().map(|blocked| blocked.id)
    }

    /// How many changes wait for a flush.
    pub(super) fn unflushed(&self) -> usize {
        self.unflushed.len()
    }

    /// The changes that were written and are not known to be on the disk.
    pub(super) fn written_ids(&self) -> impl Iterator<Item = ChangeId> {
        self.sent.iter().chain(&self.unflushed).copied()
    }

    /// All of them: first those that wait.
    pub(super) fn ids(&self) -> impl Iterator<Item = ChangeId> {
        self.blocked_ids().chain(self.open.iter().copied()).chain(self.written_ids())
    }

    /// Those that may lie in some parts of the block, oldest first.
    pub(super) fn blocked_near(&self, parts: u64) -> &[Blocked] {
        if self.near & parts == 0 { &[] } else { &self.blocked }
    }

    /// One more change may not be written, which lies in these parts and in these
    /// fragments of the block.
    pub(super) fn block(&mut self, blocked: Blocked, parts: u64, fragments: u64) {
        self.near |= parts;
        self.waiting |= fragments;
        self.blocked.push(blocked);
    }

    /// Changes are no longer such that may not be written.
    pub(super) fn unblock(&mut self, ids: &[ChangeId]) {
        // Mostly they come as they lie here, the oldest first.
        let mut left = ids.iter();
        let mut next = left.next();
        self.blocked.retain(|blocked| {
            let goes = next == Some(&blocked.id);
            if goes {
                next = left.next();
            }
            !goes
        });
        if next.is_some() {
            self.blocked.retain(|blocked| !ids.contains(&blocked.id));
        }
        self.forget_where();
    }

    /// Whether [`BlockChanges::blocked_near`] finds the blocked changes.
    pub(super) fn knows_where(&self, shape: Shape) -> bool {
        self.blocked.iter().all(|at| {
            let fragments = shape.mask(at.start as usize, at.end as usize);
            shape.parts(at.start, at.end) & !self.near == 0 && fragments & !self.waiting == 0
        })
    }

    fn forget_where(&mut self) {
        if self.blocked.is_empty() {
            (self.near, self.waiting) = (0, 0);
        }
    }

    /// Changes that are still to be written are so no more.
    pub(super) fn drop_all(&mut self, gone: &[ChangeId]) {
        self.open.retain(|id| !gone.contains(id));
        self.blocked.retain(|blocked| !gone.contains(&blocked.id));
        self.forget_where();
    }
}
