//! The files of a volume without their names: inodes in memory, on top of a format's code.

pub(crate) mod acl;
mod delayed_writes;
pub(crate) mod parents;
mod read;

use crate::core::Core;
use crate::discards::Discards;
use crate::features::OrphanList;
use crate::node::{MOST_NODES, Node, gone};
use crate::pending::Ids;
use crate::volume::parents::{ParentCache, note_parent};
use crate::{Format, Linked, Runs};
use seekless_cache::{ChangeId, Kind};
use seekless_fs::{Attr, FileKind, FsError};
use seekless_units::{Extent, Ino};

/// Whether a volume can still be changed.
#[derive(Debug, Default)]
struct Health {
    /// Why nothing can be changed any more, if not for a failed write.
    failure: Option<String>,
    /// The device says so.
    noted: bool,
    closed: bool,
}

/// The files of a volume, by their inodes.
pub(crate) struct Volume<F: Format> {
    pub(crate) format: F,
    pub(crate) core: Core<F::Map>,
    /// How many nodes there may be before those not needed are dropped.
    most_nodes: usize,
    parents: ParentCache,
    health: Health,
    /// Freed blocks, if the device is to be told of them.
    discards: Option<Discards>,
}

impl<F: Format> Volume<F> {
    /// No file in memory yet.
    pub(crate) fn new(format: F, core: Core<F::Map>) -> Self {
        Self {
            format,
            core,
            most_nodes: MOST_NODES,
            parents: ParentCache::default(),
            health: Health::default(),
            discards: None,
        }
    }

    /// The list of files that are being deleted or cut, where there is a journal.
    pub(crate) fn journalled_orphans(&mut self) -> Option<(&mut F::OrphanList, &mut Core<F::Map>)> {
        let is_in_use = self.core.cache.is_journalled();
        let list = self.format.orphan_list().filter(|_| is_in_use)?;
        Some((list, &mut self.core))
    }

    /// As [`OrphanList::note_orphan`], if the format has that.
    pub(crate) fn note_orphan(&mut self, ino: Ino, is: bool) -> Result<(), FsError> {
        match self.format.orphan_list() {
            Some(list) => list.note_orphan(&mut self.core, ino, is),
            None => Ok(()),
        }
    }

    /// The `statx` attributes of an inode in memory.
    pub(crate) fn shown(&self, ino: Ino) -> Result<Attr, FsError> {
        let node = self.core.nodes.get(&ino).ok_or_else(|| gone(ino))?;
        let waiting = self.core.delayed.blocks_of(ino);
        let waiting = waiting * u64::from(self.format.limits().block / 512);
        Ok(Attr {
            ino: node.ino,
            kind: node.kind,
            perm: node.perm,
            uid: node.uid,
            gid: node.gid,
            nlink: u32::from(node.effective),
            size: node.size,
            sectors: self.format.shown_sectors(node).saturating_add(waiting),
            atime: node.atime,
            mtime: node.mtime,
            ctime: node.ctime,
            crtime: node.birth,
            device: node.device,
            generation: node.generation,
            flags: self.format.shown_flags(node),
            project: 0,
        })
    }

    /// The node of an inode that is in use.
    pub(crate) fn node(&mut self, ino: Ino) -> Result<&mut Node<F::Map>, FsError> {
        if !self.core.nodes.contains_key(&ino) {
            debug_assert!(!self.core.delayed.has(ino), "inode {ino} went with what waits of it");
            let mut node = self.format.load(&mut self.core, ino)?;
            node.parents = self.parents.take(ino);
            self.core.nodes.insert(ino, node);
        }
        self.core.nodes.get_mut(&ino).ok_or_else(|| gone(ino))
    }

    /// As [`Volume::node`], of one that has names.
    pub(crate) fn named_node(&mut self, ino: Ino) -> Result<&mut Node<F::Map>, FsError> {
        let node = self.node(ino)?;
        if node.effective == 0 && node.holds == 0 { Err(gone(ino)) } else { Ok(node) }
    }

    /// The node of a directory.
    pub(crate) fn dir_node(&mut self, ino: Ino) -> Result<&mut Node<F::Map>, FsError> {
        let node = self.node(ino)?;
        if node.kind == FileKind::Directory {
            Ok(node)
        } else {
            Err(FsError::NotDirectory(format!("inode {ino}")))
        }
    }

