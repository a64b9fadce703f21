//! The cache: its parts, and questions about changes.

use crate::blocks::BlockCache;
use crate::buffer::Buffer;
use crate::change::ChangeId;
use crate::changes::Changes;
use crate::config::Config;
use crate::order::Order;
use crate::settle::Pass;
use crate::transactions::Transactions;
use seekless_device::{BlockDevice, Clock};
use seekless_fs::FsError;
use seekless_units::{Extent, Nanos};
use std::num::NonZeroU32;
use std::sync::Arc;

/// A bounded cache of the blocks of a device, with the order of the changes to them. `A` is an
/// action of the format, done when the changes it waits for are on the disk.
///
/// Its parts have the verbs: [`BlockCache`] reads and writes, [`Changes`] makes changes and takes
/// them back, [`Transactions`] commits. The cache itself has operations, waits for changes, and
/// writes blocks in time and for room.
pub struct Cache<A> {
    pub(crate) blocks: BlockCache<A>,
    /// The pass under way, in which nothing is flushed.
    pub(crate) pass: Option<Pass>,
}

impl<A> Cache<A> {
    /// An empty cache. `block` is the bytes of a block, `fragment` those of the
    /// unit [`BlockNo`](seekless_units::BlockNo) counts in; a block has at most 64 of them.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for sizes that are not powers of two, or do not fit
    /// each other, or a sector, or for blocks above 512 KiB.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        block: u32,
        fragment: u32,
        config: Config,
    ) -> Result<Self, FsError> {
        let blocks = BlockCache::new(device, clock, block, fragment, config)?;
        Ok(Self { blocks, pass: None })
    }

    /// Its blocks.
    #[must_use]
    pub fn blocks(&self) -> &BlockCache<A> {
        &self.blocks
    }

    /// Its blocks, to read and flush them.
    pub fn blocks_mut(&mut self) -> &mut BlockCache<A> {
        &mut self.blocks
    }

    /// Its changes.
    pub fn changes(&mut self) -> Changes<'_, A> {
        Changes { blocks: &mut self.blocks }
    }

    /// The transactions of its journal.
    pub fn transactions(&mut self) -> Transactions<'_, A> {
        Transactions { blocks: &mut self.blocks }
    }

    /// Whether changes go through a journal.
    #[must_use]
    pub fn is_journalled(&self) -> bool {
        self.blocks.order.is_journalled()
    }

    /// Whether an operation has begun, and not ended.
    #[must_use]
    pub fn in_operation(&self) -> bool {
        self.blocks.order.in_operation()
    }

    /// Whether commits are left to others ([`Commits::Apart`](crate::Commits::Apart)), in a cache
    /// with a journal.
    #[must_use]
    pub fn leaves_commits(&self) -> bool {
        self.blocks.order.leaves_commits()
    }

    /// The number of the last uncommitted transaction with changes; `None` where all is committed,
    /// and where commits are not performed apart ([`Commits::Apart`](crate::Commits::Apart)).
    #[must_use]
    pub fn last_uncommitted(&self) -> Option<NonZeroU32> {
        self.blocks.order.last_uncommitted()
    }

    /// The actions that [`Changes::next_ready`] gives next, in that order.
    pub fn ready(&self) -> impl Iterator<Item = &A> {
        self.blocks.order.ready()
    }

    /// The first invariant of docs/design/order.md that does not hold, in words.
    /// For tests: it looks at everything.
    #[must_use]
    pub fn broken_invariant(&self) -> Option<String> {
        let order = self.blocks.order.broken_invariant(&self.blocks.memory);
        order.or_else(|| {
            self.blocks.flights.broken_invariant(&self.blocks.memory, self.blocks.failed.is_some())
        })
    }

    /// Whether a change is on the disk.
    #[must_use]
    pub fn is_committed(&self, id: ChangeId) -> bool {
        self.blocks.order.is_committed(id)
    }

    /// The changes to a run of fragments that wait for something.
    #[must_use]
    pub fn waiting_in(&self, run: Extent) -> Vec<ChangeId> {
        self.found_in(run, Order::waiting_in)
    }

    /// The changes to a run of fragments that a write of them would undo in the copy, since they
    /// wait for something. Under a journal there are none.
    #[must_use]
    pub fn undone_in(&self, run: Extent) -> Vec<ChangeId> {
        self.found_in(run, Order::undone_in)
    }

    /// The changes to a run of fragments that are not on the disk, whether they
    /// wait for something or not.
    #[must_use]
    pub fn changes_in(&self, run: Extent) -> Vec<ChangeId> {
        self.found_in(run, Order::changes_in)
    }

    /// Whether any change in a run of fragments is not on the disk, whether it may be written now,
    /// waits or is being written. A change without an order counts as being on the disk once its
    /// write has completed; a caller that wants it durable flushes ([`BlockCache::flush`]).
    #[must_use]
    pub fn is_unsettled(&self, run: Extent) -> bool {
        self.blocks.memory.shape.blocks_of(run).any(|(block, mask)| {
            self.blocks.memory.buffers.get(block).is_some_and(|buffer| {
                // Logged blocks are on the disk.
                let is_logged = buffer.held.journal.logged || buffer.held.journal.homing;
                let changed = (buffer.dirty | buffer.changed_under_way()) & mask != 0;
                changed && !is_logged || !self.blocks.order.held_in(buffer, mask).is_empty()
            })
        })
    }

    /// Whether all of a run of fragments is in the cache and not on the disk.
    #[must_use]
    pub fn is_unwritten(&self, run: Extent) -> bool {
        self.blocks.memory.shape.blocks_of(run).all(|(block, mask)| {
            self.blocks
                .memory
                .buffers
                .get(block)
                .is_some_and(|buffer| buffer.dirty & mask == mask && !buffer.held.journal.logged)
        })
    }

    fn found_in(
        &self,
        run: Extent,
        changes: impl Fn(&Order<A>, &Buffer, u64) -> Vec<ChangeId>,
    ) -> Vec<ChangeId> {
        let mut found = Vec::new();
        for (block, mask) in self.blocks.memory.shape.blocks_of(run) {
            if let Some(buffer) = self.blocks.memory.buffers.get(block) {
                found.append(&mut changes(&self.blocks.order, buffer, mask));
            }
        }
        found
    }

    /// Whether [`Changes::revert`] would undo a change now.
    #[must_use]
    pub fn can_revert(&self, id: ChangeId) -> bool {
        self.blocks.order.can_revert(id)
    }

    /// Whether a transaction that is not committed has changed, or writes, some of these
    /// runs of fragments.
    #[must_use]
    pub fn await_commit(&self, runs: &[Extent]) -> bool {
        let awaits = |block| {
            self.blocks.memory.buffers.get(block).is_some_and(|buffer| {
                let held = buffer.held.journal;
                held.running || held.committing || held.writing
            })
        };
        let blocks = runs.iter().flat_map(|&run| self.blocks.memory.shape.blocks_of(run));
        blocks.map(|(block, _)| block).any(awaits)
    }

    /// When the journal has something to do next.
    pub(crate) fn journal_due(&self) -> Option<Nanos> {
        self.blocks
            .order
            .commit_due()
            .into_iter()
            .chain(self.blocks.order.sweep_due(self.blocks.config.home_after))
            .min()
    }
}
