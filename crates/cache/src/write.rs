//! Writing blocks: what may not be seen yet is undone in a copy, neighbours go
//! in one request, and what is on the disk is told to those that wait.

use crate::buffer::Buffer;
use crate::cache::Cache;
use crate::change::ChangeId;
use crate::flight::Flight;
use crate::shape::bits;
use hashbrown::HashSet;
use seekless_device::Durable;
use seekless_fs::FsError;
use seekless_units::{BlockNo, Extent};

/// Most blocks that are looked at in one go when room is made.
const BATCH: usize = 128;

/// A run of fragments to be written.
struct Run {
    at: BlockNo,
    bytes: Vec<u8>,
}

impl<A> Cache<A> {
    /// Writes a block because the discipline says so.
    pub(crate) fn write_at_once(&mut self, block: u64, mask: u64) -> Result<(), FsError> {
        match self.config.page {
            Some(_) => self.write_pieces(block, mask)?,
            None => self.write_blocks(&[block], true)?,
        }
        self.barrier()
    }

    /// Writes of a block the parts that are buffers of their own and have one
    /// of these fragments. Disciplines that write at once keep no graph: there
    /// is nothing to commit.
    fn write_pieces(&mut self, block: u64, mask: u64) -> Result<(), FsError> {
        self.wait_for(&[block])?;
        let fragment = self.memory.shape.fragment as usize;
        let base = self.memory.shape.first_fragment(block);
        let Some(image) = self.image(block) else { return Ok(()) };
        let within = |&&(first, last): &&(usize, usize)| bits(last) & !bits(first) & mask != 0;
        let run = |&(first, last): &(usize, usize)| Run {
            at: base.saturating_add(first as u64),
            bytes: image.bytes[first * fragment..last * fragment].to_vec(),
        };
        let written: u64 =
            image.parts.iter().filter(within).map(|&(a, b)| bits(b) & !bits(a)).sum();
        let runs: Vec<Run> = image.parts.iter().filter(within).map(run).collect();
        if runs.is_empty() {
            return Ok(());
        }
        for run in &runs {
            let flight = self.write_run(run, true)?;
            debug_assert!(flight.is_none(), "it was waited for");
        }
        self.note_written();
        let Some(buffer) = self.memory.buffers.get_mut(block) else {
            debug_assert!(false, "it was written from memory");
            return Ok(());
        };
        debug_assert!(buffer.held.is_empty(), "no graph is kept");
        // The other pieces were not written: they stay dirty, and due when they
        // were.
        buffer.dirty &= !written;
        if buffer.dirty == 0 {
            (buffer.due, buffer.put_off) = (None, 0);
        }
        Ok(())
    }

    /// Gives what of these blocks may be written to the device, in order of place;
    /// neighbours go in one request. Who waits has it completed on return; blocks
    /// that are being written are waited for first. For who does not wait they are
    /// left out: they are dirty still, and their time comes again.
    pub(crate) fn write_blocks(&mut self, blocks: &[u64], waited: bool) -> Result<(), FsError> {
        let mut blocks: Vec<u64> = blocks.to_vec();
        blocks.sort_unstable();
        blocks.dedup();
        if waited {
            self.wait_for(&blocks)?;
        } else {
            blocks.retain(|&block| !self.is_under_way(block));
        }
        let runs = self.runs(&blocks);
        if runs.is_empty() {
            return Ok(());
        }
        let mut flights = Vec::new();
        for run in &runs {
            flights.extend(self.write_run(run, waited)?);
        }
        self.note_sent(&blocks, flights);
        Ok(())
    }

    pub(crate) fn is_under_way(&self, block: u64) -> bool {
        self.memory.buffers.get(block).is_some_and(Buffer::is_under_way)
    }

