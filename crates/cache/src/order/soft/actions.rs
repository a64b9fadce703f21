//! Actions of the format, each until its dependencies are on the disk.

use crate::change::Kind;
use std::collections::VecDeque;

struct Deferred<A> {
    waiting: u32,
    kind: Kind,
    action: A,
}

/// Deferred actions by number. A number is given again once its action is ready. Unlike changes
/// actions are never taken back, so that every number in use is of one that waits (invariant 6).
pub(super) struct Actions<A> {
    slots: Vec<Option<Deferred<A>>>,
    free: Vec<u32>,
    /// Those that need wait no longer, in the order they became so.
    ready: VecDeque<A>,
    deferred: usize,
}

impl<A> Actions<A> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), ready: VecDeque::new(), deferred: 0 }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.deferred
    }

    /// A number for an action, which is then added with [`Actions::hold`].
    pub(super) fn number(&mut self) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            debug_assert!(self.slots.len() < u32::MAX as usize, "no number is left");
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        debug_assert!(self.slots[slot as usize].is_none(), "a free slot holds nothing");
        slot
    }

    /// Keeps an action until `waiting` changes are on the disk; false when it waits for none and is
    /// ready.
    pub(super) fn hold(&mut self, slot: u32, waiting: u32, kind: Kind, action: A) -> bool {
        if waiting == 0 {
            self.free.push(slot);
            self.ready.push_back(action);
            return false;
        }
        self.slots[slot as usize] = Some(Deferred { waiting, kind, action });
        self.deferred += 1;
        true
    }

    /// One thing less that an action waits for; its kind, if it is ready now.
    pub(super) fn satisfy(&mut self, slot: u32) -> Option<Kind> {
        let entry = self.slots.get_mut(slot as usize);
        debug_assert!(entry.as_ref().is_some_and(|entry| entry.is_some()), "it was done before");
        let entry = entry?;
        let deferred = entry.as_mut()?;
        debug_assert!(deferred.waiting > 0, "told more often than it waits");
        deferred.waiting -= 1;
        if deferred.waiting > 0 {
            return None;
        }
        let deferred = entry.take()?;
        self.free.push(slot);
        self.deferred -= 1;
        self.ready.push_back(deferred.action);
        Some(deferred.kind)
    }

    /// Those that wait: their numbers, and for how much.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        // Slots are numbered in 32 bits.
        let waits = |(at, slot): (usize, &Option<Deferred<A>>)| {
            slot.as_ref().map(|deferred| (at as u32, deferred.waiting))
        };
        self.slots.iter().enumerate().filter_map(waits)
    }

    pub(super) fn next_ready(&mut self) -> Option<A> {
        self.ready.pop_front()
    }

    pub(super) fn ready(&self) -> std::collections::vec_deque::Iter<'_, A> {
        self.ready.iter()
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}
