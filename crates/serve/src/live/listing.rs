//! Snapshots of directories at the start of their listing: names move within a directory as others
//! are added and removed, and a continued listing must return each of the remaining ones exactly
//! once.

use seekless_fs::operate::Operate;
use seekless_fs::{DirEntry, FileKind, FsError};
use seekless_units::Ino;
use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, PoisonError};

/// An entry of a directory.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) ino: Ino,
    pub(crate) kind: Option<FileKind>,
    /// Position for continuing after it; not zero.
    pub(crate) cookie: u64,
}

/// The contents of a directory.
#[derive(Default)]
pub(crate) struct Listing {
    names: Vec<u8>,
    entries: Vec<(Range<usize>, Ino, Option<FileKind>)>,
}

impl Listing {
    fn of(live: &mut dyn Operate, dir: Ino) -> Result<Self, FsError> {
        let mut listing = Self::default();
        live.read_dir(dir, 0, &mut |entry: DirEntry<'_>| {
            let start = listing.names.len();
            listing.names.extend_from_slice(entry.name);
            let name = start..listing.names.len();
            listing.entries.push((name, entry.ino, entry.kind));
            ControlFlow::Continue(())
        })?;
        Ok(listing)
    }

    /// The entries after a cookie.
    pub(crate) fn after(&self, cookie: u64) -> impl Iterator<Item = Entry<'_>> {
        let skip = usize::try_from(cookie).unwrap_or(usize::MAX);
        self.entries.iter().zip(1u64..).skip(skip).map(|((name, ino, kind), cookie)| Entry {
            name: self.names.get(name.clone()).unwrap_or_default(),
            ino: *ino,
            kind: *kind,
            cookie,
        })
    }
}

/// The listings of open directories.
#[derive(Default)]
pub(crate) struct Listings(Mutex<Open>);

#[derive(Default)]
struct Open {
    last: u64,
    of: HashMap<u64, Option<Arc<Listing>>>,
}

impl Listings {
    fn open_ones(&self) -> std::sync::MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a handle for an opened directory.
    pub(crate) fn open(&self) -> u64 {
        let mut open = self.open_ones();
        open.last += 1;
        let handle = open.last;
        open.of.insert(handle, None);
        handle
    }

    /// The listing of a handle: a new one at its beginning, or if it has none.
    pub(crate) fn get(
        &self,
        live: &mut dyn Operate,
        dir: Ino,
        handle: u64,
        cookie: u64,
    ) -> Result<Arc<Listing>, FsError> {
        let held = self.open_ones().of.get(&handle).cloned().flatten();
        if let Some(held) = held.filter(|_| cookie > 0) {
            return Ok(held);
        }
        let listing = Arc::new(Listing::of(live, dir)?);
        self.open_ones().of.insert(handle, Some(listing.clone()));
        Ok(listing)
    }

    /// Drops the listing of a closed directory.
    pub(crate) fn close(&self, handle: u64) {
        self.open_ones().of.remove(&handle);
    }
}
