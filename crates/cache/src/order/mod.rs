//! The order of changes: one interface for every discipline.
//!
//! A cache tells its order of every change ([`Order::edited`], [`Order::changed`]), asks which
//! changes in a block must be rolled back for a write ([`Order::roll_back`]), and reports the
//! progress of a write: it was submitted ([`Order::sent`]), it has completed
//! ([`Order::completed`]), it is on the disk ([`Order::committed`]). All state of a discipline is
//! behind these calls, and in the [`BlockChanges`] of each block; the rest of the cache deals with
//! blocks, bytes and times.
//!
//! - `plain`: `sync`, `normal` and `async`, which differ only in what the cache
//!   writes at once
//! - `soft`: soft updates
//! - `journal`: transactions in a log

mod block_changes;
pub(crate) mod change;
pub(crate) mod journal;
mod plain;
mod queries;
mod soft;

pub(crate) use block_changes::BlockChanges;
pub(crate) use soft::MOST_BLOCK;

use crate::buffer::Buffer;
use crate::change::{ChangeId, Changed, Kind, Role};
use crate::config::Config;
use crate::discipline::Discipline;
use crate::memory::Memory;
use crate::shape::Place;
use change::Change;
pub(crate) use change::ToSettle;
use journal::Journal;
use plain::Plain;
use seekless_units::ByteLen;
use smallvec::SmallVec;
use soft::Soft;

/// The names that an order has for several changes.
pub(crate) type Joined = SmallVec<[ChangeId; 3]>;

/// An order of changes. `A` is an action of the format.
pub(crate) enum Order<A> {
    Plain(Plain<A>),
    Soft(Box<Soft<A>>),
    Journal(Box<Journal<A>>),
}

impl<A> Order<A> {
    /// The order that a discipline asks for.
    pub(crate) fn new(config: &Config) -> Self {
        match config.discipline {
            Discipline::SoftUpdates => Self::Soft(Box::new(Soft::new(config.drop_order))),
            Discipline::Journal(mode) => Self::Journal(Box::new(Journal::new(mode))),
            Discipline::Sync | Discipline::Normal | Discipline::Async => Self::Plain(Plain::new()),
        }
    }

    /// Whether it knows of changes that are not on the disk.
    pub(crate) fn holds_back(&self) -> bool {
        matches!(self, Self::Soft(_) | Self::Journal(_))
    }

    /// Whether the bytes at a place may be changed where they are: nothing that
    /// may not be written yet lies over or under them.
    pub(crate) fn may_edit(&self, memory: &Memory, place: Place) -> bool {
        match self {
            Self::Plain(_) | Self::Journal(_) => true,
            Self::Soft(soft) => !soft.touches_blocked(memory, place),
        }
    }

    /// Bytes were changed that nothing holds back and nothing has to precede.
    pub(crate) fn edited(
        &mut self,
        memory: &mut Memory,
        block: u64,
        mask: u64,
        role: Role,
    ) -> ChangeId {
        match self {
            Self::Plain(_) => ChangeId::COMMITTED,
            Self::Soft(soft) => soft.edited(memory, block, mask, role),
            Self::Journal(journal) => journal.edited(memory, block, role, &[]),
        }
    }

    /// Makes a change, and holds it back until its dependencies are on the disk.
    pub(crate) fn changed(&mut self, memory: &mut Memory, change: &Change<'_>) -> Changed {
        match self {
            Self::Plain(_) => Plain::<A>::changed(memory, change),
            Self::Soft(soft) => soft.changed(memory, change),
            Self::Journal(journal) => journal.changed(memory, change),
        }
    }

    /// Rolls back the blocked changes in a copy of a block. Returns their number.
    pub(crate) fn roll_back(&self, buffer: &Buffer, copy: &mut [u8]) -> usize {
        match self {
            Self::Plain(_) | Self::Journal(_) => 0,
            Self::Soft(soft) => soft.roll_back(buffer, copy),
        }
    }

    /// The writable parts of these blocks were given to the device.
    pub(crate) fn sent(&mut self, memory: &mut Memory, blocks: &[u64]) {
        match self {
            Self::Plain(_) => blocks.iter().for_each(|&block| memory.mark_written(block)),
            Self::Soft(soft) => soft.sent(memory, blocks),
            Self::Journal(journal) => journal.sent(memory, blocks),
        }
    }