    /// Writes a run. Where nobody waits it may be under way still.
    fn write_run(&mut self, run: &Run, waited: bool) -> Result<Option<Flight>, FsError> {
        let at = self.memory.shape.lba(run.at);
        let per_block = u64::from(self.memory.shape.per_block);
        let fragments = run.bytes.len() as u64 / u64::from(self.memory.shape.fragment);
        let (first, last) = (run.at.get(), run.at.get() + fragments - 1);
        let blocks = first / per_block..=last / per_block;
        debug_assert!(blocks.clone().all(|at| !self.is_under_way(at)), "invariant 8");
        let written = if waited {
            self.device.write(at, &run.bytes).map(|()| None)
        } else {
            self.device.submit(at, &run.bytes, Durable::AfterFlush)
        };
        let ticket = written.map_err(|error| self.fail(error.into()))?;
        let count = if waited {
            &mut self.memory.counters.sync_writes
        } else {
            &mut self.memory.counters.async_writes
        };
        *count += 1;
        self.memory.counters.written_bytes += run.bytes.len() as u64;
        Ok(ticket.map(|ticket| Flight { ticket, blocks, fragments: first..=last }))
    }

    /// A write has failed: nothing may be changed any more.
    pub(crate) fn fail(&mut self, error: FsError) -> FsError {
        self.failed.get_or_insert_with(|| format!("a write failed: {error}"));
        error
    }

    /// The runs of fragments to be written for some blocks, in order.
    fn runs(&mut self, blocks: &[u64]) -> Vec<Run> {
        let fragment = self.memory.shape.fragment as usize;
        let most = self.config.cluster.get() as usize;
        let joins = self.config.page.is_none();
        let mut runs: Vec<Run> = Vec::new();
        for &block in blocks {
            let base = self.memory.shape.first_fragment(block);
            let Some(image) = self.image(block) else { continue };
            for (first, last) in image.parts {
                let at = base.saturating_add(first as u64);
                let bytes = &image.bytes[first * fragment..last * fragment];
                match runs.last_mut() {
                    Some(run)
                        if joins
                            && run.at.saturating_add((run.bytes.len() / fragment) as u64) == at
                            && run.bytes.len() + bytes.len() <= most =>
                    {
                        run.bytes.extend_from_slice(bytes);
                    }
                    _ => runs.push(Run { at, bytes: bytes.to_vec() }),
                }
            }
        }
        runs
    }

