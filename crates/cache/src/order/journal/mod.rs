//! A journal: the changes of an operation go into the running transaction, and transactions go to a
//! log, one after the other, each as a whole. Afterwards its blocks may go home.
//! docs/design/journal.md argues it.
//!
//! This module has the state of blocks and transactions; `commit.rs` and `checkpoint.rs` of the
//! cache advance it.
//!
//! - `transaction`: the running one and the committing one
//! - `ids`: names of changes
//! - `quarantine`: runs given back that may not be used again yet
//! - `invariants`: serves tests

mod ids;
mod invariants;
mod quarantine;
mod transaction;

pub(crate) use ids::{Number, is_later, next_number};
pub(crate) use transaction::{Committing, Running};

use super::plain::Plain;
use crate::buffer::Buffer;
use crate::change::{ChangeId, Changed, Role};
use crate::discipline::JournalMode;
use crate::log::Log;
use crate::memory::Memory;
use crate::order::change::Change;
use crate::work::Commits;
use hashbrown::HashMap;
use ids::DataIds;
use seekless_units::Nanos;
use std::collections::VecDeque;
use std::num::NonZeroU32;

/// A block with copies in the log that a recovery would bring home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InLog {
    /// The last transaction that has one; it may still be committing.
    pub(crate) newest: Number,
    /// That copy is at home.
    pub(crate) home: bool,
    /// The running or committing transaction that revokes all of them.
    pub(crate) revoked_by: Option<Number>,
}

pub(crate) struct Journal<A> {
    pub(crate) mode: JournalMode,
    pub(crate) log: Option<Box<dyn Log>>,
    /// Actions, which need not wait here.
    pub(crate) actions: Plain<A>,
    pub(crate) running: Running,
    pub(crate) committing: Option<Committing>,
    /// The last that was committed; all before it were.
    pub(crate) committed: Option<Number>,
    /// The transactions in the log that are committed, the oldest first.
    pub(crate) live: VecDeque<Number>,
    pub(crate) in_log: HashMap<u64, InLog>,
    /// When the first block was committed of those that no sweep has brought home.
    pub(crate) unswept: Option<Nanos>,
    /// Blocks that the running transaction may have before its operation ends;
    /// `None` between operations.
    pub(crate) handle: Option<u64>,
    /// The operation has changed something.
    pub(crate) changed: bool,
    pub(crate) commits: Commits,
    /// The time when the running transaction got its first change, as of the last
    /// tick or operation.
    pub(crate) now: Nanos,
    ids: DataIds,
}

impl<A> Journal<A> {
    pub(super) fn new(mode: JournalMode) -> Self {
        Self {
            mode,
            log: None,
            actions: Plain::new(),
            running: Running::new(NonZeroU32::MIN),
            committing: None,
            committed: None,
            live: VecDeque::new(),
            in_log: HashMap::new(),
            unswept: None,
            handle: None,
            changed: false,
            commits: Commits::AtOnce,
            now: Nanos::new(0),
            ids: DataIds::default(),
        }
    }

    pub(super) fn changed(&mut self, memory: &mut Memory, change: &Change<'_>) -> Changed {
        memory.put(change.block, change.places, change.pieces);
        memory.mark_dirty(change.block, change.mask(), change.role);
        let id = self.edited(memory, change.block, change.role, change.after);
        Changed { id, replaced: false }
    }

    /// Bytes of a block were changed, and it was marked as dirty.
    pub(super) fn edited(
        &mut self,
        memory: &mut Memory,
        block: u64,
        role: Role,
        after: &[ChangeId],
    ) -> ChangeId {
        self.changed = true;
        let shows_early = role.is_data() && after.iter().any(|&id| self.is_uncommitted_change(id));
        if self.is_logged(memory, block, role) || shows_early {
            self.join(memory, block);
            // Contents that replace others are ordered in every mode: not only the written contents
            // would be lost, but the replaced ones too, which may have been durable.
            let all = self.mode == JournalMode::Ordered;
            let blocks = after.iter().filter_map(|&id| self.ids.block_of(id));
            let blocks = blocks.filter(|&block| all || self.ids.is_moved(block));
            self.running.ordered.extend(blocks);
            return ids::of_transaction(self.running.number);
        }
        let Some(buffer) = memory.buffers.get_mut(block) else {
            debug_assert!(false, "it has just been changed");
            return ChangeId::COMMITTED;
        };
        if buffer.held.journal.writing {
            // It must not overtake the write under way.
            buffer.held.journal.again = true;
            (buffer.dirty, buffer.due) = (0, None);
        }
        self.ids.of_data(block, role)
    }

    /// Whether a change goes through the log: metadata do, and whatever a recovery
    /// would write over.
    fn is_logged(&self, memory: &Memory, block: u64, role: Role) -> bool {
        let replayed = self.in_log.get(&block).is_some_and(|known| known.revoked_by.is_none());
        let joined = memory
            .buffers
            .get(block)
            .is_some_and(|buffer| buffer.held.journal.running || buffer.held.journal.committing);
        self.mode.logs(role) || replayed || joined
    }