    /// The writes of these blocks have completed, and wait for a flush.
    pub(crate) fn completed(&mut self, memory: &mut Memory, blocks: &[u64]) {
        match self {
            Self::Plain(_) | Self::Journal(_) => {}
            Self::Soft(soft) => soft.completed(memory, blocks),
        }
    }

    /// The completed writes of these blocks are on the disk.
    pub(crate) fn committed(&mut self, memory: &mut Memory, blocks: &[u64]) {
        match self {
            Self::Plain(_) => {}
            Self::Soft(soft) => soft.committed(memory, blocks),
            Self::Journal(journal) => journal.landed(memory, blocks),
        }
    }

    /// The number of changes in each of some blocks that wait for a flush.
    pub(crate) fn completed_changes(&self, memory: &Memory, blocks: &[u64]) -> Vec<(u64, usize)> {
        match self {
            Self::Plain(_) | Self::Journal(_) => Vec::new(),
            Self::Soft(_) => {
                let changes = |block| Some((block, memory.buffers.get(block)?.held.unflushed()));
                blocks.iter().filter_map(|&block| changes(block)).collect()
            }
        }
    }

    /// The first changes of some blocks that waited for a flush are on the disk: in each block
    /// the number that [`Order::completed_changes`] returned. No flush was noted in between.
    pub(crate) fn committed_first(&mut self, memory: &mut Memory, blocks: &[(u64, usize)]) {
        match self {
            Self::Plain(_) | Self::Journal(_) => {}
            Self::Soft(soft) => soft.committed_first(memory, blocks),
        }
    }

    /// Steps to get some changes to the disk. A journal has its own way
    /// (`Cache::settle_journalled`).
    pub(crate) fn to_settle(&self, memory: &Memory, changes: &[ChangeId]) -> ToSettle {
        match self {
            Self::Plain(_) | Self::Journal(_) => ToSettle::default(),
            Self::Soft(soft) => soft.to_settle(memory, changes),
        }
    }

    /// Does an action once all of `after` is on the disk; at once, if it is.
    pub(crate) fn defer(&mut self, memory: &mut Memory, after: &[ChangeId], kind: Kind, action: A) {
        match self {
            Self::Plain(plain) => plain.defer(memory, kind, action),
            Self::Soft(soft) => soft.defer(memory, after, kind, action),
            // Whatever it changes is in the same transaction, or a later one.
            Self::Journal(journal) => journal.actions.defer(memory, kind, action),
        }
    }

    /// The fewest changes that are on the disk when all of `after` is.
    pub(crate) fn join(&mut self, after: &[ChangeId]) -> Joined {
        match self {
            Self::Plain(_) => Joined::new(),
            Self::Soft(soft) => soft.join(after).into_iter().collect(),
            // Its transactions are joins already.
            Self::Journal(journal) => {
                let mut left = Joined::new();
                for &id in after.iter().filter(|&&id| !journal.is_committed(id)) {
                    if !left.contains(&id) {
                        left.push(id);
                    }
                }
                left
            }
        }
    }

    /// An action that need wait no longer.
    pub(crate) fn next_ready(&mut self) -> Option<A> {
        match self {
            Self::Plain(plain) => plain.ready.pop_front(),
            Self::Soft(soft) => soft.next_ready(),
            Self::Journal(journal) => journal.actions.ready.pop_front(),
        }
    }

    pub(crate) fn ready(&self) -> impl Iterator<Item = &A> {
        match self {
            Self::Plain(plain) => plain.ready.iter(),
            Self::Soft(soft) => soft.ready(),
            Self::Journal(journal) => journal.actions.ready.iter(),
        }
    }

    pub(crate) fn has_ready(&self) -> bool {
        match self {
            Self::Plain(plain) => !plain.ready.is_empty(),
            Self::Soft(soft) => soft.has_ready(),
            Self::Journal(journal) => !journal.actions.ready.is_empty(),
        }
    }

