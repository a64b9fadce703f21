//! Operations as parts of transactions, and the room that they need in the log.

use crate::cache::Cache;
use crate::order::journal::{Journal, Running};
use seekless_fs::FsError;
use seekless_units::{BlockNo, Extent};

/// Blocks that an operation may change which does not say how many
/// ([`Cache::begin`]); half of a transaction, where that is less.
pub const CREDITS: u64 = 64;

impl<A> Journal<A> {
    /// Blocks of the log that the running transaction takes now.
    pub(crate) fn running_cost(&self) -> u64 {
        let Some(log) = &self.log else { return 0 };
        let Running { blocks, revokes, .. } = &self.running;
        log.cost(blocks.len() as u64, revokes.len() as u64)
    }

    /// As [`Journal::running_cost`], with `credits` more blocks, and with all logged blocks
    /// revoked: more cannot be.
    pub(crate) fn cost_with(&self, credits: u64) -> u64 {
        let Some(log) = &self.log else { return 0 };
        let revokes = self.in_log.len().max(self.running.revokes.len());
        log.cost(self.running.blocks.len() as u64 + credits, revokes as u64)
    }

    /// Whether an operation that does not say how much it changes needs another
    /// transaction.
    pub(crate) fn is_full(&self) -> bool {
        let Some(log) = &self.log else { return false };
        let most = log.most();
        self.cost_with(CREDITS.min(most / 2)) > most
    }
}

impl<A> Cache<A> {
    /// As [`Cache::begin`], of an operation that changes at most `credits` blocks. All its changes
    /// up to [`Cache::end`] are in one transaction. An operation of unknown size is done in pieces,
    /// each of which leaves a sound state.
    ///
    /// # Errors
    /// As [`Cache::begin`]; [`FsError::NoSpace`] for more than a transaction may have.
    pub fn begin_with(&mut self, credits: u64) -> Result<(), FsError> {
        debug_assert!(!self.in_operation(), "one operation at a time");
        self.begin_any()?;
        self.transactions().join_transaction(credits)
    }

    /// Whether the operation under way has changed something that a crash would undo
    /// with the rest of it.
    #[must_use]
    pub fn operation_changed(&self) -> bool {
        self.blocks
            .order
            .journal()
            .is_some_and(|journal| journal.handle.is_some() && journal.changed)
    }

    /// The operation under way has failed, and has not undone its changes: its transaction is never
    /// committed, and the cache is read-only from now on.
    pub fn abort(&mut self, why: &str) {
        if let Some(journal) = self.blocks.order.journal_mut() {
            journal.handle = None;
            self.blocks.failed.get_or_insert_with(|| why.to_string());
        }
    }

    /// The operation is over; the next may be in another transaction.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] when it changed more than its transaction may have. It is
    /// never committed then, and nothing can be changed any more.
    pub fn end(&mut self) -> Result<(), FsError> {
        let Some(journal) = self.blocks.order.journal_mut() else { return Ok(()) };
        let Some(limit) = journal.handle.take() else { return Ok(()) };
        let blocks = journal.running.blocks.len() as u64;
        let cost = journal.running_cost();
        let Some(log) = &journal.log else { return Ok(()) };
        let most = log.most().min(log.free());
        if cost > most {
            let what = format!("an operation of {blocks} blocks, of {limit} that were asked for");
            self.blocks.failed.get_or_insert_with(|| what.clone());
            return Err(FsError::NoSpace(what));
        }
        Ok(())
    }

    /// Blocks that the operation may still change, besides those in its transaction; `None` where
    /// they are not counted.
    #[must_use]
    pub fn credits_left(&self) -> Option<u64> {
        let journal = self.blocks.order.journal()?;
        Some(journal.handle?.saturating_sub(journal.running.blocks.len() as u64))
    }

    /// Lets the operation change this many blocks more. False when its transaction has no room for
    /// them: it must end, and go on as another.
    pub fn extend(&mut self, credits: u64) -> bool {
        let Some(journal) = self.blocks.order.journal_mut() else { return true };
        let Some(limit) = journal.handle else { return false };
        let Some(log) = &journal.log else { return false };
        let left = limit.saturating_sub(journal.running.blocks.len() as u64);
        let fits = journal.cost_with(left + credits) <= log.most().min(log.free());
        if fits {
            journal.handle = Some(limit + credits);
        }
        fits
    }

    /// Whether none of a run is given back by a transaction that is not committed: only
    /// then may it be used for something else.
    #[must_use]
    pub fn may_reuse(&self, run: Extent) -> bool {
        let Some(journal) = self.blocks.order.journal() else { return true };
        let (start, end) = (run.start.get(), run.end().get());
        let committing = journal.committing.as_ref();
        !journal.running.freed.touches(start, end)
            && !committing.is_some_and(|committing| committing.freed.touches(start, end))
    }

    /// The runs that [`Cache::may_reuse`] denies.
    /// [`Transactions::commit`](crate::Transactions::commit) releases them.
    #[must_use]
    pub fn quarantined(&self) -> Vec<Extent> {
        let Some(journal) = self.blocks.order.journal() else { return Vec::new() };
        let committing = journal.committing.iter().flat_map(|committing| committing.freed.iter());
        let runs = journal.running.freed.iter().chain(committing);
        runs.map(|(start, end)| Extent::new(BlockNo::new(start), end - start)).collect()
    }
}
