//! Writing blocks: blocked changes are rolled back in a copy, neighbours go in one request, and
//! changes that waited for completed writes are told.

use super::BlockCache;
use crate::blocks::flight::Flight;
use crate::buffer::Buffer;
use crate::shape::bits;
use hashbrown::HashSet;
use seekless_device::Durable;
use seekless_fs::FsError;
use seekless_units::BlockNo;
use smallvec::{SmallVec, smallvec};

/// A run of fragments to be written.
struct Run {
    at: BlockNo,
    bytes: Vec<u8>,
}

impl<A> BlockCache<A> {
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
        let mut copy = std::mem::take(&mut self.spare_block);
        let Some(image) = self.image(block, &mut copy) else { return Ok(()) };
        let within = |&&(first, last): &&(usize, usize)| bits(last) & !bits(first) & mask != 0;
        let bytes = match (image.copied, self.memory.buffers.get(block)) {
            (false, Some(buffer)) => &buffer.bytes[..],
            _ => &copy[..],
        };
        let run = |&(first, last): &(usize, usize)| Run {
            at: base + first as u64,
            bytes: bytes[first * fragment..last * fragment].to_vec(),
        };
        let written: u64 =
            image.parts.iter().filter(within).map(|&(a, b)| bits(b) & !bits(a)).sum();
        let runs: Vec<Run> = image.parts.iter().filter(within).map(run).collect();
        self.spare_block = copy;
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

    /// Gives the writable parts of these blocks to the device, in order of place; neighbours go in
    /// one request. If `waited`, returns after completion; blocks that are being written are waited
    /// for first. Otherwise blocks in flight are skipped and stay dirty.
    pub(crate) fn write_blocks(&mut self, blocks: &[u64], waited: bool) -> Result<(), FsError> {
        let mut blocks: Vec<u64> = blocks.to_vec();
        blocks.sort_unstable();
        blocks.dedup();
        if waited {
            self.wait_for(&blocks)?;
        } else {
            blocks.retain(|&block| !self.is_under_way(block));
        }
        let mut flights = Vec::new();
        // Both are kept for the next time: each write is a fresh copy, but not in fresh memory.
        let mut run = Run { at: BlockNo::ZERO, bytes: std::mem::take(&mut self.spare_run) };
        let mut copy = std::mem::take(&mut self.spare_block);
        let mut any = false;
        for &block in &blocks {
            let Some(image) = self.image(block, &mut copy) else { continue };
            any = true;
            for &(first, last) in &image.parts {
                let (at, from, to) = self.place_of(block, first, last);
                if !self.goes_with(&run, at, to - from) {
                    flights.extend(self.write_run(&run, waited)?);
                    (run.at, run.bytes) = (at, emptied(run.bytes));
                }
                let bytes = match (image.copied, self.memory.buffers.get(block)) {
                    (false, Some(buffer)) => &buffer.bytes[..],
                    _ => &copy[..],
                };
                run.bytes.extend_from_slice(&bytes[from..to]);
            }
        }
        flights.extend(self.write_run(&run, waited)?);
        (self.spare_run, self.spare_block) = (emptied(run.bytes), copy);
        if any {
            self.note_sent(&blocks, flights);
        }
        Ok(())
    }

    /// Where a run of fragments of a block lies: its first fragment, and from which
    /// byte of the block to which.
    fn place_of(&self, block: u64, first: usize, last: usize) -> (BlockNo, usize, usize) {
        let fragment = self.memory.shape.fragment as usize;
        let at = self.memory.shape.first_fragment(block) + first as u64;
        (at, first * fragment, last * fragment)
    }

    /// Whether bytes from a fragment on go in one request with a run: they lie behind it, and both
    /// fit a cluster. Where each file has buffers of its own, a cluster is of whole blocks
    /// (`cluster_wbuf` in `vfs_cluster.c`).
    fn goes_with(&self, run: &Run, at: BlockNo, len: usize) -> bool {
        let fragments = run.bytes.len() / self.memory.shape.fragment as usize;
        let block = self.memory.shape.block_bytes();
        let starts = |at: BlockNo| at.get().is_multiple_of(u64::from(self.memory.shape.per_block));
        let whole = run.bytes.len().is_multiple_of(block) && starts(run.at) && len == block;
        (self.config.page.is_none() || whole)
            && !run.bytes.is_empty()
            && run.at + fragments as u64 == at
            && run.bytes.len() + len <= self.config.cluster.get() as usize
    }

    pub(crate) fn is_under_way(&self, block: u64) -> bool {
        self.memory.buffers.get(block).is_some_and(Buffer::is_under_way)
    }

