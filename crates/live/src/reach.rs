//! The names that lead to a file, and the changes that must be on the disk for them to do so.

use crate::{Codec, Ids, Linked, Live};
use hashbrown::HashMap;
use seekless_cache::ChangeId;
use seekless_fs::field::{invalid, wide};
use seekless_fs::{FsError, Location};
use seekless_units::Ino;
use smallvec::SmallVec;
use std::ops::Range;

/// Most looked-up files whose inodes are not in memory.
const MOST_SEEN: usize = 1 << 16;
/// Number of departed names from which on those that the disk has lost too are forgotten.
const MANY_DEPARTED: usize = 1024;

/// Of the names that come back before the disk has lost them, one in this many is waited for. Each
/// such change is on the one before, and all of them are rolled back in the copy whenever their
/// block is written.
const MANY_RETURNS: usize = 64;

/// Directories in which a file was seen.
pub(crate) type SeenIn = SmallVec<[Ino; 2]>;

/// Names in directories as the disk has them.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// Directories of looked-up files whose inodes are not in memory.
    seen: HashMap<Ino, SeenIn>,
    /// The changes that take names from the disk, by directory and name: until then the same name
    /// must not come to be there again.
    departed: HashMap<Ino, HashMap<Box<[u8]>, Departure>>,
    departures: usize,
    many: usize,
    /// Names that came back before the disk had lost them, since one was last waited for.
    returns: usize,
}

impl Reach {
    /// Forgets that a name of a file was seen, since its inode will remember.
    pub(crate) fn take_seen(&mut self, ino: Ino) -> SeenIn {
        self.seen.remove(&ino).unwrap_or_default()
    }

    /// Keeps the directories in which a file was seen, as its inode goes from memory.
    pub(crate) fn keep_seen(&mut self, ino: Ino, dirs: SeenIn) {
        if dirs.is_empty() {
            return;
        }
        if self.seen.len() >= MOST_SEEN {
            // The inode of an open file is in memory; other files are looked up again before they
            // are opened.
            self.seen.clear();
        }
        self.seen.insert(ino, dirs);
    }
}

/// A name that goes from the disk.
#[derive(Clone, Copy, Debug)]
struct Departure {
    /// The change that takes it away.
    by: ChangeId,
    /// Where its entry begins, in bytes from the directory's start.
    at: u64,
}

/// Adds a directory to those in which a file was seen.
pub(crate) fn note_seen(seen: &mut SeenIn, dir: Ino) {
    if !seen.contains(&dir) {
        seen.push(dir);
    }
}

impl<F: Linked> Live<F> {
    /// Remembers that a file has a name in a directory: a file that is made
    /// durable is so with the names by which it was reached.
    pub(crate) fn saw(&mut self, dir: Ino, ino: Ino) {
        if let Some(node) = self.core.nodes.get_mut(&ino) {
            note_seen(&mut node.seen_in, dir);
            return;
        }
        let mut dirs = self.reach.take_seen(ino);
        note_seen(&mut dirs, dir);
        self.reach.keep_seen(ino, dirs);
    }

    /// Notes the change that takes a name from the disk, and the byte of its directory at which the
    /// entry begins.
    pub(crate) fn note_departure(&mut self, dir: Ino, name: &[u8], at: u64, by: ChangeId) {
        let reach = &mut self.reach;
        if reach.departures >= reach.many.max(MANY_DEPARTED) {
            let cache = &self.core.cache;
            reach.departed.values_mut().for_each(|names| {
                names.retain(|_, departure| !cache.is_committed(departure.by));
            });
            reach.departed.retain(|_, names| !names.is_empty());
            reach.departures = reach.departed.values().map(HashMap::len).sum();
            reach.many = reach.departures.saturating_mul(2);
        }
        let names = reach.departed.entry(dir).or_default();
        if names.insert(name.into(), Departure { by, at }).is_none() {
            reach.departures = reach.departures.saturating_add(1);
        }
    }

    /// Keeps chains of changes short where names go and come back: if many have come back early,
    /// waits until the name about to be made again is gone from the disk.
    pub(crate) fn settle_return(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        let departure = self.reach.departed.get(&dir).and_then(|names| names.get(name));
        let Some(&Departure { by, .. }) = departure else { return Ok(()) };
        if self.core.cache.is_committed(by) {
            return Ok(());
        }
        self.reach.returns = self.reach.returns.saturating_add(1);
        if self.reach.returns < MANY_RETURNS {
            return Ok(());
        }
        self.reach.returns = 0;
        self.core.cache.settle(&[by])
    }

    /// The change that a new name in some bytes of a directory waits for: the removal of an older
    /// entry of the same name. If it overwrites that entry it replaces it, whenever it is written.
    pub(crate) fn departure(&self, dir: Ino, name: &[u8], over: &[Range<u64>]) -> Option<ChangeId> {
        let Departure { by, at } = *self.reach.departed.get(&dir)?.get(name)?;
        let takes_place = over.iter().any(|bytes| bytes.contains(&at));
        (!takes_place && !self.core.cache.is_committed(by)).then_some(by)
    }

    /// The directory that a directory's `..` leads to.
    pub(crate) fn parent_of(&mut self, dir: Ino) -> Result<Ino, FsError> {
        let place = Location::of("directory").in_inode(dir);
        self.dir_node(dir)?;
        let (_, unit) = self.unit_bytes(dir, 0)?;
        let len = unit.len();
        match self.format.codec().entries(&unit, place).nth(1) {
            Some(Ok(entry)) if entry.name == b".." => Ok(entry.ino),
            Some(Err(error)) => Err(error),
            _ => Err(invalid("..", wide(len), place)),
        }
    }

    /// The changes that must be on the disk for a directory to be reached from the root as it is
    /// now, and in no other way: its names and those of the directories above it, and that older
    /// names of these are gone. A check that finds a directory by two names keeps one of them, and
    /// it may be the older.
    pub(crate) fn way_to(&mut self, dir: Ino) -> Result<Ids, FsError> {
        let mut ids = Ids::new();
        let mut at = dir;
        // No path is longer than there are inodes.
        let limits = *self.format.limits();
        for _ in 0..limits.inodes {
            if at == limits.root {
                break;
            }
            ids.extend(self.leaving(at)?);
            let cache = &self.core.cache;
            if let Some(node) = self.core.nodes.get(&at) {
                ids.extend(node.named_by.left(cache).map(|(_, id)| id));
                ids.extend(Some(node.linked).filter(|&id| !cache.is_committed(id)));
            }
            let above = self.parent_of(at)?;
            if above == at {
                break;
            }
            at = above;
        }
        Ok(ids)
    }
}
