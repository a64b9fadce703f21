//! The blocks that are kept: a slab of buffers, found by block and linked from
//! the least to the most recently used.

use crate::order::BlockChanges;
use crate::seal::Owner;
use crate::shape::bits;
use hashbrown::HashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No buffer: the end of the list.
const NONE: u32 = u32::MAX;

/// A block of the device in memory, or part of one. Masks have a bit for each
/// fragment.
pub(crate) struct Buffer {
    /// Which block: its first fragment divided by the fragments of a block.
    pub(crate) block: u64,
    pub(crate) bytes: Box<[u8]>,
    /// Mask of the fragments of `bytes` that equal the disk's, or are newer.
    pub(crate) valid: u64,
    /// Mask of the first fragments of the valid parts that are buffers of their own.
    starts: u64,
    /// Bytes that it takes of the cache.
    cost: u64,
    /// Mask of dirty fragments that may be written now.
    pub(crate) dirty: u64,
    /// The changes to it that the order holds back, and those that may be waited for.
    pub(crate) held: BlockChanges,
    /// Requests under way that write some of it (invariant 8): of one round of
    /// writing, since the next waits for them.
    under_way: u32,
    /// Mask of the fragments dirty when they were submitted.
    sent: u64,
    /// When the syncer comes for it.
    pub(crate) due: Option<u64>,
    /// How often the syncer has put it off.
    pub(crate) put_off: u8,
    /// The format seals it (check hashes) before it is written.
    pub(crate) metadata: bool,
    /// Its owner, if the format has set it since it came into memory.
    pub(crate) owner: Option<Owner>,
}

/// The place of a buffer between those used before it and after it. These lie apart
/// from the buffers, in less memory.
struct Link {
    older: u32,
    newer: u32,
    /// When it was used last: counts uses of all buffers.
    used: u64,
    /// Whether it was looked at for something to drop, as all that are older were.
    passed: bool,
    /// It was found to be kept then ([`Buffer::is_kept`]), and that cannot have changed since.
    kept: bool,
}

impl Buffer {
    /// Whether it holds something that is still to be written.
    pub(crate) fn holds_changes(&self) -> bool {
        self.dirty != 0 || self.held.waits()
    }

    /// Whether it has fragments that may be written, and no blocked change in them, which would
    /// have to be rolled back. (Blocked changes between them are rolled back where it is cheaper to
    /// write these fragments as well.)
    pub(crate) fn is_free_to_go(&self) -> bool {
        self.dirty != 0 && !self.held.waits_in(self.dirty)
    }

    /// Requests under way that write some of it.
    pub(crate) fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Whether some of it is being written.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// The fragments that were changed and are being written. Others may go with
    /// them, because they lie between.
    pub(crate) fn changed_under_way(&self) -> u64 {
        if self.under_way > 0 { self.sent } else { 0 }
    }

    /// All that could be written of it was given to the device.
    pub(crate) fn note_sent(&mut self) {
        self.sent = self.dirty;
        (self.dirty, self.put_off) = (0, 0);
        if !self.held.waits() {
            self.due = None;
        }
    }

    /// The contents of some fragments matter no more.
    pub(crate) fn forget(&mut self, mask: u64) {
        self.dirty &= !mask;
        self.valid &= !mask;
        self.sent &= !mask;
        if self.valid == 0 {
            self.owner = None;
        }
    }

    /// Whether it may not be dropped: something of it is still to be written, is
    /// being written, or waits for a flush.
    pub(crate) fn is_kept(&self) -> bool {
        self.dirty != 0 || self.under_way > 0 || !self.held.is_empty()
    }

    /// The parts that are buffers of their own, from which fragment to which.
    pub(crate) fn pieces(&self) -> Vec<(usize, usize)> {
        let mut pieces = Vec::new();
        let mut left = self.valid;
        while left != 0 {
            let first = left.trailing_zeros() as usize;
            let run = (left >> first).trailing_ones() as usize;
            let next = (self.starts >> first & !1).trailing_zeros() as usize;
            let last = first + run.min(next);
            pieces.push((first, last));
            left &= !(bits(last) & !bits(first));
        }
        pieces
    }
}

/// How parts of blocks are counted that are buffers of their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paged {
    /// Size of a page; each part takes whole pages.
    pub(crate) page: u64,
    /// Bytes in a fragment.
    pub(crate) fragment: u64,
}

