//! Directory entries as stored in a block, and the room for more.
//!
//! A block is one chain of entries. Where a write may be torn between two sectors no new entry
//! crosses one, and no entry becomes shorter unless the one that takes its freed bytes begins in
//! the same sector: `e2fsck -p` stops at a chain that leads to no entry.

use crate::dir::{self, entry_at};
use crate::encode::dirblocks::type_code;
use crate::htree;
use crate::ondisk::{DIR_TAIL_TYPE, DirEntryHead};
use seekless_fs::field::{byte, index, invalid, low32, wide};
use seekless_fs::{FileKind, FsError, Location};
use seekless_live::{Codec, Compacted, Entry, Room};
use seekless_units::{Ino, SECTOR};
use smallvec::SmallVec;
use std::mem::offset_of;

/// Bytes of the fixed part of an entry.
const HEAD: usize = size_of::<DirEntryHead>();

/// The entries of a volume's directories.
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    /// The highest inode number.
    pub(super) inodes: u32,
    /// Entries have a file type.
    pub(super) typed: bool,
    /// A write may reach the disk sector by sector, and must leave only damage that is repaired
    /// without a question.
    pub(super) torn: bool,
    /// Bytes at the end of a block that hold its checksum.
    pub(super) tail: usize,
}

/// The end of the sector with a byte.
fn sector_end(at: usize) -> usize {
    (at + 1).next_multiple_of(index(SECTOR))
}

impl Entries {
    /// The end of a block's entries.
    fn end(&self, unit: &[u8]) -> usize {
        unit.len() - self.tail
    }

    /// Whether a block belongs to an index: its entries reach the end, where blocks of names have
    /// their tail. Without tails it cannot be told, and need not: names are put in only where the
    /// index says, or there is none any more.
    fn is_index(&self, unit: &[u8]) -> bool {
        self.tail > 0 && htree::is_index_by_entries(unit)
    }

    /// The unused room at the start of `at..end`: taken from the entry `behind`, if there is one.
    fn usable(&self, at: usize, end: usize, behind: Option<usize>) -> usize {
        debug_assert!(at <= end, "an entry takes no more than its length");
        if !self.torn {
            return end - at;
        }
        match behind {
            // Shortened in one sector, begun in another.
            Some(behind) if sector_end(behind) != sector_end(at) => 0,
            _ => end.min(sector_end(at)) - at,
        }
    }

    /// The parts of a block that have chains of their own: its sectors, if entries must not cross
    /// them and none does; else all of it.
    fn chains(&self, unit: &[u8], place: Location) -> Result<Vec<std::ops::Range<usize>>, FsError> {
        if !self.torn {
            return Ok(std::iter::once(0..self.end(unit)).collect());
        }
        let (mut chains, mut start, mut end) = (Vec::new(), 0, 0);
        for entry in self.entries(unit, place) {
            let entry = entry?;
            end = entry.at + entry.len;
            if end == sector_end(start) {
                chains.push(start..end);
            }
            if end.is_multiple_of(index(SECTOR)) {
                start = end;
            }
        }
        debug_assert_eq!(end, unit.len(), "a chain ends where its block does");
        Ok(chains)
    }

    /// Bytes that are left in a chain when its entries are moved together.
    fn left(
        &self,
        unit: &[u8],
        chain: &std::ops::Range<usize>,
        place: Location,
    ) -> Result<usize, FsError> {
        let mut left = chain.len();
        for entry in self.entries(unit, place) {
            let entry = entry?;
            if chain.contains(&entry.at) {
                let rest = left.checked_sub(entry.needed);
                left = rest.ok_or_else(|| invalid("rec_len", wide(entry.len), place))?;
            }
        }
        Ok(left)
    }
}

impl Codec for Entries {
    const INO: usize = offset_of!(DirEntryHead, inode);
    const LEN: usize = offset_of!(DirEntryHead, rec_len);
    const KIND: usize = offset_of!(DirEntryHead, file_type);