    /// Drops nodes that can be read again, when there are many.
    pub(crate) fn drop_nodes(&mut self) {
        if self.core.nodes.len() < self.most_nodes {
            return;
        }
        let (cache, parents, delayed) = (&self.core.cache, &mut self.parents, &self.core.delayed);
        self.core.nodes.retain(|node| {
            let idle = node.holds == 0
                && node.links == node.effective
                && node.links > 0
                && !delayed.has(node.ino)
                && node.pending.are_on_disk(cache);
            if idle {
                parents.keep(node.ino, std::mem::take(&mut node.parents));
            }
            !idle
        });
        // Those that stay are in use: looked at again when there are many more.
        self.most_nodes = (self.core.nodes.len() * 2).max(MOST_NODES);
    }

    /// Frees runs that nothing leads to any more.
    pub(crate) fn free_runs(&mut self, runs: &[Extent]) -> Result<(), FsError> {
        let blocks = runs.iter().map(|run| run.len).sum();
        self.core.pending.take(blocks, 0);
        self.release_runs(runs)
    }

    /// Gives runs back that nothing leads to. Others may still wait for changes in them, as for a
    /// name in a directory that was removed: then they are given back once these changes are on the
    /// disk, since an undo of one would overwrite the contents of a new owner.
    pub(crate) fn release_runs(&mut self, runs: &[Extent]) -> Result<(), FsError> {
        let mut kept = Ids::new();
        for &run in runs {
            self.core.cache.changes().forget(run, ChangeId::COMMITTED);
            kept.extend(self.core.cache.undone_in(run));
        }
        if kept.is_empty() {
            return self.give_runs(runs);
        }
        self.core.defer_free(&kept, Kind::FreeBlocks, Runs::from(runs));
        Ok(())
    }

    /// Gives runs back that nothing waits for. The device is told of them later, if it is to be.
    pub(crate) fn give_runs(&mut self, runs: &[Extent]) -> Result<(), FsError> {
        let freed = self.format.free_runs(&mut self.core, runs)?;
        if let Some(discards) = &mut self.discards {
            discards.add(freed, runs);
        }
        Ok(())
    }

    /// Tells the device of freed blocks from now on.
    pub(crate) fn discard_freed(&mut self) {
        self.discards.get_or_insert_default();
    }

    /// The next freed blocks that the disk has as free, and that are free still; `None` if there
    /// are none now.
    pub(crate) fn next_discard(&mut self) -> Result<Option<Vec<Extent>>, FsError> {
        let Some(discards) = &mut self.discards else { return Ok(None) };
        let cache = &self.core.cache;
        let Some(settled) = discards.next_settled(|id| cache.is_committed(id)) else {
            return Ok(None);
        };
        let mut free = Vec::new();
        for run in settled {
            free.extend(self.format.free_parts(&mut self.core, run)?);
        }
        Ok(Some(free))
    }

    /// Tells the device of no blocks any more.
    pub(crate) fn keep_freed(&mut self) {
        self.discards = None;
    }

    /// Counts the space of a file that will go as free already.
    pub(crate) fn count_free(&mut self, ino: Ino) {
        let unit = self.format.limits().unit;
        let Some(node) = self.core.nodes.get_mut(&ino) else { return };
        if node.effective > 0 || node.holds > 0 || node.counted_free {
            return;
        }
        node.counted_free = true;
        let blocks = node.blocks(unit);
        self.core.pending.add(blocks, 1);
    }

    /// Takes that back, since it now goes.
    pub(crate) fn uncount(&mut self, ino: Ino) {
        let unit = self.format.limits().unit;
        let Some(node) = self.core.nodes.get_mut(&ino).filter(|node| node.counted_free) else {
            return;
        };
        node.counted_free = false;
        let blocks = node.blocks(unit);
        self.core.pending.take(blocks, 1);
    }

    /// Writes the marks of a volume in use, among them whether it must be checked.
    pub(crate) fn mark_in_use(&mut self) -> Result<(), FsError> {
        self.core.cache.begin()?;
        self.format.mark(&mut self.core, false)?;
        self.core.cache.end()
    }

