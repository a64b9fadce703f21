//! FFS in use: every operation as changes to cached blocks.
//!
//! What must be on the disk before what is told to the cache with each change
//! (the rules of soft updates); when it is written is the discipline's affair.
//! Space is given back only in actions, done once the last number or name that
//! leads to it is gone from the disk.
//!
//! - `node`, `encode`: inodes in memory, and as bytes;
//! - `allocate`: groups' bytes, policies and the cache brought together;
//! - `map`, `read`, `write`, `truncate`: what files hold;
//! - `directory`, `names`, `rename`: names;
//! - `xattr`: extended attributes;
//! - `actions`: what is done later;
//! - `mount`, `seal`: opening, closing, check hashes.

mod actions;
mod allocate;
mod directory;
mod durable;
mod encode;
mod index;
mod map;
mod mount;
mod names;
mod node;
mod read;
mod rename;
mod seal;
mod truncate;
mod write;
mod xattr;

use crate::ondisk::ROOT;
use crate::superblock::Super;
use actions::Action;
use hashbrown::{HashMap, HashSet};
use index::Indexes;
use node::{Node, flag};
use seekless_cache::{Cache, Counters};
use seekless_device::BlockDevice;
use seekless_fs::field::{index, wide};
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode, SetAttr, Space, XattrMode};
use seekless_fs::{Attr, DirEntry, FileKind, FsError, Timestamp, Xattr};
use seekless_placement::block::BlockPlacement;
use seekless_placement::directory::DirectoryPlacement;
use seekless_placement::realloccg::Optimization;
use seekless_placement::{GroupSummary, Totals, Volume};
use seekless_units::{ByteLen, GroupNo, Ino};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
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
    volume: Volume,
    groups: Vec<GroupSummary>,
    totals: Totals,
    /// Groups of which the summary area does not know the latest.
    stale_summaries: BTreeSet<GroupNo>,
    optim: Optimization,
    directories: Box<dyn DirectoryPlacement>,
    blocks: Box<dyn BlockPlacement>,
    wall: Wall,
    nodes: HashMap<Ino, Node>,
    /// How many nodes there may be before those not needed are dropped.
    most_nodes: usize,
    indexes: Indexes,
    verified_groups: Vec<bool>,
    verified_inodes: HashSet<Ino>,
    pending: Pending,
    ignore_checksums: bool,
    /// Why nothing can be changed any more, if not for a failed write.
    broken: Option<String>,
    closed: bool,
}

