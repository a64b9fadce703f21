//! Transactions on their way to the log.

use super::Transactions;
use crate::change::Role;
use crate::log::{Log, LogCopy, LogTransaction, Stage};
use crate::memory::Memory;
use crate::order::journal::{Committing, InLog, Journal, Running, next_number};
use crate::work::{Commits, Part, Performer};
use seekless_fs::FsError;
use seekless_units::{BlockNo, Nanos};

/// Why a transaction is committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitReason {
    /// It is old.
    Timed,
    /// A caller wants its changes to be durable.
    Asked,
    /// The next operation does not fit.
    Full,
    /// Its blocks are wanted.
    Forced,
}

impl<A> Journal<A> {
    /// The running transaction becomes the committing one.
    fn turn_over(&mut self) -> Running {
        let next = Running::new(next_number(self.running.number));
        std::mem::replace(&mut self.running, next)
    }

    /// The committing transaction has been committed.
    fn committed(&mut self, memory: &mut Memory, done: Committing, now: Nanos) {
        self.committed = Some(done.number);
        if !done.blocks.is_empty() {
            self.unswept.get_or_insert(now);
        }
        self.live.push_back(done.number);
        for block in done.revokes {
            if self.in_log.get(&block).is_some_and(|k| k.revoked_by == Some(done.number)) {
                self.in_log.remove(&block);
            }
        }
        for block in done.blocks {
            let known = self.in_log.get(&block);
            let is_home = known.is_some_and(|known| known.revoked_by.is_none());
            let Some(buffer) = memory.buffers.get_mut(block) else {
                debug_assert!(false, "J3: block {block} was kept");
                continue;
            };
            buffer.held.journal.committing = false;
            if is_home && !buffer.held.journal.running {
                buffer.held.journal.logged = true;
                buffer.dirty = buffer.valid;
            }
            memory.drop_empty(block);
        }
        for block in done.contents {
            let Some(buffer) = memory.buffers.get_mut(block) else {
                debug_assert!(false, "block {block} was kept");
                continue;
            };
            // Whatever of it was written before was flushed with it.
            (buffer.held.journal.writing, buffer.held.journal.sent) = (false, false);
            if std::mem::take(&mut buffer.held.journal.again) {
                buffer.dirty = buffer.valid;
                memory.schedule(block, Role::Data);
            } else if !buffer.held.journal.running {
                self.contents_written(block);
            }
            memory.drop_empty(block);
        }
    }
}

