//! The names of directories in memory, as UFS `dirhash` has them: where each is,
//! and which units have room for more.

use hashbrown::{HashMap, HashSet};
use seekless_cache::ChangeId;
use seekless_fs::field::{index, wide};
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
    /// Names of entries that lead to inodes without links, while it is recovered: they show nowhere.
    dead: Vec<Box<[u8]>>,
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
    /// The index of a directory without entries, whose units have `len` bytes.
    pub(crate) fn new(len: usize) -> Self {
        Self { first: vec![0; len / 4 + 1], ..Self::default() }
    }

    /// Adds an entry of a directory that is read from its start.
    pub(crate) fn add(&mut self, name: &[u8], slot: Slot) {
        if self.names.contains_key(name) {
            self.shadowed.push((name.into(), slot));
        } else {
            self.names.insert(name.into(), slot);
        }
    }

    /// The inodes that its entries lead to.
    pub(crate) fn inos(&self) -> impl Iterator<Item = Ino> {
        let shadowed = self.shadowed.iter().map(|(_, slot)| slot.ino);
        self.names.values().map(|slot| slot.ino).chain(shadowed)
    }

    /// Hides the entries that lead to some inodes.
    pub(crate) fn hide(&mut self, is_dead: &HashSet<Ino>) {
        let mut shadowed = std::mem::take(&mut self.shadowed);
        let (names, dead) = (&mut self.names, &mut self.dead);
        shadowed.retain(|(name, slot)| {
            let stays = !is_dead.contains(&slot.ino);
            if !stays {
                dead.push(name.clone());
            }
            stays
        });
        names.retain(|name, slot| {
            let stays = !is_dead.contains(&slot.ino) || is_own(name);
            if !stays {
                dead.push(name.clone());
            }
            stays
        });
        for (name, slot) in shadowed {
            self.add(&name, slot);
        }
    }

    /// Whether entries of a name are hidden, which are about to be removed then.
    pub(crate) fn take_dead(&mut self, name: &[u8]) -> bool {
        let before = self.dead.len();
        self.dead.retain(|dead| **dead != *name);
        self.dead.len() < before
    }

    /// Notes how much room a unit has.
    pub(crate) fn set_room(&mut self, unit: u64, room: usize) {
        let at = index(unit);
        if self.room.len() <= at {
            self.room.resize(at + 1, 0);
        }
        if let Some(held) = self.room.get_mut(at) {
            // No entry needs more than the largest number that fits.
            *held = u16::try_from(room).unwrap_or(u16::MAX);
        }
        let unit = u32::try_from(unit).unwrap_or(u32::MAX);
        for first in self.first.iter_mut().take(room / 4 + 1) {
            *first = unit.min(*first);
        }
    }

    /// Room is searched for from the first unit on again.
    pub(crate) fn search_from_start(&mut self) {
        self.first.fill(0);
    }

    /// The first unit with room for an entry of this length.
    pub(crate) fn unit_with(&mut self, needed: usize) -> Option<u64> {
        let first = self.first.get_mut(needed / 4)?;
        let behind = self.room.iter().skip(index(*first));
        let skip = behind.take_while(|&&room| usize::from(room) < needed).count();
        let unit = index(*first) + skip;
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
        self.names.keys().all(|name| is_own(name))
    }

    /// How many entries it knows of.
    fn entries(&self) -> usize {
        self.names.len() + self.shadowed.len()
    }
}

/// Whether a name is that of a directory in itself, or of its parent.
pub(crate) fn is_own(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

impl Indexes {
    /// Whether a directory has an index.
    pub(crate) fn has(&self, dir: Ino) -> bool {
        self.of.contains_key(&dir)
    }

    /// The index of a directory, which is in use.
    pub(crate) fn get_mut(&mut self, dir: Ino) -> Option<&mut Index> {
        self.turn += 1;
        let index = self.of.get_mut(&dir)?;
        index.used = self.turn;
        Some(index)
    }

    /// Keeps the index of a directory that has none.
    pub(crate) fn insert(&mut self, dir: Ino, index: Index) {
        debug_assert!(!self.has(dir), "directory {dir} has an index");
        self.make_room();
        self.names += index.entries();
        self.of.insert(dir, index);
    }

    /// Enters a name into an index.
    pub(crate) fn enter(&mut self, dir: Ino, name: &[u8], slot: Slot) {
        let Some(index) = self.get_mut(dir) else { return };
        let new = index.names.insert(name.into(), slot).is_none();
        self.names += usize::from(new);
    }

    /// Takes a name out of an index: the next entry of the same name shows.
    pub(crate) fn leave(&mut self, dir: Ino, name: &[u8]) {
        let Some(index) = self.get_mut(dir) else { return };
        index.names.remove(name);
        if let Some(at) = index.shadowed.iter().position(|(other, _)| **other == *name) {
            let (name, slot) = index.shadowed.remove(at);
            index.names.insert(name, slot);
        }
        debug_assert!(self.names > 0, "a name left that had not been entered");
        self.names -= 1;
    }

    /// Forgets the names of a directory.
    pub(crate) fn forget(&mut self, dir: Ino) {
        if let Some(index) = self.of.remove(&dir) {
            debug_assert!(self.names >= index.entries());
            self.names -= index.entries();
        }
    }

    /// Forgets the directories longest not looked into, when there are many
    /// names.
    fn make_room(&mut self) {
        if self.names <= self.most {
            return;
        }
        // A quarter at once, so that looking for them costs little a name.
        let kept = self.most / 4 * 3;
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
            indexes.insert(Ino::new(dir), directory(10, u64::from(dir)));
            passes += usize::from(indexes.of.len() <= before);
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
