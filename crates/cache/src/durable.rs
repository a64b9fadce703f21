//! Writing changes and runs that a caller waits for, where there is a journal.

use crate::buffer::Buffer;
use crate::cache::Cache;
use crate::change::ChangeId;
use crate::commit::Why;
use seekless_fs::FsError;

impl<A> Cache<A> {
    /// As [`Cache::settle`], where there is a journal. Within an operation it would
    /// commit half of it: then whatever follows is in the same transaction, or a later
    /// one, which is all that is wanted.
    pub(crate) fn settle_journalled(&mut self, changes: &[ChangeId]) -> Result<(), FsError> {
        if self.in_operation() || changes.is_empty() {
            return Ok(());
        }
        self.write_named(changes)?;
        if self.wait_for_log(changes) {
            self.finish_commit()?;
            // Blocks on their way home may have changed again meanwhile.
            self.write_named(changes)?;
            if self.wait_for_log(changes) {
                self.commit(Why::Asked)?;
            }
        }
        // Nothing in a pass waits for this flush: its caller flushes at the end.
        if self.pass.is_some() { Ok(()) } else { self.barrier() }
    }

    /// Whether some changes are on the disk only once a transaction is: they are in it,
    /// or contents that it writes.
    fn wait_for_log(&self, changes: &[ChangeId]) -> bool {
        let Some(journal) = self.order.journal() else { return false };
        changes.iter().any(|&id| match journal.block_of(id) {
            Some(block) => {
                self.memory.buffers.get(block).is_some_and(|buffer| buffer.held.journal.writing)
            }
            None => !journal.is_committed(id),
        })
    }

    /// Writes the contents among some changes.
    fn write_named(&mut self, changes: &[ChangeId]) -> Result<(), FsError> {
        let Some(journal) = self.order.journal() else { return Ok(()) };
        let contents: Vec<u64> = changes.iter().filter_map(|&id| journal.block_of(id)).collect();
        self.write_blocks(&contents, true)
    }

    /// Whether something is neither at home nor in the log.
    pub(crate) fn has_uncommitted(&self) -> bool {
        self.order
            .journal()
            .is_some_and(|journal| journal.committing.is_some() || !journal.running.is_empty())
            || self.memory.buffers.iter().any(|buffer| {
                let held = buffer.held.journal;
                (buffer.dirty != 0 || held.sent) && !held.logged && !held.homing
            })
    }

    /// The contents that are to be written.
    fn dirty_contents(&self) -> Vec<u64> {
        let dirty = |b: &&Buffer| b.dirty != 0 && !b.held.journal.logged;
        self.memory.buffers.iter().filter(dirty).map(|buffer| buffer.block).collect()
    }

    /// Writes contents that are not at home, and commits the rest.
    pub(crate) fn sync_journalled(&mut self) -> Result<(), FsError> {
        // The flush of the commit covers the writes completed before.
        self.wait_for_all()?;
        self.write_blocks(&self.dirty_contents(), false)?;
        self.wait_for_all()?;
        self.commit(Why::Asked)?;
        // Contents written with a commit may have changed again meanwhile.
        self.write_blocks(&self.dirty_contents(), false)?;
        self.finish_writes()
    }
}
