//! A file system in use: the operations, once, on top of a format's encoding.
//!
//! Each change is given to the cache with the changes that must be on the disk before it (the rules
//! of soft updates); the update discipline decides when it is written. Space is freed only in
//! actions, done once the last number or name that leads to it is gone from the disk.
//!
//! - `format`, `linked`, `codec`, `limits`: a format's interface; `core`: the data its code works
//!   on;
//! - `calls`: the operations; `file`: those on files as such;
//! - `acl`: ACLs and the modes of files that have them;
//! - `node`: inodes in memory; `table`: those of formats with inode tables;
//! - `read`: reading contents; `unsettled`: contents that may not be on the disk; `delayed`:
//!   contents without a place there yet; `write_back`: giving them one;
//! - `indirect`: files mapped by twelve numbers and three trees;
//! - `naming`: how files get names; `entries`, `index`, `inside`, `listing`, `names`, `rename`,
//!   `reach`: names; `linked_last`: those of formats whose check wants another order than that of
//!   FFS;
//! - `actions`, `removal`: deferred actions, and files taken apart; `pieces`: in as many
//!   transactions as that takes, where there is a journal;
//! - `durable`: waiting of `fsync`; `pending`: changes noted for their waiters;
//! - `fault`: rules that tests break.
//!
//! Numbers that come from the disk are checked by the format before they get here, and the lints
//! below keep panics out of the code that handles them.
//!
//! # Files
//!
//! `format.rs` has what a format must say (`Format`), `linked.rs` what one must say that has
//! inodes (`Linked`), `codec.rs` how directory entries stand (`Codec`), `limits.rs` what holds for
//! a volume, `core.rs` what its code works on: the cache, nodes, space about to become free. A
//! format makes changes and returns what others may have to wait for; it knows nothing of trees of
//! directories, renaming or `fsync`. `calls.rs` contains the operations, `node.rs` inodes in
//! memory;
//!
//! `table.rs` changes inodes that lie in tables. `entries.rs index.rs names.rs rename.rs reach.rs`
//! implement names and paths, `linked_last/` the order of names that e2fsck needs, for formats
//! with inodes (`Linked`); `naming.rs` lets a format without them do the operations on names
//! itself; `acl.rs` access control lists, by the rules of `fs::acl`, `removal.rs` files that go,
//! `inside.rs` directories with their names in their inode, `pieces.rs` operations that end as
//! transactions do, and those that take several, `actions.rs` deferred actions, `pending.rs`
//! changes noted for those who wait for them, `durable.rs` and `unsettled.rs` `fsync`,
//! `delayed.rs` and `write_back.rs` contents that have no place yet (delayed allocation;
//! `docs/design/delayed-allocation.md`), `fault.rs` the deliberate faults of tests. `indirect/`
//! implements files that are mapped by twelve numbers and three trees for formats that have the
//! trait `Indirect`. UFS and ext2 implement these traits.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::as_conversions, clippy::arithmetic_side_effects)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects
    )
)]

mod acl;
mod actions;
mod attributes;
mod calls;
mod codec;
mod core;
mod delayed;
mod durable;
mod entries;
mod fault;
mod file;
mod format;
mod index;
pub mod indirect;
mod inside;
mod limits;
mod linked;
mod linked_last;
mod listing;
mod names;
mod naming;
mod node;
mod nodes;
mod pending;
mod pieces;
mod reach;
mod read;
mod removal;
mod rename;
mod table;
mod unsettled;
mod write_back;

pub use self::core::{Core, Pending, Wall};
pub use actions::Action;
pub use attributes::change_list;
pub use codec::{Codec, Compacted, Entry, Room};
pub use delayed::Delayed;
pub use fault::Fault;
pub use format::{Format, Ids, NamePlace};
pub use limits::{Limits, NameOrder};
pub use linked::{Contents, Linked};
pub use naming::{InodeNames, Names};
pub use node::{Node, Restrictions, gone};
pub use nodes::Nodes;
pub use removal::{Cut, Runs};
pub use table::{Fields, Part, Raw, Table};
pub use write_back::Stand;

