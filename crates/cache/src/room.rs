//! Making room: dropping blocks that hold nothing new, and writing those that do.

use crate::blocks::capacity::BATCH;
use crate::blocks::write::dirty_pieces;
use crate::buffer::Buffer;
use crate::cache::Cache;
use hashbrown::HashSet;
use seekless_fs::FsError;

impl<A> Cache<A> {
    /// As [`BlockCache::drop_clean`](crate::BlockCache::drop_clean), but writes dirty blocks.
    /// Blocked changes are kept, and their dependencies are written instead.
    pub(crate) fn make_room(&mut self) -> Result<(), FsError> {
        while self.blocks.is_over_capacity() {
            let before = self.blocks.memory.buffers.bytes();
            let here = self.blocks.memory.buffers.oldest_first().filter(|b| !b.is_under_way());
            let oldest = here.take(BATCH);
            let free = oldest.filter(|buffer| buffer.is_free_to_go());
            let dirty: Vec<u64> = free.map(|buffer| buffer.block).collect();
            self.blocks.write_with_neighbours(&dirty)?;
            self.blocks.drop_clean();
            if self.blocks.is_over_capacity() {
                // Blocks with changes that wait for a flush are kept.
                self.blocks.barrier()?;
                self.blocks.drop_clean();
            }
            if dirty.is_empty()
                && self.blocks.memory.buffers.bytes() >= before
                && !self.blocks.wait_for_some()?
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
            self.blocks.finish_writes()?;
            if !self.start_round()? {
                break;
            }
        }
        Ok(any)
    }

    /// Writes the oldest dirty buffers where nearly as many are dirty as may be, until half as many
    /// are left (`buf_daemon` in `vfs_bio.c`). Blocked changes stay.
    pub(crate) fn hold_dirty(&mut self) -> Result<(), FsError> {
        let Some(most) = self.blocks.config.dirty else { return Ok(()) };
        if self.blocks.memory.dirtied.are_few(most) {
            return Ok(());
        }
        let dirtied = self.blocks.memory.dirtied.take();
        let mut seen = HashSet::new();
        let paged = self.blocks.config.page.is_some();
        let buffers = &self.blocks.memory.buffers;
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
                self.blocks.memory.dirtied.keep(block);
            }
        }
        self.blocks.write_with_neighbours(&written)
    }
}