    /// A block belongs to the running transaction.
    fn join(&mut self, memory: &mut Memory, block: u64) {
        if let Some(known) = self.in_log.get_mut(&block)
            && known.revoked_by == Some(self.running.number)
        {
            known.revoked_by = None;
            self.running.revokes.remove(&block);
        }
        // Its contents are in the transaction, whatever they were.
        self.ids.forget(block);
        self.running.ordered.remove(&block);
        self.running.touch(self.now);
        let Some(buffer) = memory.buffers.get_mut(block) else {
            debug_assert!(false, "it has just been changed");
            return;
        };
        let held = &mut buffer.held.journal;
        if held.committing && !held.running {
            memory.counters.journal.frozen += 1;
        }
        (held.running, held.logged, held.again) = (true, false, false);
        (buffer.dirty, buffer.due, buffer.put_off) = (0, None, 0);
        self.running.blocks.insert(block);
    }

    /// The writable parts of these blocks were given to the device.
    pub(super) fn sent(&mut self, memory: &mut Memory, blocks: &[u64]) {
        for &block in blocks {
            let Some(buffer) = memory.buffers.get_mut(block) else { continue };
            if buffer.dirty == 0 {
                continue;
            }
            debug_assert!(!buffer.held.waits(), "J1: block {block} was written early");
            let held = &mut buffer.held.journal;
            held.sent = true;
            held.homing = std::mem::take(&mut held.logged);
            memory.mark_written(block);
        }
    }

    /// The completed writes of these blocks are at home for good.
    pub(super) fn landed(&mut self, memory: &mut Memory, blocks: &[u64]) {
        for &block in blocks {
            let Some(buffer) = memory.buffers.get_mut(block) else { continue };
            // A later write of it has not completed.
            if buffer.is_under_way() || !buffer.held.journal.sent {
                continue;
            }
            buffer.held.journal.sent = false;
            if std::mem::take(&mut buffer.held.journal.homing) {
                let known = self.in_log.get_mut(&block);
                debug_assert!(known.is_some(), "J3: the log has block {block}");
                if let Some(known) = known {
                    known.home = true;
                }
            } else if buffer.dirty == 0 && !buffer.held.journal.writing {
                // Contents that have changed meanwhile are waited for by the same name.
                self.ids.forget(block);
                self.running.ordered.remove(&block);
            }
            memory.drop_empty(block);
        }
    }

    /// The contents of a block matter no more, and its space is given back.
    pub(super) fn forget(&mut self, memory: &mut Memory, block: u64, mask: u64) {
        if mask == 0 {
            return;
        }
        self.changed = true;
        self.running.touch(self.now);
        self.running.freed.add(block);
        self.running.ordered.remove(&block);
        self.ids.forget(block);
        if self.running.blocks.remove(&block)
            && let Some(buffer) = memory.buffers.get_mut(block)
        {
            buffer.held.journal.running = false;
        }
        if let Some(known) = self.in_log.get_mut(&block)
            && known.revoked_by.is_none()
        {
            known.revoked_by = Some(self.running.number);
            self.running.revokes.insert(block);
        }
        if let Some(buffer) = memory.buffers.get_mut(block) {
            // Writes under way are waited for, whatever the block is used for next.
            let held = &mut buffer.held.journal;
            (held.logged, held.again, held.sent, held.homing) = (false, false, false, false);
            buffer.due = None;
        }
        memory.drop_contents(block, mask);
    }

    pub(crate) fn is_committed(&self, id: ChangeId) -> bool {
        match ids::transaction_of(id) {
            Some(number) => self.committed.is_some_and(|last| !is_later(number, last)),
            None => self.ids.block_of(id).is_none(),
        }
    }

    fn is_uncommitted_change(&self, id: ChangeId) -> bool {
        ids::transaction_of(id).is_some() && !self.is_committed(id)
    }

    /// The block of contents that a change was made to, if it is not at home.
    pub(crate) fn block_of(&self, id: ChangeId) -> Option<u64> {
        self.ids.block_of(id)
    }

    /// The contents of a block are at home.
    pub(crate) fn contents_written(&mut self, block: u64) {
        self.ids.forget(block);
    }

    pub(super) fn waiting_in(&self, buffer: &Buffer) -> Vec<ChangeId> {
        let held = buffer.held.journal;
        if held.running {
            return vec![ids::of_transaction(self.running.number)];
        }
        if held.committing {
            let number = self.committing.as_ref().map(|committing| committing.number);
            return number.map(ids::of_transaction).into_iter().collect();
        }
        if held.writing { self.ids.known(buffer.block).into_iter().collect() } else { Vec::new() }
    }

    /// As [`Journal::waiting_in`], and contents that were submitted.
    pub(super) fn held_in(&self, buffer: &Buffer) -> Vec<ChangeId> {
        if buffer.held.journal.sent { self.changes_in(buffer) } else { self.waiting_in(buffer) }
    }

    pub(super) fn changes_in(&self, buffer: &Buffer) -> Vec<ChangeId> {
        let mut changes = self.waiting_in(buffer);
        if changes.is_empty() {
            changes.extend(self.ids.known(buffer.block));
        }
        changes
    }
}
