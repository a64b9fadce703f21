//! Delayed allocation: which bytes of a write wait for their place
//! (`ext4_da_write_begin` of `fs/ext4/inode.c`).

use crate::Format;
use crate::delayed::BlockState;
use crate::features::DelayedAllocation;
use crate::volume::Volume;
use seekless_fs::field::{index, slice, wide};
use seekless_fs::{FileKind, FsError};
use seekless_units::{Extent, Ino, Nanos};
use std::ops::Range;

const SECOND: u64 = 1_000_000_000;

/// How often expired contents are looked for (`dirty_writeback_centisecs`).
const WAKEUP: u64 = 5 * SECOND;

/// Blocks for which a place is looked for at once (`MAX_WRITEPAGES_EXTENT_LEN`).
const AT_ONCE: usize = 2048;

/// Blocks of a file that are written in the same way.
struct Segment {
    blocks: Range<u64>,
    /// They wait for a place, or will.
    waits: bool,
}

impl<F: Format> Volume<F> {
    /// Puts bytes where they wait for a place, if that can be, and writes those between
    /// that have one. `None` where it cannot be: they are to be written as they are.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] when no place can be reserved as long as others wait.
    pub(crate) fn write_delayed(
        &mut self,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Option<usize>, FsError> {
        let Some(format) = self.format.delayed_allocation() else { return Ok(None) };
        if !format.delays(&mut self.core, ino, offset, wide(bytes.len()))? {
            return Ok(None);
        }
        let end = offset + wide(bytes.len());
        let Some(segments) = self.segments(ino, offset, end)? else { return Ok(None) };
        if !self.can_wait(ino, &segments)? {
            if self.core.delayed.is_empty() {
                return Ok(None);
            }
            return Err(FsError::NoSpace("no room for what waits for a place".into()));
        }
        let block = u64::from(self.format.limits().block).max(1);
        for Segment { blocks, waits } in segments {
            let from = (blocks.start * block).max(offset);
            let to = (blocks.end * block).min(end);
            let (skip, len) = (index(from - offset), index(to - from));
            let part = slice(bytes, skip, len).unwrap_or_default();
            if waits {
                self.keep(ino, from, part)?;
            } else {
                let done = self.format.write_bytes(&mut self.core, ino, from, part)?;
                debug_assert_eq!(done, part.len(), "they have their place");
            }
        }
        self.note_reserved(ino)?;
        Ok(Some(bytes.len()))
    }

    /// Whether a write to bytes `offset..end` of a file can be done beside its delayed contents.
    pub(crate) fn can_write_beside(
        &mut self,
        ino: Ino,
        offset: u64,
        end: u64,
    ) -> Result<bool, FsError> {
        Ok(self.segments(ino, offset, end)?.is_some())
    }

    /// How a range of bytes is to be written; `None` where some of it has blocks that were
    /// never written.
    fn segments(
        &mut self,
        ino: Ino,
        offset: u64,
        end: u64,
    ) -> Result<Option<Vec<Segment>>, FsError> {
        let block = u64::from(self.format.limits().block).max(1);
        let Some(format) = self.format.delayed_allocation() else { return Ok(None) };
        let (mut lbn, last) = (offset / block, end.div_ceil(block));
        let mut segments = Vec::new();
        while lbn < last {
            let (state, until) = format.state_of(&mut self.core, ino, lbn)?;
            debug_assert!(until > lbn, "it holds for the block itself");
            let until = until.clamp(lbn + 1, last);
            let waits = match state {
                BlockState::Unwritten => return Ok(None),
                BlockState::Hole => true,
                BlockState::Written => false,
            };
            segments.push(Segment { blocks: lbn..until, waits });
            lbn = until;
        }
        Ok(Some(segments))
    }

    /// Whether there is room for the most blocks that the new delayed bytes, with all that wait,
    /// can take.
    fn can_wait(&mut self, ino: Ino, segments: &[Segment]) -> Result<bool, FsError> {
        let delayed = &self.core.delayed;
        let (mut runs, mut blocks) = delayed.shape_of(ino);
        for segment in segments.iter().filter(|segment| segment.waits) {
            let new = segment.blocks.clone().filter(|&lbn| delayed.get(ino, lbn).is_none());
            let new = wide(new.count());
            // New blocks may lie between those that wait already.
            let pieces = if new > 0 { 1 } else { 0 };
            (runs, blocks) = (runs + pieces, blocks + new);
        }
        if (runs, blocks) == delayed.shape_of(ino) {
            return Ok(true);
        }
        let wanted = self.most_taken(ino, runs, blocks)?;
        let Some(format) = self.format.delayed_allocation() else { return Ok(false) };
        let room = format.room(&self.core);
        Ok(self.core.delayed.reserved_for_others(ino) + wanted <= room)
    }

    /// Blocks of the volume that it takes at most to give blocks of a file a place.
    fn most_taken(&mut self, ino: Ino, runs: u64, blocks: u64) -> Result<u64, FsError> {
        let Some(format) = self.format.delayed_allocation() else { return Ok(blocks) };
        Ok(blocks + format.most_map_blocks(&mut self.core, ino, runs, blocks)?)
    }

    /// Reserves for a file the most that its delayed contents can take.
    pub(crate) fn note_reserved(&mut self, ino: Ino) -> Result<(), FsError> {
        if self.core.delayed.has(ino) {
            let (runs, blocks) = self.core.delayed.shape_of(ino);
            let most = self.most_taken(ino, runs, blocks)?;
            self.core.delayed.reserve(ino, most);
        }
        let block = u64::from(self.format.limits().block);
        self.core.cache.blocks_mut().set_beside(self.core.delayed.blocks() * block);
        Ok(())
    }

    /// Keeps bytes of a file in blocks that wait. The rest of new blocks reads as zeros, as the
    /// hole did.
    fn keep(&mut self, ino: Ino, from: u64, bytes: &[u8]) -> Result<(), FsError> {
        let block = self.format.limits().block;
        let size = u64::from(block).max(1);
        let expires = self.expiry(ino)?;
        let mut rest = bytes;
        let mut at = from;
        while !rest.is_empty() {
            let lbn = at / size;
            let within = index(at % size);
            let (part, behind) = rest.split_at((index(block) - within).min(rest.len()));
            let put = |to: &mut [u8]| {
                let to = to.iter_mut().skip(within);
                to.zip(part).for_each(|(to, &from)| *to = from);
            };
            match self.core.delayed.get_mut(ino, lbn) {
                Some(block) => put(block),
                None => {
                    let mut new = vec![0; index(block)];
                    put(&mut new);
                    self.core.delayed.put(ino, lbn, new.into(), expires);
                }
            }
            (rest, at) = (behind, at + wide(part.len()));
        }
        let node = self.node(ino)?;
        if at > node.size {
            // The on-disk size follows once the contents have their place.
            node.recorded.get_or_insert(node.size);
            node.size = at;
        }
        Ok(())
    }

    /// When bytes written to a file now are written back at the latest: after the age of contents,
    /// or, where they replace truncated contents, at the next wakeup.
    fn expiry(&mut self, ino: Ino) -> Result<Nanos, FsError> {
        let age = u64::from(self.core.cache.blocks().config().ages.file) * SECOND;
        let age = if self.node(ino)?.was_emptied { 0 } else { age };
        let at = self.core.cache.blocks().now().get() + age.max(1);
        Ok(Nanos::new(at.div_ceil(WAKEUP) * WAKEUP))
    }

    /// Gives the first blocks of a file that wait a place, as many as get one together.
    pub(crate) fn place_first(&mut self, ino: Ino) -> Result<Extent, FsError> {
        self.node(ino)?;
        let Some(format) = self.format.delayed_allocation() else { return Err(crate::gone(ino)) };
        let Some((lbn, blocks)) = self.core.delayed.borrow_first(ino) else {
            debug_assert!(false, "something of inode {ino} waits");
            return Err(crate::gone(ino));
        };
        let some = blocks.get(..AT_ONCE).unwrap_or(&blocks);
        let placed = format.place(&mut self.core, ino, lbn, some);
        let len = placed.as_ref().map_or(0, |run| run.len);
        self.core.delayed.settle(ino, lbn, blocks, len);
        let run = placed?;
        debug_assert!(run.len > 0, "each round places some");
        if !self.core.delayed.has(ino) {
            // Holes may lie behind the blocks that had to wait.
            let node = self.node(ino)?;
            let is_longer = node.recorded.take().is_some_and(|recorded| recorded < node.size);
            if is_longer && let Some(format) = self.format.delayed_allocation() {
                format.put_size(&mut self.core, ino)?;
            }
        }
        Ok(run)
    }

    /// Drops the delayed contents of a file of which nothing is left.
    pub(crate) fn drop_delayed(&mut self, ino: Ino) {
        self.core.delayed.forget(ino);
        let block = u64::from(self.format.limits().block);
        self.core.cache.blocks_mut().set_beside(self.core.delayed.blocks() * block);
    }

    /// Notes that a file was truncated to zero: later contents are expected to replace the old
    /// ones, and are written back soon (`EXT4_STATE_DA_ALLOC_CLOSE`).
    pub(crate) fn note_emptied(&mut self, ino: Ino) -> Result<(), FsError> {
        let node = self.node(ino)?;
        node.was_emptied = node.kind == FileKind::Regular;
        Ok(())
    }
}
