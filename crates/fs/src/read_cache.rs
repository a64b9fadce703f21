//! A bounded cache of metadata blocks: inode tables, directories, maps.
//!
//! Sharded to reduce lock contention; each shard replaces by the clock algorithm (second chance).

use seekless_units::BlockNo;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of independent parts of the cache.
const SHARDS: u64 = 16;
/// Memory budget of the cache in bytes.
const BUDGET: u64 = 64 << 20;
/// Minimum number of blocks in a shard.
const LEAST_PER_SHARD: u64 = 4;

/// The contents of a block, shared with its readers.
pub type Block = Arc<[u8]>;

struct Slot {
    number: BlockNo,
    block: Block,
    referenced: bool,
}

#[derive(Default)]
struct Shard {
    places: HashMap<BlockNo, usize>,
    slots: Vec<Slot>,
    hand: usize,
}

impl Shard {
    fn get(&mut self, number: BlockNo) -> Option<Block> {
        let slot = self.slots.get_mut(*self.places.get(&number)?)?;
        slot.referenced = true;
        Some(slot.block.clone())
    }

    fn insert(&mut self, number: BlockNo, block: Block, capacity: usize) {
        if self.places.contains_key(&number) {
            return;
        }
        let fresh = Slot { number, block, referenced: false };
        if self.slots.len() < capacity {
            self.places.insert(number, self.slots.len());
            self.slots.push(fresh);
            return;
        }
        let place = self.victim();
        if let Some(slot) = self.slots.get_mut(place) {
            self.places.remove(&slot.number);
            self.places.insert(number, place);
            *slot = fresh;
        }
    }

    /// The first slot from the hand on that was not used since the hand last passed. One round
    /// clears every mark, so two rounds always find one.
    fn victim(&mut self) -> usize {
        for _ in 0..self.slots.len() * 2 {
            let place = self.hand;
            self.hand = place + 1;
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            match self.slots.get_mut(place) {
                Some(slot) if slot.referenced => slot.referenced = false,
                _ => return place,
            }
        }
        self.hand
    }
}

/// The cache.
pub struct BlockCache {
    shards: Vec<Mutex<Shard>>,
    capacity: usize,
}

impl BlockCache {
    /// A cache for blocks of `block_size` bytes.
    #[must_use]
    pub fn new(block_size: u32) -> Self {
        Self::with_budget(block_size, BUDGET)
    }

    /// The same with another limit of memory, in bytes. Some blocks have room in any case.
    #[must_use]
    pub fn with_budget(block_size: u32, budget: u64) -> Self {
        let blocks = budget / u64::from(block_size);
        let each = (blocks / SHARDS).max(LEAST_PER_SHARD);
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, capacity: usize::try_from(each).unwrap_or(1) }
    }

    fn shard(&self, number: BlockNo) -> Option<&Mutex<Shard>> {
        // Neighbours go to different shards: a scan spreads over all of them.
        let place = number.get().checked_rem(SHARDS)?;
        self.shards.get(usize::try_from(place).ok()?)
    }

    /// A block's contents, if cached.
    #[must_use]
    pub fn get(&self, number: BlockNo) -> Option<Block> {
        self.shard(number)?.lock().unwrap_or_else(PoisonError::into_inner).get(number)
    }

    /// Caches a block's contents, possibly replacing another block.
    pub fn insert(&self, number: BlockNo, block: Block) {
        if let Some(shard) = self.shard(number) {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.insert(number, block, self.capacity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_is_used_and_never_more_than_it_may() {
        let cache = BlockCache::new(1 << 20);
        let hot = BlockNo::new(16);
        cache.insert(hot, Arc::from([7u8].as_slice()));
        for n in 2..200 {
            assert!(cache.get(hot).is_some(), "the block in use was dropped after {n}");
            cache.insert(BlockNo::new(n * 16), Arc::from([0u8].as_slice()));
        }
        let held: usize = cache.shards.iter().map(|s| s.lock().unwrap().slots.len()).sum();
        assert_eq!(held, 4);
        assert_eq!(&*cache.get(hot).unwrap(), &[7]);
        assert!(cache.get(BlockNo::new(32)).is_none());
    }
}
