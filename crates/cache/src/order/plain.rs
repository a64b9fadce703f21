//! No order: changes are written at once or later, as whole blocks, and nothing is remembered of
//! them. An action is ready as soon as it is deferred, since its dependencies count as being on the
//! disk.

use crate::change::{ChangeId, Changed, Kind};
use crate::memory::Memory;
use crate::order::change::Change;
use std::collections::VecDeque;

pub(crate) struct Plain<A> {
    pub(super) ready: VecDeque<A>,
}

impl<A> Plain<A> {
    pub(super) fn new() -> Self {
        Self { ready: VecDeque::new() }
    }

    pub(super) fn changed(memory: &mut Memory, change: &Change<'_>) -> Changed {
        memory.put(change.block, change.places, change.pieces);
        memory.mark_dirty(change.block, change.mask(), change.role);
        Changed { id: ChangeId::COMMITTED, replaced: false }
    }

    pub(super) fn defer(&mut self, memory: &mut Memory, kind: Kind, action: A) {
        memory.counters.made[kind as usize] += 1;
        self.ready.push_back(action);
    }
}
