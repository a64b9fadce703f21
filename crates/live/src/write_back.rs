//! Delayed allocation: which bytes of a write wait for their place, and when they get one
//! (`ext4_da_write_begin`, `ext4_writepages` of `fs/ext4/inode.c`).
//!
//! Places are taken between operations, each run of blocks in an operation of its own: an operation
//! that has begun does not look at delayed blocks.

use crate::{Format, Live, Names};
use seekless_fs::field::{index, slice, wide};
use seekless_fs::{FileKind, FsError};
use seekless_units::{Extent, Ino, Nanos};
use std::ops::Range;

const SECOND: u64 = 1_000_000_000;

/// How often expired contents are looked for (`dirty_writeback_centisecs`).
const WAKEUP: u64 = 5 * SECOND;

/// Blocks for which a place is looked for at once (`MAX_WRITEPAGES_EXTENT_LEN`).
const AT_ONCE: usize = 2048;

/// The state of a block in a file's map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stand {
    /// It has none.
    Hole,
    /// It has one, with contents.
    Written,
    /// It has one that was never written.
    Unwritten,
}

/// Blocks of a file that are written in the same way.
struct Segment {
    blocks: Range<u64>,
    /// They wait for a place, or will.
    waits: bool,
}

impl<F: Format> Live<F> {
    /// To be called before a write begins: contents get their places that it could not go
    /// on beside, and those for which there is no memory any more.
    pub(crate) fn before_write(&mut self, ino: Ino, offset: u64, len: u64) -> Result<(), FsError> {
        if self.core.delayed.is_empty() {
            return Ok(());
        }
        self.bound_delayed()?;
        if !self.core.delayed.has(ino) {
            return Ok(());
        }
        // Unwritten extents become written: that changes the map, and the on-disk length has to go
        // as far.
        let end = offset.saturating_add(len);
        if self.segments(ino, offset, end)?.is_none() {
            return self.write_back(ino, true);
        }
        Ok(())
    }

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
        if !self.format.delays(&mut self.core, ino, offset, wide(bytes.len()))? {
            return Ok(None);
        }
        let end = offset.saturating_add(wide(bytes.len()));
        let Some(segments) = self.segments(ino, offset, end)? else { return Ok(None) };
        if !self.can_wait(ino, &segments)? {
            if self.core.delayed.is_empty() {
                return Ok(None);
            }
            return Err(FsError::NoSpace("no room for what waits for a place".into()));
        }
        let block = u64::from(self.format.limits().block).max(1);
        for Segment { blocks, waits } in segments {
            let from = blocks.start.saturating_mul(block).max(offset);
            let to = blocks.end.saturating_mul(block).min(end);
            let (skip, len) = (index(from.saturating_sub(offset)), index(to.saturating_sub(from)));
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

    /// How a range of bytes is to be written; `None` where some of it has blocks that were
    /// never written.
    fn segments(
        &mut self,
        ino: Ino,
        offset: u64,
        end: u64,
    ) -> Result<Option<Vec<Segment>>, FsError> {
        let block = u64::from(self.format.limits().block).max(1);
        let (mut lbn, last) = (offset.checked_div(block).unwrap_or(0), end.div_ceil(block));
        let mut segments = Vec::new();
        while lbn < last {
            let (stand, until) = self.format.stand_of(&mut self.core, ino, lbn)?;
            debug_assert!(until > lbn, "it holds for the block itself");
            let until = until.clamp(lbn.saturating_add(1), last);
            let waits = match stand {
                Stand::Unwritten => return Ok(None),
                Stand::Hole => true,
                Stand::Written => false,
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
            (runs, blocks) = (runs.saturating_add(pieces), blocks.saturating_add(new));
        }
        if (runs, blocks) == delayed.shape_of(ino) {
            return Ok(true);
        }
        let wanted = self.most_taken(ino, runs, blocks)?;
        let room = self.format.room(&self.core);
        Ok(self.core.delayed.reserved_for_others(ino).saturating_add(wanted) <= room)
    }

    /// Blocks of the volume that it takes at most to give blocks of a file a place.
    fn most_taken(&mut self, ino: Ino, runs: u64, blocks: u64) -> Result<u64, FsError> {
        let maps = self.format.most_map_blocks(&mut self.core, ino, runs, blocks)?;
        Ok(blocks.saturating_add(maps))
    }

    /// Reserves for a file the most that its delayed contents can take.
    fn note_reserved(&mut self, ino: Ino) -> Result<(), FsError> {
        if self.core.delayed.has(ino) {
            let (runs, blocks) = self.core.delayed.shape_of(ino);
            let most = self.most_taken(ino, runs, blocks)?;
            self.core.delayed.reserve(ino, most);
        }
        let block = u64::from(self.format.limits().block);
        self.core.cache.set_beside(self.core.delayed.blocks().saturating_mul(block));
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
            let lbn = at.checked_div(size).unwrap_or(0);
            let within = index(at.checked_rem(size).unwrap_or(0));
            let (part, behind) = rest.split_at(index(block).saturating_sub(within).min(rest.len()));
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
            (rest, at) = (behind, at.saturating_add(wide(part.len())));
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
        let age = u64::from(self.core.cache.config().ages.file).saturating_mul(SECOND);
        let age = if self.node(ino)?.was_emptied { 0 } else { age };
        let at = self.core.cache.now().get().saturating_add(age.max(1));
        Ok(Nanos::new(at.div_ceil(WAKEUP).saturating_mul(WAKEUP)))
    }

    /// Gives contents their places as long as too many wait, those that have waited longest
    /// first.
    fn bound_delayed(&mut self) -> Result<(), FsError> {
        let most = self.core.cache.config().capacity.get() / 2;
        let block = u64::from(self.format.limits().block);
        while self.core.delayed.blocks().saturating_mul(block) > most {
            let Some(first) = self.core.delayed.first() else { break };
            self.write_back(first, false)?;
        }
        Ok(())
    }

    /// Allocates all delayed contents of a file, and begins to write them. To be called between
    /// operations. `is_open`: the file is open for writing; one that is held counts as open.
    ///
    /// # Errors
    /// As [`Live::open`]; contents without a place wait on.
    pub(crate) fn write_back(&mut self, ino: Ino, is_open: bool) -> Result<(), FsError> {
        if !self.core.delayed.has(ino) {
            return Ok(());
        }
        debug_assert!(!self.core.cache.in_operation(), "D4: inode {ino} is written back in one");
        let is_open = is_open || self.node(ino)?.holds > 0;
        let may_spend = std::mem::replace(&mut self.core.may_spend_reserve, true);
        self.core.delayed.set_placing(Some(is_open));
        let mut runs = Vec::new();
        let mut placed = Ok(());
        while placed.is_ok() && self.core.delayed.has(ino) {
            placed = self
                .attempt(Self::reclaim_freed, |live| live.place_first(ino))
                .map(|run| runs.push(run));
        }
        self.core.delayed.set_placing(None);
        self.core.may_spend_reserve = may_spend;
        let noted = self.note_reserved(ino);
        let placed = self.noted(placed.and(noted));
        if let Some(node) = self.core.nodes.get_mut(&ino)
            && !self.core.delayed.has(ino)
        {
            node.was_emptied = false;
        }
        placed?;
        let started = self.core.cache.start_runs(&runs);
        self.noted(started)
    }

    /// Gives the first blocks of a file that wait a place, as many as get one together.
    fn place_first(&mut self, ino: Ino) -> Result<Extent, FsError> {
        self.node(ino)?;
        let Some((lbn, blocks)) = self.core.delayed.borrow_first(ino) else {
            debug_assert!(false, "something of inode {ino} waits");
            return Err(crate::gone(ino));
        };
        let some = blocks.get(..AT_ONCE).unwrap_or(&blocks);
        let placed = self.format.place(&mut self.core, ino, lbn, some);
        let len = placed.as_ref().map_or(0, |run| run.len);
        self.core.delayed.settle(ino, lbn, blocks, len);
        let run = placed?;
        debug_assert!(run.len > 0, "each round places some");
        if !self.core.delayed.has(ino) {
            // Holes may lie behind the blocks that had to wait.
            let node = self.node(ino)?;
            if node.recorded.take().is_some_and(|recorded| recorded < node.size) {
                self.format.put_size(&mut self.core, ino)?;
            }
        }
        Ok(run)
    }

    /// Gives everything that waits its place.
    pub(crate) fn write_back_all(&mut self) -> Result<(), FsError> {
        let mut done = Ok(());
        for ino in self.core.delayed.in_turn() {
            // Files without a place wait on, and do not keep others from theirs.
            match self.write_back(ino, false) {
                Err(error @ FsError::NoSpace(_)) => done = done.and(Err(error)),
                other => other?,
            }
        }
        done
    }

    /// Gives those files their places that have expired.
    pub(crate) fn write_back_expired(&mut self) -> Result<(), FsError> {
        for ino in self.core.delayed.expired(self.core.cache.now()) {
            self.write_back(ino, false)?;
        }
        Ok(())
    }

    /// Drops the delayed contents of a file of which nothing is left.
    pub(crate) fn drop_delayed(&mut self, ino: Ino) {
        self.core.delayed.forget(ino);
        let block = u64::from(self.format.limits().block);
        self.core.cache.set_beside(self.core.delayed.blocks().saturating_mul(block));
    }

    /// To be called before a name is given to a file in the place of another's: that
    /// file's contents are then not lost with a crash (`auto_da_alloc`).
    pub(crate) fn before_replacing(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
    ) -> Result<(), FsError> {
        if self.core.delayed.is_empty() {
            return Ok(());
        }
        // The rename itself reports its errors.
        let Ok(Some(moved)) = F::Names::find(self, from.0, from.1) else { return Ok(()) };
        let replaces = matches!(F::Names::find(self, to.0, to.1), Ok(Some(_)));
        if replaces { self.write_back(moved, false) } else { Ok(()) }
    }

    /// Notes that a file was truncated to zero: later contents are expected to replace the old
    /// ones, and are written back soon (`EXT4_STATE_DA_ALLOC_CLOSE`).
    pub(crate) fn note_emptied(&mut self, ino: Ino) -> Result<(), FsError> {
        let node = self.node(ino)?;
        node.was_emptied = node.kind == FileKind::Regular;
        Ok(())
    }
}
