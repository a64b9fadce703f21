//! A cache's memory: blocks, when each is due, and counters. Both the order of changes and the
//! writing of blocks work on it.

use crate::buffer::{Buffers, Paged};
use crate::change::{Piece, Role};
use crate::config::{Ages, Config, Counters};
use crate::dirty::Dirtied;
use crate::discipline::JournalMode;
use crate::shape::{Place, Shape};
use crate::wheel::Wheel;
use seekless_units::{ByteLen, Nanos};

pub(crate) struct Memory {
    pub(crate) shape: Shape,
    pub(crate) buffers: Buffers,
    pub(crate) wheel: Wheel,
    pub(crate) counters: Counters,
    /// Bytes that the cache's user keeps besides.
    pub(crate) beside: u64,
    /// Buffers that became dirty, where that is limited.
    pub(crate) dirtied: Dirtied,
    limited: bool,
    ages: Ages,
    /// Logged blocks are written when their transaction is, not when they are old.
    journal: Option<JournalMode>,
}

impl Memory {
    pub(crate) fn new(shape: Shape, config: &Config, now: Nanos) -> Self {
        let page = config.page.map(ByteLen::get).filter(|&page| page > 0);
        let paged = page.map(|page| Paged { page, fragment: u64::from(shape.fragment) });
        Self {
            shape,
            buffers: Buffers::new(shape.block_bytes(), paged),
            wheel: Wheel::new(now),
            counters: Counters::default(),
            beside: 0,
            dirtied: Dirtied::default(),
            limited: config.dirty.is_some(),
            ages: config.ages,
            journal: config.discipline.journal_mode(),
        }
    }

    /// Puts bytes at places of a block whose contents are in memory.
    pub(crate) fn put(&mut self, block: u64, places: &[Place], pieces: &[Piece<'_>]) {
        let Some(buffer) = self.buffers.get_mut(block) else {
            debug_assert!(false, "its pieces were loaded");
            return;
        };
        debug_assert_eq!(places.len(), pieces.len());
        for (place, piece) in places.iter().zip(pieces) {
            buffer.bytes[place.start..place.end].copy_from_slice(piece.bytes);
        }
    }

    /// Something in these fragments of a block may be written.
    pub(crate) fn mark_dirty(&mut self, block: u64, mask: u64, role: Role) {
        debug_assert!(self.buffers.get(block).is_some_and(|b| mask & !b.valid == 0), "not known");
        let Some(buffer) = self.buffers.get_mut(block) else { return };
        if buffer.dirty == 0 && self.limited {
            self.dirtied.note(block);
        }
        buffer.dirty |= mask;
        buffer.metadata |= !role.is_contents();
        let due = buffer.due.is_some();
        let logged = self.journal.is_some_and(|mode| mode.logs(role));
        if !logged && !due {
            self.schedule(block, role);
        }
    }

    /// Hangs a block on the wheel, unless it hangs there.
    pub(crate) fn schedule(&mut self, block: u64, role: Role) {
        let delay = self.ages.of(role.age());
        let Some(buffer) = self.buffers.get_mut(block) else {
            debug_assert!(false, "only what is in memory is due");
            return;
        };
        if buffer.due.is_none() && buffer.holds_changes() {
            buffer.due = Some(self.wheel.hang(block, delay));
        }
    }

    /// All that could be written of a block was given to the device.
    pub(crate) fn mark_written(&mut self, block: u64) {
        let Some(buffer) = self.buffers.get_mut(block) else { return };
        buffer.note_sent();
    }

    /// The contents of some fragments of a block matter no more.
    pub(crate) fn drop_contents(&mut self, block: u64, mask: u64) {
        let Some(buffer) = self.buffers.get_mut(block) else { return };
        buffer.forget(mask);
        self.drop_empty(block);
        self.buffers.note_loss(block);
    }

    /// Forgets a block without valid, dirty or submitted fragments.
    pub(crate) fn drop_empty(&mut self, block: u64) {
        if self.buffers.get(block).is_some_and(|buffer| buffer.valid == 0 && !buffer.is_kept()) {
            self.buffers.remove(block);
        }
    }
}