use index::Indexes;
use reach::Reach;
use seekless_cache::{Commits, Config, Counters, Why};
use seekless_device::{BlockDevice, Clock};
use seekless_fs::FsError;
use seekless_units::Nanos;
use std::sync::Arc;

/// An image in use.
pub struct Live<F: Format> {
    format: F,
    core: Core<F::Map>,
    device: Arc<dyn BlockDevice>,
    /// How many nodes there may be before those not needed are dropped.
    most_nodes: usize,
    indexes: Indexes,
    reach: Reach,
    /// Why nothing can be changed any more, if not for a failed write.
    broken: Option<String>,
    /// The device says so.
    noted: bool,
    closed: bool,
}

impl<F: Format> Live<F> {
    /// Opens an image for changes and marks it as in use.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] for features that the format cannot maintain; [`FsError::Invalid`]
    /// for an image that is not clean, unless that is forced, and for unknown policies;
    /// [`FsError::Corrupt`]; [`FsError::Device`].
    pub fn open(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        config: Config,
        options: F::Options,
    ) -> Result<Self, FsError> {
        let (format, core) = F::open(Arc::clone(&device), clock, config, options)?;
        let mut live = Self {
            format,
            core,
            device,
            most_nodes: node::MOST_NODES,
            indexes: Indexes::default(),
            reach: Reach::default(),
            broken: None,
            noted: false,
            closed: false,
        };
        let root = live.format.limits().root;
        live.dir_node(root)?;
        live.core.cache.begin()?;
        live.format.mark(&mut live.core, false)?;
        live.core.cache.end()?;
        live.clear_orphans()?;
        Ok(live)
    }

    /// The format, and the data its code works on: for tests of it.
    pub fn parts(&mut self) -> (&mut F, &mut Core<F::Map>) {
        (&mut self.format, &mut self.core)
    }

    /// Has commits of a journal performed beside operations, by the cache itself: for
    /// devices that take writes without waiting for them, and one thread.
    pub fn commit_beside(&mut self) {
        self.core.cache.set_commits(Commits::Beside);
    }

