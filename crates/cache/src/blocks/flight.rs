//! Writes under way: from when they are given to the device until they are on the disk.
//!
//! A change is on the disk when its write has completed and, with barriers, the
//! device was flushed after that. Until then a block may be changed, since a copy
//! went out, but it is not written again (invariant 8 of docs/design/order.md): the
//! device may complete writes in any order, and the older bytes would come last.

use super::BlockCache;
use crate::log::Stage;
use crate::memory::Memory;
use crate::work::{CommitWork, Done, Performer};
use hashbrown::HashMap;
use seekless_device::Ticket;
use seekless_fs::FsError;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A request that was submitted and has not completed.
pub(crate) struct Flight {
    pub(crate) ticket: Ticket,
    /// The blocks written, in whole or in part.
    pub(crate) blocks: RangeInclusive<u64>,
    /// The fragments written.
    pub(crate) fragments: RangeInclusive<u64>,
}

/// The writes of a cache that are not known to be on the disk.
#[derive(Default)]
pub(crate) struct Flights {
    /// Under way, in the order in which they were submitted.
    under_way: Vec<Flight>,
    /// Blocks with changes whose write has completed, with barriers: they wait for
    /// a flush.
    unflushed: Vec<u64>,
    /// A write has completed since the device was last flushed.
    needs_flush: bool,
    /// How often writes have completed.
    landings: u64,
    /// The number of these landings that are on stable storage.
    stable: u64,
    /// Flushes are performed by callers that do not lock the cache meanwhile.
    pub(crate) apart: bool,
    /// The flush under way, if such a caller performs one.
    pub(crate) flush: Option<ApartFlush>,
    /// The syncer wants a flush, which [`BlockCache::due_flush_work`] hands out.
    pub(crate) is_flush_due: bool,
}

/// A flush that a caller performs without locking the cache, and the writes that had completed
/// when it began.
pub(crate) struct ApartFlush {
    pub(crate) done: Arc<Done>,
    landings: u64,
    /// Length of `Flights::unflushed`.
    blocks: usize,
    /// Blocks with changes that wait for this flush, and the number of such changes.
    changes: Vec<(u64, usize)>,
    /// A later flush has covered the same writes.
    is_stale: bool,
}

impl Flights {
    /// Whether all that was written is on the disk, as far as `barriers` ask.
    pub(crate) fn are_over(&self, barriers: bool) -> bool {
        self.under_way.is_empty() && !(barriers && self.needs_flush)
    }

    /// How often writes have completed: where it is the same as before a flush began,
    /// that flush put all of them on stable storage.
    pub(crate) fn landings(&self) -> u64 {
        self.landings
    }

    /// 8 of docs/design/order.md: no two requests under way write the same, and
    /// each block knows of those that write some of it. One that has failed stays
    /// known for ever.
    pub(crate) fn broken_invariant(&self, memory: &Memory, failed: bool) -> Option<String> {
        let mut counts: HashMap<u64, u32> = HashMap::new();
        for block in self.under_way.iter().flat_map(|flight| flight.blocks.clone()) {
            *counts.entry(block).or_default() += 1;
        }
        for buffer in memory.buffers.iter() {
            let (known, there) = (buffer.under_way(), counts.remove(&buffer.block).unwrap_or(0));
            if known < there || known > there && !failed {
                let block = buffer.block;
                return Some(format!("8: {there} requests write block {block}, {known} are known"));
            }
        }
        if let Some(block) = counts.keys().next() {
            return Some(format!("8: block {block} is being written and not in memory"));
        }
        let mut places: Vec<&RangeInclusive<u64>> =
            self.under_way.iter().map(|flight| &flight.fragments).collect();
        places.sort_unstable_by_key(|place| *place.start());
        let overlap = places.windows(2).find(|two| two[0].end() >= two[1].start())?;
        Some(format!("8: fragments {:?} and {:?} are being written", overlap[0], overlap[1]))
    }
}

impl<A> BlockCache<A> {
    /// Some blocks were given to the device in whole or in part; `flights` are the
    /// requests that have not completed.
    pub(crate) fn note_sent(&mut self, blocks: &[u64], flights: Vec<Flight>) {
        self.order.sent(&mut self.memory, blocks);
        for block in flights.iter().flat_map(|flight| flight.blocks.clone()) {
            self.memory.buffers.take_off(block);
        }
        let all_landed = flights.is_empty();
        self.flights.under_way.extend(flights);
        if all_landed {
            self.note_landed(blocks);
        } else {
            let under_way = |block: &u64| {
                self.memory.buffers.get(*block).is_some_and(|buffer| buffer.is_under_way())
            };
            let landed: Vec<u64> = blocks.iter().copied().filter(|at| !under_way(at)).collect();
            self.note_landed(&landed);
        }
    }

    /// All writes of some blocks have completed.
    fn note_landed(&mut self, blocks: &[u64]) {
        if blocks.is_empty() {
            return;
        }
        self.note_written();
        if self.config.barriers {
            self.order.completed(&mut self.memory, blocks);
            if self.order.holds_back() {
                self.flights.unflushed.extend_from_slice(blocks);
            }
        } else {
            self.order.committed(&mut self.memory, blocks);
        }
    }

