//! Writing for a caller that waits: some changes, some runs, everything.

use crate::buffer::Buffer;
use crate::cache::Cache;
use crate::change::ChangeId;
use crate::transactions::commit::CommitReason;
use seekless_fs::FsError;
use seekless_units::Extent;
use std::collections::BTreeSet;
use std::mem;

/// A pass over the changes that a caller waits for ([`Cache::begin_pass`]).
#[derive(Default)]
pub(crate) struct Pass {
    /// Blocks written in this pass.
    written: BTreeSet<u64>,
    /// Some changes can be written only after a flush.
    is_incomplete: bool,
}

/// How blocks that are waited for are given to the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Submit {
    /// Each write when the one before has completed.
    InTurn,
    /// All of them at once.
    Together,
}

impl<A> Cache<A> {
    /// Writes the blocks without blocked changes, so that their dependants need not be rolled back;
    /// all others when there are none of those, nor any write under way that they may wait for. All
    /// of it is on the disk then. Where there is a journal, changes not in the log yet are
    /// committed when there is nothing else. False when there was nothing: then nothing is dirty
    /// except blocks that ready actions will change.
    ///
    /// # Errors
    /// [`FsError::Device`]; [`FsError::ReadOnly`] when a write has failed before.
    pub fn sync_round(&mut self) -> Result<bool, FsError> {
        let any = self.start_round()? || self.blocks.order.has_ready();
        self.blocks.finish_writes()?;
        // Changes of a write that failed late are never on the disk.
        if any { Ok(true) } else { self.blocks.check_writable().map(|()| false) }
    }

    /// As [`Cache::sync_round`], but waits for nothing but commits. False when nothing is to be
    /// written, or was.
    ///
    /// # Errors
    /// As [`Cache::sync_round`].
    pub(crate) fn start_round(&mut self) -> Result<bool, FsError> {
        self.blocks.poll()?;
        let waits = !self.blocks.flights.are_over(self.blocks.config.barriers);
        let mut blocks = self.dirty_blocks(Buffer::is_free_to_go);
        // Then inodes, of which a few wait in most blocks, before the directories in which
        // most names wait for these: those need not be written twice.
        for most in [true, false] {
            if blocks.is_empty() && !waits {
                blocks = self.dirty_blocks(|buffer| !most || buffer.held.may_mostly_go());
            }
        }
        self.blocks.write_blocks(&blocks, false)?;
        if blocks.is_empty() && !waits && !self.in_operation() && self.blocks.has_uncommitted() {
            self.transactions().commit(CommitReason::Forced)?;
            return Ok(true);
        }
        Ok(waits || !blocks.is_empty())
    }

    /// The blocks that hold something that may be written, and are not being written,
    /// in no order.
    fn dirty_blocks(&self, wanted: impl Fn(&Buffer) -> bool) -> Vec<u64> {
        let dirty = |b: &&Buffer| !b.is_under_way() && wanted(b);
        self.blocks.memory.buffers.dirty().filter(dirty).map(|buffer| buffer.block).collect()
    }

    /// Writes some of the writable blocks: those that are picked, by number, in order of number.
    /// Any of them may be written at any time, and a search of crash states wants all of them.
    /// False when nothing was written.
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub fn write_some(&mut self, mut pick: impl FnMut(u64) -> bool) -> Result<bool, FsError> {
        self.blocks.check_writable()?;
        let mut blocks: Vec<u64> = self.blocks.memory.buffers.dirty().map(|b| b.block).collect();
        blocks.sort_unstable();
        blocks.retain(|&block| pick(block));
        self.blocks.poll()?;
        self.blocks.write_blocks(&blocks, false)?;
        self.blocks.barrier()?;
        Ok(!blocks.is_empty())
    }

    /// Returns once changes are on the disk, and whatever they wait for. The device
    /// is flushed once for all that can be written before something else is.
    ///
    /// # Errors
    /// [`FsError::Device`]; [`FsError::ReadOnly`] when a write has failed before.
    pub fn settle(&mut self, changes: &[ChangeId]) -> Result<(), FsError> {
        if self.is_journalled() {
            return self.settle_journalled(changes);
        }
        self.blocks.poll()?;
        self.settle_in_order(changes, Submit::InTurn)
    }