    /// A block as it may be written.
    fn image(&mut self, block: u64) -> Option<Image<'_>> {
        let base = self.memory.shape.first_fragment(block);
        let whole = bits(self.memory.shape.per_block as usize);
        let buffer = self.memory.buffers.get(block).filter(|buffer| buffer.dirty != 0)?;
        let parts = match self.config.page {
            Some(_) => dirty_pieces(buffer),
            None => parts(buffer.dirty, buffer.valid & whole),
        };
        let sealed = buffer.metadata && self.seal.is_some();
        if !buffer.held.waits() && !sealed {
            return Some(Image { bytes: std::borrow::Cow::Borrowed(&buffer.bytes), parts });
        }
        let mut copy = buffer.bytes.to_vec();
        let undone = self.order.roll_back(buffer, &mut copy);
        self.memory.counters.rollbacks += undone as u64;
        self.memory.counters.rolled_back_writes += u64::from(undone > 0);
        if let Some(seal) = self.seal.as_ref().filter(|_| sealed) {
            // What is not valid is whatever the memory held before: another
            // block, or what was forgotten of this one.
            let fragment = self.memory.shape.fragment as usize;
            for (n, part) in copy.chunks_exact_mut(fragment).enumerate() {
                if buffer.valid & (1 << n) == 0 {
                    part.fill(0);
                }
            }
            seal.seal(base, &mut copy);
        }
        Some(Image { bytes: std::borrow::Cow::Owned(copy), parts })
    }

    /// As [`Cache::write_blocks`], with the dirty blocks that lie beside them
    /// and wait for nothing: as many on either side as a cluster has blocks. They
    /// cost no further request where all that is joined fits a cluster, and two
    /// where both sides are full.
    pub(crate) fn write_with_neighbours(&mut self, blocks: &[u64]) -> Result<(), FsError> {
        let most = (self.config.cluster.get() / self.memory.shape.block_bytes() as u64).max(1);
        let mut wanted: HashSet<u64> = blocks.iter().copied().collect();
        for &block in blocks {
            for next in (block.saturating_add(1)..).take(most as usize) {
                if !self.joins(next) || !wanted.insert(next) {
                    break;
                }
            }
            for next in (block.saturating_sub(most)..block).rev() {
                if !self.joins(next) || !wanted.insert(next) {
                    break;
                }
            }
        }
        let mut wanted: Vec<u64> = wanted.into_iter().collect();
        wanted.sort_unstable();
        self.write_blocks(&wanted, false)
    }

    fn joins(&self, block: u64) -> bool {
        let whole = bits(self.memory.shape.per_block as usize);
        self.config.page.is_none()
            && self
                .memory
                .buffers
                .get(block)
                .is_some_and(|b| b.dirty == whole && !b.held.waits() && !b.is_under_way())
    }

    /// Whether more is kept than may be. What is being written is in the hands of
    /// the device, which bounds how much that is, and goes once it has completed.
    pub(crate) fn is_over_capacity(&self) -> bool {
        let buffers = &self.memory.buffers;
        buffers.bytes() - buffers.bytes_under_way() > self.config.capacity.get()
    }

    /// Drops the least recently used blocks that hold nothing new, until the
    /// cache is no larger than it may be.
    pub(crate) fn drop_clean(&mut self) {
        while self.is_over_capacity() {
            let clean = self.memory.buffers.oldest_first().filter(|buffer| !buffer.is_kept());
            let blocks: Vec<u64> = clean.take(self.batch()).map(|buffer| buffer.block).collect();
            if blocks.is_empty() {
                return;
            }
            for block in blocks {
                self.memory.buffers.remove(block);
            }
        }
    }

    /// Blocks that are looked at in one go when room is made: a sixteenth of
    /// all at most.
    fn batch(&self) -> usize {
        let blocks = self.config.capacity.get() / self.memory.shape.block_bytes() as u64;
        usize::try_from(blocks / 16).unwrap_or(BATCH).clamp(1, BATCH)
    }

    /// As [`Cache::drop_clean`], but writes what is dirty. What waits for
    /// something is kept, and what it waits for is written instead.
    pub(crate) fn make_room(&mut self) -> Result<(), FsError> {
        while self.is_over_capacity() {
            let before = self.memory.buffers.bytes();
            let here = self.memory.buffers.oldest_first().filter(|b| !b.is_under_way());
            let oldest = here.take(BATCH);
            let writable = |buffer: &&Buffer| buffer.dirty != 0 && !buffer.held.waits();
            let dirty: Vec<u64> = oldest.filter(writable).map(|buffer| buffer.block).collect();
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
                && !self.start_round()?
            {
                break;
            }
        }
        Ok(())
    }

    /// Writes what may be written: the blocks in which nothing waits, so that
    /// what waits for them need not be undone; all others when there are none
    /// of those, nor anything under way that they may wait for. All of it is on the
    /// disk then. False when there was nothing: then nothing is dirty but what
    /// actions will change that are ready.
    ///
    /// # Errors
    /// [`FsError::Device`]; [`FsError::ReadOnly`] when a write has failed before.
    pub fn sync_round(&mut self) -> Result<bool, FsError> {
        let any = self.start_round()? || self.order.has_ready();
        self.finish_writes()?;
        // What a write that failed late should have written is never on the disk.
        if any { Ok(true) } else { self.check_writable().map(|()| false) }
    }

    /// As [`Cache::sync_round`], but waits for nothing. False when nothing is to be
    /// written, or was.
    ///
    /// # Errors
    /// As [`Cache::sync_round`].
    pub(crate) fn start_round(&mut self) -> Result<bool, FsError> {
        self.poll()?;
        let dirty = |buffer: &&Buffer| buffer.dirty != 0 && !buffer.is_under_way();
        let dirty = self.memory.buffers.iter().filter(dirty);
        let (whole, part): (Vec<&Buffer>, Vec<&Buffer>) = dirty.partition(|b| !b.held.waits());
        let waits = !self.flights.are_over(self.config.barriers);
        let chosen = if whole.is_empty() && !waits { part } else { whole };
        let blocks: Vec<u64> = chosen.iter().map(|b| b.block).collect();
        self.write_blocks(&blocks, false)?;
        Ok(waits || !blocks.is_empty())
    }

    /// Has all that was written on the disk.
    ///
    /// # Errors
    /// As [`Cache::sync_round`].
    pub(crate) fn finish_writes(&mut self) -> Result<(), FsError> {
        self.wait_for_all()?;
        self.barrier()
    }

    /// Writes some of the blocks that hold something that may be written: those
    /// that are picked, by number, in order of number. Any of them may be
    /// written at any time, and those who look for crash states want all of
    /// them. False when nothing was.
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub fn write_some(&mut self, mut pick: impl FnMut(u64) -> bool) -> Result<bool, FsError> {
        self.check_writable()?;
        let dirty = self.memory.buffers.iter().filter(|buffer| buffer.dirty != 0);
        let mut blocks: Vec<u64> = dirty.map(|buffer| buffer.block).collect();
        blocks.sort_unstable();
        blocks.retain(|&block| pick(block));
        self.poll()?;
        self.write_blocks(&blocks, false)?;
        self.barrier()?;
        Ok(!blocks.is_empty())
    }

    /// Returns once changes are on the disk, and whatever they wait for. The device
    /// is flushed once for all that can be written before something else is.
    ///
    /// # Errors
    /// [`FsError::Device`]; [`FsError::ReadOnly`] when a write has failed before.
    pub fn settle(&mut self, changes: &[ChangeId]) -> Result<(), FsError> {
        self.poll()?;
        loop {
            let left = self.order.to_settle(&self.memory, changes);
            if left.is_settled() {
                return Ok(());
            }
            self.check_writable()?;
            self.write_blocks(&left.to_write, true)?;
            self.wait_for(&left.under_way)?;
            self.barrier()?;
        }
    }

    /// Returns once all that was changed in some runs of fragments is on the
    /// disk, and whatever it waits for. Runs that are not in the cache cost
    /// nothing.
    ///
    /// # Errors
    /// As [`Cache::settle`].
    pub fn settle_runs(&mut self, runs: &[Extent]) -> Result<(), FsError> {
        self.complete_runs(runs)?;
        self.barrier()
    }

    /// As [`Cache::settle_runs`], but leaves the last flush to the caller
    /// ([`Cache::flush`]), who has more to write that does not wait for these.
    ///
    /// # Errors
    /// As [`Cache::settle`].
    pub fn complete_runs(&mut self, runs: &[Extent]) -> Result<(), FsError> {
        self.poll()?;
        let mut waiting = Vec::new();
        let mut dirty = Vec::new();
        let mut under_way = Vec::new();
        for &run in runs {
            for (block, mask) in self.memory.shape.blocks_of(run) {
                let Some(buffer) = self.memory.buffers.get(block) else { continue };
                waiting.extend(self.order.waiting_in(buffer, mask));
                dirty.extend((buffer.dirty & mask != 0).then_some(block));
                under_way.extend((buffer.changed_under_way() & mask != 0).then_some(block));
            }
        }
        if dirty.is_empty() && under_way.is_empty() {
            return self.settle(&waiting);
        }
        self.write_blocks(&dirty, true)?;
        self.wait_for(&under_way)?;
        self.settle(&waiting)
    }

    /// Writes everything. Actions that become ready must be done by the
    /// format, which then calls again, until there are none.
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub fn sync(&mut self) -> Result<(), FsError> {
        while !self.order.has_ready() && self.sync_round()? {}
        Ok(())
    }

    /// Whether anything is not on the disk yet.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.order.len() > 0
            || !self.flights.are_over(self.config.barriers)
            || self.memory.buffers.iter().any(|buffer| buffer.holds_changes())
    }
}

struct Image<'a> {
    bytes: std::borrow::Cow<'a, [u8]>,
    /// From which fragment to which.
    parts: Vec<(usize, usize)>,
}

/// The parts that are buffers of their own in which something is dirty.
fn dirty_pieces(buffer: &Buffer) -> Vec<(usize, usize)> {
    let mut pieces = buffer.pieces();
    pieces.retain(|&(first, last)| buffer.dirty & bits(last) & !bits(first) != 0);
    pieces
}

/// The runs of fragments that have to be written: what is dirty, and what lies
/// between if it is known.
fn parts(dirty: u64, valid: u64) -> Vec<(usize, usize)> {
    let low = dirty.trailing_zeros() as usize;
    let high = 64 - dirty.leading_zeros() as usize;
    let span = bits(high) & !bits(low);
    if valid & span == span {
        return vec![(low, high)];
    }
    let mut left = dirty;
    let mut parts = Vec::new();
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        let last = first + (left >> first).trailing_ones() as usize;
        parts.push((first, last));
        left &= !(bits(last) & !bits(first));
    }
    parts
}
