//! Removes names, and frees files.

use super::{Namespace, text};
use crate::operate::directory::CachedEntry;
use crate::operate::slots::RemovedEntry;
use seekless_cache::{ChangeId, Kind};
use seekless_fs::{FileKind, FsError};
use seekless_live::{Ids, gone};
use seekless_units::Ino;

impl Namespace<'_> {
    pub(in crate::operate) fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        self.open_dir(dir)?;
        let found = self.named(dir, name)?;
        let (ino, slot) = found.ok_or_else(|| FsError::NotFound(text(name)))?;
        if self.core.node(ino)?.kind == FileKind::Directory {
            return Err(FsError::IsDirectory(text(name)));
        }
        // Its chain must be read before its name goes.
        self.chain(ino)?;
        let removed = self.remove(dir, slot, &[])?;
        self.touch_dir(dir)?;
        self.lose(ino, removed)
    }

    pub(in crate::operate) fn rmdir(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        match name {
            b"." => return Err(FsError::Invalid("`.` cannot be removed".into())),
            b".." => return Err(FsError::NotEmpty(text(name))),
            _ => {}
        }
        self.open_dir(dir)?;
        let found = self.named(dir, name)?;
        let (ino, slot) = found.ok_or_else(|| FsError::NotFound(text(name)))?;
        if self.core.node(ino)?.kind != FileKind::Directory {
            return Err(FsError::NotDirectory(text(name)));
        }
        let before = self.emptied(ino, name)?;
        let removed = self.remove(dir, slot, &before)?;
        self.count_children(dir)?;
        self.touch_dir(dir)?;
        self.lose(ino, removed)
    }

    /// Refuses a directory that is not empty; returns the changes that must be on the disk before
    /// it may go: names that went from it to elsewhere.
    pub(super) fn emptied(&mut self, ino: Ino, name: &[u8]) -> Result<Ids, FsError> {
        if !self.dir(ino)?.is_empty() {
            return Err(FsError::NotEmpty(text(name)));
        }
        let mut before = self.departures.leaving(self.core, ino);
        for run in self.dir_runs(ino)? {
            before.extend(self.core.cache.changes_in(run));
        }
        Ok(before)
    }

    /// Removes a name from its directory; the returned change must be on the disk for it to be
    /// gone.
    fn remove(&mut self, dir: Ino, slot: u32, after: &[ChangeId]) -> Result<ChangeId, FsError> {
        let cached = self.leave(dir, slot)?;
        let going = RemovedEntry { start: cached.start, slot };
        let removed = self.slots().erase_entry(dir, going, after)?;
        self.departures.note_names(self.core, dir, &cached, removed);
        Ok(removed)
    }

    /// Removes a file from a directory.
    pub(super) fn leave(&mut self, dir: Ino, slot: u32) -> Result<CachedEntry, FsError> {
        self.dir(dir)?.leave(slot).ok_or_else(|| gone(dir))
    }

    /// Removes the last name of a file, once a change is on the disk.
    pub(super) fn lose(&mut self, ino: Ino, removed: ChangeId) -> Result<(), FsError> {
        self.departures.note_leaving(self.core, ino, removed);
        self.inodes.numbers_mut().leave(ino);
        self.inodes.forget_dir(ino);
        let node = self.core.node(ino)?;
        (node.links, node.effective) = (0, 0);
        if node.holds() == 0 { self.destroy(ino) } else { Ok(()) }
    }

    /// Frees the clusters of a file that has no name and that nobody has open, once the disk does
    /// not lead there.
    pub(in crate::operate) fn destroy(&mut self, ino: Ino) -> Result<(), FsError> {
        debug_assert_eq!(self.core.node(ino)?.links, 0, "a file without names is freed");
        debug_assert!(
            self.inodes.numbers().place(ino).is_none(),
            "a file without a place is freed"
        );
        let runs = self.inodes.all_runs(self.core, self.clusters, ino)?;
        let after = self.departures.leaving(self.core, ino);
        self.departures.forget(ino);
        self.reach.forget(ino);
        self.inodes.forget_dir(ino);
        // The clusters are the file's until they are free.
        self.core.nodes.remove(&ino);
        for &run in &runs {
            let until = after.last().copied().unwrap_or(ChangeId::COMMITTED);
            self.core.cache.changes().forget(run, until);
        }
        self.clusters.unnamed().note_going(self.core, &after, &runs);
        self.core.defer_free(&after, Kind::FreeBlocks, runs);
        Ok(())
    }
}
