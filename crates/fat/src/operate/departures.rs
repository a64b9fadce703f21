//! Pending changes that remove names: later names of the same files, and files with the same names,
//! wait for them.

use super::directory::CachedEntry;
use super::map::Core;
use hashbrown::HashMap;
use seekless_cache::ChangeId;
use seekless_live::Ids;
use seekless_units::Ino;

/// Number of departed names at which those that left the disk too are forgotten.
const MANY: usize = 1024;

/// Changes of several files or directories, none of them on the disk.
#[derive(Default)]
pub(super) struct PendingByFile(HashMap<Ino, Ids>);

impl PendingByFile {
    /// The changes of a file that are not on the disk yet.
    pub(super) fn of(&mut self, core: &Core, ino: Ino) -> Ids {
        let Some(ids) = self.0.get_mut(&ino) else { return Ids::new() };
        ids.retain(|id| !core.cache.is_committed(*id));
        if ids.is_empty() {
            self.0.remove(&ino);
            return Ids::new();
        }
        ids.clone()
    }

    /// Adds a change of a file.
    fn note(&mut self, core: &mut Core, ino: Ino, by: ChangeId) {
        let mut ids = self.of(core, ino);
        if !core.cache.is_committed(by) {
            ids.push(by);
            self.set(ino, core.cache.changes().join(&ids));
        }
    }

    /// Sets the changes of a file.
    pub(super) fn set(&mut self, ino: Ino, ids: Ids) {
        self.0.insert(ino, ids);
    }

    pub(super) fn forget(&mut self, ino: Ino) {
        self.0.remove(&ino);
    }
}

/// Pending changes that remove names.
pub(super) struct Departures {
    /// Those that remove older names of files.
    leaving: PendingByFile,
    /// Those that remove the older names of files now in a directory.
    arriving: PendingByFile,
    /// Those that remove names, folded, by their directories.
    names: HashMap<(Ino, Vec<u16>), ChangeId>,
    /// Number of names at which those that left the disk too are forgotten.
    many: usize,
}

impl Departures {
    pub(super) fn new() -> Self {
        let (leaving, arriving) = (PendingByFile::default(), PendingByFile::default());
        Self { leaving, arriving, names: HashMap::new(), many: MANY }
    }

    /// Pending changes that remove older names of a file.
    pub(super) fn leaving(&mut self, core: &Core, ino: Ino) -> Ids {
        self.leaving.of(core, ino)
    }

    /// Pending changes that remove the older names of files now in a directory.
    pub(super) fn arriving(&mut self, core: &Core, dir: Ino) -> Ids {
        self.arriving.of(core, dir)
    }

    /// Records the change that removes a name of a file.
    pub(super) fn note_leaving(&mut self, core: &mut Core, ino: Ino, by: ChangeId) {
        self.leaving.note(core, ino, by);
    }

    /// Records the change that removes the older name of a file now in a directory: until then a
    /// check may take the name there for the later of two.
    pub(super) fn note_arriving(&mut self, core: &mut Core, dir: Ino, by: ChangeId) {
        self.arriving.note(core, dir, by);
    }

    /// Pending changes that remove older entries of the names of a file.
    pub(super) fn of_names(&self, core: &Core, dir: Ino, entry: &CachedEntry) -> Ids {
        let found = entry.keys().into_iter().filter_map(|key| self.names.get(&(dir, key)));
        found.copied().filter(|&id| !core.cache.is_committed(id)).collect()
    }

    /// Records the change that removes the names of a file.
    pub(super) fn note_names(&mut self, core: &Core, dir: Ino, entry: &CachedEntry, by: ChangeId) {
        if core.cache.is_committed(by) {
            return;
        }
        if self.names.len() >= self.many {
            self.names.retain(|_, id| !core.cache.is_committed(*id));
            self.many = (self.names.len() * 2).max(MANY);
        }
        for key in entry.keys() {
            self.names.insert((dir, key), by);
        }
    }

    /// Forgets the older names of a file that is freed, and of those in a directory that is.
    pub(super) fn forget(&mut self, ino: Ino) {
        self.leaving.forget(ino);
        self.arriving.forget(ino);
    }
}
