//! The wheel of one-second slots that dirty blocks are hung on (trickle sync,
//! `vfs_subr.c`).

use seekless_units::Nanos;
use std::collections::BTreeMap;

pub(crate) const SECOND: u64 = 1_000_000_000;

/// Dirty blocks by the slot in which they are due.
pub(crate) struct Wheel {
    pub(crate) slots: BTreeMap<u64, Vec<u64>>,
    /// The slot to be done next; ahead of the clock when rushed.
    pub(crate) position: u64,
    /// The second up to which the clock has been followed.
    pub(crate) second: u64,
    /// Slots to be done ahead of time.
    pub(crate) rushes: u32,
}

impl Wheel {
    pub(crate) fn new(now: Nanos) -> Self {
        let second = now.get() / SECOND;
        Self { slots: BTreeMap::new(), position: second, second, rushes: 0 }
    }

    /// Hangs a block `delay` slots ahead, at least on the next one. Returns the slot.
    pub(crate) fn hang(&mut self, block: u64, delay: u32) -> u64 {
        let due = self.position + u64::from(delay.max(1));
        self.slots.entry(due).or_default().push(block);
        due
    }

    /// Skips the seconds up to one, as far as nothing hangs there and nothing has been hurried.
    pub(crate) fn skip_idle(&mut self, second: u64) {
        if self.rushes > 0 {
            return;
        }
        // The slot itself is left to `turn`.
        let before = self.slots.keys().next().map_or(second, |slot| slot.saturating_sub(1));
        self.second = self.second.max(second.min(before));
        self.position = self.position.max(self.second);
    }

    /// The second in which something is to be done next.
    pub(crate) fn next_due(&self) -> Option<u64> {
        match self.rushes {
            0 => self.slots.keys().next().copied(),
            _ => Some(self.second + 1),
        }
    }

    /// Moves on by one slot and returns its blocks.
    pub(crate) fn turn(&mut self) -> (u64, Vec<u64>) {
        self.position += 1;
        (self.position, self.slots.remove(&self.position).unwrap_or_default())
    }
}
