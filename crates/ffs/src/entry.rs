//! Entries of directories: names with their inodes, in units of 512 bytes that none of them
//! crosses.

use crate::ondisk::{DIRECTORY_UNIT, DirectHead, WHITEOUT};
use crate::superblock::{Order, Super};
use seekless_fs::field::{byte, index, invalid, parse, range, slice, truncated, wide};
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::Ino;
use std::mem::offset_of;
use zerocopy::byteorder::{BE, LE};

/// Bytes of the fixed part of an entry.
pub(crate) const HEAD: usize = size_of::<DirectHead<LE>>();
/// The offset of the inode number, and its length.
pub(crate) const INO: (usize, usize) = (offset_of!(DirectHead<LE>, d_ino), 4);
/// The offset of the entry's length, and its own length.
pub(crate) const LEN: (usize, usize) = (offset_of!(DirectHead<LE>, d_reclen), 2);
/// The offset of the file type, and its length.
pub(crate) const KIND: (usize, usize) = (offset_of!(DirectHead<LE>, d_type), 1);
const NAME_LEN_AT: usize = offset_of!(DirectHead<LE>, d_namlen);

/// A directory entry (`struct direct`), used or not.
pub(crate) struct Entry<'a> {
    /// Its start in its unit, in bytes.
    pub(crate) at: usize,
    /// Bytes up to the next one.
    pub(crate) len: usize,
    /// The inode: zero where the entry is not used.
    pub(crate) ino: Ino,
    /// The inode's file type (`DT_*`).
    pub(crate) kind: u8,
    pub(crate) name: &'a [u8],
}

/// The kind an entry records (`DT_*`).
pub(crate) fn kind_of(code: u8) -> Option<FileKind> {
    Some(match code {
        1 => FileKind::Fifo,
        2 => FileKind::CharDevice,
        4 => FileKind::Directory,
        6 => FileKind::BlockDevice,
        8 => FileKind::Regular,
        10 => FileKind::Symlink,
        12 => FileKind::Socket,
        _ => return None,
    })
}

/// The code of a file type (`DT_*`).
pub(crate) fn code_of(kind: FileKind) -> u8 {
    match kind {
        FileKind::Fifo => 1,
        FileKind::CharDevice => 2,
        FileKind::Directory => 4,
        FileKind::BlockDevice => 6,
        FileKind::Regular => 8,
        FileKind::Symlink => 10,
        FileKind::Socket => 12,
    }
}

/// Bytes an entry takes, its name ended by a zero (`DIRECTSIZ`).
pub(crate) fn needed(name_len: usize) -> usize {
    (HEAD + name_len + 1).next_multiple_of(4)
}

impl Entry<'_> {
    /// Whether it names an inode.
    pub(crate) fn is_used(&self) -> bool {
        self.ino != Ino::ZERO
    }

    /// Whether it is a visible name.
    pub(crate) fn is_name(&self) -> bool {
        self.is_used() && self.kind != WHITEOUT
    }

    /// Whether a zero stands behind its name, in its own bytes.
    pub(crate) fn is_ended(&self, unit: &[u8]) -> bool {
        let at = self.at + HEAD + self.name.len();
        at < self.end() && unit.get(at) == Some(&0)
    }

    /// Its end in its unit, in bytes.
    pub(crate) fn end(&self) -> usize {
        self.at + self.len
    }

    /// Bytes it needs.
    pub(crate) fn needed(&self) -> usize {
        if self.is_used() { needed(self.name.len()).min(self.len) } else { 0 }
    }
}