    /// An inode has changed.
    pub(crate) fn touch(&mut self, ino: Ino) -> Result<(), FsError> {
        let now = self.core.now();
        self.node(ino)?.ctime = now;
        self.format.put_attributes(&mut self.core, ino)
    }

    /// Whether a file may not be changed.
    pub(crate) fn check_changeable(&mut self, ino: Ino) -> Result<(), FsError> {
        if self.named_node(ino)?.restrictions.keep_it_as_it_is() {
            return Err(FsError::NotPermitted(format!("inode {ino} is immutable")));
        }
        Ok(())
    }

    /// As [`Volume::check_changeable`], for attributes: those of a file that only grows stay as they
    /// are, but for times (`notify_change` and `xattr_permission` of Linux, `ufs_setattr`).
    pub(crate) fn check_settable(&mut self, ino: Ino) -> Result<(), FsError> {
        self.check_changeable(ino)?;
        if self.node(ino)?.restrictions.append_only {
            return Err(FsError::NotPermitted(format!("inode {ino} can only grow")));
        }
        Ok(())
    }

    /// Passes on the result of an operation; if the file system has become read-only, that is noted
    /// on the device, once, if it still takes writes.
    pub(crate) fn noted<R>(&mut self, done: Result<R, FsError>) -> Result<R, FsError> {
        let Err(error) = &done else { return done };
        let stops = self.health.failure.is_some() || !self.core.cache.blocks().may_change();
        if stops && !self.health.noted && !self.health.closed {
            self.health.noted = true;
            // A write under way may include the block that is written now. Failures here are
            // dropped: the first error is returned.
            self.core.cache.blocks_mut().wait_for_all().unwrap_or_default();
            self.format.note_failure(&mut self.core, error).unwrap_or_default();
        }
        done
    }

    /// Allows no change from now on, because of an error.
    pub(crate) fn fail(&mut self, error: &FsError) {
        self.health.failure.get_or_insert_with(|| error.to_string());
    }

    /// Whether an operation has failed in such a way that no other may make changes.
    pub(crate) fn has_failed(&self) -> bool {
        self.health.failure.is_some()
    }

    /// Checks that changes may be made.
    pub(crate) fn check_open(&self) -> Result<(), FsError> {
        if let Some(why) = &self.health.failure {
            return Err(FsError::ReadOnly(why.clone()));
        }
        if self.health.closed {
            return Err(FsError::ReadOnly("it has been unmounted".into()));
        }
        Ok(())
    }

    /// Whether it was unmounted.
    pub(crate) fn is_closed(&self) -> bool {
        self.health.closed
    }

    /// Allows no operation from now on.
    pub(crate) fn close(&mut self) {
        self.health.closed = true;
    }

    /// Remembers that a file has a name in a directory: a file that is made durable is so with the
    /// names by which it was reached.
    pub(crate) fn note_parent(&mut self, ino: Ino, dir: Ino) {
        if let Some(node) = self.core.nodes.get_mut(&ino) {
            note_parent(&mut node.parents, dir);
            return;
        }
        let mut dirs = self.parents.take(ino);
        note_parent(&mut dirs, dir);
        self.parents.keep(ino, dirs);
    }

    /// The changes that take older names of a file from the disk, if these are still there. The
    /// last name of a directory goes after them: with one name alone `..` must not contradict it.
    pub(crate) fn leaving(&mut self, ino: Ino) -> Result<Ids, FsError> {
        self.node(ino)?;
        let node = self.core.nodes.get(&ino).ok_or_else(|| crate::gone(ino))?;
        Ok(node.pending.leaving.left(&self.core.cache).collect())
    }

    /// The changes that take the older names of directories moved into this one from the disk:
    /// until then a check may take their names here for the older ones.
    pub(crate) fn arriving(&mut self, dir: Ino) -> Result<Ids, FsError> {
        self.node(dir)?;
        let node = self.core.nodes.get(&dir).ok_or_else(|| crate::gone(dir))?;
        Ok(node.pending.arriving.left(&self.core.cache).collect())
    }
}

impl<F: Linked> Volume<F> {
    /// Whether an inode is in use, and not about to be given back.
    pub(crate) fn is_there(&mut self, ino: Ino) -> Result<bool, FsError> {
        Ok(self.core.nodes.contains_key(&ino) || self.format.is_in_use(&mut self.core, ino)?)
    }
}
