//! The entries of directories, with the names that are about to go from the disk.

pub(crate) mod departures;
pub(crate) mod entries;
pub(crate) mod index;
pub(crate) mod inside;
mod listing;
mod reach;

use crate::directories::departures::Departures;
use crate::directories::index::{Index, Indexes, Slot};
use crate::volume::Volume;
use crate::{Codec, Ids, Linked, Recovery, gone};
use hashbrown::HashSet;
use seekless_cache::ChangeId;
use seekless_fs::field::wide;
use seekless_fs::{FsError, Location};
use seekless_units::Ino;
use std::ops::ControlFlow;

/// The directories of a volume: single entries, found, written and taken out. Files and their links
/// are not known here.
pub(crate) struct Directories<'a, F: Linked> {
    volume: &'a mut Volume<F>,
    indexes: &'a mut Indexes,
    departures: &'a mut Departures,
}

impl<'a, F: Linked> Directories<'a, F> {
    /// The directories of a volume.
    pub(crate) fn new(
        volume: &'a mut Volume<F>,
        indexes: &'a mut Indexes,
        departures: &'a mut Departures,
    ) -> Self {
        Self { volume, indexes, departures }
    }
}

impl<F: Linked> Directories<'_, F> {
    /// The index of a directory's names, made if there is none.
    pub(crate) fn index(&mut self, dir: Ino) -> Result<&mut Index, FsError> {
        if !self.indexes.has(dir) {
            let made = self.read_index(dir)?;
            self.indexes.insert(dir, made);
        }
        self.indexes.get_mut(dir).ok_or_else(|| gone(dir))
    }

    fn read_index(&mut self, dir: Ino) -> Result<Index, FsError> {
        let size = self.dir_size(dir)?;
        let len = self.volume.format.limits().dir_unit;
        let mut made = Index::new(len);
        let mut at = 0;
        while at < size {
            let bytes = self.dir_bytes(dir, at, size)?;
            for (base, unit) in (at..).step_by(len).zip(bytes.chunks(len)) {
                let place = Location::of("directory").in_inode(dir);
                for entry in self.volume.format.codec().entries(unit, place) {
                    let entry = entry?;
                    if entry.is_name {
                        let slot = Slot {
                            ino: entry.ino,
                            at: base + wide(entry.at),
                            kind: entry.kind,
                            added: ChangeId::COMMITTED,
                        };
                        made.add(entry.name, slot);
                    }
                }
                let room = self.volume.format.codec().room(unit, place)?;
                made.set_room(base / wide(len), room);
            }
            at += wide(bytes.len());
        }
        made.search_from_start();
        if self.has_dead_names() {
            let dead = self.dead_among(made.inos().collect());
            made.hide(&dead);
        }
        Ok(made)
    }

    /// Whether names may lead to inodes without links, which show nowhere.
    pub(crate) fn has_dead_names(&mut self) -> bool {
        self.volume.format.recovery().is_some_and(|recovery| recovery.has_dead_names())
    }

    /// Whether a name that leads to an inode is none. Where that cannot be read, its users hear it.
    pub(crate) fn is_dead(&mut self, ino: Ino) -> bool {
        matches!(self.volume.is_there(ino), Ok(false))
    }

    /// The inodes without links that entries behind a cookie lead to.
    pub(crate) fn dead_in(&mut self, dir: Ino, after: u64) -> Result<HashSet<Ino>, FsError> {
        let mut inos = HashSet::new();
        self.entries_after(dir, after, &mut |entry| {
            inos.insert(entry.ino);
            ControlFlow::Continue(())
        })?;
        Ok(self.dead_among(inos))
    }

    fn dead_among(&mut self, mut inos: HashSet<Ino>) -> HashSet<Ino> {
        inos.retain(|&ino| self.is_dead(ino));
        inos
    }

    /// The changes that take the names of an inode without links from the disk.
    pub(crate) fn take_departures_of(&mut self, ino: Ino) -> Ids {
        self.departures.take_dead(ino)
    }

    /// Removes the entries of a name that lead to inodes without links, if there are any.
    pub(crate) fn erase_dead(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        if !self.index(dir)?.take_dead(name) {
            return Ok(());
        }
        let mut named = Vec::new();
        self.entries_after(dir, 0, &mut |entry| {
            if entry.name == name {
                named.push((entry.ino, entry.cookie - 1));
            }
            ControlFlow::Continue(())
        })?;
        for (ino, at) in named {
            if !self.is_dead(ino) {
                continue;
            }
            let removed = self.erase(dir, at, &[])?;
            self.note_departure(dir, name, at, removed);
            self.departures.note_dead(ino, removed);
            self.refresh_room(dir, at / self.unit())?;
        }
        Ok(())
    }

    /// Notes where the names of a unit lie that the format has rewritten.
    pub(crate) fn reread_unit(&mut self, dir: Ino, unit: u64) -> Result<(), FsError> {
        if !self.indexes.has(dir) {
            return Ok(());
        }
        let len = self.volume.format.limits().dir_unit;
        let base = unit * wide(len);
        let (_, bytes) = self.unit_bytes(dir, unit)?;
        let place = Location::of("directory").in_inode(dir);
        let mut lie: Vec<(&[u8], usize)> = Vec::new();
        for entry in self.volume.format.codec().entries(&bytes, place) {
            let entry = entry?;
            if entry.is_name {
                lie.push((entry.name, entry.at));
            }
        }
        self.note_moved(dir, base, &lie)?;
        self.refresh_room(dir, unit)
    }

    /// Enters a name that was written.
    pub(crate) fn enter(
        &mut self,
        dir: Ino,
        unit: u64,
        name: &[u8],
        slot: Slot,
    ) -> Result<(), FsError> {
        self.index(dir)?;
        self.indexes.enter(dir, name, slot);
        self.refresh_room(dir, unit)
    }

    /// Forgets a name that was taken out of a unit.
    pub(crate) fn leave(&mut self, dir: Ino, unit: u64, name: &[u8]) -> Result<(), FsError> {
        self.index(dir)?;
        self.indexes.leave(dir, name);
        self.refresh_room(dir, unit)
    }

    /// Counts the room of a unit again.
    pub(crate) fn refresh_room(&mut self, dir: Ino, unit: u64) -> Result<(), FsError> {
        let (_, bytes) = self.unit_bytes(dir, unit)?;
        let place = Location::of("directory").in_inode(dir);
        let room = self.volume.format.codec().room(&bytes, place)?;
        self.index(dir)?.set_room(unit, room);
        Ok(())
    }

    /// Forgets the names of a directory that is no more.
    pub(crate) fn drop_index(&mut self, dir: Ino) {
        self.indexes.forget(dir);
    }
}
