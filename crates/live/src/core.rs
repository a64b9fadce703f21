//! Data that a format's code works on besides its own state: the cache, inodes in memory, and space
//! that is about to become free.

use crate::action::Action;
use crate::cut::{Cut, Runs};
use crate::delayed::Delayed;
use crate::fault::Fault;
use crate::node::{Node, gone};
use crate::nodes::Nodes;
use crate::quota::{Ledger, QuotaKind, Quotas, Usage, is_counted};
use seekless_cache::{Cache, ChangeId, Kind};
use seekless_fs::{FsError, Timestamp};
use seekless_units::Ino;
use smallvec::SmallVec;

/// The time of day, for the times of files.
pub type Wall = Box<dyn Fn() -> Timestamp + Send>;

/// Space that counts as free, but is not yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct PendingSpace {
    /// In units of block numbers.
    pub blocks: u64,
    /// Inodes.
    pub inodes: u64,
}

impl PendingSpace {
    /// Whether nothing is about to become free.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.blocks == 0 && self.inodes == 0
    }

    /// So much more will be free.
    pub(crate) fn add(&mut self, blocks: u64, inodes: u64) {
        self.blocks += blocks;
        self.inodes += inodes;
    }

    /// So much of it is free now, or will not be.
    pub(crate) fn take(&mut self, blocks: u64, inodes: u64) {
        debug_assert!(self.blocks >= blocks && self.inodes >= inodes, "taken twice: {self:?}");
        self.blocks -= blocks;
        self.inodes -= inodes;
    }
}

/// Data that the code of a format works on. `M` is the format's own data of a file.
pub struct Core<M> {
    /// The blocks of the device, with the changes to them.
    pub cache: Cache<Action>,
    /// The inodes in memory.
    pub nodes: Nodes<M>,
    /// Space that is about to become free.
    pub pending: PendingSpace,
    /// Contents that have no place yet.
    pub delayed: Delayed,
    /// Whether the current caller is the superuser.
    pub may_spend_reserve: bool,
    wall: Wall,
    /// The quotas of users and groups, if they are kept.
    quotas: Option<Box<Quotas>>,
    /// A rule that a test has broken.
    #[cfg(feature = "faults")]
    fault: Option<Fault>,
}

impl<M> Core<M> {
    /// Nothing in memory yet.
    #[must_use]
    pub fn new(cache: Cache<Action>, wall: Wall) -> Self {
        Self {
            cache,
            nodes: Nodes::default(),
            pending: PendingSpace::default(),
            delayed: Delayed::default(),
            may_spend_reserve: true,
            wall,
            quotas: None,
            #[cfg(feature = "faults")]
            fault: None,
        }
    }

