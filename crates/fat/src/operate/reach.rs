//! Pending changes after which slots of directories are reached: links to new clusters of a
//! directory, and slots that are marked as deleted instead of never used.

use super::departures::PendingByFile;
use super::map::Core;
use hashbrown::HashMap;
use seekless_cache::ChangeId;
use seekless_live::Ids;
use seekless_units::Ino;

/// Pending changes after which slots of directories are reached.
#[derive(Default)]
pub(super) struct Reach {
    /// Those that make the end of a directory reachable.
    ends: PendingByFile,
    /// Those after which a sector of a directory, and those opened in front of it, contain no slot
    /// that was never used, by their numbers.
    opened: HashMap<Ino, Vec<(u32, Ids)>>,
}

impl Reach {
    /// Pending changes that make the end of a directory reachable.
    pub(super) fn end(&mut self, core: &Core, dir: Ino) -> Ids {
        self.ends.of(core, dir)
    }

    /// Sets the changes that make the end of a directory reachable.
    pub(super) fn set_end(&mut self, dir: Ino, ids: Ids) {
        self.ends.set(dir, ids);
    }

    /// Records the change that marks slots in one of a directory's sectors as deleted; sectors are
    /// opened in order.
    pub(super) fn note_opened(&mut self, core: &mut Core, dir: Ino, sector: u32, by: ChangeId) {
        let opened = self.opened.entry(dir).or_default();
        let mut all = opened.last().map(|(_, all)| all.clone()).unwrap_or_default();
        all.push(by);
        debug_assert!(opened.last().is_none_or(|(last, _)| *last <= sector), "in order");
        opened.push((sector, core.cache.changes().join(&all)));
    }

    /// Changes that must be on the disk for an entry in one of a directory's sectors not to lie
    /// behind its end.
    pub(super) fn opened(&mut self, core: &Core, dir: Ino, sector: u32) -> Ids {
        let Some(opened) = self.opened.get_mut(&dir) else { return Ids::new() };
        let in_front = opened.partition_point(|(nth, _)| *nth < sector);
        let Some((_, ids)) = in_front.checked_sub(1).and_then(|at| opened.get(at)) else {
            return Ids::new();
        };
        let ids: Ids = ids.iter().copied().filter(|&id| !core.cache.is_committed(id)).collect();
        if ids.is_empty() {
            // Earlier ones are committed too.
            opened.drain(..in_front);
            if opened.is_empty() {
                self.opened.remove(&dir);
            }
        }
        ids
    }

    /// Forgets a directory that is freed.
    pub(super) fn forget(&mut self, dir: Ino) {
        self.ends.forget(dir);
        self.opened.remove(&dir);
    }
}