    /// As [`Cache::settle`], for many changes without a journal: the blocks that can be written at
    /// a time are given to the device together, so that its queue can sort them, and waited for
    /// together.
    ///
    /// # Errors
    /// As [`Cache::settle`].
    pub fn settle_together(&mut self, changes: &[ChangeId]) -> Result<(), FsError> {
        debug_assert!(!self.is_journalled(), "a commit has them together");
        debug_assert!(self.pass.is_none(), "a pass does not wait for the disk");
        self.blocks.poll()?;
        self.settle_in_order(changes, Submit::Together)
    }

    fn settle_in_order(&mut self, changes: &[ChangeId], submit: Submit) -> Result<(), FsError> {
        debug_assert!(self.pass.is_none() || !self.in_operation(), "an operation needs the disk");
        loop {
            let left = self.blocks.order.to_settle(&self.blocks.memory, changes);
            if left.is_settled() {
                return Ok(());
            }
            self.blocks.check_writable()?;
            self.blocks.write_blocks(&left.to_write, submit == Submit::InTurn)?;
            if submit == Submit::Together {
                self.blocks.wait_for(&left.to_write)?;
            }
            self.blocks.wait_for(&left.under_way)?;
            if self.blocks.config.barriers
                && let Some(pass) = &mut self.pass
            {
                // Changes that wait for these are written after a flush, all others before it.
                pass.written.extend(left.to_write);
                pass.is_incomplete = true;
                return Ok(());
            }
            self.blocks.barrier()?;
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
        if self.in_operation() { Ok(()) } else { self.blocks.barrier() }
    }

    /// As [`Cache::settle_runs`], but leaves the last flush to the caller
    /// ([`BlockCache::flush`](crate::BlockCache::flush)), which has more to write that does not
    /// wait for these.
    ///
    /// # Errors
    /// As [`Cache::settle`].
    pub fn complete_runs(&mut self, runs: &[Extent]) -> Result<(), FsError> {
        self.blocks.poll()?;
        let mut waiting = Vec::new();
        let mut dirty = Vec::new();
        let mut under_way = Vec::new();
        for &run in runs {
            for (block, mask) in self.blocks.memory.shape.blocks_of(run) {
                let Some(buffer) = self.blocks.memory.buffers.get(block) else { continue };
                waiting.extend(self.blocks.order.waiting_in(buffer, mask));
                // Logged blocks are on the disk.
                if buffer.held.journal.logged || buffer.held.journal.homing {
                    continue;
                }
                dirty.extend((buffer.dirty & mask != 0).then_some(block));
                under_way.extend((buffer.changed_under_way() & mask != 0).then_some(block));
            }
        }
        if self.in_operation() {
            // Half of it would be committed, and contents would come before it.
            return Ok(());
        }
        if self.pass.is_some() && !self.is_journalled() {
            return self.give_runs(&waiting, dirty, &under_way);
        }
        if dirty.is_empty() && under_way.is_empty() {
            return self.settle(&waiting);
        }
        self.blocks.write_blocks(&dirty, true)?;
        self.blocks.wait_for(&under_way)?;
        self.settle(&waiting)
    }

    /// [`Cache::complete_runs`] in a pass ([`Cache::begin_pass`]).
    fn give_runs(
        &mut self,
        waiting: &[ChangeId],
        mut dirty: Vec<u64>,
        under_way: &[u64],
    ) -> Result<(), FsError> {
        let was_incomplete =
            self.pass.as_mut().is_some_and(|pass| mem::take(&mut pass.is_incomplete));
        self.blocks.wait_for(under_way)?;
        self.settle_in_order(waiting, Submit::InTurn)?;
        let Some(pass) = &mut self.pass else { return Ok(()) };
        // A block in which something waits for these changes is written whole after the flush.
        let buffers = &self.blocks.memory.buffers;
        let waits = |block| buffers.get(block).is_some_and(|buffer| buffer.held.waits());
        let is_put_off = pass.is_incomplete;
        dirty.retain(|block| !(pass.written.contains(block) || is_put_off && waits(*block)));
        pass.written.extend(dirty.iter().copied());
        pass.is_incomplete |= was_incomplete;
        self.blocks.write_blocks(&dirty, true)
    }

    /// Begins a pass: until [`Cache::end_pass`], [`Cache::settle`] and
    /// [`Cache::complete_runs`] write the changes that may be written, each block once, and do
    /// not flush. So one flush serves all changes that do not wait for each other. The caller
    /// flushes after the last pass.
    pub fn begin_pass(&mut self) {
        debug_assert!(self.pass.is_none(), "passes do not nest");
        self.pass = Some(Pass::default());
    }

    /// Ends a pass. True when some changes can be written only after a flush, by another pass.
    pub fn end_pass(&mut self) -> bool {
        let pass = self.pass.take();
        debug_assert!(pass.is_some(), "a pass was begun");
        pass.is_some_and(|pass| pass.is_incomplete)
    }

    /// Gives the writable changes in some runs of fragments to the device, without waiting for
    /// completion. Logged blocks stay.
    ///
    /// # Errors
    /// [`FsError::Device`]; [`FsError::ReadOnly`] when a write has failed before.
    pub fn start_runs(&mut self, runs: &[Extent]) -> Result<(), FsError> {
        self.blocks.check_writable()?;
        self.blocks.poll()?;
        let mut blocks = Vec::new();
        for &run in runs {
            for (block, mask) in self.blocks.memory.shape.blocks_of(run) {
                let Some(buffer) = self.blocks.memory.buffers.get(block) else { continue };
                let held = buffer.held.journal;
                let is_free = !buffer.held.waits() && !held.logged && !held.homing;
                blocks.extend((buffer.dirty & mask != 0 && is_free).then_some(block));
            }
        }
        self.blocks.write_blocks(&blocks, false)
    }

    /// Writes everything. Actions that become ready must be done by the
    /// format, which then calls again, until there are none.
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub fn sync(&mut self) -> Result<(), FsError> {
        if self.is_journalled() {
            return if self.blocks.order.has_ready() {
                Ok(())
            } else {
                self.transactions().sync_journalled()
            };
        }
        while !self.blocks.order.has_ready() && self.sync_round()? {}
        Ok(())
    }

    /// Whether anything is not on the disk yet.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        if self.is_journalled() {
            return self.blocks.has_uncommitted();
        }
        self.blocks.order.len() > 0
            || !self.blocks.flights.are_over(self.blocks.config.barriers)
            || self.blocks.memory.buffers.iter().any(|buffer| buffer.holds_changes())
    }

    /// As [`Cache::settle`], where there is a journal. Within an operation it would
    /// commit half of it: then whatever follows is in the same transaction, or a later
    /// one, which is all that is wanted.
    pub(crate) fn settle_journalled(&mut self, changes: &[ChangeId]) -> Result<(), FsError> {
        if self.in_operation() || changes.is_empty() {
            return Ok(());
        }
        self.write_named(changes)?;
        if self.wait_for_log(changes) {
            self.transactions().finish_commit()?;
            // Blocks on their way home may have changed again meanwhile.
            self.write_named(changes)?;
            if self.wait_for_log(changes) {
                self.transactions().commit(CommitReason::Asked)?;
            }
        }
        // Nothing in a pass waits for this flush: its caller flushes at the end.
        if self.pass.is_some() { Ok(()) } else { self.blocks.barrier() }
    }

    /// Whether some changes are on the disk only once a transaction is: they are in it,
    /// or contents that it writes.
    fn wait_for_log(&self, changes: &[ChangeId]) -> bool {
        let Some(journal) = self.blocks.order.journal() else { return false };
        changes.iter().any(|&id| match journal.block_of(id) {
            Some(block) => self
                .blocks
                .memory
                .buffers
                .get(block)
                .is_some_and(|buffer| buffer.held.journal.writing),
            None => !journal.is_committed(id),
        })
    }

    /// Writes the contents among some changes.
    fn write_named(&mut self, changes: &[ChangeId]) -> Result<(), FsError> {
        let Some(journal) = self.blocks.order.journal() else { return Ok(()) };
        let contents: Vec<u64> = changes.iter().filter_map(|&id| journal.block_of(id)).collect();
        self.blocks.write_blocks(&contents, true)
    }
}
