//! Encoding of directory entries.

use seekless_fs::{FileKind, FsError, Location};
use seekless_units::Ino;
use smallvec::SmallVec;

/// A directory entry, used or not.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Where it begins in its unit, in bytes.
    pub at: usize,
    /// Bytes up to the next one.
    pub len: usize,
    /// Bytes that it needs of them; none if it is not used.
    pub needed: usize,
    /// The inode: zero where the entry is not used.
    pub ino: Ino,
    /// The inode's kind, as the format records it.
    pub kind: u8,
    /// Whether it is visible as a name: used, and no whiteout.
    pub is_name: bool,
    /// The name; empty where the entry is not used.
    pub name: &'a [u8],
}

impl Entry<'_> {
    /// Whether it leads anywhere.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.ino != Ino::ZERO
    }

    /// Bytes behind those it needs.
    #[must_use]
    pub fn slack(&self) -> usize {
        self.len.saturating_sub(self.needed)
    }
}

/// Where an entry fits in a unit, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Where it may begin.
    pub at: usize,
    /// Bytes up to the next one.
    pub len: usize,
    /// The entry it is taken from, which becomes as short as it can be.
    pub behind: Option<usize>,
}

/// Entries of a unit moved so that a new one fits.
#[derive(Debug)]
pub struct Compacted<'a> {
    /// Where the entry may begin.
    pub at: usize,
    /// Bytes up to the next one.
    pub len: usize,
    /// The bytes of the unit that may have changed, the entry's among them.
    pub changed: std::ops::Range<usize>,
    /// The names that were moved, and where each begins now.
    pub moved: SmallVec<[(&'a [u8], usize); 16]>,
}

/// Encoding of the entries of linear directories: the number of the inode, the bytes up to the next
/// entry, the kind, the name.
pub trait Codec {
    /// Offset of the inode number in an entry.
    const INO: usize;
    /// Offset of the two bytes with the distance to the next entry.
    const LEN: usize;
    /// Offset of the kind, one byte.
    const KIND: usize;

    /// The entries of a unit, up to the first that is wrong. `place` is the unit's.
    fn entries<'a>(
        &self,
        unit: &'a [u8],
        place: Location,
    ) -> impl Iterator<Item = Result<Entry<'a>, FsError>>;

    /// Bytes that an entry takes, by the length of its name.
    fn needed(name_len: usize) -> usize;

    /// The kind that a code stands for.
    fn kind_of(code: u8) -> Option<FileKind>;

    /// The code of a kind.
    fn code_of(&self, kind: FileKind) -> u8;

    /// The longest entry that can get a place in a unit, others moved if need be.
    ///
    /// # Errors
    /// [`FsError::Corrupt`].
    fn room(&self, unit: &[u8], place: Location) -> Result<usize, FsError> {
        self.entries(unit, place)
            .try_fold(unit.len(), |left, entry| Ok(left.saturating_sub(entry?.needed)))
    }

    /// Where an entry fits without moving others: at an unused one, or in the slack of another.
    /// `None` when only [`Codec::compact`] helps.
    ///
    /// # Errors
    /// [`FsError::Corrupt`].
    fn fit(&self, unit: &[u8], place: Location, needed: usize) -> Result<Option<Room>, FsError> {
        let mut loose = None;
        for entry in self.entries(unit, place) {
            let entry = entry?;
            if !entry.is_used() && entry.len >= needed {
                return Ok(Some(Room { at: entry.at, len: entry.len, behind: None }));
            }
            if loose.is_none() && entry.is_used() && entry.slack() >= needed {
                let at = entry.at + entry.needed;
                loose = Some(Room { at, len: entry.slack(), behind: Some(entry.at) });
            }
        }
        Ok(loose)
    }

    /// Moves the used entries of a unit, which was `old`, to its start.
    ///
    /// # Errors
    /// [`FsError::Corrupt`].
    fn compact<'a>(
        &self,
        old: &'a [u8],
        unit: &mut [u8],
        place: Location,
        _needed: usize,
    ) -> Result<Compacted<'a>, FsError> {
        unit.fill(0);
        let mut at = 0usize;
        let mut moved = SmallVec::new();
        for entry in self.entries(old, place) {
            let entry = entry?;
            if !entry.is_used() {
                continue;
            }
            let len = entry.needed;
            self.put(unit, &Entry { at, len, ..entry });
            moved.push((entry.name, at));
            at += len;
        }
        let len = unit.len() - at;
        Ok(Compacted { at, len, changed: 0..unit.len(), moved })
    }

    /// The bytes of a unit around one of them that have a chain of entries of their
    /// own, and are written together or not at all: none, where there are no such.
    ///
    /// # Errors
    /// [`FsError::Corrupt`].
    fn chain_at(
        &self,
        unit: &[u8],
        _place: Location,
        _at: usize,
    ) -> Result<std::ops::Range<usize>, FsError> {
        Ok(0..unit.len())
    }

    /// Fills a unit with entries that are not used.
    fn blank(&self, unit: &mut [u8]) {
        unit.fill(0);
        self.put_len(unit, 0, unit.len());
    }

    /// Writes an entry at its place in a unit, and zeros behind its name as far as
    /// it reaches.
    fn put(&self, unit: &mut [u8], entry: &Entry<'_>);

    /// Sets the bytes up to the next entry of the one at byte `at` of a unit.
    fn put_len(&self, unit: &mut [u8], at: usize, len: usize);

    /// The number of an inode, as an entry encodes it.
    fn ino_bytes(&self, ino: Ino) -> [u8; 4];
}