    /// Notes a completed write that belongs to no order.
    pub(crate) fn note_written(&mut self) {
        self.flights.needs_flush = true;
        self.flights.landings += 1;
    }

    /// Asks which writes have completed, and notes it.
    ///
    /// # Errors
    /// [`FsError::Device`] when one has failed: nothing may be changed any more.
    pub(crate) fn poll(&mut self) -> Result<(), FsError> {
        self.collect_flush()?;
        if self.flights.under_way.is_empty() {
            return Ok(());
        }
        self.end_flights(|cache, flight| cache.device.is_complete(flight.ticket))
    }

    /// Waits for the writes under way of some blocks.
    ///
    /// # Errors
    /// As [`BlockCache::poll`]; [`FsError::ReadOnly`] when one has failed before.
    pub(crate) fn wait_for(&mut self, blocks: &[u64]) -> Result<(), FsError> {
        if self.flights.under_way.is_empty() {
            return self.check_writable();
        }
        self.end_flights(|cache, flight| {
            if blocks.iter().any(|block| flight.blocks.contains(block)) {
                cache.device.wait(flight.ticket).map(|()| true)
            } else {
                cache.device.is_complete(flight.ticket)
            }
        })?;
        self.check_writable()
    }

    /// Waits for all writes under way.
    ///
    /// # Errors
    /// [`FsError::Device`] when one has failed: nothing may be changed any more.
    pub fn wait_for_all(&mut self) -> Result<(), FsError> {
        self.end_flights(|cache, flight| cache.device.wait(flight.ticket).map(|()| true))
    }

    /// Waits for the write that was submitted first, and has it on the disk, with all
    /// that has completed by then. False when there was nothing to wait for.
    ///
    /// # Errors
    /// As [`BlockCache::poll`].
    pub(crate) fn wait_for_some(&mut self) -> Result<bool, FsError> {
        if self.flights.are_over(self.config.barriers) {
            return Ok(false);
        }
        if let Some(first) = self.flights.under_way.first().map(|flight| flight.ticket) {
            self.end_flights(|cache, flight| {
                if flight.ticket == first {
                    cache.device.wait(first).map(|()| true)
                } else {
                    cache.device.is_complete(flight.ticket)
                }
            })?;
        }
        self.barrier()?;
        Ok(true)
    }

