//! Inodes in memory: their fields, and their changes that are not on the disk yet.

use crate::pending_changes::PendingChanges;
use crate::volume::parents::Parents;
use seekless_fs::field::wide;
use seekless_fs::{DeviceNumber, FileKind, FsError, Timestamp};
use seekless_units::Ino;

/// Inodes kept at most, of those that nothing waits for.
pub(crate) const MOST_NODES: usize = 32_768;

/// Operations that the flags of an inode forbid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Restrictions {
    /// Nothing of it may be changed.
    pub immutable: bool,
    /// Its contents may only be added to.
    pub append_only: bool,
    /// It may not lose a name.
    pub no_unlink: bool,
    /// It is a snapshot of its volume: not changed as a file, and read by the format's own means.
    pub snapshot: bool,
}

impl Restrictions {
    /// Whether it may lose a name.
    pub(crate) const fn keep_its_names(self) -> bool {
        self.immutable || self.append_only || self.no_unlink || self.snapshot
    }

    /// Whether its attributes and contents may not be changed at all.
    pub(crate) const fn keep_it_as_it_is(self) -> bool {
        self.immutable || self.snapshot
    }
}

/// An inode. `M` is its format's own data of it.
#[derive(Clone, Debug)]
pub struct Node<M> {
    /// Its number.
    pub ino: Ino,
    /// Its kind.
    pub kind: FileKind,
    /// The low 12 bits of the mode.
    pub perm: u16,
    /// Names on the disk, as far as it has been changed.
    pub links: u16,
    /// Number of names visible to users (`i_effnlink`).
    pub effective: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Sectors of 512 bytes of all that it holds.
    pub sectors: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Contents last changed.
    pub mtime: Timestamp,
    /// Last changed in any way.
    pub ctime: Timestamp,
    /// Made, where that is recorded.
    pub birth: Option<Timestamp>,
    /// Of a device: its numbers; zeros of others.
    pub device: DeviceNumber,
    /// Which file of those that had this number.
    pub generation: u32,
    /// Its flags as the format has them.
    pub flags: u32,
    /// Operations that these forbid.
    pub restrictions: Restrictions,
    /// How far a directory lies below the root, where that is recorded.
    pub depth: u32,
    /// The format's data of it: where its blocks are.
    pub map: M,
    /// The target of a symlink that is stored in the inode.
    pub target: Option<Box<[u8]>>,
    /// Its changes that are not on the disk yet.
    pub pending: PendingChanges,
    /// Its length before the write that is under way.
    pub grown_from: Option<u64>,
    /// On-disk size, smaller than `size` while data past it is delayed (`i_disksize` of Linux).
    pub recorded: Option<u64>,
    /// Number of opens.
    pub(crate) holds: u32,
    /// How many of its links are for names that are going from the disk, or to which it moves, where
    /// a file has no fewer links than names.
    pub(crate) held: u16,
    /// Directories in which it has names, as far as they are known.
    pub(crate) parents: Parents,
    /// Its blocks count as free already.
    pub(crate) counted_free: bool,
    /// Removed directories: the parent whose link count still includes our `..`.
    pub(crate) counted_in: Option<Ino>,
    /// Truncated to zero, and not written back since.
    pub(crate) was_emptied: bool,
}

impl<M> Node<M> {
    /// Counts one name less on the disk (`drop_nlink`). The count comes from the disk, and a
    /// damaged image may have it too low: it ends at zero.
    pub fn drop_link(&mut self) {
        self.links = self.links.saturating_sub(1);
    }

    /// Counts sectors that were allocated. The sum comes from the disk, as that of links: it ends
    /// at the largest number.
    pub fn add_sectors(&mut self, sectors: u64) {
        self.sectors = self.sectors.saturating_add(sectors);
    }

    /// Counts sectors that were freed, as [`Node::add_sectors`].
    pub fn drop_sectors(&mut self, sectors: u64) {
        self.sectors = self.sectors.saturating_sub(sectors);
    }

    /// Counts one visible name less, as [`Node::drop_link`].
    pub fn drop_effective_link(&mut self) {
        self.effective = self.effective.saturating_sub(1);
    }
}

impl<M: Default> Node<M> {
    /// A node that has nothing yet.
    #[must_use]
    pub fn empty(ino: Ino, kind: FileKind) -> Self {
        Self {
            ino,
            kind,
            perm: 0,
            links: 0,
            effective: 0,
            uid: 0,
            gid: 0,
            size: 0,
            sectors: 0,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            birth: None,
            device: DeviceNumber::default(),
            generation: 0,
            flags: 0,
            restrictions: Restrictions::default(),
            depth: 0,
            map: M::default(),
            target: None,
            pending: PendingChanges::default(),
            grown_from: None,
            recorded: None,
            holds: 0,
            held: 0,
            parents: Parents::new(),
            counted_free: false,
            counted_in: None,
            was_emptied: false,
        }
    }
}

impl<M> Node<M> {
    /// Whether its block numbers are such, and not a target or a device.
    #[must_use]
    pub const fn has_blocks(&self) -> bool {
        match self.kind {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => self.target.is_none(),
            _ => false,
        }
    }

    /// The parent directory whose count of links still has this directory, which has no name.
    pub const fn counted_in(&self) -> Option<Ino> {
        self.counted_in
    }

    /// How many have it open.
    #[must_use]
    pub const fn holds(&self) -> u32 {
        self.holds
    }

    /// The on-disk size.
    #[must_use]
    pub fn recorded_size(&self) -> u64 {
        self.recorded.map_or(self.size, |recorded| recorded.min(self.size))
    }

    /// Contents up to a byte have their place: the on-disk size may include them.
    pub fn record_up_to(&mut self, end: u64) {
        let end = end.min(self.size);
        self.recorded = self.recorded.map(|recorded| recorded.max(end));
    }

    /// Touches the node's cache lines (prefetch). The return value only keeps the loads from being
    /// optimized out.
    pub(crate) fn looked_at(&self) -> u64 {
        let lists = self.pending.noted();
        self.size ^ self.sectors ^ wide(lists) ^ u64::from(self.links) ^ u64::from(self.holds)
    }

    /// Its allocated size, in units of `unit` bytes.
    pub(crate) fn blocks(&self, unit: u32) -> u64 {
        self.sectors / u64::from(unit / 512)
    }
}

/// The error of an inode that is not in use.
#[must_use]
pub fn gone(ino: Ino) -> FsError {
    FsError::NotFound(format!("inode {ino}"))
}