impl<A> Transactions<'_, A> {
    /// Gives the journal its log, which is empty, and makes it ready. To be done
    /// before anything is changed, and before the volume's superblock is read through
    /// the cache, since that is changed.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a discipline without a journal, and for a log whose
    /// blocks are not the cache's; [`FsError::Device`].
    pub fn open_log(&mut self, mut log: Box<dyn Log>) -> Result<(), FsError> {
        let shape = self.blocks.memory.shape;
        if shape.per_block != 1 || log.block_size() != shape.fragment {
            let (log, block) = (log.block_size(), shape.fragment);
            return Err(FsError::Invalid(format!("a log of blocks of {log} bytes for {block}")));
        }
        let now = self.blocks.clock.now();
        let Some(journal) = self.blocks.order.journal_mut().filter(|journal| journal.log.is_none())
        else {
            return Err(FsError::Invalid("a log for a discipline without one".into()));
        };
        journal.now = now;
        let stages = log.start()?;
        journal.log = Some(log);
        self.perform(&stages)
    }

    /// Selects who performs commits. Unless that is the caller, a commit that is due, or of a full
    /// transaction, is begun and not awaited. With [`Commits::Apart`] flushes are performed apart
    /// as well, under every discipline ([`BlockCache::flush_work`](crate::BlockCache::flush_work)).
    pub fn set_commits(&mut self, commits: Commits) {
        self.blocks.flights.apart = commits == Commits::Apart;
        if let Some(journal) = self.blocks.order.journal_mut() {
            journal.commits = commits;
        }
    }

    /// Commits all that was changed, and returns once that is done. Nothing without a
    /// journal.
    ///
    /// # Errors
    /// [`FsError::Device`]; [`FsError::NoSpace`] as [`Cache::end`](crate::Cache::end).
    pub fn commit(&mut self, why: CommitReason) -> Result<(), FsError> {
        debug_assert!(!self.blocks.order.in_operation(), "half an operation would be committed");
        self.finish_commit()?;
        if self.begin_commit(why)? { self.finish_commit() } else { Ok(()) }
    }

    /// Commits all changes, or begins a commit for its performer: then only a commit that is still
    /// under way is waited for.
    pub(crate) fn commit_or_begin(&mut self, why: CommitReason) -> Result<(), FsError> {
        if self.blocks.order.commits() == Commits::AtOnce {
            return self.commit(why);
        }
        if why != CommitReason::Timed {
            self.finish_commit()?;
        }
        self.begin_commit(why)?;
        self.step_commit()
    }

    /// Begins to commit the running transaction; operations may go on. Contents that it exposes and
    /// that are being written are waited for. False when nothing was changed, or when another
    /// commit is under way.
    ///
    /// # Errors
    /// As [`Transactions::commit`].
    pub fn begin_commit(&mut self, why: CommitReason) -> Result<bool, FsError> {
        self.blocks.check_writable()?;
        let Some(journal) = self.blocks.order.journal_mut() else { return Ok(false) };
        if journal.running.is_empty() || journal.committing.is_some() || journal.handle.is_some() {
            return Ok(false);
        }
        let ordered: Vec<u64> = journal.running.ordered.iter().copied().collect();
        let under_way: Vec<u64> =
            ordered.into_iter().filter(|&b| self.blocks.is_under_way(b)).collect();
        if !under_way.is_empty() {
            self.blocks.wait_for(&under_way)?;
        }
        let Some(journal) = self.blocks.order.journal_mut() else { return Ok(false) };
        let running = journal.turn_over();
        let mut stages = Vec::from_iter(self.contents_stage(&running));
        let contents = self.note_contents(&running);
        let copies = self.copies(&running);
        let copied: Vec<LogCopy<'_>> =
            copies.iter().map(|(home, bytes)| LogCopy { home: *home, bytes }).collect();
        let revokes: Vec<BlockNo> = running.revokes.iter().map(|&b| BlockNo::new(b)).collect();
        let Some(journal) = self.blocks.order.journal_mut() else { return Ok(false) };
        let Some(log) = &mut journal.log else {
            return Err(FsError::Invalid("a journal without its log".into()));
        };
        match log.encode(&LogTransaction { revokes: &revokes, copies: &copied }) {
            Ok(encoded) => stages.extend(encoded),
            Err(error) => {
                self.blocks.failed.get_or_insert_with(|| error.to_string());
                return Err(error);
            }
        }
        for &block in &running.blocks {
            let known = InLog { newest: running.number, home: false, revoked_by: None };
            journal.in_log.insert(block, known);
            if let Some(buffer) = self.blocks.memory.buffers.get_mut(block) {
                let held = &mut buffer.held.journal;
                // A write home under way is older than the copy.
                (held.running, held.committing, held.homing) = (false, true, false);
            }
        }
        let counters = &mut self.blocks.memory.counters.journal;
        counters.logged += running.blocks.len() as u64;
        counters.revokes += running.revokes.len() as u64;
        counters.ordered += contents.len() as u64;
        *match why {
            CommitReason::Timed => &mut counters.timed_commits,
            CommitReason::Asked => &mut counters.asked_commits,
            CommitReason::Full => &mut counters.full_commits,
            CommitReason::Forced => &mut counters.forced_commits,
        } += 1;
        journal.committing = Some(Committing {
            number: running.number,
            blocks: running.blocks.into_iter().collect(),
            contents,
            revokes: running.revokes.into_iter().collect(),
            freed: running.freed,
            stages: stages.into(),
            under_way: None,
        });
        Ok(true)
    }

    /// Blocks of contents that a transaction exposes and that are not at home.
    fn contents_of(&self, running: &Running) -> Vec<u64> {
        let dirty = |block: &&u64| {
            self.blocks.memory.buffers.get(**block).is_some_and(|buffer| {
                debug_assert!(buffer.dirty == 0 || !buffer.held.waits());
                buffer.dirty != 0
            })
        };
        running.ordered.iter().filter(dirty).copied().collect()
    }

    fn contents_stage(&self, running: &Running) -> Option<Stage> {
        let mut stage = Stage::default();
        for block in self.contents_of(running) {
            let buffer = self.blocks.memory.buffers.get(block)?;
            let at = self.blocks.memory.shape.lba(self.blocks.memory.shape.first_fragment(block));
            stage.push(at, &buffer.bytes, self.blocks.config.cluster.get() as usize);
        }
        (!stage.is_empty()).then_some(stage)
    }

    /// These blocks are on their way home, and are not written by others.
    fn note_contents(&mut self, running: &Running) -> Vec<u64> {
        let contents = self.contents_of(running);
        for &block in &contents {
            if let Some(buffer) = self.blocks.memory.buffers.get_mut(block) {
                (buffer.dirty, buffer.due, buffer.put_off) = (0, None, 0);
                buffer.held.journal.writing = true;
            }
        }
        contents
    }

    /// The blocks of a transaction as it has them, for ever: they may change while it
    /// is committed.
    fn copies(&self, running: &Running) -> Vec<(BlockNo, Vec<u8>)> {
        let copy = |&block: &u64| {
            let buffer = self.blocks.memory.buffers.get(block);
            debug_assert!(buffer.is_some_and(|b| b.valid != 0), "J2: block {block} is in memory");
            let mut bytes = buffer?.bytes.to_vec();
            let at = self.blocks.memory.shape.first_fragment(block);
            if let Some(seal) =
                self.blocks.seal.as_ref().filter(|_| buffer.is_some_and(|b| b.metadata))
            {
                seal.seal(at, buffer?.owner, &mut bytes);
            }
            Some((BlockNo::new(block), bytes))
        };
        running.blocks.iter().filter_map(copy).collect()
    }

    /// Takes a commit that the cache performs beside operations as far as it comes without
    /// waiting for writes.
    fn step_commit(&mut self) -> Result<(), FsError> {
        while self.blocks.order.commits() == Commits::Beside && self.end_part()? {
            let Some(stage) = self.next_stage() else { break };
            let submitted = stage.submit(self.blocks.device.as_ref(), self.blocks.config.barriers);
            self.note_part(&stage, Performer::Device(submitted));
        }
        Ok(())
    }

    /// Whether no part of a commit is under way, since it is done.
    pub(crate) fn end_part(&mut self) -> Result<bool, FsError> {
        let device = self.blocks.device.clone();
        let Some(committing) = self.blocks.order.committing() else { return Ok(true) };
        let is_over = match committing.under_way.as_mut().map(|part| &mut part.doing) {
            None => return Ok(true),
            Some(Performer::Somebody(done)) => done.is_set(),
            Some(Performer::Device(submitted)) => submitted.is_over(device.as_ref()),
        };
        if is_over {
            self.blocks.finish_part()?;
        }
        Ok(is_over)
    }

    /// The next stage of the commit under way. Behind the last it is committed.
    pub(crate) fn next_stage(&mut self) -> Option<Stage> {
        let stage = self.blocks.order.committing()?.stages.pop_front();
        if stage.is_none() {
            self.note_committed();
        }
        stage
    }

    pub(crate) fn note_part(&mut self, stage: &Stage, doing: Performer) {
        let (landings, barriers) = (self.blocks.flights.landings(), self.blocks.config.barriers);
        let (flushes, unflushed) = (stage.flushes(barriers), stage.leaves_unflushed(barriers));
        let Some(committing) = self.blocks.order.committing() else { return };
        debug_assert!(committing.under_way.is_none(), "stages come one after the other");
        committing.under_way = Some(Part { doing, flushes, unflushed, landings });
        self.count(stage);
    }

    /// Returns once the commit that was begun is done, by any performer.
    pub(crate) fn finish_commit(&mut self) -> Result<(), FsError> {
        while self.blocks.order.committing().is_some() {
            self.blocks.finish_part()?;
            if let Some(work) = self.commit_work()? {
                self.blocks.order.count_blocking_wait(&mut self.blocks.memory.counters);
                work.perform();
            }
        }
        Ok(())
    }

    fn note_committed(&mut self) {
        let now = self.blocks.clock.now();
        let Some(journal) = self.blocks.order.journal_mut() else { return };
        if let Some(done) = journal.committing.take() {
            journal.committed(&mut self.blocks.memory, done, now);
        }
    }

    /// Performs stages, and waits for them.
    pub(crate) fn perform(&mut self, stages: &[Stage]) -> Result<(), FsError> {
        for stage in stages {
            self.count(stage);
            let landings = self.blocks.flights.landings();
            let done = stage.perform(self.blocks.device.as_ref(), self.blocks.config.barriers);
            done.map_err(|error| self.blocks.fail(error.into()))?;
            let barriers = self.blocks.config.barriers;
            self.blocks.stage_done(
                stage.flushes(barriers),
                stage.leaves_unflushed(barriers),
                landings,
            );
        }
        Ok(())
    }

    fn count(&mut self, stage: &Stage) {
        let counters = &mut self.blocks.memory.counters;
        counters.async_writes += stage.writes.len() as u64;
        counters.written_bytes += stage.len();
        counters.flushes += u64::from(stage.flushes(self.blocks.config.barriers));
    }

    /// Commits a transaction that is old enough, and advances the commit under way.
    pub(crate) fn commit_when_due(&mut self) -> Result<(), FsError> {
        self.step_commit()?;
        self.sweep_when_due()?;
        let now = self.blocks.clock.now();
        let due = self.blocks.order.commit_due().is_some_and(|due| due <= now);
        let Some(journal) = self.blocks.order.journal_mut() else { return Ok(()) };
        journal.now = now;
        if !due || self.blocks.failed.is_some() || self.blocks.order.in_operation() {
            return Ok(());
        }
        self.commit_or_begin(CommitReason::Timed)
    }
}
