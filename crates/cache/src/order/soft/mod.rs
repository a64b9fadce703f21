//! Soft updates: any block may be written at any time, and changes whose dependencies are not on
//! the disk are rolled back in the copy that is written (Ganger and Patt 1994; McKusick and Ganger
//! 1999).
//!
//! - `graph`: dependencies between changes
//! - `record`: a change, as the graph keeps it
//! - `slots`: places for these
//! - `actions`: actions of the format, done when their dependencies are on the disk
//! - `changing`: effects on earlier changes to the same bytes
//! - `retract`: changes taken back, and contents that matter no more
//! - `undo`: bytes as they were
//! - `invariants`: invariants of the graph, for tests
//! - `mutation`: forgetting an order, for tests

mod actions;
mod changing;
mod graph;
mod invariants;
mod mutation;
mod record;
mod retract;
mod slots;
mod undo;

use crate::buffer::Buffer;
use crate::change::{ChangeId, Kind, Role};
use crate::memory::Memory;
use crate::order::change::ToSettle;
use graph::{AT_ONCE, Graph};
use hashbrown::HashSet;
use record::Record;
use seekless_units::ByteLen;
pub(crate) use undo::MOST_BLOCK;

pub(crate) struct Soft<A> {
    graph: Graph<A>,
    /// Kept for the next time: lists of changes that were written, and that may be
    /// written since.
    spare: (Vec<ChangeId>, Vec<ChangeId>),
}

impl<A> Soft<A> {
    /// Nothing waits. The order with the number `drop` will be forgotten.
    pub(super) fn new(drop: Option<u64>) -> Self {
        Self { graph: Graph::new(drop), spare: Default::default() }
    }

    /// Notes a change that nothing has to precede, made already.
    pub(super) fn edited(
        &mut self,
        memory: &mut Memory,
        block: u64,
        mask: u64,
        role: Role,
    ) -> ChangeId {
        // No change waits for these.
        if matches!(role, Role::Attributes | Role::Summary) {
            return ChangeId::COMMITTED;
        }
        self.open_record(memory, block, mask, role)
    }

    /// The record of undo-free changes to these fragments.
    fn open_record(&mut self, memory: &mut Memory, block: u64, mask: u64, role: Role) -> ChangeId {
        let open = memory.buffers.get(block).map(|buffer| buffer.held.open.as_slice());
        debug_assert!(open.is_some(), "what was changed is in memory");
        // One record does for all changes to a fragment: they go with the next write of it, and a
        // waiter for one waits for that write.
        for &id in open.unwrap_or_default() {
            if let Some(record) = self.graph.get_mut(id).filter(|record| record.mask & mask != 0) {
                record.mask |= mask;
                return id;
            }
        }
        let record = Record::new(block, mask, role);
        let (id, waits) = self.graph.insert(record, &mut memory.counters);
        debug_assert!(!waits, "it names nothing to wait for");
        if let Some(buffer) = memory.buffers.get_mut(block) {
            buffer.held.open.push(id);
        }
        id
    }

    /// Rolls back the blocked changes in a copy of a block, the newest first: where two overlap the
    /// older undo is the state of the disk.
    pub(super) fn roll_back(&self, buffer: &Buffer, copy: &mut [u8]) -> usize {
        for record in buffer.held.blocked_ids().rev().filter_map(|id| self.graph.get(id)) {
            record.undo.iter().for_each(|undo| undo.apply(copy));
        }
        buffer.held.blocked_ids().len()
    }

    /// The dirty fragments of these blocks were given to the device. They do not take in later
    /// changes any more: these go with a later write.
    pub(super) fn sent(&mut self, memory: &mut Memory, blocks: &[u64]) {
        for &block in blocks {
            let Some(buffer) = memory.buffers.get_mut(block) else { continue };
            debug_assert!(buffer.held.sent.is_empty(), "it is being written (invariant 8)");
            if cfg!(debug_assertions) {
                for record in buffer.held.open.iter().filter_map(|&id| self.graph.get(id)) {
                    debug_assert_eq!(record.waiting, 0, "an open change waits");
                    debug_assert_eq!(record.mask & !buffer.dirty, 0, "it is not written");
                }
            }
            std::mem::swap(&mut buffer.held.sent, &mut buffer.held.open);
            buffer.note_sent();
        }
    }

    /// The writes of these blocks have completed.
    pub(super) fn completed(&mut self, memory: &mut Memory, blocks: &[u64]) {
        for &block in blocks {
            let Some(buffer) = memory.buffers.get_mut(block) else { continue };
            let held = &mut buffer.held;
            if held.unflushed.is_empty() {
                std::mem::swap(&mut held.unflushed, &mut held.sent);
            } else {
                held.unflushed.append(&mut held.sent);
            }
        }
    }

    /// The completed writes of these blocks are on the disk: changes that waited for them are told.
    /// Changes that may be written from now on were not in them.
    pub(super) fn committed(&mut self, memory: &mut Memory, blocks: &[u64]) {
        let mut written = std::mem::take(&mut self.spare.0);
        for &block in blocks {
            let Some(buffer) = memory.buffers.get_mut(block) else { continue };
            written.extend(buffer.held.unflushed.drain(..));
            if !buffer.is_under_way() {
                written.extend(buffer.held.sent.drain(..));
            }
        }
        self.commit_all(memory, written);
    }

