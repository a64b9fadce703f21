//! Removes names, and frees files.

use super::directory::Known;
use super::make::text;
use super::slots::RemovedEntry;
use super::{Core, Fat};
use seekless_cache::{ChangeId, Kind};
use seekless_fs::{FileKind, FsError};
use seekless_live::{Ids, gone};
use seekless_units::{Extent, Ino};

impl Fat {
    /// The file of a name, in memory, and its slot.
    pub(super) fn named(
        &mut self,
        core: &mut Core,
        dir: Ino,
        name: &[u8],
    ) -> Result<Option<(Ino, u32)>, FsError> {
        let Some(slot) = self.slot_of(core, dir, name)? else { return Ok(None) };
        let ino = self.numbers.at((dir, slot))?;
        self.hold(core, ino)?;
        Ok(Some((ino, slot)))
    }

    pub(super) fn unlink(&mut self, core: &mut Core, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        self.open_dir(core, dir)?;
        let found = self.named(core, dir, name)?;
        let (ino, slot) = found.ok_or_else(|| FsError::NotFound(text(name)))?;
        if core.node(ino)?.kind == FileKind::Directory {
            return Err(FsError::IsDirectory(text(name)));
        }
        // Its chain must be read before its name goes.
        self.chain(core, ino)?;
        let removed = self.remove(core, dir, slot, &[])?;
        self.touch_dir(core, dir)?;
        self.lose(core, ino, removed)
    }

    pub(super) fn rmdir(&mut self, core: &mut Core, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        match name {
            b"." => return Err(FsError::Invalid("`.` cannot be removed".into())),
            b".." => return Err(FsError::NotEmpty(text(name))),
            _ => {}
        }
        self.open_dir(core, dir)?;
        let found = self.named(core, dir, name)?;
        let (ino, slot) = found.ok_or_else(|| FsError::NotFound(text(name)))?;
        if core.node(ino)?.kind != FileKind::Directory {
            return Err(FsError::NotDirectory(text(name)));
        }
        let before = self.emptied(core, ino, name)?;
        let removed = self.remove(core, dir, slot, &before)?;
        self.count_children(core, dir)?;
        self.touch_dir(core, dir)?;
        self.lose(core, ino, removed)
    }

    /// Refuses a directory that is not empty; returns the changes that must be on the disk before
    /// it may go: names that went from it to elsewhere.
    pub(super) fn emptied(
        &mut self,
        core: &mut Core,
        ino: Ino,
        name: &[u8],
    ) -> Result<Ids, FsError> {
        if !self.dir(core, ino)?.entries.is_empty() {
            return Err(FsError::NotEmpty(text(name)));
        }
        let mut before = self.leaving(core, ino);
        for run in self.dir_runs(core, ino)? {
            before.extend(core.cache.changes_in(run));
        }
        Ok(before)
    }

    /// Removes a name from its directory; the returned change must be on the disk for it to be
    /// gone.
    fn remove(
        &mut self,
        core: &mut Core,
        dir: Ino,
        slot: u32,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let known = self.leave(core, dir, slot)?;
        let going = RemovedEntry { start: known.start, slot };
        let removed = self.erase_entry(core, dir, going, after)?;
        self.note_departure(core, dir, &known, removed);
        Ok(removed)
    }

    /// Removes a file from a directory.
    pub(super) fn leave(&mut self, core: &mut Core, dir: Ino, slot: u32) -> Result<Known, FsError> {
        self.dir(core, dir)?.leave(slot).ok_or_else(|| gone(dir))
    }

    /// Removes the last name of a file, once a change is on the disk.
    pub(super) fn lose(
        &mut self,
        core: &mut Core,
        ino: Ino,
        removed: ChangeId,
    ) -> Result<(), FsError> {
        self.note_leaving(core, ino, removed);
        self.numbers.leave(ino);
        self.directories.forget(ino);
        let node = core.node(ino)?;
        (node.links, node.effective) = (0, 0);
        if node.holds() == 0 { self.destroy(core, ino) } else { Ok(()) }
    }

    /// Records the change that removes a name of a file.
    pub(super) fn note_leaving(&mut self, core: &mut Core, ino: Ino, by: ChangeId) {
        let mut ids = self.leaving(core, ino);
        if !core.cache.is_committed(by) {
            ids.push(by);
            self.leaving.insert(ino, core.cache.changes().join(&ids));
        }
    }

    /// Records the change that removes the older name of a file now in a directory: until then a
    /// check may take the name there for the later of two.
    pub(super) fn note_arriving(&mut self, core: &mut Core, dir: Ino, by: ChangeId) {
        let mut ids = self.arriving(core, dir);
        if !core.cache.is_committed(by) {
            ids.push(by);
            self.arriving.insert(dir, core.cache.changes().join(&ids));
        }
    }

    /// Frees the clusters of a file that has no name and that nobody has open, once the disk does
    /// not lead there.
    pub(super) fn destroy(&mut self, core: &mut Core, ino: Ino) -> Result<(), FsError> {
        debug_assert_eq!(core.node(ino)?.links, 0, "a file without names is freed");
        debug_assert!(self.numbers.place(ino).is_none(), "a file without a place is freed");
        let runs = self.all_runs(core, ino)?;
        let after = self.leaving(core, ino);
        self.leaving.remove(&ino);
        self.reached.remove(&ino);
        self.opened.remove(&ino);
        self.arriving.remove(&ino);
        self.directories.forget(ino);
        // The clusters are the file's until they are free.
        core.nodes.remove(&ino);
        for &run in &runs {
            let until = after.last().copied().unwrap_or(ChangeId::COMMITTED);
            core.cache.changes().forget(run, until);
        }
        self.note_going(core, &after, &runs);
        core.defer_free(&after, Kind::FreeBlocks, runs);
        Ok(())
    }

    /// All sectors of a file.
    pub(super) fn all_runs(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Extent>, FsError> {
        let runs = self.chain(core, ino)?.runs.clone();
        Ok(runs.into_iter().map(|(_, run)| self.sectors_of(run)).collect())
    }
}
