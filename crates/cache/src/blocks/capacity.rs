//! Dropping blocks that hold nothing new.

use super::BlockCache;

/// Most blocks that are looked at in one go when room is made.
pub(crate) const BATCH: usize = 128;

impl<A> BlockCache<A> {
    /// Whether more is kept than may be. Blocks being written do not count: the device bounds their
    /// number, and they can be dropped once written.
    pub(crate) fn is_over_capacity(&self) -> bool {
        let buffers = &self.memory.buffers;
        let kept = buffers.bytes() - buffers.bytes_under_way() + self.memory.beside;
        kept > self.config.capacity.get()
    }

    /// Sets how many bytes the cache's user keeps besides: its blocks make room for them. More than
    /// half of the cache's capacity leave it too little.
    pub fn set_beside(&mut self, bytes: u64) {
        self.memory.beside = bytes;
    }

    /// Drops the least recently used blocks that hold nothing new, until the
    /// cache is no larger than it may be.
    pub(crate) fn drop_clean(&mut self) {
        while self.is_over_capacity() {
            let batch = batch(self);
            if self.memory.buffers.drop_oldest(batch) == 0 {
                return;
            }
        }
    }
}

/// Blocks that are looked at in one go when room is made: a sixteenth of all at most.
fn batch<A>(cache: &BlockCache<A>) -> usize {
    let blocks = cache.config.capacity.get() / cache.memory.shape.block_bytes() as u64;
    usize::try_from(blocks / 16).unwrap_or(BATCH).clamp(1, BATCH)
}
