//! The names of directories in memory, as UFS `dirhash` has them: where each is,
//! and which units have room for more.

use crate::{Codec, Linked, Live};
use hashbrown::HashMap;
use seekless_cache::ChangeId;
use seekless_fs::field::{index, wide};
use seekless_fs::{FsError, Location};
use seekless_units::Ino;

/// Names that are indexed at most, over all directories but the one at hand.
const MOST_NAMES: usize = 1 << 20;

/// An entry of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) ino: Ino,
    /// Where it begins, in bytes from the directory's start.
    pub(crate) at: u64,
    pub(crate) kind: u8,
    /// The change that made it, if nothing but it was changed with that.
    pub(crate) added: ChangeId,
}

/// The names of a directory.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) names: HashMap<Box<[u8]>, Slot>,
    /// Entries behind others of the same name, which only damage leaves: each
    /// shows when those in front of it are gone.
    shadowed: Vec<(Box<[u8]>, Slot)>,
    /// Bytes free in each unit, once it is compacted.
    room: Vec<u16>,
    /// The first unit that may have this many quarters of words free.
    first: Vec<u32>,
    used: u64,
}

/// The indexes of the directories that were looked into.
#[derive(Debug)]
pub(crate) struct Indexes {
    of: HashMap<Ino, Index>,
    names: usize,
    /// Names at which some are forgotten.
    most: usize,
    turn: u64,
}

impl Default for Indexes {
    fn default() -> Self {
        Self { of: HashMap::new(), names: 0, most: MOST_NAMES, turn: 0 }
    }
}

impl Index {
    /// Notes how much room a unit has.
    pub(crate) fn set_room(&mut self, unit: u64, room: usize) {
        let at = index(unit);
        if self.room.len() <= at {
            self.room.resize(at.saturating_add(1), 0);
        }
        if let Some(held) = self.room.get_mut(at) {
            // No entry needs more than the largest number that fits.
            *held = u16::try_from(room).unwrap_or(u16::MAX);
        }
        let unit = u32::try_from(unit).unwrap_or(u32::MAX);
        for first in self.first.iter_mut().take((room / 4).saturating_add(1)) {
            *first = unit.min(*first);
        }
    }

    /// The first unit with room for an entry of this length.
    pub(crate) fn unit_with(&mut self, needed: usize) -> Option<u64> {
        let first = self.first.get_mut(needed / 4)?;
        let behind = self.room.iter().skip(index(*first));
        let skip = behind.take_while(|&&room| usize::from(room) < needed).count();
        let unit = index(*first).saturating_add(skip);
        *first = u32::try_from(unit).unwrap_or(u32::MAX);
        (unit < self.room.len()).then_some(wide(unit))
    }

    /// The first unit from a given one on with room for an entry of this length.
    pub(crate) fn unit_from(&self, needed: usize, from: u64) -> Option<u64> {
        let behind = self.room.iter().enumerate().skip(index(from));
        let mut fitting = behind.filter(|(_, room)| usize::from(**room) >= needed);
        fitting.next().map(|(unit, _)| wide(unit))
    }

    /// Whether it holds nothing but itself.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.keys().all(|name| matches!(&name[..], b"." | b".."))
    }

    /// How many entries it knows of.
    fn entries(&self) -> usize {
        self.names.len().saturating_add(self.shadowed.len())
    }
}

impl Indexes {
    /// Forgets the directories longest not looked into, when there are many
    /// names.
    fn make_room(&mut self) {
        if self.names <= self.most {
            return;
        }
        // A quarter at once, so that looking for them costs little a name.
        let kept = (self.most / 4).saturating_mul(3);
        let mut by_use: Vec<(u64, Ino)> =
            self.of.iter().map(|(&dir, index)| (index.used, dir)).collect();
        by_use.sort_unstable();
        for (_, dir) in by_use {
            if self.names <= kept {
                return;
            }
            self.forget(dir);
        }
    }

    fn forget(&mut self, dir: Ino) {
        if let Some(index) = self.of.remove(&dir) {
            debug_assert!(self.names >= index.entries());
            self.names = self.names.saturating_sub(index.entries());
        }
    }
}

impl<F: Linked> Live<F> {
    /// The index of a directory's names, made if there is none.
    pub(crate) fn index(&mut self, dir: Ino) -> Result<&mut Index, FsError> {
        if !self.indexes.of.contains_key(&dir) {
            let made = self.read_index(dir)?;
            self.indexes.make_room();
            self.indexes.names = self.indexes.names.saturating_add(made.entries());
            self.indexes.of.insert(dir, made);
        }
        self.indexes.turn = self.indexes.turn.saturating_add(1);
        let turn = self.indexes.turn;
        let index = self.indexes.of.get_mut(&dir).ok_or_else(|| crate::gone(dir))?;
        index.used = turn;
        Ok(index)
    }

