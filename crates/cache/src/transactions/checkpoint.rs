//! Room in the log: blocks of the oldest transactions go home, and the log begins
//! behind them.

use super::Transactions;
use crate::order::journal::{InLog, Journal, Number};
use crate::transactions::commit::CommitReason;
use hashbrown::HashSet;
use seekless_fs::FsError;

/// The work to be done before the oldest transactions can be left out.
struct Ahead {
    /// Blocks that are not at home, in order.
    blocks: Vec<u64>,
    /// Some of them are changed, or given back, by a transaction that is not committed.
    needs_commit: bool,
}

impl<A> Journal<A> {
    fn ahead(&self, oldest: &HashSet<Number>) -> Ahead {
        let mut ahead = Ahead { blocks: Vec::new(), needs_commit: false };
        for (&block, known) in &self.in_log {
            let InLog { newest, home, revoked_by } = known;
            if *home || !oldest.contains(newest) {
                continue;
            }
            // A revoked block need not go home, but stays in the log until the revoke is committed.
            if revoked_by.is_some() || self.running.blocks.contains(&block) {
                ahead.needs_commit = true;
            } else {
                ahead.blocks.push(block);
            }
        }
        ahead.blocks.sort_unstable();
        ahead
    }

    /// Leaves out transactions of which the log keeps nothing that is wanted.
    fn forget_oldest(&mut self, oldest: &HashSet<Number>) {
        self.live.drain(..oldest.len());
        debug_assert!(
            self.in_log
                .values()
                .all(|k| { k.home || k.revoked_by.is_some() || !oldest.contains(&k.newest) }),
            "J3: something would be lost"
        );
        self.in_log.retain(|block, known| {
            let stays = !oldest.contains(&known.newest);
            // No copy is left that had to be revoked.
            if !stays && known.revoked_by == Some(self.running.number) {
                self.running.revokes.remove(block);
            }
            stays
        });
    }
}

impl<A> Transactions<'_, A> {
    /// Sees that an operation that changes so many blocks finds room in the log: once
    /// that would leave less than a quarter of it, half of it is emptied.
    pub(crate) fn make_room_in_log(&mut self, credits: u64) -> Result<(), FsError> {
        let Some((need, free, capacity)) = self.room_in_log(credits) else { return Ok(()) };
        if free >= need + capacity / 4 {
            return Ok(());
        }
        self.blocks.memory.counters.journal.waits += 1;
        self.checkpoint(capacity / 2)?;
        while self.room_in_log(credits).is_some_and(|(need, free, _)| free < need) {
            let before = self.room_in_log(credits);
            self.checkpoint(capacity)?;
            if self.room_in_log(credits) == before {
                let what = format!("{credits} blocks in a log that has no room for them");
                return Err(FsError::NoSpace(what));
            }
        }
        Ok(())
    }

    /// Blocks that the running transaction needs with so many more, those that are
    /// free, and those of the log.
    fn room_in_log(&self, credits: u64) -> Option<(u64, u64, u64)> {
        let journal = self.blocks.order.journal()?;
        let log = journal.log.as_ref()?;
        Some((journal.cost_with(credits), log.free(), log.capacity()))
    }

    /// Brings the blocks of the oldest transactions home and leaves these out, half of
    /// all at a time, until so many blocks of the log are free or nothing is in it.
    pub(crate) fn checkpoint(&mut self, free: u64) -> Result<(), FsError> {
        loop {
            self.finish_commit()?;
            let Some(journal) = self.blocks.order.journal() else { return Ok(()) };
            let Some(log) = &journal.log else { return Ok(()) };
            let count = journal.live.len().div_ceil(2);
            if count == 0 || log.free() >= free {
                return Ok(());
            }
            let oldest: HashSet<Number> = journal.live.iter().take(count).copied().collect();
            let Ahead { blocks, needs_commit } = journal.ahead(&oldest);
            if needs_commit {
                self.commit(CommitReason::Forced)?;
                continue;
            }
            // Older bytes may be on their way; then these.
            self.blocks.wait_for(&blocks)?;
            self.blocks.write_blocks(&blocks, false)?;
            self.blocks.wait_for(&blocks)?;
            let Some(journal) = self.blocks.order.journal_mut() else { return Ok(()) };
            let Some(log) = &mut journal.log else { return Ok(()) };
            let stages = log.retire(count);
            let counters = &mut self.blocks.memory.counters.journal;
            counters.checkpoints += 1;
            counters.checkpointed += blocks.len() as u64;
            counters.retired += count as u64;
            // The first stage is a flush: after it they are at home.
            self.perform(&stages)?;
            if let Some(journal) = self.blocks.order.journal_mut() {
                journal.forget_oldest(&oldest);
            }
        }
    }

    /// Begins to write home the transactions that were committed long enough ago, with all
    /// committed since; does not wait.
    pub(crate) fn sweep_when_due(&mut self) -> Result<(), FsError> {
        if self
            .blocks
            .order
            .sweep_due(self.blocks.config.home_after)
            .is_none_or(|due| due > self.blocks.clock.now())
            || self.blocks.failed.is_some()
        {
            return Ok(());
        }
        let now = self.blocks.clock.now();
        let Some(journal) = self.blocks.order.journal_mut() else { return Ok(()) };
        journal.unswept = None;
        let logged = |block: &u64| {
            let buffer = self.blocks.memory.buffers.get(*block);
            buffer.is_some_and(|buffer| buffer.held.journal.logged && buffer.dirty != 0)
        };
        let mut blocks: Vec<u64> = journal.in_log.keys().copied().filter(logged).collect();
        let all = blocks.len();
        blocks.retain(|&block| !self.blocks.is_under_way(block));
        if blocks.len() < all {
            // Older bytes of some are on their way: those have the next sweep.
            let Some(journal) = self.blocks.order.journal_mut() else { return Ok(()) };
            journal.unswept = Some(now);
        }
        self.blocks.memory.counters.journal.swept += blocks.len() as u64;
        self.blocks.write_blocks(&blocks, false)
    }

    /// Commits everything, writes it home and closes the log: a recovery finds nothing. Does
    /// nothing without a journal.
    ///
    /// # Errors
    /// [`FsError::Device`]; [`FsError::ReadOnly`] after a write has failed: the log keeps its
    /// transactions.
    pub fn close_log(&mut self) -> Result<(), FsError> {
        self.blocks.check_writable()?;
        if !self.blocks.order.is_journalled() {
            return Ok(());
        }
        self.sync_journalled()?;
        self.checkpoint(u64::MAX)?;
        let Some(journal) = self.blocks.order.journal_mut() else { return Ok(()) };
        let Some(mut log) = journal.log.take() else { return Ok(()) };
        debug_assert!(journal.in_log.is_empty() && journal.live.is_empty());
        let stages = log.close()?;
        self.perform(&stages)
    }
}