impl Super {
    /// The entry at byte `at` of a unit, with any inode number.
    pub(crate) fn bare_entry_at<'a>(
        &self,
        unit: &'a [u8],
        at: usize,
        place: Location,
    ) -> Result<Entry<'a>, FsError> {
        let lost = || truncated(place);
        let (ino, len, kind, name_len) = match self.order {
            Order::Little => {
                let head: DirectHead<LE> = parse(unit, at).ok_or_else(lost)?;
                // Without types the length takes 16 bits, low byte first.
                let (kind, len) = if self.typed_entries {
                    (head.d_type, head.d_namlen)
                } else {
                    (0, head.d_type)
                };
                (head.d_ino.get(), head.d_reclen.get(), kind, len)
            }
            Order::Big => {
                let head: DirectHead<BE> = parse(unit, at).ok_or_else(lost)?;
                let kind = if self.typed_entries { head.d_type } else { 0 };
                (head.d_ino.get(), head.d_reclen.get(), kind, head.d_namlen)
            }
        };
        let (len, name_len) = (usize::from(len), usize::from(name_len));
        let least = (HEAD + name_len).next_multiple_of(4);
        let left = unit.len() - at;
        if len < HEAD || len & 3 != 0 || (ino != 0 && len < least) {
            return Err(invalid("d_reclen", wide(len), place));
        }
        if len > left {
            return Err(range("d_reclen", wide(len), wide(left), place));
        }
        let name = slice(unit, at + HEAD, name_len).filter(|_| ino != 0);
        let name = name.unwrap_or_default();
        if ino != 0 && name.is_empty() {
            return Err(invalid("d_namlen", 0, place));
        }
        Ok(Entry { at, len, ino: Ino::new(ino), kind, name })
    }

    /// As [`Super::bare_entry_at`], for an entry whose inode exists.
    pub(crate) fn entry_at<'a>(
        &self,
        unit: &'a [u8],
        at: usize,
        place: Location,
    ) -> Result<Entry<'a>, FsError> {
        let entry = self.bare_entry_at(unit, at, place)?;
        if entry.ino.get() >= self.inodes() {
            let (ino, limit) = (u64::from(entry.ino.get()), u64::from(self.inodes()));
            return Err(range("d_ino", ino, limit, place));
        }
        Ok(entry)
    }

    /// The entries of a unit, up to the first that is wrong. `place` is the
    /// unit's.
    pub(crate) fn entries<'a>(
        &self,
        unit: &'a [u8],
        place: Location,
    ) -> impl Iterator<Item = Result<Entry<'a>, FsError>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            if at >= unit.len() {
                return None;
            }
            // A place that is only shown: past 4 GiB it is the last one.
            let shown = u64::from(place.offset.unwrap_or_default()) + wide(at);
            let found = self.entry_at(unit, at, place.at_offset(byte(index(shown))));
            at = found.as_ref().map_or(unit.len(), Entry::end);
            Some(found)
        })
    }
}

/// Writes an entry at its place in a unit, and zeros behind its name as far as it reaches. Nothing
/// is written if the unit has too little room.
pub(crate) fn put(order: Order, unit: &mut [u8], entry: &Entry<'_>) {
    debug_assert!(entry.at.is_multiple_of(4), "entries are aligned");
    debug_assert!(entry.len >= HEAD + entry.name.len(), "a name lies in its entry");
    let end = entry.at + needed(entry.name.len()).min(entry.len);
    debug_assert!(end <= unit.len(), "an entry lies in its unit");
    let Some(to) = unit.get_mut(entry.at..end) else { return };
    to.fill(0);
    order.put_u32(to, INO.0, entry.ino.get());
    order.put_u16(to, LEN.0, u16::try_from(entry.len).unwrap_or(0));
    let parts = [(KIND.0, &[entry.kind][..]), (HEAD, entry.name)];
    let name_len = [u8::try_from(entry.name.len()).unwrap_or(0)];
    for (at, bytes) in parts.into_iter().chain([(NAME_LEN_AT, &name_len[..])]) {
        let field = to.iter_mut().skip(at);
        field.zip(bytes).for_each(|(to, &from)| *to = from);
    }
}

/// Sets the length of the entry at byte `at` of a unit.
pub(crate) fn put_len(order: Order, unit: &mut [u8], at: usize, len: usize) {
    debug_assert!(len >= HEAD && len.is_multiple_of(4), "an entry of {len} bytes");
    debug_assert!(at + len <= unit.len(), "an entry ends in its unit");
    order.put_u16(unit, at + LEN.0, u16::try_from(len).unwrap_or(0));
}

/// The first entries of a directory, `.` and `..`; the second takes the rest
/// of the unit.
pub(crate) fn dots(ino: Ino, parent: Ino) -> [Entry<'static>; 2] {
    let kind = code_of(FileKind::Directory);
    let own = needed(1);
    let rest = DIRECTORY_UNIT - own;
    [
        Entry { at: 0, len: own, ino, kind, name: b"." },
        Entry { at: own, len: rest, ino: parent, kind, name: b".." },
    ]
}