    pub(crate) fn is_committed(&self, id: ChangeId) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Soft(soft) => soft.is_committed(id),
            Self::Journal(journal) => journal.is_committed(id),
        }
    }

    /// Changes and deferred actions that are kept.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain(_) | Self::Journal(_) => 0,
            Self::Soft(soft) => soft.len(),
        }
    }

    /// Bytes that are kept to undo changes with.
    pub(crate) fn undo_bytes(&self) -> ByteLen {
        match self {
            Self::Plain(_) | Self::Journal(_) => ByteLen::new(0),
            Self::Soft(soft) => soft.undo_bytes(),
        }
    }

    /// The changes to some fragments of a block that wait for something.
    pub(crate) fn waiting_in(&self, buffer: &Buffer, mask: u64) -> Vec<ChangeId> {
        match self {
            Self::Plain(_) => Vec::new(),
            Self::Soft(soft) => soft.waiting_in(buffer, mask),
            Self::Journal(journal) => journal.waiting_in(buffer),
        }
    }

    /// The changes to some fragments of a block that a write of it would undo in the copy.
    pub(crate) fn undone_in(&self, buffer: &Buffer, mask: u64) -> Vec<ChangeId> {
        match self {
            Self::Plain(_) | Self::Journal(_) => Vec::new(),
            Self::Soft(soft) => soft.waiting_in(buffer, mask),
        }
    }

    /// The changes to some fragments of a block that wait for something, are being
    /// written, or wait for a flush.
    pub(crate) fn held_in(&self, buffer: &Buffer, mask: u64) -> Vec<ChangeId> {
        match self {
            Self::Plain(_) => Vec::new(),
            Self::Soft(soft) => soft.held_in(buffer, mask),
            Self::Journal(journal) => journal.held_in(buffer),
        }
    }

    /// The changes to some fragments of a block that are not on the disk.
    pub(crate) fn changes_in(&self, buffer: &Buffer, mask: u64) -> Vec<ChangeId> {
        match self {
            Self::Plain(_) => Vec::new(),
            Self::Soft(soft) => soft.changes_in(buffer, mask),
            Self::Journal(journal) => journal.changes_in(buffer),
        }
    }

    /// The journal, if there is one.
    pub(crate) fn journal(&self) -> Option<&Journal<A>> {
        if let Self::Journal(journal) = self { Some(journal) } else { None }
    }

    pub(crate) fn journal_mut(&mut self) -> Option<&mut Journal<A>> {
        if let Self::Journal(journal) = self { Some(journal) } else { None }
    }

    /// The first invariant of docs/design/order.md that does not hold, or of
    /// docs/design/journal.md where there is a journal.
    pub(crate) fn broken_invariant(&self, memory: &Memory) -> Option<String> {
        match self {
            Self::Plain(_) => {
                let holds = memory.buffers.iter().any(|buffer| !buffer.held.is_empty());
                holds.then(|| "4: a block holds changes, and no order is kept".to_string())
            }
            Self::Soft(soft) => soft.broken_invariant(memory),
            Self::Journal(journal) => journal.broken_invariant(memory),
        }
    }

    pub(crate) fn can_revert(&self, id: ChangeId) -> bool {
        match self {
            Self::Plain(_) | Self::Journal(_) => false,
            Self::Soft(soft) => soft.can_revert(id),
        }
    }

    /// Undoes some changes, the last of them first, if no others build upon them: all or
    /// none.
    pub(crate) fn discard_all(&mut self, memory: &mut Memory, ids: &[ChangeId]) -> bool {
        match self {
            Self::Plain(_) | Self::Journal(_) => false,
            Self::Soft(soft) => soft.discard_all(memory, ids),
        }
    }

    /// Undoes a change that no other builds upon; those to its own bytes go with
    /// it. False when it is too late.
    pub(crate) fn discard(&mut self, memory: &mut Memory, id: ChangeId) -> bool {
        match self {
            Self::Plain(_) | Self::Journal(_) => false,
            Self::Soft(soft) => soft.discard(memory, id),
        }
    }

    /// The contents of some fragments of a block matter no more, except for changes that others
    /// still wait for. Actions that wait for changes in them wait for `until` instead.
    pub(crate) fn forget(&mut self, memory: &mut Memory, block: u64, mask: u64, until: ChangeId) {
        match self {
            Self::Plain(_) => memory.drop_contents(block, mask),
            Self::Soft(soft) => soft.forget(memory, block, mask, until),
            Self::Journal(journal) => journal.forget(memory, block, mask),
        }
    }
}