    fn entries<'a>(
        &self,
        unit: &'a [u8],
        place: Location,
    ) -> impl Iterator<Item = Result<Entry<'a>, FsError>> {
        let (inodes, end) = (self.inodes, self.end(unit));
        let mut at = Some(0);
        std::iter::from_fn(move || {
            let start = at.take().filter(|&start| start < end)?;
            let found = entry_at(unit, start, inodes, place).and_then(|found| {
                if found.next > end && !self.is_index(unit) {
                    let place = place.at_offset(byte(start));
                    let len = found.next - start;
                    return Err(invalid("rec_len", wide(len), place));
                }
                at = Some(found.next);
                let is_name = found.ino != Ino::ZERO;
                Ok(Entry {
                    at: start,
                    len: found.next - start,
                    needed: if is_name { Self::needed(found.name.len()) } else { 0 },
                    ino: found.ino,
                    kind: found.file_type,
                    is_name,
                    name: if is_name { found.name } else { &[] },
                })
            });
            Some(found)
        })
    }

    fn needed(name_len: usize) -> usize {
        (HEAD + name_len).next_multiple_of(4)
    }

    fn kind_of(code: u8) -> Option<FileKind> {
        dir::kind_of(code)
    }

    fn code_of(&self, kind: FileKind) -> u8 {
        if !self.typed {
            return 0;
        }
        type_code(kind)
    }

    fn room(&self, unit: &[u8], place: Location) -> Result<usize, FsError> {
        let mut most = 0;
        if self.is_index(unit) {
            return Ok(0);
        }
        for entry in self.entries(unit, place) {
            let entry = entry?;
            let (at, behind) = match entry.is_used() {
                true => (entry.at + entry.needed, Some(entry.at)),
                false => (entry.at, None),
            };
            most = self.usable(at, entry.at + entry.len, behind).max(most);
        }
        for chain in self.chains(unit, place)? {
            most = self.left(unit, &chain, place)?.max(most);
        }
        Ok(most)
    }

    fn fit(&self, unit: &[u8], place: Location, needed: usize) -> Result<Option<Room>, FsError> {
        let mut loose = None;
        for entry in self.entries(unit, place) {
            let entry = entry?;
            let end = entry.at + entry.len;
            if !entry.is_used() && self.usable(entry.at, end, None) >= needed {
                return Ok(Some(Room { at: entry.at, len: entry.len, behind: None }));
            }
            let at = entry.at + entry.needed;
            if loose.is_none() && entry.is_used() && self.usable(at, end, Some(entry.at)) >= needed
            {
                loose = Some(Room { at, len: end - at, behind: Some(entry.at) });
            }
        }
        Ok(loose)
    }

    fn compact<'a>(
        &self,
        old: &'a [u8],
        unit: &mut [u8],
        place: Location,
        needed: usize,
    ) -> Result<Compacted<'a>, FsError> {
        for chain in self.chains(old, place)? {
            if self.left(old, &chain, place)? < needed {
                continue;
            }
            if let Some(part) = unit.get_mut(chain.clone()) {
                part.fill(0);
            }
            let mut at = chain.start;
            let mut moved = SmallVec::new();
            for entry in self.entries(old, place) {
                let entry = entry?;
                if entry.is_used() && chain.contains(&entry.at) {
                    let len = entry.needed;
                    debug_assert!(at + len <= chain.end, "entries move towards the start");
                    self.put(unit, &Entry { at, len, ..entry });
                    moved.push((entry.name, at));
                    at += len;
                }
            }
            let len = chain.end - at;
            debug_assert!(len >= needed, "the room in the chain was counted");
            return Ok(Compacted { at, len, changed: chain, moved });
        }
        debug_assert!(false, "the room was counted");
        Err(FsError::NoSpace(format!("no room for {needed} bytes in a block of a directory")))
    }

    fn chain_at(
        &self,
        unit: &[u8],
        place: Location,
        at: usize,
    ) -> Result<std::ops::Range<usize>, FsError> {
        if !self.torn {
            // All of it, if any, which is more than a sector.
            return Ok(at..at);
        }
        let mut chains = self.chains(unit, place)?.into_iter();
        Ok(chains.find(|chain| chain.contains(&at)).unwrap_or(at..at))
    }

    fn blank(&self, unit: &mut [u8]) {
        unit.fill(0);
        if self.tail > 0 {
            let at = self.end(unit);
            self.put_len(unit, 0, at);
            self.put_len(unit, at, self.tail);
            let kind = unit.get_mut(at + Self::KIND);
            debug_assert!(kind.is_some(), "a block is longer than its tail");
            if let Some(kind) = kind {
                *kind = DIR_TAIL_TYPE;
            }
            return;
        }
        let len = if self.torn { index(SECTOR) } else { unit.len() };
        for at in (0..unit.len()).step_by(len.max(1)) {
            self.put_len(unit, at, len);
        }
    }

    fn put(&self, unit: &mut [u8], entry: &Entry<'_>) {
        let &Entry { at, len, ino, kind, name, .. } = entry;
        debug_assert!(u8::try_from(name.len()).is_ok(), "a name has at most 255 bytes");
        debug_assert!(Self::needed(name.len()) <= len, "an entry holds its name");
        debug_assert!(at.is_multiple_of(4), "entries are aligned");
        self.put_len(unit, at, len);
        let Some(bytes) = unit.get_mut(at..at + Self::needed(name.len())) else {
            debug_assert!(false, "there is room for the entry");
            return;
        };
        let (head, rest) = bytes.split_at_mut(HEAD.min(bytes.len()));
        for (to, from) in head.iter_mut().zip(ino.get().to_le_bytes()) {
            *to = from;
        }
        for (at, value) in
            [(offset_of!(DirEntryHead, name_len), byte(name.len())), (Self::KIND, u32::from(kind))]
        {
            if let (Some(to), Ok(value)) = (head.get_mut(at), u8::try_from(value)) {
                *to = value;
            }
        }
        rest.fill(0);
        rest.iter_mut().zip(name).for_each(|(to, &from)| *to = from);
    }

    /// Blocks of 64 KiB have entries of a length that does not fit in 16 bits.
    fn put_len(&self, unit: &mut [u8], at: usize, len: usize) {
        let block = unit.len();
        debug_assert!(at + len <= block, "{len} bytes at {at} of a block of {block}");
        let raw = match len {
            _ if block < 65536 => low32(wide(len)) & 0xFFFF,
            65536 => 0xFFFF,
            _ => low32(wide(len)) & 0xFFFC | low32(wide(len >> 16)) & 3,
        };
        let at = at + Self::LEN;
        if let Some(to) = unit.get_mut(at..at + 2) {
            to.iter_mut().zip(raw.to_le_bytes()).for_each(|(to, from)| *to = from);
        }
    }

    fn ino_bytes(&self, ino: Ino) -> [u8; 4] {
        ino.get().to_le_bytes()
    }
}
