//! Transactions of a journal: operations join them, commits write them to the log, and checkpoints
//! write their blocks home. Without a journal there are none, and nothing here does anything.

mod apart;
mod checkpoint;
pub(crate) mod commit;

use crate::blocks::BlockCache;
use crate::buffer::Buffer;
use crate::operation::CREDITS;
use commit::CommitReason;
use seekless_fs::FsError;

/// The transactions of a cache.
pub struct Transactions<'a, A> {
    pub(crate) blocks: &'a mut BlockCache<A>,
}

impl<A> Transactions<'_, A> {
    /// As [`Cache::begin_with`](crate::Cache::begin_with), where all else was done. No credits: as
    /// many as most operations need.
    pub(crate) fn join_transaction(&mut self, credits: u64) -> Result<(), FsError> {
        let now = self.blocks.clock.now();
        let Some(journal) = self.blocks.order.journal_mut() else { return Ok(()) };
        let Some(log) = &journal.log else {
            return Err(FsError::Invalid("a journal without its log".into()));
        };
        journal.now = now;
        let (most, capacity) = (log.most(), log.capacity());
        let credits = if credits == 0 { CREDITS.min(most / 2) } else { credits };
        let alone = log.cost(credits, capacity);
        if alone > most {
            let what = format!("{credits} blocks in one transaction, of at most {most}");
            return Err(FsError::NoSpace(what));
        }
        if journal.cost_with(credits) > most {
            self.blocks.memory.counters.journal.waits += 1;
            self.commit_or_begin(CommitReason::Full)?;
        }
        self.make_room_in_log(credits)?;
        if let Some(journal) = self.blocks.order.journal_mut() {
            journal.handle = Some(journal.running.blocks.len() as u64 + credits);
            journal.changed = false;
        }
        Ok(())
    }

    /// The contents that are to be written.
    fn dirty_contents(&self) -> Vec<u64> {
        let dirty = |b: &&Buffer| b.dirty != 0 && !b.held.journal.logged;
        self.blocks.memory.buffers.iter().filter(dirty).map(|buffer| buffer.block).collect()
    }

    /// Writes contents that are not at home, and commits the rest.
    pub(crate) fn sync_journalled(&mut self) -> Result<(), FsError> {
        // The flush of the commit covers the writes completed before.
        self.blocks.wait_for_all()?;
        self.blocks.write_blocks(&self.dirty_contents(), false)?;
        self.blocks.wait_for_all()?;
        self.commit(CommitReason::Asked)?;
        // Contents written with a commit may have changed again meanwhile.
        self.blocks.write_blocks(&self.dirty_contents(), false)?;
        self.blocks.finish_writes()
    }
}
