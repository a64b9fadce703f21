//! FFS in use: every operation as changes to cached blocks.
//!
//! What must be on the disk before what is told to the cache with each change
//! (the rules of soft updates); when it is written is the discipline's affair.
//! Space is given back only in actions, done once the last number or name that
//! leads to it is gone from the disk.
//!
//! - `calls`: what may be asked for; `file`: of files as such;
//! - `node`, `encode`: inodes in memory, and as bytes;
//! - `allocate`: groups' bytes, policies and the cache brought together;
//! - `map`, `read`, `write`, `gather`, `truncate`, `runs`: what files hold;
//! - `directory`, `index`, `names`, `rename`, `reach`: names;
//! - `xattr`: extended attributes;
//! - `actions`: what is done later;
//! - `durable`, `unsettled`: what `fsync` waits for;
//! - `mount`, `seal`: opening, closing, check hashes;
//! - `fault`: rules that tests break.

mod actions;
mod allocate;
mod calls;
mod directory;
mod durable;
mod encode;
mod fault;
mod file;
mod gather;
mod index;
mod map;
mod mount;
mod names;
mod node;
#[cfg(test)]
mod placing;
mod reach;
mod read;
mod rename;
mod runs;
mod seal;
mod truncate;
mod unsettled;
mod write;
mod xattr;

#[cfg(feature = "faults")]
pub use fault::Fault as LiveFault;

use crate::superblock::Super;
use actions::Action;
use fault::Fault;
use hashbrown::{HashMap, HashSet};
use index::Indexes;
use node::Node;
use reach::Reach;
use seekless_cache::{Cache, Counters};
use seekless_device::BlockDevice;
use seekless_fs::{FsError, Timestamp};
use seekless_placement::Groups;
use seekless_placement::block::{BlockPlacement, Hints};
use seekless_placement::inode::InodePlacement;
use seekless_placement::realloccg::Optimization;
use seekless_units::{GroupNo, Ino, Nanos};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The time of day, for the times of files.
pub type Wall = Box<dyn Fn() -> Timestamp + Send>;

/// How to open an image for changes.
pub struct LiveOptions {
    /// The policy for directories, by name (`orlov`).
    pub directories: String,
    /// The policy for blocks; `None` for the one of the time of the directories'.
    pub blocks: Option<String>,
    /// What the policies draw from.
    pub seed: u64,
    /// Gather new blocks into clusters (`vfs.ffs.doreallocblks`).
    pub reallocblks: bool,
    /// Open it even if it is not clean.
    pub force: bool,
    /// Do not compare check hashes.
    pub ignore_checksums: bool,
    /// The time of day.
    pub wall: Wall,
}

/// Space that counts as free, but is not yet.
#[derive(Default)]
struct Pending {
    frags: u64,
    inodes: u64,
}

/// A UFS1 or UFS2 image in use.
pub struct FfsLive {
    sb: Arc<Super>,
    device: Arc<dyn BlockDevice>,
    cache: Cache<Action>,
    groups: Groups,
    /// Groups of which the summary area does not know the latest.
    stale_summaries: BTreeSet<GroupNo>,
    optim: Optimization,
    inodes: Box<dyn InodePlacement>,
    blocks: Box<dyn BlockPlacement<Hints>>,
    reallocblks: bool,
    wall: Wall,
    nodes: HashMap<Ino, Node>,
    /// How many nodes there may be before those not needed are dropped.
    most_nodes: usize,
    indexes: Indexes,
    reach: Reach,
    verified_groups: Vec<bool>,
    verified_inodes: HashSet<Ino>,
    pending: Pending,
    /// Whether it is the superuser who changes something.
    may_spend_reserve: bool,
    ignore_checksums: bool,
    /// Why nothing can be changed any more, if not for a failed write.
    broken: Option<String>,
    closed: bool,
    /// A rule that a test has broken.
    fault: Option<Fault>,
}

impl FfsLive {
    /// What the cache counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.cache.counters()
    }

    /// When [`Operate::tick`](seekless_fs::operate::Operate::tick) has something
    /// to do next, by the clock; `None` when nothing waits for its time.
    #[must_use]
    pub fn next_due(&self) -> Option<Nanos> {
        self.cache.next_due()
    }

    /// Changes and deferred actions that wait for the disk.
    #[must_use]
    pub fn softdeps(&self) -> usize {
        self.cache.softdeps()
    }

    /// Writes some of the blocks that hold something that may be written, those
    /// that are picked: any of them may be written at any time. False when there
    /// were none.
    ///
    /// # Errors
    /// [`FsError::Device`]; [`FsError::ReadOnly`] after a write has failed.
    pub fn write_some(&mut self, pick: impl FnMut(u64) -> bool) -> Result<bool, FsError> {
        let any = self.cache.write_some(pick)?;
        self.run_actions()?;
        Ok(any)
    }

    fn now(&self) -> Timestamp {
        (self.wall)()
    }

    /// An operation that changes something: what is due is done before, and
    /// what has become possible after. When space runs out, what is about to
    /// become free is freed, and the operation tried again.
    fn change<R>(
        &mut self,
        mut operation: impl FnMut(&mut Self) -> Result<R, FsError>,
    ) -> Result<R, FsError> {
        if let Some(why) = &self.broken {
            return Err(FsError::ReadOnly(why.clone()));
        }
        if self.closed {
            return Err(FsError::ReadOnly("it has been unmounted".into()));
        }
        self.cache.begin()?;
        self.run_actions()?;
        self.drop_nodes();
        let mut done = operation(self);
        if matches!(done, Err(FsError::NoSpace(_))) && self.reclaim()? {
            done = operation(self);
        }
        self.run_actions().and(done).map_err(met_here)
    }

    /// Frees what waits only for the disk. False when there was nothing.
    fn reclaim(&mut self) -> Result<bool, FsError> {
        if self.pending.frags == 0 && self.pending.inodes == 0 {
            return Ok(false);
        }
        self.write_everything()?;
        Ok(true)
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