/// All buffers.
pub(crate) struct Buffers {
    block_size: usize,
    /// Sizes of a page and of a fragment, to count the pages that parts of blocks take; where parts
    /// are counted.
    paged: Option<Paged>,
    /// Bytes of all blocks kept.
    bytes: u64,
    /// Bytes of those that are being written.
    under_way: u64,
    slab: Vec<Buffer>,
    /// For each of the slab.
    links: Vec<Link>,
    free: Vec<u32>,
    by_block: HashMap<u64, u32>,
    oldest: u32,
    newest: u32,
    uses: u64,
    /// The newest that was looked at for something to drop.
    passed: u32,
    /// Those looked at that may have ceased to be kept, by when they were used last. Thousands
    /// are kept under soft updates, so that they are not all looked at again whenever something
    /// is dropped.
    again: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Buffers {
    pub(crate) fn new(block_size: usize, paged: Option<Paged>) -> Self {
        Self {
            block_size,
            paged,
            bytes: 0,
            under_way: 0,
            slab: Vec::new(),
            links: Vec::new(),
            free: Vec::new(),
            by_block: HashMap::new(),
            oldest: NONE,
            newest: NONE,
            uses: 0,
            passed: NONE,
            again: BinaryHeap::new(),
        }
    }

    /// Bytes of all blocks kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the blocks that are being written.
    pub(crate) fn bytes_under_way(&self) -> u64 {
        self.under_way
    }

    /// One more request writes some of a block.
    pub(crate) fn take_off(&mut self, block: u64) {
        let Some(&at) = self.by_block.get(&block) else {
            debug_assert!(false, "it was written from memory");
            return;
        };
        let buffer = self.at_mut(at);
        buffer.under_way += 1;
        let more = if buffer.under_way == 1 { buffer.cost } else { 0 };
        self.under_way += more;
    }

    /// A request that writes some of a block has completed. Whether it was the
    /// last.
    pub(crate) fn land(&mut self, block: u64) -> bool {
        let Some(&at) = self.by_block.get(&block) else {
            debug_assert!(false, "what is being written is kept");
            return false;
        };
        let buffer = self.at_mut(at);
        debug_assert!(buffer.under_way > 0, "told more often than it was written");
        buffer.under_way -= 1;
        let (left, cost) = (buffer.under_way, buffer.cost);
        if left > 0 {
            return false;
        }
        self.under_way -= cost;
        true
    }

    /// These fragments of a block have come in as one.
    pub(crate) fn note_piece(&mut self, block: u64, mask: u64) {
        let Some(paged) = self.paged else { return };
        let Some(buffer) = self.get_mut(block) else {
            debug_assert!(false, "a piece of a block that is not there");
            return;
        };
        buffer.starts = buffer.starts & !mask | mask & mask.wrapping_neg();
        self.recount(block, paged);
    }

    /// Counts a block again after fragments of it became invalid.
    pub(crate) fn note_loss(&mut self, block: u64) {
        if let Some(paged) = self.paged {
            self.recount(block, paged);
        }
    }

    /// Counts a block again, if it is still in memory.
    fn recount(&mut self, block: u64, paged: Paged) {
        let Some(buffer) = self.get_mut(block) else { return };
        let pages = |&(first, last): &(usize, usize)| {
            ((last - first) as u64 * paged.fragment).next_multiple_of(paged.page)
        };
        let cost: u64 = buffer.pieces().iter().map(pages).sum();
        let before = std::mem::replace(&mut buffer.cost, cost);
        if buffer.is_under_way() {
            self.under_way = self.under_way - before + cost;
        }
        debug_assert!(self.bytes >= before, "what a block costs was counted");
        self.bytes = self.bytes - before + cost;
    }

    pub(crate) fn get(&self, block: u64) -> Option<&Buffer> {
        let at = *self.by_block.get(&block)?;
        self.slab.get(at as usize)
    }

    pub(crate) fn get_mut(&mut self, block: u64) -> Option<&mut Buffer> {
        let at = *self.by_block.get(&block)?;
        Some(self.at_mut(at))
    }

    /// A buffer that is about to be changed.
    fn at_mut(&mut self, at: u32) -> &mut Buffer {
        let link = &mut self.links[at as usize];
        if std::mem::take(&mut link.kept) {
            self.again.push(Reverse((link.used, at)));
        }
        &mut self.slab[at as usize]
    }

    /// The buffer of a block, made if there is none, as the most recently used.
    pub(crate) fn touch(&mut self, block: u64) -> &mut Buffer {
        let at = if let Some(&at) = self.by_block.get(&block) {
            if at != self.newest {
                self.unlink(at);
                self.link(at);
            }
            at
        } else {
            let at = self.make(block);
            self.by_block.insert(block, at);
            self.link(at);
            if self.paged.is_none() {
                self.slab[at as usize].cost = self.block_size as u64;
                self.bytes += self.block_size as u64;
            }
            at
        };
        self.at_mut(at)
    }

    fn make(&mut self, block: u64) -> u32 {
        let fresh = |bytes, held| Buffer {
            block,
            bytes,
            held,
            valid: 0,
            starts: 0,
            cost: 0,
            dirty: 0,
            under_way: 0,
            sent: 0,
            due: None,
            put_off: 0,
            metadata: false,
            owner: None,
        };
        if let Some(at) = self.free.pop() {
            let slot = &mut self.slab[at as usize];
            let mut bytes = std::mem::take(&mut slot.bytes);
            // With the memory of its lists.
            let held = std::mem::take(&mut slot.held);
            debug_assert!(held.is_empty(), "it was dropped with changes");
            if bytes.is_empty() {
                bytes = vec![0; self.block_size].into_boxed_slice();
            }
            *slot = fresh(bytes, held);
            return at;
        }
        debug_assert!(self.slab.len() < NONE as usize, "the last number means none");
        self.slab.push(fresh(vec![0; self.block_size].into_boxed_slice(), BlockChanges::default()));
        self.links.push(Link { older: NONE, newer: NONE, used: 0, passed: false, kept: false });
        self.slab.len() as u32 - 1
    }

    fn link(&mut self, at: u32) {
        let newest = self.newest;
        self.uses += 1;
        self.links[at as usize] =
            Link { older: newest, newer: NONE, used: self.uses, passed: false, kept: false };
        match self.links.get_mut(newest as usize) {
            Some(before) => before.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }

    fn unlink(&mut self, at: u32) {
        let Link { older, newer, .. } = self.links[at as usize];
        if self.passed == at {
            self.passed = older;
        }
        match self.links.get_mut(older as usize) {
            Some(before) => before.newer = newer,
            None => self.oldest = newer,
        }
        match self.links.get_mut(newer as usize) {
            Some(after) => after.older = older,
            None => self.newest = older,
        }
    }

    /// Forgets a block.
    pub(crate) fn remove(&mut self, block: u64) {
        if let Some(at) = self.by_block.remove(&block) {
            self.unlink(at);
            self.links[at as usize].passed = false;
            self.free.push(at);
            debug_assert!(!self.slab[at as usize].is_kept(), "changes would be lost");
            self.bytes -= std::mem::take(&mut self.slab[at as usize].cost);
        }
    }

    /// The blocks from the least recently used on.
    pub(crate) fn oldest_first(&self) -> impl Iterator<Item = &Buffer> {
        let next = |&at: &u32| self.links.get(at as usize).map(|link| link.newer);
        std::iter::successors(Some(self.oldest), next).map_while(|at| self.slab.get(at as usize))
    }

    /// Forgets the least recently used of the blocks that may be dropped, as many as are
    /// asked for if there are. How many went.
    pub(crate) fn drop_oldest(&mut self, most: usize) -> usize {
        let mut found = Vec::new();
        // Those looked at before are older than all others.
        while found.len() < most
            && let Some(Reverse((used, at))) = self.again.pop()
        {
            let link = &mut self.links[at as usize];
            if !link.passed || link.used != used {
                // It was used since, or dropped.
                continue;
            }
            let buffer = &self.slab[at as usize];
            link.kept = buffer.is_kept();
            if !link.kept {
                found.push(buffer.block);
            }
        }
        while found.len() < most {
            let next = self.links.get(self.passed as usize).map_or(self.oldest, |link| link.newer);
            let Some(link) = self.links.get_mut(next as usize) else { break };
            let buffer = &self.slab[next as usize];
            (link.passed, link.kept) = (true, buffer.is_kept());
            self.passed = next;
            if !link.kept {
                found.push(buffer.block);
            }
        }
        if cfg!(debug_assertions) {
            let all = self.oldest_first().filter(|buffer| !buffer.is_kept());
            let all: Vec<u64> = all.map(|buffer| buffer.block).take(most).collect();
            assert_eq!(found, all, "some were changed unnoticed");
        }
        found.iter().for_each(|&block| self.remove(block));
        found.len()
    }

    /// The dirty blocks, in no order. They are read in order of memory: there may be hundreds of
    /// thousands.
    pub(crate) fn dirty(&self) -> impl Iterator<Item = &Buffer> {
        // Dropped buffers are not dirty.
        self.slab.iter().filter(|buffer| buffer.dirty != 0)
    }

    /// All blocks, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Buffer> {
        self.by_block.values().filter_map(|&at| self.slab.get(at as usize))
    }
}
