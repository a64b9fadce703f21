//! Deferred actions done once their changes are on the disk, and files taken apart once they have
//! no name and are not open.

use crate::action::Action;
use crate::fault::Fault;
use crate::link_order::{LinkOrder, OrderedLinks};
use crate::{Ids, Live, Named, Names};
use seekless_cache::{ChangeId, Kind, Role};
use seekless_fs::operate::XattrMode;
use seekless_fs::{FileKind, FsError, Xattr};
use seekless_units::Ino;

/// Nodes that are fetched together into the processor's cache.
const AT_ONCE: usize = 16;

impl<F: OrderedLinks> Live<F> {
    /// Takes a file apart that has no name and is not open.
    pub(crate) fn destroy(&mut self, ino: Ino) -> Result<(), FsError> {
        let parent = self.volume.core.nodes.get(&ino).and_then(|node| node.counted_in);
        let cleared = self.take_apart(ino)?;
        if let Some(parent) = parent {
            self.volume.core.cache.changes().defer(
                &[cleared],
                Kind::NameRemoved,
                Action::DropLink(parent),
            );
        }
        Ok(())
    }

    /// Takes a file apart. The returned change must be on the disk for the file to be gone.
    fn take_apart(&mut self, ino: Ino) -> Result<ChangeId, FsError> {
        self.volume.drop_delayed(ino);
        self.cut_in_pieces(ino, 0)?;
        self.volume.node(ino)?;
        let cut = self.volume.format.everything(&mut self.volume.core, ino)?;
        let Some(node) = self.volume.core.nodes.get(&ino) else { return Ok(ChangeId::COMMITTED) };
        let is_directory = node.kind == FileKind::Directory;
        self.directories().drop_index(ino);
        self.volume.uncount(ino);
        if self.never_was(ino) {
            self.volume.core.nodes.remove(&ino);
            self.volume.release_runs(&cut.runs)?;
            self.volume.format.give_inode(&mut self.volume.core, ino, is_directory)?;
            return Ok(ChangeId::COMMITTED);
        }
        let leaving = F::Order::before_clearing(self, ino)?;
        let cleared = self.volume.format.put_cleared(
            &mut self.volume.core,
            ino,
            !cut.runs.is_empty(),
            &leaving,
        )?;
        self.volume.core.nodes.remove(&ino);
        self.volume.core.free_cut(cleared, cut);
        self.volume.core.pending.add(0, 1);
        let first: Ids = leaving.into_iter().chain([cleared]).collect();
        let first = self.volume.core.unless(Fault::InodeReusedEarly, first);
        self.volume.core.cache.changes().defer(
            &first,
            Kind::FreeInode,
            Action::FreeInode { ino, is_directory },
        );
        Ok(cleared)
    }

    /// Undoes all changes of a new inode, if the disk has nothing of it. Where it may have the
    /// first of them none is undone: a dependant of a later one, say the free of a moved tail, must
    /// not make the disk lead elsewhere.
    fn never_was(&mut self, ino: Ino) -> bool {
        let Some(node) = self.volume.core.nodes.get(&ino) else { return false };
        let mut fresh = node.pending.fresh.clone();
        let cache = &mut self.volume.core.cache;
        if fresh.first().is_none_or(|&init| cache.is_committed(init)) {
            return false;
        }
        fresh.retain(|id| !cache.is_committed(*id));
        cache.changes().discard_all(&fresh)
    }

    /// Gives a new inode, which no name leads to yet, its lists. Without room for them there
    /// is no such inode afterwards.
    pub(crate) fn give_lists(&mut self, ino: Ino, lists: &[Xattr]) -> Result<(), FsError> {
        let given = lists.iter().try_for_each(|Xattr { name, value }| {
            self.volume.format.set_xattr(
                &mut self.volume.core,
                ino,
                name,
                Some(value),
                XattrMode::Any,
            )
        });
        if given.as_ref().is_err_and(changed_nothing) {
            let node = self.volume.core.node(ino)?;
            (node.links, node.effective) = (0, 0);
            self.destroy(ino)?;
        }
        given
    }
}

/// Whether an error of a format is one after which it has changed nothing.
fn changed_nothing(error: &FsError) -> bool {
    matches!(error, FsError::NoSpace(_) | FsError::OverQuota(_) | FsError::Unsupported(_))
}

impl<F: Named> Live<F> {
    /// Does the actions that need wait no longer, and those that become so.
    pub(crate) fn run_actions(&mut self) -> Result<(), FsError> {
        let mut fetched = 0;
        while let Some(action) = self.volume.core.cache.changes().next_ready() {
            if fetched == 0 {
                fetched = self.fetch_files();
            }
            fetched = fetched.saturating_sub(1);
            if let Err(error) = self.perform(action) {
                // The action was not done, and cannot be made good.
                self.volume.fail(&error);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Prefetches the nodes of the next actions, and returns their number: by now they are in no
    /// processor's cache, and each would be waited for alone.
    fn fetch_files(&self) -> usize {
        let next = self.volume.core.cache.ready().take(AT_ONCE);
        let look = |action: &Action| match action {
            Action::DropLink(ino) | Action::DropHeld(ino) | Action::DropDirectory { ino, .. } => {
                self.volume
                    .core
                    .nodes
                    .get(ino)
                    .map_or(0, |node| node.looked_at() ^ F::looked_at(&node.map))
            }
            Action::FreeRuns(_) | Action::FreeInode { .. } => 0,
        };
        let (mut count, mut seen) = (0usize, 0);
        for action in next {
            (count, seen) = (count + 1, seen ^ look(action));
        }
        std::hint::black_box(seen);
        count
    }

    fn perform(&mut self, action: Action) -> Result<(), FsError> {
        match action {
            Action::FreeRuns(runs) => self.volume.free_runs(&runs),
            action => F::Names::act(self, action),
        }
    }
}

impl<F: OrderedLinks> Live<F> {
    pub(crate) fn free_inode(&mut self, ino: Ino, is_directory: bool) -> Result<(), FsError> {
        self.volume.core.pending.take(0, 1);
        self.volume.format.give_inode(&mut self.volume.core, ino, is_directory)
    }

    /// Counts one name less; without names and holders the file goes.
    pub(crate) fn drop_link(&mut self, ino: Ino) -> Result<(), FsError> {
        let node = self.volume.node(ino)?;
        node.drop_link();
        // A removed directory's own `.` goes with its last name.
        if node.counted_in.is_some() && node.links == 1 {
            node.links = 0;
        }
        if node.links == 0 && node.holds == 0 {
            return self.destroy(ino);
        }
        if node.links == 0 && node.kind == FileKind::Directory {
            // As `ufs_rmdir` does: in a directory without links that has blocks a check of UFS
            // finds uncounted names, and stops.
            self.directories().drop_index(ino);
            self.volume.format.truncate(&mut self.volume.core, ino, 0)?;
        }
        self.volume.format.put_links(&mut self.volume.core, ino, Role::LinkDrop, &[])?;
        Ok(())
    }

    /// A removed directory has its name less. Entries in it may still be counted, and an older name
    /// of it; when it goes its parent has one link less.
    pub(crate) fn drop_directory(&mut self, ino: Ino, parent: Ino) -> Result<(), FsError> {
        self.volume.node(ino)?.counted_in = Some(parent);
        self.drop_link(ino)
    }
}