    /// The time of day.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.wall)()
    }

    /// The node of an inode that is in memory. Callers of a format bring an inode into memory
    /// before they pass its number.
    ///
    /// # Errors
    /// [`FsError::NotFound`] when it is not.
    pub fn node(&mut self, ino: Ino) -> Result<&mut Node<M>, FsError> {
        let node = self.nodes.get_mut(&ino);
        debug_assert!(node.is_some(), "inode {ino} is not in memory");
        node.ok_or_else(|| gone(ino))
    }

    /// Keeps quotas from now on. Nobody is charged for the files `exempt`, which are the quota
    /// files.
    pub fn keep_quotas(&mut self, quotas: Quotas, exempt: Vec<Ino>) {
        self.nodes.keep_ledger(Ledger::new(exempt));
        self.quotas = Some(Box::new(quotas));
    }

    /// The quotas, if they are kept.
    pub fn quotas(&mut self) -> Option<&mut Quotas> {
        self.quotas.as_deref_mut()
    }

    /// Whether a file is a quota file in use.
    #[must_use]
    pub fn is_quota_file(&self, ino: Ino) -> bool {
        self.nodes.ledger().is_some_and(|ledger| ledger.is_exempt(ino))
    }

    /// The quota files, if quotas were written to them since the last call.
    pub(crate) fn take_rewritten(&mut self) -> Vec<Ino> {
        let are_rewritten = self.quotas.as_mut().is_some_and(|quotas| quotas.take_rewritten());
        match self.nodes.ledger().filter(|_| are_rewritten) {
            Some(ledger) => ledger.exempt().to_vec(),
            None => Vec::new(),
        }
    }

    /// A quota is in its file now.
    pub(crate) fn note_quota_written(&mut self, kind: QuotaKind, id: u32) {
        debug_assert!(self.quotas.is_some(), "quotas that are written are kept");
        if let Some(quotas) = &mut self.quotas {
            quotas.note_written(kind, id);
        }
    }

    /// Allows the owner and the group of an inode in memory so many sectors of 512 bytes more.
    /// Callers take them in the operation under way, or less.
    ///
    /// # Errors
    /// [`FsError::OverQuota`] where a limit forbids it, unless the caller is the superuser.
    pub fn admit(&mut self, ino: Ino, sectors: u64) -> Result<(), FsError> {
        let (Some(quotas), Some(ledger)) = (&mut self.quotas, self.nodes.ledger()) else {
            return Ok(());
        };
        let Some(charge) = self.nodes.get(&ino).and_then(|node| ledger.charge(node)) else {
            return Ok(());
        };
        let (more, now) = (Usage { sectors, inodes: 0 }, (self.wall)().secs);
        quotas.admit(&charge.owners(), more, self.may_spend_reserve, now)
    }

    /// As [`Core::admit`], for an inode of a user and a group.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn admit_inode(&mut self, uid: u32, gid: u32) -> Result<(), FsError> {
        let Some(quotas) = self.quotas.as_mut().filter(|_| is_counted(uid, gid)) else {
            return Ok(());
        };
        let owners = [(QuotaKind::User, uid), (QuotaKind::Group, gid)];
        let (more, now) = (Usage { sectors: 0, inodes: 1 }, (self.wall)().secs);
        quotas.admit(&owners, more, self.may_spend_reserve, now)
    }

    /// As [`Core::admit`], for an inode in memory that gets another owner or group: these are
    /// allowed all that it takes.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn admit_owner(&mut self, ino: Ino, uid: u32, gid: u32) -> Result<(), FsError> {
        let (Some(quotas), Some(ledger)) = (&mut self.quotas, self.nodes.ledger()) else {
            return Ok(());
        };
        let Some(node) = self.nodes.get(&ino).filter(|_| is_counted(uid, gid)) else {
            return Ok(());
        };
        let charge = ledger.charge(node);
        let before = charge.map(|charge| charge.owners());
        let owners = [(QuotaKind::User, uid), (QuotaKind::Group, gid)];
        let new =
            owners.into_iter().filter(|owner| before.is_none_or(|before| !before.contains(owner)));
        let new: SmallVec<[_; 2]> = new.collect();
        let sectors = node.sectors;
        let (more, now) = (Usage { sectors, inodes: 1 }, (self.wall)().secs);
        quotas.admit(&new, more, self.may_spend_reserve, now)
    }

    /// Charges nodes as they are now. To be called between operations.
    pub(crate) fn settle_quotas(&mut self) {
        let Some(quotas) = &mut self.quotas else { return };
        let moved = self.nodes.take_moved();
        quotas.settle(&moved, (self.wall)().secs);
    }

    /// Frees runs once nothing on the disk leads to them.
    pub fn defer_free(&mut self, after: &[ChangeId], kind: Kind, runs: impl Into<Runs>) {
        let runs = runs.into();
        if runs.is_empty() {
            return;
        }
        let blocks = runs.iter().map(|run| run.len).sum();
        self.pending.add(blocks, 0);
        self.cache.changes().defer(after, kind, Action::FreeRuns(runs));
    }

    /// Runs cut from a file are not written any more, and freed once the disk does not lead there.
    pub fn free_cut(&mut self, cleared: ChangeId, mut cut: Cut) {
        for &run in &cut.runs {
            self.cache.changes().forget(run, cleared);
        }
        cut.cleared.push(cleared);
        let first = self.unless(Fault::ReuseBeforeClear, cut.cleared);
        self.defer_free(&first, Kind::FreeBlocks, cut.runs);
    }

    /// Remembers a change of an inode that the disk has nothing of yet.
    pub fn note_fresh(&mut self, ino: Ino, id: ChangeId) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        let Some(&init) = node.pending.fresh.first() else { return };
        if self.cache.is_committed(init) {
            node.pending.fresh.clear();
        } else if !node.pending.fresh.contains(&id) {
            node.pending.fresh.push(id);
        }
    }

    #[cfg(feature = "faults")]
    pub(crate) fn set_fault(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// Whether a rule is broken, which only tests do.
    #[must_use]
    pub fn has(&self, fault: Fault) -> bool {
        #[cfg(feature = "faults")]
        return self.fault == Some(fault);
        #[cfg(not(feature = "faults"))]
        {
            let _ = fault;
            false
        }
    }

    /// The result that a rule asks for, unless it is broken.
    #[must_use]
    pub fn unless<T: Default>(&self, fault: Fault, asked: T) -> T {
        if self.has(fault) { T::default() } else { asked }
    }
}
