//! Actions, done once their changes are on the disk.

use crate::{Format, Linked, Live, Names, Runs};
use seekless_cache::{ChangeId, Role};
use seekless_fs::{FileKind, FsError};
use seekless_units::{Extent, Ino};

/// Nodes that are fetched together into the processor's cache.
const AT_ONCE: usize = 16;

/// Something that waits for the disk.
#[derive(Debug)]
pub enum Action {
    /// A name of a file is gone.
    DropLink(Ino),
    /// A directory's name is gone.
    DropDirectory {
        /// The directory.
        ino: Ino,
        /// The one it was in.
        parent: Ino,
    },
    /// Nothing leads to these any more.
    FreeRuns(Runs),
    /// An inode is unused.
    FreeInode {
        /// Which.
        ino: Ino,
        /// Whether it was a directory.
        is_directory: bool,
    },
}

impl<F: Format> Live<F> {
    /// Does the actions that need wait no longer, and those that become so.
    pub(crate) fn run_actions(&mut self) -> Result<(), FsError> {
        let mut fetched = 0;
        while let Some(action) = self.core.cache.next_ready() {
            if fetched == 0 {
                fetched = self.fetch_files();
            }
            fetched = fetched.saturating_sub(1);
            if let Err(error) = self.perform(action) {
                // The action was not done, and cannot be made good.
                self.broken.get_or_insert_with(|| error.to_string());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Prefetches the nodes of the next actions, and returns their number: by now they are in no
    /// processor's cache, and each would be waited for alone.
    fn fetch_files(&self) -> usize {
        let next = self.core.cache.ready().take(AT_ONCE);
        let look = |action: &Action| match action {
            Action::DropLink(ino) | Action::DropDirectory { ino, .. } => self
                .core
                .nodes
                .get(ino)
                .map_or(0, |node| node.looked_at() ^ F::looked_at(&node.map)),
            Action::FreeRuns(_) | Action::FreeInode { .. } => 0,
        };
        let (mut count, mut seen) = (0usize, 0);
        for action in next {
            (count, seen) = (count.saturating_add(1), seen ^ look(action));
        }
        std::hint::black_box(seen);
        count
    }

    fn perform(&mut self, action: Action) -> Result<(), FsError> {
        match action {
            Action::FreeRuns(runs) => self.free_runs(&runs),
            action => F::Names::act(self, action),
        }
    }

    /// Frees runs that nothing leads to any more.
    pub(crate) fn free_runs(&mut self, runs: &[Extent]) -> Result<(), FsError> {
        let blocks = runs.iter().map(|run| run.len).fold(0, u64::saturating_add);
        self.core.pending.take(blocks, 0);
        for &run in runs {
            self.core.cache.forget(run, ChangeId::COMMITTED);
        }
        self.format.free_runs(&mut self.core, runs)
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
}

impl<F: Linked> Live<F> {
    pub(crate) fn free_inode(&mut self, ino: Ino, is_directory: bool) -> Result<(), FsError> {
        self.core.pending.take(0, 1);
        self.format.give_inode(&mut self.core, ino, is_directory)
    }

    /// Counts one name less; without names and holders the file goes.
    pub(crate) fn drop_link(&mut self, ino: Ino) -> Result<(), FsError> {
        let node = self.node(ino)?;
        node.links = node.links.saturating_sub(1);
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
            self.drop_index(ino);
            self.format.truncate(&mut self.core, ino, 0)?;
        }
        self.format.put_links(&mut self.core, ino, Role::LinkDrop, &[])?;
        Ok(())
    }

    /// A removed directory has its name less. Entries in it may still be counted, and an older name
    /// of it; when it goes its parent has one link less.
    pub(crate) fn drop_directory(&mut self, ino: Ino, parent: Ino) -> Result<(), FsError> {
        self.node(ino)?.counted_in = Some(parent);
        self.drop_link(ino)
    }
}
