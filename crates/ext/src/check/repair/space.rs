//! Free space, by what was found and not by what the bitmaps say.

use seekless_fs::bits::Bits;
use seekless_fs::field::index;
use seekless_units::{BlockNo, Extent};

/// Blocks that a repair takes: those that nothing was found in. A bitmap that does
/// not have them yet is what a crash may leave.
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