    /// Writes a run, if there is anything in it. Unless `waited`, it may be under way still.
    fn write_run(&mut self, run: &Run, waited: bool) -> Result<Option<Flight>, FsError> {
        if run.bytes.is_empty() {
            return Ok(None);
        }
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
        // Changes of a write that failed may be on the disk or not: nothing may follow them.
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

    /// A block as it may be written: in memory, or in `copy` where something of it
    /// is undone or sealed.
    fn image(&mut self, block: u64, copy: &mut Vec<u8>) -> Option<Image> {
        let base = self.memory.shape.first_fragment(block);
        let whole = bits(self.memory.shape.per_block as usize);
        let buffer = self.memory.buffers.get(block).filter(|buffer| buffer.dirty != 0)?;
        let parts = match self.config.page {
            Some(_) => dirty_pieces(buffer),
            None => parts(buffer.dirty, buffer.valid & whole),
        };
        let sealed = buffer.metadata && self.seal.is_some();
        let written = parts.iter().map(|&(a, b)| bits(b) & !bits(a)).fold(0, |all, of| all | of);
        if !buffer.held.waits_in(written) && !sealed {
            return Some(Image { copied: false, parts });
        }
        if sealed {
            copy.clear();
            copy.extend_from_slice(&buffer.bytes);
        } else {
            // Of the others nothing is written.
            copy.resize(buffer.bytes.len(), 0);
            let fragment = self.memory.shape.fragment as usize;
            for &(first, last) in &parts {
                let part = first * fragment..last * fragment;
                copy[part.clone()].copy_from_slice(&buffer.bytes[part]);
            }
        }
        let undone = self.order.roll_back(buffer, copy);
        self.memory.counters.rollbacks += undone as u64;
        self.memory.counters.rolled_back_writes += u64::from(undone > 0);
        if let Some(seal) = self.seal.as_ref().filter(|_| sealed) {
            // Invalid parts have the former contents of the memory: another block, or forgotten
            // contents of this one.
            let fragment = self.memory.shape.fragment as usize;
            for (n, part) in copy.chunks_exact_mut(fragment).enumerate() {
                if buffer.valid & (1 << n) == 0 {
                    part.fill(0);
                }
            }
            seal.seal(base, buffer.owner, copy);
        }
        Some(Image { copied: true, parts })
    }

    /// As [`BlockCache::write_blocks`], with the dirty blocks that lie beside them
    /// and wait for nothing: as many on either side as a cluster has blocks. They
    /// cost no further request where all that is joined fits a cluster, and two
    /// where both sides are full.
    pub(crate) fn write_with_neighbours(&mut self, blocks: &[u64]) -> Result<(), FsError> {
        let most = (self.config.cluster.get() / self.memory.shape.block_bytes() as u64).max(1);
        let mut wanted: HashSet<u64> = blocks.iter().copied().collect();
        for &block in blocks {
            for next in (block + 1..).take(most as usize) {
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
        let paged = self.config.page.is_some();
        // Buffers of their own are written with others only where a cluster holds two.
        if paged && (self.config.cluster.get() as usize) < 2 * self.memory.shape.block_bytes() {
            return false;
        }
        let is_one = |b: &Buffer| !paged || b.pieces().len() == 1;
        self.memory
            .buffers
            .get(block)
            .is_some_and(|b| b.dirty == whole && is_one(b) && !b.held.waits() && !b.is_under_way())
    }
}

/// From which fragment to which.
pub(crate) type Parts = SmallVec<[(usize, usize); 4]>;

/// The written form of a block.
struct Image {
    /// Whether its bytes are in a copy, not in the buffer.
    copied: bool,
    parts: Parts,
}

/// The memory of some bytes, for others.
fn emptied(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.clear();
    bytes
}

/// The parts that are buffers of their own in which something is dirty.
pub(crate) fn dirty_pieces(buffer: &Buffer) -> Parts {
    let is_dirty = |&(first, last): &(usize, usize)| buffer.dirty & bits(last) & !bits(first) != 0;
    buffer.pieces().into_iter().filter(is_dirty).collect()
}

/// The runs of fragments that have to be written: the dirty ones, and those between if they are
/// valid.
fn parts(dirty: u64, valid: u64) -> Parts {
    let low = dirty.trailing_zeros() as usize;
    let high = 64 - dirty.leading_zeros() as usize;
    let span = bits(high) & !bits(low);
    if valid & span == span {
        return smallvec![(low, high)];
    }
    let mut left = dirty;
    let mut parts = Parts::new();
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        let last = first + (left >> first).trailing_ones() as usize;
        parts.push((first, last));
        left &= !(bits(last) & !bits(first));
    }
    parts
}
