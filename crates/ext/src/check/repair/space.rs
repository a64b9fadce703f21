//! Free space, by the findings of the check. Blocks that the bitmaps mark as used come last.

use crate::check::checker::Checker;
use seekless_fs::bits::Bits;
use seekless_fs::field::index;
use seekless_units::{BlockNo, Extent, GroupNo};

/// Blocks that a repair allocates: those found unused. A crash may leave them unmarked in a bitmap.
pub(super) struct Space {
    used: Bits,
    /// Blocks that the bitmaps on the disk mark as used, once one is asked for. An inode whose
    /// mode or size is yet to be mended has claimed none of its blocks, and they are marked.
    marked: Option<Bits>,
    /// The first block that was not looked at, among those that are not marked.
    next: u64,
    /// The same, of all.
    next_marked: u64,
}

impl Space {
    pub(super) fn new(used: Bits) -> Self {
        Self { used, marked: None, next: 0, next_marked: 0 }
    }

    /// Takes a block of the volume: one that is not marked as used, if there is one; `None` when
    /// none is free.
    pub(super) fn block(&mut self, checker: &Checker) -> Option<BlockNo> {
        let sb = checker.sb();
        let marked = self.marked.get_or_insert_with(|| marked_blocks(checker));
        let mut at = self.next.max(sb.first_block.get());
        while at < sb.blocks {
            let block = at;
            at += 1;
            if !marked.get(index(block)) && self.used.set(index(block)) {
                self.next = at;
                return Some(BlockNo::new(block));
            }
        }
        self.next = at;
        at = self.next_marked.max(sb.first_block.get());
        while at < sb.blocks {
            let block = at;
            at += 1;
            if self.used.set(index(block)) {
                self.next_marked = at;
                return Some(BlockNo::new(block));
            }
        }
        self.next_marked = at;
        None
    }

    /// Takes the first block of a run that is not marked as used.
    pub(super) fn unmarked_in(&mut self, checker: &Checker, run: Extent) -> Option<BlockNo> {
        let marked = self.marked.get_or_insert_with(|| marked_blocks(checker));
        let mut blocks = run.start.get()..run.end().get();
        let found = blocks.find(|&at| !marked.get(index(at)) && self.used.set(index(at)))?;
        Some(BlockNo::new(found))
    }

    /// Takes the first block of a run, also one that a bitmap marks as used.
    pub(super) fn block_in(&mut self, run: Extent) -> Option<BlockNo> {
        let mut blocks = run.start.get()..run.end().get();
        blocks.find(|&at| self.used.set(index(at))).map(BlockNo::new)
    }

    /// Gives a run back: nothing leads to it.
    pub(super) fn give(&mut self, run: Extent) {
        for at in run.start.get()..run.end().get() {
            self.used.clear(index(at));
        }
        self.next = self.next.min(run.start.get());
        self.next_marked = self.next_marked.min(run.start.get());
    }
}

/// The blocks that readable bitmaps mark as used.
fn marked_blocks(checker: &Checker) -> Bits {
    let volume = &checker.volume;
    let mut marked = Bits::new(index(volume.sb.blocks));
    for number in (0..volume.sb.groups).map(GroupNo::new) {
        let Ok(group) = volume.descriptors().read(number) else { continue };
        let blocks = volume.sb.group_blocks(number);
        // No bitmap tells which blocks are free.
        if checker.lost_block_bitmaps.contains(&number) {
            for at in blocks.start.get()..blocks.end().get() {
                marked.set(index(at));
            }
            continue;
        }
        if group.block_uninit() {
            continue;
        }
        // An unreadable bitmap marks nothing.
        let Ok(bitmap) = volume.bitmaps().blocks(&group) else { continue };
        for bit in 0..blocks.len {
            let byte = bitmap.get(index(bit >> 3)).copied().unwrap_or_default();
            if byte & (1 << (bit & 7)) != 0 {
                marked.set(index(blocks.start.get() + bit));
            }
        }
    }
    marked
}
