//! Directories as units of 512 bytes, which no entry crosses.

use crate::make::encode::Page;
use crate::ondisk::DIRECTORY_UNIT;
use seekless_fs::FileKind;
use seekless_units::Ino;

/// Bytes in front of a name.
const HEAD: usize = 8;

/// An entry to be written.
pub(super) struct Entry<'a> {
    pub(super) name: &'a [u8],
    pub(super) ino: Ino,
    pub(super) kind: FileKind,
}

/// `DIRSIZ`: the name with a zero byte, in words.
fn record_len(name_len: usize) -> usize {
    HEAD + (name_len + 1).next_multiple_of(4)
}

/// `d_type`.
fn code(kind: FileKind) -> u8 {
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

/// Bytes of a directory with names of these lengths, in order, behind `.` and
/// `..`.
pub(super) fn len(name_lens: impl Iterator<Item = usize>) -> u64 {
    let (mut units, mut used) = (1u64, record_len(1) + record_len(2));
    for len in name_lens.map(record_len) {
        if used + len > DIRECTORY_UNIT {
            units += 1;
            used = 0;
        }
        used += len;
    }
    units * DIRECTORY_UNIT as u64
}

/// The bytes of a directory.
pub(super) fn encode(dir: Ino, parent: Ino, entries: &[Entry<'_>], big_endian: bool) -> Vec<u8> {
    let dots = [
        Entry { name: b".", ino: dir, kind: FileKind::Directory },
        Entry { name: b"..", ino: parent, kind: FileKind::Directory },
    ];
    let mut page = Page { bytes: vec![0; DIRECTORY_UNIT], big_endian };
    let (mut at, mut last) = (0, 0);
    for entry in dots.iter().chain(entries) {
        let len = record_len(entry.name.len());
        let end = page.bytes.len();
        if at + len > end {
            page.bytes.resize(end + DIRECTORY_UNIT, 0);
            page.u16(last + 4, (end - last) as u16);
            at = end;
        }
        page.u32(at, entry.ino.get());
        page.u16(at + 4, len as u16);
        page.raw(at + 6, &[code(entry.kind), entry.name.len() as u8]);
        page.raw(at + HEAD, entry.name);
        last = at;
        at += len;
    }
    // The last entry takes the rest of its unit.
    let rest = page.bytes.len() - last;
    page.u16(last + 4, rest as u16);
    page.bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_fill_units_and_cross_none() {
        let names: Vec<Vec<u8>> = (0..200).map(|n| vec![b'n'; 1 + n * 7 % 255]).collect();
        let entry = |name| Entry { name, ino: Ino::new(9), kind: FileKind::Regular };
        for count in [0, 1, 30, 31, 32, 200] {
            let entries: Vec<_> = names[..count].iter().map(|name| entry(name)).collect();
            let bytes = encode(Ino::new(3), Ino::new(2), &entries, false);
            let lens = names[..count].iter().map(Vec::len);
            assert_eq!(bytes.len() as u64, len(lens), "{count}");
            let mut found = 0;
            for unit in bytes.chunks(DIRECTORY_UNIT) {
                let mut at = 0;
                while at < unit.len() {
                    let len = u16::from_le_bytes([unit[at + 4], unit[at + 5]]) as usize;
                    assert!(len >= record_len(unit[at + 7] as usize), "{count}");
                    at += len;
                    found += 1;
                }
                assert_eq!(at, DIRECTORY_UNIT, "{count}");
            }
            assert_eq!(found, count + 2);
        }
    }
}