    fn read_index(&mut self, dir: Ino) -> Result<Index, FsError> {
        let size = self.dir_size(dir)?;
        let len = self.format.limits().dir_unit;
        let mut made = Index { first: vec![0; (len / 4).saturating_add(1)], ..Index::default() };
        let mut at = 0;
        while at < size {
            let bytes = self.dir_bytes(dir, at, size)?;
            for (base, unit) in (at..).step_by(len).zip(bytes.chunks(len)) {
                let place = Location::of("directory").in_inode(dir);
                for entry in self.format.codec().entries(unit, place) {
                    let entry = entry?;
                    if entry.is_name {
                        let slot = Slot {
                            ino: entry.ino,
                            at: base.saturating_add(wide(entry.at)),
                            kind: entry.kind,
                            added: ChangeId::COMMITTED,
                        };
                        if made.names.contains_key(entry.name) {
                            made.shadowed.push((entry.name.into(), slot));
                        } else {
                            made.names.insert(entry.name.into(), slot);
                        }
                    }
                }
                let room = self.format.codec().room(unit, place)?;
                made.set_room(base.checked_div(wide(len)).unwrap_or(0), room);
            }
            at = at.saturating_add(wide(bytes.len()));
        }
        // Found by walking from the start.
        made.first.fill(0);
        Ok(made)
    }

    /// Notes where the names of a unit lie that the format has rewritten.
    pub(crate) fn reread_unit(&mut self, dir: Ino, unit: u64) -> Result<(), FsError> {
        if !self.indexes.of.contains_key(&dir) {
            return Ok(());
        }
        let len = self.format.limits().dir_unit;
        let base = unit.saturating_mul(wide(len));
        let (_, bytes) = self.unit_bytes(dir, unit)?;
        let place = Location::of("directory").in_inode(dir);
        let mut lie: Vec<(&[u8], usize)> = Vec::new();
        for entry in self.format.codec().entries(&bytes, place) {
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
        let new = self.index(dir)?.names.insert(name.into(), slot).is_none();
        self.indexes.names = self.indexes.names.saturating_add(usize::from(new));
        self.refresh_room(dir, unit)
    }

    /// Forgets a name that was taken out of a unit.
    pub(crate) fn leave(&mut self, dir: Ino, unit: u64, name: &[u8]) -> Result<(), FsError> {
        let index = self.index(dir)?;
        index.names.remove(name);
        if let Some(at) = index.shadowed.iter().position(|(other, _)| **other == *name) {
            let (name, slot) = index.shadowed.remove(at);
            index.names.insert(name, slot);
        }
        debug_assert!(self.indexes.names > 0, "a name left that had not been entered");
        self.indexes.names = self.indexes.names.saturating_sub(1);
        self.refresh_room(dir, unit)
    }

    /// Counts the room of a unit again.
    pub(crate) fn refresh_room(&mut self, dir: Ino, unit: u64) -> Result<(), FsError> {
        let (_, bytes) = self.unit_bytes(dir, unit)?;
        let place = Location::of("directory").in_inode(dir);
        let room = self.format.codec().room(&bytes, place)?;
        self.index(dir)?.set_room(unit, room);
        Ok(())
    }

    /// Forgets the names of a directory that is no more.
    pub(crate) fn drop_index(&mut self, dir: Ino) {
        self.indexes.forget(dir);
    }
}

#[cfg(test)]
mod tests {
    use super::{HashMap, Index, Indexes, Ino, Slot};
    use seekless_cache::ChangeId;

    fn directory(names: usize, used: u64) -> Index {
        let slot =
            |n: usize| Slot { ino: Ino::new(9), at: n as u64, kind: 8, added: ChangeId::COMMITTED };
        let names: HashMap<Box<[u8]>, Slot> =
            (0..names).map(|n| (n.to_string().into_bytes().into(), slot(n))).collect();
        Index { names, used, ..Index::default() }
    }

    /// Looking for names to forget takes a pass over all directories: so many are forgotten then
    /// that it need not be done again for each directory.
    #[test]
    fn a_quarter_of_the_names_is_forgotten_at_once_the_longest_unused_first() {
        let mut indexes = Indexes { most: 1000, ..Indexes::default() };
        let mut passes = 0;
        for dir in 3..2003u32 {
            // Some are looked into again and again.
            if let Some(often) = indexes.of.get_mut(&Ino::new(3)) {
                often.used = u64::from(dir);
            }
            let before = indexes.of.len();
            indexes.make_room();
            passes += usize::from(indexes.of.len() < before);
            let made = directory(10, u64::from(dir));
            indexes.names += made.entries();
            indexes.of.insert(Ino::new(dir), made);
            assert!(indexes.names <= 1010, "{}", indexes.names);
        }
        assert_eq!(indexes.names, indexes.of.values().map(Index::entries).sum::<usize>());
        assert!(indexes.names > 700, "{}", indexes.names);
        assert!((60..90).contains(&passes), "{passes} passes");
        assert!(indexes.of.contains_key(&Ino::new(3)));
        let oldest = indexes.of.keys().filter(|dir| dir.get() != 3).min();
        assert!(oldest.is_some_and(|dir| dir.get() > 1900), "{oldest:?}");
    }
}
