//! Commits performed part by part, by callers that do not keep the cache locked.

use crate::cache::Cache;
use crate::commit::Why;
use crate::order::journal::is_later;
use crate::work::{CommitWork, Commits, Doing, Done};
use seekless_fs::FsError;
use seekless_units::Extent;
use std::num::NonZeroU32;
use std::sync::Arc;

impl<A> Cache<A> {
    /// The next part of a commit that was begun, if it is time for one: to be performed
    /// without keeping the cache. To be asked again afterwards, until there is none.
    ///
    /// # Errors
    /// [`FsError::Device`] when an earlier part has failed.
    pub fn commit_work(&mut self) -> Result<Option<CommitWork>, FsError> {
        if !self.end_part()? {
            return Ok(None);
        }
        let Some(stage) = self.next_stage() else { return Ok(None) };
        let done = Arc::new(Done::default());
        self.note_part(&stage, Doing::Somebody(done.clone()));
        Ok(Some(CommitWork::new(stage, self.device.clone(), self.config.barriers, done)))
    }

    /// Whether commits are left to others ([`Commits::Apart`]), in a cache with a journal.
    #[must_use]
    pub fn leaves_commits(&self) -> bool {
        self.is_journalled() && self.commits() == Commits::Apart
    }

    /// Whether a transaction that is not committed has changed, or writes, some of these
    /// runs of fragments.
    #[must_use]
    pub fn await_commit(&self, runs: &[Extent]) -> bool {
        let awaits = |block| {
            self.memory.buffers.get(block).is_some_and(|buffer| {
                let held = buffer.held.journal;
                held.running || held.committing || held.writing
            })
        };
        let blocks = runs.iter().flat_map(|&run| self.memory.shape.blocks_of(run));
        blocks.map(|(block, _)| block).any(awaits)
    }

    /// The number of the last uncommitted transaction with changes; `None` where all is committed,
    /// and where commits are not performed apart ([`Commits::Apart`]).
    #[must_use]
    pub fn last_uncommitted(&self) -> Option<NonZeroU32> {
        let journal = self.order.journal().filter(|_| self.leaves_commits())?;
        if journal.running.is_empty() {
            return Some(journal.committing.as_ref()?.number);
        }
        Some(journal.running.number)
    }

    /// The next part to be performed without locking the cache before a transaction is committed: a
    /// part of its commit, or of that before it, or waiting for the caller that performs one. The
    /// commit is begun when it is its turn. `None` once it is done, and within an operation.
    /// operation.
    ///
    /// # Errors
    /// [`FsError::Device`] when a part has failed; as [`Cache::commit`].
    pub fn work_towards(&mut self, number: NonZeroU32) -> Result<Option<CommitWork>, FsError> {
        if let Some(work) = self.commit_work()? {
            return Ok(Some(work));
        }
        let Some(journal) = self.order.journal() else { return Ok(None) };
        if let Some(committing) = &journal.committing {
            // A commit behind it is none of the caller's business.
            let ours = !is_later(committing.number, number);
            let part = committing.under_way.as_ref().filter(|_| ours);
            return Ok(part.and_then(|part| part.doing.as_wait()));
        }
        // The number has been committed where the running transaction is a later one.
        if is_later(journal.running.number, number) || !self.begin_commit(Why::Asked)? {
            return Ok(None);
        }
        self.commit_work()
    }

    /// The part to be performed first, without locking the cache, where the next operation would
    /// wait for a commit: it does not fit into the running transaction any more, and the one before
    /// is not committed yet.
    ///
    /// # Errors
    /// As [`Cache::work_towards`].
    pub fn work_before_operation(&mut self) -> Result<Option<CommitWork>, FsError> {
        if !self.leaves_commits() || self.in_operation() {
            return Ok(None);
        }
        let Some(journal) = self.order.journal() else { return Ok(None) };
        let Some(committing) = &journal.committing else { return Ok(None) };
        if !journal.is_full() {
            return Ok(None);
        }
        let number = committing.number;
        self.work_towards(number)
    }

    /// Whether a part of a commit is being performed by a caller.
    pub(crate) fn is_part_under_way(&self) -> bool {
        let committing = self.order.journal().and_then(|journal| journal.committing.as_ref());
        let part = committing.and_then(|committing| committing.under_way.as_ref());
        part.is_some_and(|part| part.doing.as_wait().is_some())
    }

    /// Counts a wait for a commit during which the cache is locked.
    pub(crate) fn note_blocking_wait(&mut self) {
        if self.leaves_commits() {
            self.memory.counters.journal.blocking_waits += 1;
        }
    }
}
