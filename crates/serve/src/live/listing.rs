//! Snapshots of directories at the start of their listing: names move within a directory as others
//! are added and removed, and a continued listing must return each of the remaining ones exactly
//! once.

use seekless_fs::operate::Operate;
use seekless_fs::{DirEntry, FileKind, FsError};
use seekless_units::Ino;
use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bits of a cookie that are the position within a listing. The others are the listing's number.
const POSITION_BITS: u32 = 32;

/// Numbers of listings: the kernel takes a cookie for a signed number.
const NUMBERS: u64 = 1 << (63 - POSITION_BITS);

/// Memory for the listings that are kept, in bytes.
const KEPT: usize = 16 << 20;

/// An entry of a directory.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) ino: Ino,
    pub(crate) kind: Option<FileKind>,
    /// Continues the listing after the entry; not zero.
    pub(crate) cookie: u64,
}

/// The contents of a directory.
struct Snapshot {
    dir: Ino,
    names: Vec<u8>,
    entries: Vec<(Range<usize>, Ino, Option<FileKind>)>,
}

impl Snapshot {
    fn of(live: &mut dyn Operate, dir: Ino) -> Result<Self, FsError> {
        let mut snapshot = Self { dir, names: Vec::new(), entries: Vec::new() };
        live.read_dir(dir, 0, &mut |entry: DirEntry<'_>| {
            let start = snapshot.names.len();
            snapshot.names.extend_from_slice(entry.name);
            snapshot.entries.push((start..snapshot.names.len(), entry.ino, entry.kind));
            ControlFlow::Continue(())
        })?;
        Ok(snapshot)
    }

    /// Bytes of memory.
    fn size(&self) -> usize {
        size_of::<Self>() + self.names.capacity() + size_of_val(self.entries.as_slice())
    }
}

/// A listing of a directory, from a position on.
pub(crate) struct Listing {
    snapshot: Arc<Snapshot>,
    number: u64,
    position: usize,
}

impl Listing {
    /// The entries from the position on.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let numbered = self.snapshot.entries.iter().zip(1u64..).skip(self.position);
        numbered.map(|((name, ino, kind), position)| Entry {
            name: &self.snapshot.names[name.clone()],
            ino: *ino,
            kind: *kind,
            cookie: self.number << POSITION_BITS | position,
        })
    }
}

/// The latest listings. Directories are opened and closed without a request: a listing is found by
/// the cookie that continues it, and kept until newer ones need the memory. A listing that is
/// continued later than that continues at the same position of a new snapshot.
pub(crate) struct Listings {
    kept: Mutex<Kept>,
    /// The most memory for them, in bytes. The newest one is kept whatever its size.
    limit: usize,
}

#[derive(Default)]
struct Kept {
    /// The number of the next listing.
    next: u64,
    /// Oldest first, with their numbers.
    snapshots: VecDeque<(u64, Arc<Snapshot>)>,
    size: usize,
}

impl Default for Listings {
    fn default() -> Self {
        Self { kept: Mutex::default(), limit: KEPT }
    }
}

impl Listings {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The listing of a directory after an entry's cookie; a new one for 0.
    pub(crate) fn after(
        &self,
        live: &mut dyn Operate,
        dir: Ino,
        cookie: u64,
    ) -> Result<Listing, FsError> {
        let number = cookie >> POSITION_BITS;
        let position = usize::try_from(cookie & ((1 << POSITION_BITS) - 1)).unwrap_or(usize::MAX);
        let found = if cookie == 0 { None } else { self.kept().find(number) };
        // A program may seek to the cookie of another directory.
        if let Some(snapshot) = found.filter(|snapshot| snapshot.dir == dir) {
            return Ok(Listing { snapshot, number, position });
        }
        let snapshot = Arc::new(Snapshot::of(live, dir)?);
        let number = self.kept().push(snapshot.clone(), self.limit);
        Ok(Listing { snapshot, number, position })
    }
}

impl Kept {
    fn find(&self, number: u64) -> Option<Arc<Snapshot>> {
        let found = self.snapshots.iter().rev().find(|(own, _)| *own == number);
        found.map(|(_, snapshot)| snapshot.clone())
    }

    /// Keeps a snapshot, and returns its number.
    fn push(&mut self, snapshot: Arc<Snapshot>, limit: usize) -> u64 {
        let number = self.next;
        self.next = (number + 1) % NUMBERS;
        self.size += snapshot.size();
        self.snapshots.push_back((number, snapshot));
        while self.size > limit && self.snapshots.len() > 1 {
            let (_, oldest) = self.snapshots.pop_front().expect("there are two at least");
            self.size -= oldest.size();
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(dir: u32, names: usize) -> Arc<Snapshot> {
        let name = |at: usize| (at * 4..at * 4 + 4, Ino::new(100), None);
        let entries = (0..names).map(name).collect();
        Arc::new(Snapshot { dir: Ino::new(dir), names: vec![b'n'; names * 4], entries })
    }

    #[test]
    fn the_oldest_listings_make_room() {
        let mut kept = Kept::default();
        let limit = snapshot(1, 10).size() * 3;
        let numbers: Vec<u64> = (0..5).map(|dir| kept.push(snapshot(dir, 10), limit)).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        let dirs = numbers.iter().map(|&number| kept.find(number).map(|it| it.dir.get()));
        assert_eq!(dirs.collect::<Vec<_>>(), [None, None, Some(2), Some(3), Some(4)]);
        // One that is larger than all of it is kept alone.
        let large = kept.push(snapshot(9, 10_000), limit);
        assert_eq!((kept.snapshots.len(), large), (1, 5));
        assert!(kept.size > limit);
        kept.push(snapshot(9, 10), limit);
        assert_eq!((kept.snapshots.len(), kept.size), (1, snapshot(9, 10).size()));
    }

    #[test]
    fn cookies_are_positive_and_numbers_return() {
        let mut kept = Kept { next: NUMBERS - 1, ..Kept::default() };
        let number = kept.push(snapshot(1, 3), usize::MAX);
        let listing = Listing { snapshot: snapshot(1, 3), number, position: 1 };
        let cookies: Vec<u64> = listing.entries().map(|entry| entry.cookie).collect();
        assert_eq!(
            cookies,
            [i64::MAX as u64 - u64::from(u32::MAX) + 2, i64::MAX as u64 - u64::from(u32::MAX) + 3]
        );
        assert_eq!(kept.push(snapshot(1, 3), usize::MAX), 0);
    }
}
