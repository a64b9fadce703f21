//! A limit on dirty buffers: when nearly as many are dirty as may be, the oldest are
//! written until half as many are left (`buf_daemon` in `vfs_bio.c`).

use crate::buffer::Buffer;
use crate::cache::Cache;
use crate::write::dirty_pieces;
use hashbrown::HashSet;
use seekless_fs::FsError;
use std::collections::VecDeque;

/// Of the limit, how much may become dirty before all are counted again.
const PARTS: usize = 16;

/// The blocks that became dirty, in that order. Some are clean by now, and some are in it
/// more than once.
#[derive(Debug, Default)]
pub(crate) struct Dirtied {
    blocks: VecDeque<u64>,
    /// How many came since all were counted.
    fresh: usize,
}

impl Dirtied {
    /// A block that was clean is dirty.
    pub(crate) fn note(&mut self, block: u64) {
        self.blocks.push_back(block);
        self.fresh += 1;
    }
}

impl<A> Cache<A> {
    /// Writes the oldest dirty buffers where too many are dirty. Blocked changes stay.
    pub(crate) fn hold_dirty(&mut self) -> Result<(), FsError> {
        let Some(most) = self.config.dirty else { return Ok(()) };
        if self.memory.dirtied.fresh <= most / PARTS {
            return Ok(());
        }
        self.memory.dirtied.fresh = 0;
        let mut seen = HashSet::new();
        let paged = self.config.page.is_some();
        let buffers = &self.memory.buffers;
        let count = |buffer: &Buffer| if paged { dirty_pieces(buffer).len() } else { 1 };
        let mut dirty: Vec<(u64, usize, bool)> = Vec::new();
        for &block in &self.memory.dirtied.blocks {
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
        self.memory.dirtied.blocks.clear();
        // Those that stay keep their order: they have been dirty for longest.
        for (block, count, writable) in dirty {
            if left > enough && writable {
                written.push(block);
                left -= count;
            } else {
                self.memory.dirtied.blocks.push_back(block);
            }
        }
        self.write_with_neighbours(&written)
    }
}