impl FfsLive {
    /// What the cache counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.cache.counters()
    }

    /// Changes and deferred actions that wait for the disk.
    #[must_use]
    pub fn softdeps(&self) -> usize {
        self.cache.softdeps()
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
            return Err(FsError::ReadOnly("it is unmounted".into()));
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

    fn write_file(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize, FsError> {
        let node = self.named_node(ino)?;
        if node.kind == FileKind::Directory {
            return Err(FsError::IsDirectory(format!("inode {ino}")));
        }
        if node.kind != FileKind::Regular {
            return Err(FsError::Invalid(format!("inode {ino} is not a regular file")));
        }
        if node.is(flag::APPEND) && offset != node.size {
            return Err(FsError::NotPermitted(format!("inode {ino} can only be appended to")));
        }
        self.check_changeable(ino)?;
        let done = self.write_bytes(ino, offset, bytes)?;
        let now = self.now();
        let node = self.node(ino)?;
        (node.mtime, node.ctime) = (now, now);
        self.put_attributes(ino)?;
        Ok(done)
    }

    fn change_attr(&mut self, ino: Ino, set: &SetAttr) -> Result<Attr, FsError> {
        self.check_changeable(ino)?;
        let now = self.now();
        if let Some(size) = set.size {
            let node = self.node(ino)?;
            match node.kind {
                FileKind::Regular if node.is(flag::APPEND) => {
                    return Err(FsError::NotPermitted(format!("inode {ino} can only grow")));
                }
                FileKind::Regular => {}
                FileKind::Directory => return Err(FsError::IsDirectory(format!("inode {ino}"))),
                _ => return Err(FsError::Invalid(format!("inode {ino} has no length"))),
            }
            self.truncate(ino, size)?;
            self.node(ino)?.mtime = now;
        }
        let early = self.sb.format == crate::superblock::Format::Ufs1;
        let node = self.node(ino)?;
        node.perm = set.perm.map_or(node.perm, |perm| perm & 0o7777);
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        node.atime = set.atime.map_or(node.atime, |time| representable(time, early));
        node.mtime = set.mtime.map_or(node.mtime, |time| representable(time, early));
        node.ctime = now;
        let attr = node.attr();
        self.put_attributes(ino)?;
        Ok(attr)
    }

    fn allocate_file(&mut self, ino: Ino, from: u64, len: u64, keep: bool) -> Result<(), FsError> {
        let node = self.named_node(ino)?;
        if node.kind != FileKind::Regular {
            return Err(FsError::Invalid(format!("inode {ino} is not a regular file")));
        }
        let size = node.size;
        self.check_changeable(ino)?;
        let end = self.check_len(ino, from.checked_add(len))?;
        if keep && end > size {
            return Err(FsError::Unsupported("space behind a file's end".into()));
        }
        if let Err(error) = self.allocate_range(ino, from, end) {
            if self.node(ino)?.size > size {
                self.shrink(ino, size)?;
            }
            return Err(error);
        }
        self.touch(ino)
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

/// A time as the format can keep it: UFS1 counts seconds in 32 bits.
fn representable(time: Timestamp, early: bool) -> Timestamp {
    let (low, high) = (i64::from(i32::MIN), i64::from(i32::MAX));
    if early { Timestamp { secs: time.secs.clamp(low, high), ..time } } else { time }
}

impl Operate for FfsLive {
    fn root(&self) -> Ino {
        Ino::new(ROOT)
    }

    fn lookup(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        self.drop_nodes();
        Ok(self.find(dir, name)?.map(|slot| slot.ino))
    }

    fn attr(&mut self, ino: Ino) -> Result<Attr, FsError> {
        self.drop_nodes();
        Ok(self.named_node(ino)?.attr())
    }

    fn set_attr(&mut self, ino: Ino, set: &SetAttr) -> Result<Attr, FsError> {
        self.change(|live| live.change_attr(ino, set))
    }

    fn make(
        &mut self,
        dir: Ino,
        name: &[u8],
        new: NewFile<'_>,
        owner: Ownership,
    ) -> Result<Attr, FsError> {
        let ino = self.change(|live| live.make_file(dir, name, &new, owner))?;
        self.attr(ino)
    }

    fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr, FsError> {
        self.change(|live| live.link_file(ino, dir, name))?;
        self.attr(ino)
    }

    fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        self.change(|live| live.unlink_file(dir, name))
    }

    fn rmdir(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        self.change(|live| live.remove_dir(dir, name))
    }

    fn rename(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<(), FsError> {
        self.change(|live| live.rename_file(from, to, mode))
    }

    fn read(&mut self, ino: Ino, offset: ByteLen, buf: &mut [u8]) -> Result<usize, FsError> {
        let node = self.named_node(ino)?;
        match node.kind {
            FileKind::Regular if !node.is(flag::SNAPSHOT) => {}
            FileKind::Directory => return Err(FsError::IsDirectory(format!("inode {ino}"))),
            _ => return Err(FsError::Invalid(format!("inode {ino} is not a regular file"))),
        }
        let left = node.size.saturating_sub(offset.get());
        let len = index(left.min(wide(buf.len())));
        let Some(buf) = buf.get_mut(..len).filter(|buf| !buf.is_empty()) else { return Ok(0) };
        self.read_bytes(ino, offset.get(), buf)?;
        Ok(len)
    }

    fn write(&mut self, ino: Ino, offset: ByteLen, bytes: &[u8]) -> Result<usize, FsError> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.change(|live| live.write_file(ino, offset.get(), bytes))
    }

    fn allocate(
        &mut self,
        ino: Ino,
        offset: ByteLen,
        len: ByteLen,
        keep_size: bool,
    ) -> Result<(), FsError> {
        self.change(|live| live.allocate_file(ino, offset.get(), len.get(), keep_size))
    }

    fn read_dir(
        &mut self,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        self.entries_after(dir, after, visit)
    }

    fn read_link(&mut self, ino: Ino) -> Result<Vec<u8>, FsError> {
        let bsize = u64::from(self.sb.bsize);
        let node = self.named_node(ino)?;
        if node.kind != FileKind::Symlink {
            return Err(FsError::Invalid(format!("inode {ino} is not a symlink")));
        }
        if let Some(target) = &node.target {
            return Ok(target.to_vec());
        }
        let mut target = vec![0; index(node.size.min(bsize))];
        self.read_bytes(ino, 0, &mut target)?;
        Ok(target)
    }

    fn xattrs(&mut self, ino: Ino) -> Result<Vec<Xattr>, FsError> {
        self.named_node(ino)?;
        self.read_xattrs(ino)
    }

    fn set_xattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), FsError> {
        self.change(|live| {
            live.check_changeable(ino)?;
            live.change_xattr(ino, name, Some(value), mode)
        })
    }

    fn remove_xattr(&mut self, ino: Ino, name: &[u8]) -> Result<(), FsError> {
        self.change(|live| {
            live.check_changeable(ino)?;
            live.change_xattr(ino, name, None, XattrMode::Any)
        })
    }

    fn hold(&mut self, ino: Ino) -> Result<(), FsError> {
        let node = self.named_node(ino)?;
        node.holds = node.holds.saturating_add(1);
        Ok(())
    }

    fn release(&mut self, ino: Ino) -> Result<(), FsError> {
        let node = self.node(ino)?;
        node.holds = node.holds.saturating_sub(1);
        if node.holds > 0 || node.effective > 0 {
            return Ok(());
        }
        if node.links > 0 {
            self.count_free(ino);
            return Ok(());
        }
        self.change(|live| live.destroy(ino))
    }

    fn fsync(&mut self, ino: Ino) -> Result<(), FsError> {
        self.make_durable(ino)
    }

    fn sync(&mut self) -> Result<(), FsError> {
        self.write_everything()?;
        self.device.flush()?;
        Ok(())
    }

    fn tick(&mut self) -> Result<(), FsError> {
        self.cache.tick()?;
        self.run_actions()
    }

    fn space(&mut self) -> Space {
        let frag = u64::from(self.sb.frag);
        let free = self.totals.nbfree.saturating_mul(frag).saturating_add(self.totals.nffree);
        let free = free.saturating_add(self.pending.frags);
        let blocks = self.sb.tuning.dsize;
        let kept = blocks.saturating_mul(u64::from(self.sb.tuning.minfree)) / 100;
        Space {
            block_size: self.sb.fsize,
            blocks,
            free,
            available: free.saturating_sub(kept),
            // The first two are nobody's.
            inodes: u64::from(self.sb.inodes().saturating_sub(2)),
            free_inodes: self.totals.nifree.saturating_add(self.pending.inodes),
            name_max: u32::try_from(directory::NAME_MAX).unwrap_or(255),
        }
    }

    fn unmount(&mut self) -> Result<(), FsError> {
        if self.closed {
            return Ok(());
        }
        // Files that somebody still had open and that have no names go now.
        let orphans: Vec<Ino> =
            self.nodes.values().filter(|node| node.effective == 0).map(|node| node.ino).collect();
        for ino in orphans {
            let node = self.node(ino)?;
            node.holds = 0;
            if node.links == 0 {
                self.destroy(ino)?;
            }
        }
        self.write_everything()?;
        if self.broken.is_some() {
            return Err(FsError::ReadOnly("an action failed".into()));
        }
        self.device.flush()?;
        self.write_superblock(true)?;
        self.closed = true;
        Ok(())
    }
}