    /// Takes out the flights that have completed, as `is_over` reports. One that has failed is over
    /// as well, but its blocks are never on the disk, and stay in memory.
    fn end_flights(
        &mut self,
        is_over: impl Fn(&Self, &Flight) -> Result<bool, seekless_device::DeviceError>,
    ) -> Result<(), FsError> {
        let mut landed = Vec::new();
        let mut failed = None;
        for flight in std::mem::take(&mut self.flights.under_way) {
            match is_over(self, &flight) {
                Ok(true) => {
                    for block in flight.blocks {
                        if self.memory.buffers.land(block) {
                            landed.push(block);
                        }
                    }
                }
                Ok(false) => self.flights.under_way.push(flight),
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        self.note_landed(&landed);
        for block in landed {
            self.memory.drop_empty(block);
        }
        failed.map_or(Ok(()), |error| Err(self.fail(error.into())))
    }

    /// Puts all completed writes on stable storage. Without barriers the cache itself never asks
    /// for that: `fsync` and `sync` do. Nothing is flushed where nothing was written since the last
    /// time.
    ///
    /// # Errors
    /// [`FsError::Device`]: nothing may be changed any more; [`FsError::ReadOnly`]
    /// when that was so before.
    pub fn flush(&mut self) -> Result<(), FsError> {
        if !self.flights.needs_flush {
            return Ok(());
        }
        // A part of a commit may flush as well: it must not fail unnoticed.
        self.finish_part()?;
        self.finish_flush()?;
        if !self.flights.needs_flush {
            return Ok(());
        }
        // A flush that fails may have lost writes, and the next one does not report that.
        self.check_writable()?;
        self.memory.counters.flushes += 1;
        self.device.flush().map_err(|error| self.fail(error.into()))?;
        self.note_flushed();
        Ok(())
    }

    /// All writes that have completed are on stable storage.
    pub(crate) fn note_flushed(&mut self) {
        self.flights.needs_flush = false;
        self.flights.stable = self.flights.landings;
        if let Some(flush) = &mut self.flights.flush {
            flush.is_stale = true;
        }
        let blocks = std::mem::take(&mut self.flights.unflushed);
        self.order.committed(&mut self.memory, &blocks);
    }

    /// As [`BlockCache::barrier`], when nothing depends on it yet. While a part of a commit is
    /// being performed it is left for later: a flush beside that part would have to wait for it.
    pub(crate) fn barrier_if_idle(&mut self) -> Result<(), FsError> {
        if self.order.is_part_under_way() {
            return Ok(());
        }
        if self.flights.apart {
            self.flights.is_flush_due |= self.config.barriers && self.flights.needs_flush;
            return Ok(());
        }
        self.barrier()
    }

    /// Later writes may depend on completed ones: flushes, with barriers.
    pub(crate) fn barrier(&mut self) -> Result<(), FsError> {
        if self.config.barriers { self.flush() } else { Ok(()) }
    }

    /// A flush of the device, to be performed without locking the cache; or, if another caller
    /// performs one, waiting for that one, after which this must be called again. `None` if no
    /// write has completed since the last flush.
    ///
    /// # Errors
    /// [`FsError::Device`] when an earlier flush has failed; [`FsError::ReadOnly`] when
    /// that was noticed before.
    pub fn flush_work(&mut self) -> Result<Option<CommitWork>, FsError> {
        self.collect_flush()?;
        self.check_writable()?;
        if !self.flights.needs_flush {
            return Ok(None);
        }
        if let Some(flush) = &self.flights.flush {
            return Ok(Some(CommitWork::wait_for(flush.done.clone())));
        }
        let mut blocks = self.flights.unflushed.clone();
        blocks.sort_unstable();
        blocks.dedup();
        let done = Arc::new(Done::default());
        self.flights.flush = Some(ApartFlush {
            done: done.clone(),
            landings: self.flights.landings,
            blocks: self.flights.unflushed.len(),
            changes: self.order.completed_changes(&self.memory, &blocks),
            is_stale: false,
        });
        self.flights.is_flush_due = false;
        self.memory.counters.flushes += 1;
        Ok(Some(CommitWork::new(Stage::flush(), self.device.clone(), true, done)))
    }

    /// As [`BlockCache::flush_work`], if the syncer wants a flush.
    ///
    /// # Errors
    /// As [`BlockCache::flush_work`].
    pub fn due_flush_work(&mut self) -> Result<Option<CommitWork>, FsError> {
        self.collect_flush()?;
        if self.flights.is_flush_due { self.flush_work() } else { Ok(None) }
    }

    /// The number of writes that have completed, for [`BlockCache::is_stable`].
    #[must_use]
    pub fn written(&self) -> u64 {
        self.flights.landings
    }

    /// Whether the first `written` writes that completed are on stable storage.
    #[must_use]
    pub fn is_stable(&self, written: u64) -> bool {
        !self.flights.needs_flush || self.flights.stable >= written
    }

    /// Whether flushes are performed by callers that do not lock the cache meanwhile.
    #[must_use]
    pub fn leaves_flushes(&self) -> bool {
        self.flights.apart
    }

    /// Waits for the flush that another caller performs, if there is one.
    fn finish_flush(&mut self) -> Result<(), FsError> {
        let Some(flush) = &self.flights.flush else { return Ok(()) };
        flush.done.wait_until_set();
        self.collect_flush()
    }

    /// If the flush under way is over, the writes that had completed when it began are on stable
    /// storage.
    pub(crate) fn collect_flush(&mut self) -> Result<(), FsError> {
        let Some(flush) = self.flights.flush.take_if(|flush| flush.done.is_set()) else {
            return Ok(());
        };
        flush.done.wait().map_err(|error| self.fail(error.into()))?;
        if flush.is_stale {
            return Ok(());
        }
        if flush.landings == self.flights.landings {
            self.note_flushed();
            return Ok(());
        }
        self.flights.stable = flush.landings;
        // Whether a journal's blocks written home have been written once more is not known.
        if !self.order.is_journalled() {
            self.flights.unflushed.drain(..flush.blocks);
            self.order.committed_first(&mut self.memory, &flush.changes);
        }
        Ok(())
    }

    /// Has all that was written on the disk.
    ///
    /// # Errors
    /// As [`Cache::sync_round`](crate::Cache::sync_round).
    pub(crate) fn finish_writes(&mut self) -> Result<(), FsError> {
        self.wait_for_all()?;
        self.barrier()
    }

    /// Returns once the part of a commit is done that is under way, if there is one.
    pub(crate) fn finish_part(&mut self) -> Result<(), FsError> {
        let part = self.order.committing().and_then(|committing| committing.under_way.take());
        let Some(part) = part else { return Ok(()) };
        let result = match part.doing {
            Performer::Somebody(done) => {
                if !done.is_set() {
                    self.order.count_blocking_wait(&mut self.memory.counters);
                }
                done.wait()
            }
            Performer::Device(submitted) => submitted.wait(self.device.as_ref()),
        };
        if let Err(error) = result {
            // It stays uncommitted, and whatever comes after it.
            if let Some(journal) = self.order.journal_mut() {
                journal.committing = None;
            }
            return Err(self.fail(error.into()));
        }
        self.stage_done(part.flushes, part.unflushed, part.landings);
        Ok(())
    }

    /// A stage is done. A flush of it that began when writes had completed so often has
    /// put those on stable storage; its own writes may wait for one still.
    pub(crate) fn stage_done(&mut self, flushes: bool, unflushed: bool, landings: u64) {
        if unflushed {
            self.note_written();
        } else if flushes && self.flights.landings() == landings {
            self.note_flushed();
        }
    }
}
