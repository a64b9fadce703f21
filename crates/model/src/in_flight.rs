//! Requests whose completion times are known when they arrive, as in all models but the disk's.

use crate::request::{Completion, Tag};
use seekless_units::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Requests in flight by completion time, and the device's busy time.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight {
    heap: BinaryHeap<Reverse<(Nanos, u64, Tag)>>,
    submitted: u64,
    now: Nanos,
    busy: Nanos,
    busy_until: Nanos,
    last_write: Nanos,
}

impl InFlight {
    /// The moment at which a request counts as submitted, see [`DeviceModel`](crate::DeviceModel).
    pub(crate) fn arrive(&mut self, at: Nanos) -> Nanos {
        self.now = self.now.max(at);
        self.now
    }

    /// Adds a request that arrived at `at` and completes at `done`.
    pub(crate) fn push(&mut self, at: Nanos, done: Nanos, tag: Tag) {
        debug_assert!(done >= at, "a request completes after it arrives");
        let from = at.max(self.busy_until);
        self.busy += done.saturating_since(from);
        self.busy_until = self.busy_until.max(done);
        self.heap.push(Reverse((done, self.submitted, tag)));
        self.submitted += 1;
    }

    /// Records the time at which a write is on stable storage, for flushes.
    pub(crate) fn wrote(&mut self, stable: Nanos) {
        self.last_write = self.last_write.max(stable);
    }

    /// The time at which every write so far is on stable storage.
    pub(crate) fn all_stable(&self) -> Nanos {
        self.last_write
    }

    /// See [`DeviceModel::advance`](crate::DeviceModel::advance).
    pub(crate) fn advance(&mut self, until: Nanos) -> Option<Completion> {
        let Some(&Reverse((at, _, tag))) = self.heap.peek().filter(|next| next.0.0 <= until) else {
            if until != Nanos::new(u64::MAX) {
                self.now = self.now.max(until);
            }
            return None;
        };
        self.heap.pop();
        self.now = self.now.max(at);
        Some(Completion { tag, at })
    }

    pub(crate) fn next(&self) -> Option<Nanos> {
        self.heap.peek().map(|next| next.0.0)
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Busy time up to now: future service is not counted yet.
    pub(crate) fn busy(&self) -> Nanos {
        let ahead = self.busy_until.saturating_since(self.now);
        Nanos::new(self.busy.saturating_since(Nanos::new(ahead)))
    }
}
