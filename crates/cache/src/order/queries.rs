//! Questions about the transactions of a journal; without one there are none.

use super::Order;
use super::journal::Committing;
use crate::config::Counters;
use crate::wheel::SECOND;
use crate::work::Commits;
use seekless_units::Nanos;
use std::num::NonZeroU32;

/// Seconds after which changes are committed (jbd2: `JBD2_DEFAULT_MAX_COMMIT_AGE`).
const INTERVAL: u64 = 5;

impl<A> Order<A> {
    /// Whether changes go through a journal.
    pub(crate) fn is_journalled(&self) -> bool {
        self.journal().is_some()
    }

    pub(crate) fn commits(&self) -> Commits {
        self.journal().map_or(Commits::AtOnce, |journal| journal.commits)
    }

    /// Whether a commit is under way that the cache performs itself, beside operations.
    pub(crate) fn steps_commit(&self) -> bool {
        self.commits() == Commits::Beside
            && self.journal().is_some_and(|journal| journal.committing.is_some())
    }

    /// Whether an operation has begun, and not ended.
    pub(crate) fn in_operation(&self) -> bool {
        self.journal().is_some_and(|journal| journal.handle.is_some())
    }

    /// When the running transaction is to be committed.
    pub(crate) fn commit_due(&self) -> Option<Nanos> {
        let began = self.journal()?.running.began?;
        Some(Nanos::new(began.get() + INTERVAL * SECOND))
    }

    pub(crate) fn committing(&mut self) -> Option<&mut Committing> {
        self.journal_mut()?.committing.as_mut()
    }

    /// Whether a part of a commit is being performed by a caller.
    pub(crate) fn is_part_under_way(&self) -> bool {
        let committing = self.journal().and_then(|journal| journal.committing.as_ref());
        let part = committing.and_then(|committing| committing.under_way.as_ref());
        part.is_some_and(|part| part.doing.as_wait().is_some())
    }

    /// Whether commits are left to others ([`Commits::Apart`]), in a cache with a journal.
    pub(crate) fn leaves_commits(&self) -> bool {
        self.is_journalled() && self.commits() == Commits::Apart
    }

    /// Counts a wait for a commit during which the cache is locked, if commits are left to others.
    pub(crate) fn count_blocking_wait(&self, counters: &mut Counters) {
        if self.leaves_commits() {
            counters.journal.blocking_waits += 1;
        }
    }

    /// The number of the last uncommitted transaction with changes; `None` where all is committed,
    /// and where commits are not performed apart ([`Commits::Apart`]).
    pub(crate) fn last_uncommitted(&self) -> Option<NonZeroU32> {
        let journal = self.journal().filter(|_| self.leaves_commits())?;
        if journal.running.is_empty() {
            return Some(journal.committing.as_ref()?.number);
        }
        Some(journal.running.number)
    }

    /// When blocks that were committed go home though their room is not wanted.
    pub(crate) fn sweep_due(&self, home_after: Option<u32>) -> Option<Nanos> {
        let span = u64::from(home_after?) * SECOND;
        let since = self.journal()?.unswept?;
        Some(Nanos::new(since.get() + span))
    }
}
