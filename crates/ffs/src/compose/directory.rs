//! Directories as units of 512 bytes, which no entry crosses.

use crate::entry::{self, needed};
use crate::ondisk::DIRECTORY_UNIT;
use crate::superblock::Order;
use seekless_fs::FileKind;
use seekless_units::Ino;

/// An entry of a new directory.
pub(super) struct NewEntry<'a> {
    pub(super) name: &'a [u8],
    pub(super) ino: Ino,
    pub(super) kind: FileKind,
}

/// Bytes of a directory with names of these lengths, in order, behind `.` and
/// `..`.
pub(super) fn len(name_lens: impl Iterator<Item = usize>) -> u64 {
    let (mut units, mut used) = (1u64, needed(1) + needed(2));
    for len in name_lens.map(needed) {
        if used + len > DIRECTORY_UNIT {
            units += 1;
            used = 0;
        }
        used += len;
    }
    units * DIRECTORY_UNIT as u64
}

/// The bytes of a directory.
pub(super) fn encode(dir: Ino, parent: Ino, entries: &[NewEntry<'_>], order: Order) -> Vec<u8> {
    let dots = [
        NewEntry { name: b".", ino: dir, kind: FileKind::Directory },
        NewEntry { name: b"..", ino: parent, kind: FileKind::Directory },
    ];
    let mut bytes = vec![0; DIRECTORY_UNIT];
    let (mut at, mut last) = (0, 0);
    for new in dots.iter().chain(entries) {
        let len = needed(new.name.len());
        let end = bytes.len();
        if at + len > end {
            bytes.resize(end + DIRECTORY_UNIT, 0);
            entry::put_len(order, &mut bytes, last, end - last);
            at = end;
        }
        let kind = entry::code_of(new.kind);
        debug_assert!(at % DIRECTORY_UNIT + len <= DIRECTORY_UNIT, "no entry crosses a unit");
        let new = entry::Entry { at, len, ino: new.ino, kind, name: new.name };
        entry::put(order, &mut bytes, &new);
        last = at;
        at += len;
    }
    // The last entry takes the rest of its unit.
    let rest = bytes.len() - last;
    entry::put_len(order, &mut bytes, last, rest);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_fill_units_and_cross_none() {
        let names: Vec<Vec<u8>> = (0..200).map(|n| vec![b'n'; 1 + n * 7 % 255]).collect();
        let entry = |name| NewEntry { name, ino: Ino::new(9), kind: FileKind::Regular };
        for count in [0, 1, 30, 31, 32, 200] {
            let entries: Vec<_> = names[..count].iter().map(|name| entry(name)).collect();
            let bytes = encode(Ino::new(3), Ino::new(2), &entries, Order::Little);
            let lens = names[..count].iter().map(Vec::len);
            assert_eq!(bytes.len() as u64, len(lens), "{count}");
            let mut found = 0;
            for unit in bytes.chunks(DIRECTORY_UNIT) {
                let mut at = 0;
                while at < unit.len() {
                    let len = u16::from_le_bytes([unit[at + 4], unit[at + 5]]) as usize;
                    assert!(len >= needed(unit[at + 7] as usize), "{count}");
                    at += len;
                    found += 1;
                }
                assert_eq!(at, DIRECTORY_UNIT, "{count}");
            }
            assert_eq!(found, count + 2);
        }
    }
}
