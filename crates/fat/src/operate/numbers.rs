//! Inode numbers: FAT has none, so files get one when they are first met, and keep it as long as
//! the volume is open, even if they are renamed.

use crate::files::ROOT;
use hashbrown::HashMap;
use seekless_fs::FsError;
use seekless_units::Ino;

/// The place of a file's short entry: its directory, and the slot in it.
pub(super) type Place = (Ino, u32);

/// The numbers of the files met so far.
#[derive(Debug)]
pub(super) struct Numbers {
    places: HashMap<Ino, Place>,
    numbers: HashMap<Place, Ino>,
    /// The files of chains, by their first clusters.
    heads: HashMap<u32, Ino>,
    next: Ino,
}

impl Numbers {
    pub(super) fn new() -> Self {
        let next = ROOT + 1;
        Self { places: HashMap::new(), numbers: HashMap::new(), heads: HashMap::new(), next }
    }

    /// The number of the file at a place.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] once all numbers are in use.
    pub(super) fn at(&mut self, place: Place) -> Result<Ino, FsError> {
        if let Some(&ino) = self.numbers.get(&place) {
            return Ok(ino);
        }
        let ino = self.fresh()?;
        self.settle(ino, place);
        Ok(ino)
    }

    /// A number for a file that has no entry yet.
    pub(super) fn fresh(&mut self) -> Result<Ino, FsError> {
        let ino = self.next;
        let none = || FsError::NoSpace("no inode number is left for this mount".into());
        self.next = ino.checked_add(1).ok_or_else(none)?;
        Ok(ino)
    }

    /// The place of a file's entry; none for the root, and for files without names.
    pub(super) fn place(&self, ino: Ino) -> Option<Place> {
        self.places.get(&ino).copied()
    }

    /// The parent of a directory; the root's is itself.
    pub(super) fn parent(&self, dir: Ino) -> Ino {
        self.place(dir).map_or(dir, |(parent, _)| parent)
    }

    /// A directory, and those above it.
    pub(super) fn ancestors(&self, dir: Ino) -> impl Iterator<Item = Ino> + '_ {
        std::iter::successors(Some(dir), |&at| self.place(at).map(|(parent, _)| parent))
    }

    /// Sets the place of a file's entry.
    pub(super) fn settle(&mut self, ino: Ino, place: Place) {
        self.leave(ino);
        let other = self.numbers.insert(place, ino);
        debug_assert_eq!(other, None, "two files at one place");
        debug_assert!(ino > ROOT && ino < self.next, "number {ino} was given");
        let before = self.places.insert(ino, place);
        debug_assert_eq!(before, None, "one file at two places");
    }

    /// Removes the place of a file's entry.
    pub(super) fn leave(&mut self, ino: Ino) {
        if let Some(place) = self.places.remove(&ino) {
            let removed = self.numbers.remove(&place);
            debug_assert_eq!(removed, Some(ino), "the file at {place:?}");
        }
    }

    /// Records the first cluster of a file's chain; false if it is another file's.
    pub(super) fn claim(&mut self, first: u32, ino: Ino) -> bool {
        first == 0 || *self.heads.entry(first).or_insert(ino) == ino
    }

    /// Forgets the file of a first cluster.
    pub(super) fn disclaim(&mut self, first: u32) {
        self.heads.remove(&first);
    }
}
