//! Delayed allocation: when contents get their place (`ext4_writepages` of `fs/ext4/inode.c`).
//!
//! Places are taken between operations, each run of blocks in an operation of its own: an operation
//! that has begun does not look at delayed blocks.

use crate::{Live, Named};
use seekless_fs::FsError;
use seekless_units::Ino;

impl<F: Named> Live<F> {
    /// To be called before a write begins: contents get their places that it could not go
    /// on beside, and those for which there is no memory any more.
    pub(crate) fn before_write(&mut self, ino: Ino, offset: u64, len: u64) -> Result<(), FsError> {
        if self.volume.core.delayed.is_empty() {
            return Ok(());
        }
        self.bound_delayed()?;
        if !self.volume.core.delayed.has(ino) {
            return Ok(());
        }
        // Unwritten extents become written: that changes the map, and the on-disk length has to go
        // as far.
        let end = offset + len;
        if !self.volume.can_write_beside(ino, offset, end)? {
            return self.write_back(ino, true);
        }
        Ok(())
    }

    /// Gives contents their places as long as too many wait, those that have waited longest
    /// first. To be called between operations.
    pub(crate) fn bound_delayed(&mut self) -> Result<(), FsError> {
        let most = self.volume.core.cache.blocks().config().capacity.get() / 2;
        let block = u64::from(self.volume.format.limits().block);
        while self.volume.core.delayed.blocks() * block > most {
            let Some(first) = self.volume.core.delayed.first() else { break };
            self.write_back(first, false)?;
        }
        Ok(())
    }

    /// Allocates all delayed contents of a file, and begins to write them. To be called between
    /// operations. `is_open`: the file is open for writing; one that is held counts as open.
    ///
    /// # Errors
    /// As [`Live::open`]; contents without a place wait on.
    pub(crate) fn write_back(&mut self, ino: Ino, is_open: bool) -> Result<(), FsError> {
        if !self.volume.core.delayed.has(ino) {
            return Ok(());
        }
        debug_assert!(
            !self.volume.core.cache.in_operation(),
            "D4: inode {ino} is written back in one"
        );
        let is_open = is_open || self.volume.node(ino)?.holds > 0;
        let may_spend = std::mem::replace(&mut self.volume.core.may_spend_reserve, true);
        self.volume.core.delayed.set_placing(Some(is_open));
        let mut runs = Vec::new();
        let mut placed = Ok(());
        while placed.is_ok() && self.volume.core.delayed.has(ino) {
            placed = self
                .attempt(Self::reclaim_freed, |live| live.volume.place_first(ino))
                .map(|run| runs.push(run));
        }
        self.volume.core.delayed.set_placing(None);
        self.volume.core.may_spend_reserve = may_spend;
        let noted = self.volume.note_reserved(ino);
        let placed = self.volume.noted(placed.and(noted));
        if let Some(node) = self.volume.core.nodes.get_mut(&ino)
            && !self.volume.core.delayed.has(ino)
        {
            node.was_emptied = false;
        }
        placed?;
        let started = self.volume.core.cache.start_runs(&runs);
        self.volume.noted(started)
    }

    /// Gives everything that waits its place.
    pub(crate) fn write_back_all(&mut self) -> Result<(), FsError> {
        let mut done = Ok(());
        for ino in self.volume.core.delayed.in_turn() {
            // Files without a place wait on, and do not keep others from theirs.
            match self.write_back(ino, false) {
                Err(error @ FsError::NoSpace(_)) => done = done.and(Err(error)),
                other => other?,
            }
        }
        done
    }

    /// Gives those files their places that have expired.
    pub(crate) fn write_back_expired(&mut self) -> Result<(), FsError> {
        for ino in self.volume.core.delayed.expired(self.volume.core.cache.blocks().now()) {
            self.write_back(ino, false)?;
        }
        Ok(())
    }
}
