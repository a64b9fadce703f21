//! Names that are about to go from the disk.

use crate::Ids;
use crate::action::Action;
use hashbrown::HashMap;
use seekless_cache::{Cache, ChangeId};
use seekless_units::Ino;
use std::ops::Range;

/// Number of departed names from which on those that the disk has lost too are forgotten.
const MANY_DEPARTED: usize = 1024;

/// Of the names that come back before the disk has lost them, one in this many is waited for. Each
/// such change is on the one before, and all of them are rolled back in the copy whenever their
/// block is written.
const MANY_RETURNS: usize = 64;

/// A name that goes from the disk.
#[derive(Clone, Copy, Debug)]
struct Departure {
    /// The change that takes it away.
    by: ChangeId,
    /// Where its entry begins, in bytes from the directory's start.
    at: u64,
}

/// The changes that take names from the disk, by directory and name: until then the same name must
/// not come to be there again.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    of: HashMap<Ino, HashMap<Box<[u8]>, Departure>>,
    count: usize,
    /// How many there may be before those that the disk has lost are forgotten.
    many: usize,
    /// Names that came back before the disk had lost them, since one was last waited for.
    returns: usize,
    /// The changes that take names from the disk which lead to inodes without links.
    dead: HashMap<Ino, Ids>,
}

impl Departures {
    /// Notes the change that takes a name from the disk, and the byte of its directory at which the
    /// entry begins.
    pub(crate) fn note(
        &mut self,
        cache: &Cache<Action>,
        dir: Ino,
        name: &[u8],
        at: u64,
        by: ChangeId,
    ) {
        if self.count >= self.many.max(MANY_DEPARTED) {
            self.of.values_mut().for_each(|names| {
                names.retain(|_, departure| !cache.is_committed(departure.by));
            });
            self.of.retain(|_, names| !names.is_empty());
            self.count = self.of.values().map(HashMap::len).sum();
            self.many = self.count * 2;
        }
        let names = self.of.entry(dir).or_default();
        if names.insert(name.into(), Departure { by, at }).is_none() {
            self.count += 1;
        }
    }

    /// Notes the change that takes a name from the disk which leads to an inode without links.
    pub(crate) fn note_dead(&mut self, ino: Ino, by: ChangeId) {
        self.dead.entry(ino).or_default().push(by);
    }

    /// Those changes, for an inode that is about to be marked as free.
    pub(crate) fn take_dead(&mut self, ino: Ino) -> Ids {
        self.dead.remove(&ino).unwrap_or_default()
    }

    /// The change to wait for before a name is made again that the disk still has: only for one in
    /// [`MANY_RETURNS`] such names.
    pub(crate) fn returning(
        &mut self,
        cache: &Cache<Action>,
        dir: Ino,
        name: &[u8],
    ) -> Option<ChangeId> {
        let by = self.of.get(&dir)?.get(name)?.by;
        if cache.is_committed(by) {
            return None;
        }
        self.returns += 1;
        if self.returns < MANY_RETURNS {
            return None;
        }
        self.returns = 0;
        Some(by)
    }

    /// The change that takes a name from the disk, unless its entry lies in `over`: a new entry
    /// that overwrites it replaces it, whenever it is written.
    pub(crate) fn of_name(
        &self,
        cache: &Cache<Action>,
        dir: Ino,
        name: &[u8],
        over: &[Range<u64>],
    ) -> Option<ChangeId> {
        let Departure { by, at } = *self.of.get(&dir)?.get(name)?;
        let takes_place = over.iter().any(|bytes| bytes.contains(&at));
        (!takes_place && !cache.is_committed(by)).then_some(by)
    }
}