    /// The cache's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.core.cache.counters()
    }

    /// When [`Operate::tick`](seekless_fs::operate::Operate::tick) has something
    /// to do next, by the clock; `None` when nothing waits for its time.
    #[must_use]
    pub fn next_due(&self) -> Option<Nanos> {
        let expiry = self.core.delayed.next_expiry();
        self.core.cache.next_due().into_iter().chain(expiry).min()
    }

    /// Changes and deferred actions that wait for the disk.
    #[must_use]
    pub fn softdeps(&self) -> usize {
        self.core.cache.softdeps()
    }

    /// Writes some of the blocks that hold something that may be written, those
    /// that are picked: any of them may be written at any time. False when there
    /// were none.
    ///
    /// # Errors
    /// [`FsError::Device`]; [`FsError::ReadOnly`] after a write has failed.
    pub fn write_some(&mut self, pick: impl FnMut(u64) -> bool) -> Result<bool, FsError> {
        let any = self.core.cache.write_some(pick)?;
        self.run_actions()?;
        Ok(any)
    }

    /// Breaks a rule from now on.
    #[cfg(feature = "faults")]
    pub fn set_fault(&mut self, fault: Fault) {
        self.core.set_fault(fault);
    }

    /// An operation that makes changes: due work is done before, and ready actions after. When
    /// space runs out, pending frees are done, and the operation tried again.
    fn change<R>(
        &mut self,
        operation: impl FnMut(&mut Self) -> Result<R, FsError>,
    ) -> Result<R, FsError> {
        let done = self.attempt(Self::reclaim, operation);
        self.noted(done)
    }

    /// Passes on the result of an operation; if the file system has become read-only, that is noted
    /// on the device, once, if it still takes writes.
    fn noted<R>(&mut self, done: Result<R, FsError>) -> Result<R, FsError> {
        let Err(error) = &done else { return done };
        let stops = self.broken.is_some() || !self.core.cache.may_change();
        if stops && !self.noted && !self.closed {
            self.noted = true;
            // A write under way may include the block that is written now. Failures here are
            // dropped: the first error is returned.
            self.core.cache.wait_for_all().unwrap_or_default();
            self.format.note_failure(&mut self.core, error).unwrap_or_default();
        }
        done
    }

    /// As [`Live::change`]; `reclaim` gets more room when there is none, and says whether
    /// there may be some now.
    fn attempt<R>(
        &mut self,
        reclaim: impl FnOnce(&mut Self) -> Result<bool, FsError>,
        mut operation: impl FnMut(&mut Self) -> Result<R, FsError>,
    ) -> Result<R, FsError> {
        if let Some(why) = &self.broken {
            return Err(FsError::ReadOnly(why.clone()));
        }
        if self.closed {
            return Err(FsError::ReadOnly("it has been unmounted".into()));
        }
        self.core.cache.begin()?;
        self.run_actions()?;
        while self.format.before_change(&mut self.core)? {
            self.run_actions()?;
        }
        self.drop_nodes();
        let mut done = operation(self);
        if matches!(done, Err(FsError::NoSpace(_))) && reclaim(self)? {
            done = operation(self);
        }
        if let Err(error) = &done
            && !self.is_undone(error)
        {
            self.core.cache.abort(&error.to_string());
            return done.map_err(met_here);
        }
        self.end_operation().and(done).map_err(met_here)
    }

    /// Allocates delayed contents, for which more is reserved than they need, and does frees that
    /// wait only for the disk. False when there was nothing.
    fn reclaim(&mut self) -> Result<bool, FsError> {
        if self.core.delayed.is_empty() {
            return self.reclaim_freed();
        }
        // The operation has undone its changes, and begins again.
        self.end_operation()?;
        match self.write_back_all() {
            Err(FsError::NoSpace(_)) => {}
            done => done?,
        }
        self.core.cache.begin()?;
        self.reclaim_freed().map(|_| true)
    }

    /// Does frees that wait only for the disk. False when there was nothing.
    fn reclaim_freed(&mut self) -> Result<bool, FsError> {
        if self.core.cache.is_journalled() {
            if self.core.cache.quarantined().is_empty() {
                return Ok(false);
            }
            // The operation has undone its changes, and begins again.
            self.end_operation()?;
            self.core.cache.commit(Why::Forced)?;
            self.core.cache.begin()?;
            return Ok(true);
        }
        if self.core.pending.is_empty() {
            return Ok(false);
        }
        self.write_changes()?;
        Ok(true)
    }

    /// Writes all there is, over as many rounds as that takes.
    ///
    /// # Errors
    /// [`FsError::Device`]; [`FsError::NoSpace`] if contents are left that have no place.
    pub fn write_everything(&mut self) -> Result<(), FsError> {
        let placed = self.write_back_all();
        self.write_changes().and(placed)
    }

    /// Writes all that was changed in the cache.
    fn write_changes(&mut self) -> Result<(), FsError> {
        loop {
            self.core.cache.sync()?;
            self.run_actions()?;
            self.format.put_summaries(&mut self.core)?;
            if !self.core.cache.is_dirty() {
                return Ok(());
            }
        }
    }

    /// The result that a rule asks for, unless a test has broken it.
    fn unless<T: Default>(&self, fault: Fault, asked: T) -> T {
        self.core.unless(fault, asked)
    }
}

/// It began while changes were possible: that they are no more was met on the
/// way, and is the failure of the device itself.
fn met_here(error: FsError) -> FsError {
    match error {
        FsError::ReadOnly(why) => FsError::io("the image", std::io::Error::other(why)),
        other => other,
    }
}
