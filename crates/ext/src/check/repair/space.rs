//! Free space, by the findings of the check and not by the bitmaps.

use seekless_fs::bits::Bits;
use seekless_fs::field::index;
use seekless_units::{BlockNo, Extent};

/// Blocks that a repair allocates: those found unused. A crash may leave them unmarked in a bitmap.
pub(super) struct Space {
    used: Bits,
    /// The first block that was not looked at.
    next: u64,
}

impl Space {
    pub(super) fn new(used: Bits) -> Self {
        Self { used, next: 0 }
    }

    /// Takes a block in front of `end`; `None` when none is free.
    pub(super) fn block(&mut self, first: BlockNo, end: u64) -> Option<BlockNo> {
        let mut at = self.next.max(first.get());
        while at < end {
            if self.used.set(index(at)) {
                self.next = at.saturating_add(1);
                return Some(BlockNo::new(at));
            }
            at = at.saturating_add(1);
        }
        self.next = end;
        None
    }

    /// Gives a run back: nothing leads to it.
    pub(super) fn give(&mut self, run: Extent) {
        for at in run.start.get()..run.end().get() {
            self.used.clear(index(at));
        }
        self.next = self.next.min(run.start.get());
    }
}
