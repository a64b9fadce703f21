//! Making room: dropping blocks that hold nothing new, and writing those that do.

use crate::buffer::Buffer;
use crate::cache::Cache;
use crate::write::dirty_pieces;
use hashbrown::HashSet;
use seekless_fs::FsError;

/// Most blocks that are looked at in one go when room is made.
const BATCH: usize = 128;

impl<A> Cache<A> {
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
            let batch = self.batch();
            if self.memory.buffers.drop_oldest(batch) == 0 {
                return;
            }
        }
    }

    /// Blocks that are looked at in one go when room is made: a sixteenth of
    /// all at most.
    fn batch(&self) -> usize {
        let blocks = self.config.capacity.get() / self.memory.shape.block_bytes() as u64;
        usize::try_from(blocks / 16).unwrap_or(BATCH).clamp(1, BATCH)
    }

    /// As [`Cache::drop_clean`], but writes dirty blocks. Blocked changes are kept, and their
    /// dependencies are written instead.
    pub(crate) fn make_room(&mut self) -> Result<(), FsError> {
        while self.is_over_capacity() {
            let before = self.memory.buffers.bytes();
            let here = self.memory.buffers.oldest_first().filter(|b| !b.is_under_way());
            let oldest = here.take(BATCH);
            let free = oldest.filter(|buffer| buffer.is_free_to_go());
            let dirty: Vec<u64> = free.map(|buffer| buffer.block).collect();
            self.write_with_neighbours(&dirty)?;
            self.drop_clean();
            if self.is_over_capacity() {
                // Blocks with changes that wait for a flush are kept.
                self.barrier()?;
                self.drop_clean();
            }
            if dirty.is_empty()
                && self.memory.buffers.bytes() >= before
                && !self.wait_for_some()?
                && !self.write_levels()?
            {
                break;
            }
        }
        Ok(())
    }

    /// Writes blocked changes after their dependencies, until nothing is left that can be written;
    /// false when there was nothing. One level alone, the contents, would make room as well, but
    /// leave the inodes and names that wait for it: a cache full of new files would collect ever
    /// more of those, and each of their blocks would be written again and again with changes rolled
    /// back. Where there is a journal, only blocks that it commits go.
    fn write_levels(&mut self) -> Result<bool, FsError> {
        let any = self.start_round()?;
        while any && !self.is_journalled() {
            self.finish_writes()?;
            if !self.start_round()? {
                break;
            }
        }
        Ok(any)
    }

    /// Writes the oldest dirty buffers where nearly as many are dirty as may be, until half as many
    /// are left (`buf_daemon` in `vfs_bio.c`). Blocked changes stay.
    pub(crate) fn hold_dirty(&mut self) -> Result<(), FsError> {
        let Some(most) = self.config.dirty else { return Ok(()) };
        if self.memory.dirtied.are_few(most) {
            return Ok(());
        }
        let dirtied = self.memory.dirtied.take();
        let mut seen = HashSet::new();
        let paged = self.config.page.is_some();
        let buffers = &self.memory.buffers;
        let count = |buffer: &Buffer| if paged { dirty_pieces(buffer).len() } else { 1 };
        let mut dirty: Vec<(u64, usize, bool)> = Vec::new();
        for block in dirtied {
            let Some(buffer) = buffers.get(block).filter(|buffer| buffer.dirty != 0) else {
                continue;
            };
            if seen.insert(block) {
                let writable = !buffer.held.waits() && !buffer.is_under_way();
                dirty.push((block, count(buffer), writable));
            }
        }
        let mut left: usize = dirty.iter().map(|(_, count, _)| count).sum();
        let enough = if left > most / 4 * 3 { most / 2 } else { usize::MAX };
        let mut written = Vec::new();
        // Those that stay keep their order: they have been dirty for longest.
        for (block, count, writable) in dirty {
            if left > enough && writable {
                written.push(block);
                left -= count;
            } else {
                self.memory.dirtied.keep(block);
            }
        }
        self.write_with_neighbours(&written)
    }
}