    /// As [`Soft::committed`], for the first changes of each block that waited for a flush.
    pub(super) fn committed_first(&mut self, memory: &mut Memory, blocks: &[(u64, usize)]) {
        let mut written = std::mem::take(&mut self.spare.0);
        for &(block, count) in blocks {
            let Some(buffer) = memory.buffers.get_mut(block) else { continue };
            debug_assert!(count <= buffer.held.unflushed.len(), "changes wait until they are told");
            let count = count.min(buffer.held.unflushed.len());
            written.extend(buffer.held.unflushed.drain(..count));
        }
        self.commit_all(memory, written);
    }

    fn commit_all(&mut self, memory: &mut Memory, mut written: Vec<ChangeId>) {
        let mut freed = std::mem::take(&mut self.spare.1);
        for ids in written.chunks(AT_ONCE) {
            self.graph.fetch(ids);
            for &id in ids {
                self.graph.commit(id, &mut freed, &mut memory.counters);
            }
        }
        written.clear();
        self.unblock(memory, &freed);
        freed.clear();
        self.spare = (written, freed);
    }

    /// Changes may now be written: their blocks are dirty with them.
    fn unblock(&self, memory: &mut Memory, freed: &[ChangeId]) {
        // Those of one block mostly come together, the inodes that waited for a bitmap:
        // they are taken out of its list in one pass.
        let block_of = |id: &ChangeId| self.graph.get(*id).map(|record| record.block);
        for run in freed.chunk_by(|one, next| block_of(one) == block_of(next)) {
            let Some(block) = run.first().and_then(block_of) else { continue };
            let Some(buffer) = memory.buffers.get_mut(block) else {
                debug_assert!(false, "blocks with changes are kept");
                continue;
            };
            buffer.held.unblock(run);
            buffer.held.open.reserve(run.len());
            for &id in run {
                let Some(record) = self.graph.get(id) else { continue };
                let Some(buffer) = memory.buffers.get_mut(block) else { continue };
                buffer.held.open.push(id);
                buffer.dirty |= record.mask;
                if buffer.due.is_none() {
                    memory.schedule(block, record.role);
                }
            }
        }
    }

    /// Everything that these changes wait for, at once or by way of others, and
    /// that can be written, is being written or waits for a flush. There is some as
    /// long as one of them is not on the disk (invariant 1).
    pub(super) fn to_settle(&self, memory: &Memory, changes: &[ChangeId]) -> ToSettle {
        let mut seen: HashSet<ChangeId> = HashSet::new();
        let mut to_write = HashSet::new();
        let mut under_way = HashSet::new();
        let mut to_flush = false;
        let mut stack = changes.to_vec();
        while let Some(id) = stack.pop() {
            let Some(record) = self.graph.get(id) else { continue };
            if !seen.insert(id) {
                continue;
            }
            if record.waiting > 0 {
                stack.extend_from_slice(record.waits());
                continue;
            }
            let Some(buffer) = memory.buffers.get(record.block) else {
                debug_assert!(false, "blocks with changes are kept");
                continue;
            };
            if buffer.held.sent.contains(&id) {
                under_way.insert(record.block);
            } else if buffer.held.unflushed.contains(&id) {
                to_flush = true;
            } else {
                debug_assert!(buffer.dirty != 0, "it can be written, and nothing writes it");
                to_write.insert(record.block);
            }
        }
        let (to_write, under_way) = (to_write.into_iter(), under_way.into_iter());
        ToSettle { to_write: to_write.collect(), under_way: under_way.collect(), to_flush }
    }

    pub(super) fn defer(&mut self, memory: &mut Memory, after: &[ChangeId], kind: Kind, action: A) {
        self.graph.defer(after, kind, action, &mut memory.counters);
    }

    pub(super) fn join(&mut self, after: &[ChangeId]) -> Option<ChangeId> {
        self.graph.join(after)
    }

    pub(super) fn next_ready(&mut self) -> Option<A> {
        self.graph.actions.next_ready()
    }

    pub(super) fn ready(&self) -> std::collections::vec_deque::Iter<'_, A> {
        self.graph.actions.ready()
    }

    pub(super) fn has_ready(&self) -> bool {
        self.graph.actions.has_ready()
    }

    pub(super) fn is_committed(&self, id: ChangeId) -> bool {
        !self.graph.has(id)
    }

    pub(super) fn len(&self) -> usize {
        self.graph.len()
    }

    pub(super) fn undo_bytes(&self) -> ByteLen {
        self.graph.undo_bytes()
    }

    pub(super) fn waiting_in(&self, buffer: &Buffer, mask: u64) -> Vec<ChangeId> {
        buffer.held.blocked_ids().filter(|&id| self.lies_in(id, mask)).collect()
    }

    pub(super) fn held_in(&self, buffer: &Buffer, mask: u64) -> Vec<ChangeId> {
        let held = buffer.held.blocked_ids().chain(buffer.held.written_ids());
        held.filter(|&id| self.lies_in(id, mask)).collect()
    }

    pub(super) fn changes_in(&self, buffer: &Buffer, mask: u64) -> Vec<ChangeId> {
        buffer.held.ids().filter(|&id| self.lies_in(id, mask)).collect()
    }

    fn lies_in(&self, id: ChangeId, mask: u64) -> bool {
        self.graph.get(id).is_some_and(|record| record.mask & mask != 0)
    }
}
