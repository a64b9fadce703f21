//! Commits performed part by part, by callers that do not keep the cache locked.

use super::Transactions;
use crate::order::journal::is_later;
use crate::transactions::commit::CommitReason;
use crate::work::{CommitWork, Done, Performer};
use seekless_fs::FsError;
use std::num::NonZeroU32;
use std::sync::Arc;

impl<A> Transactions<'_, A> {
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
        self.note_part(&stage, Performer::Somebody(done.clone()));
        Ok(Some(CommitWork::new(
            stage,
            self.blocks.device.clone(),
            self.blocks.config.barriers,
            done,
        )))
    }

    /// The next part to be performed without locking the cache before a transaction is committed: a
    /// part of its commit, or of that before it, or waiting for the caller that performs one. The
    /// commit is begun when it is its turn. `None` once it is done, and within an operation.
    /// operation.
    ///
    /// # Errors
    /// [`FsError::Device`] when a part has failed; as [`Transactions::commit`].
    pub fn work_towards(&mut self, number: NonZeroU32) -> Result<Option<CommitWork>, FsError> {
        if let Some(work) = self.commit_work()? {
            return Ok(Some(work));
        }
        let Some(journal) = self.blocks.order.journal() else { return Ok(None) };
        if let Some(committing) = &journal.committing {
            // A commit behind it is none of the caller's business.
            let ours = !is_later(committing.number, number);
            let part = committing.under_way.as_ref().filter(|_| ours);
            return Ok(part.and_then(|part| part.doing.as_wait()));
        }
        // The number has been committed where the running transaction is a later one.
        if is_later(journal.running.number, number) || !self.begin_commit(CommitReason::Asked)? {
            return Ok(None);
        }
        self.commit_work()
    }

    /// The part to be performed first, without locking the cache, where the next operation would
    /// wait for a commit: it does not fit into the running transaction any more, and the one before
    /// is not committed yet.
    ///
    /// # Errors
    /// As [`Transactions::work_towards`].
    pub fn work_before_operation(&mut self) -> Result<Option<CommitWork>, FsError> {
        if !self.blocks.order.leaves_commits() || self.blocks.order.in_operation() {
            return Ok(None);
        }
        let Some(journal) = self.blocks.order.journal() else { return Ok(None) };
        let Some(committing) = &journal.committing else { return Ok(None) };
        if !journal.is_full() {
            return Ok(None);
        }
        let number = committing.number;
        self.work_towards(number)
    }
}
