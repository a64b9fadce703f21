//! Directories as units of 512 bytes, which no entry crosses. Names that an older directory has stay
//! in their places.

use crate::entry::{self, needed};
use crate::ondisk::DIRECTORY_UNIT;
use crate::superblock::{Order, Super};
use seekless_fs::{FileKind, Location};
use seekless_units::Ino;
use std::collections::HashMap;

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

/// The places of a directory's entries, in bytes from its start, in their order; and its units.
#[derive(Clone, Debug)]
pub(super) struct Places {
    entries: Vec<usize>,
    units: usize,
}

/// The places of names in an older directory, in bytes from its start.
pub(super) type NamePlaces = HashMap<Vec<u8>, usize>;

/// A unit being filled: the bytes in use, sorted.
struct DirectoryUnit {
    used: Vec<(usize, usize)>,
    /// The longest run of free bytes.
    room: usize,
}

impl DirectoryUnit {
    fn new() -> Self {
        Self { used: Vec::new(), room: DIRECTORY_UNIT }
    }

    /// The runs of free bytes, in order.
    fn gaps(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let starts = std::iter::once(0).chain(self.used.iter().map(|(at, len)| at + len));
        let ends = self.used.iter().map(|&(at, _)| at).chain([DIRECTORY_UNIT]);
        starts.zip(ends).map(|(from, to)| (from, to - from)).filter(|gap| gap.1 > 0)
    }

    fn take(&mut self, at: usize, len: usize) {
        let slot = self.used.partition_point(|&(start, _)| start < at);
        self.used.insert(slot, (at, len));
        self.room = self.gaps().map(|gap| gap.1).max().unwrap_or(0);
    }

    /// Takes the first run of free bytes that suffices, from its start.
    fn take_first(&mut self, len: usize) -> Option<usize> {
        if self.room < len {
            return None;
        }
        let at = self.gaps().find(|gap| gap.1 >= len)?.0;
        self.take(at, len);
        Some(at)
    }
}

impl Places {
    /// The places of names of which some have one in an older directory. The others get the first
    /// free bytes that suffice, then units behind.
    pub(super) fn keeping(names: &[&[u8]], older: &HashMap<Vec<u8>, usize>) -> Self {
        let mut units = vec![DirectoryUnit::new()];
        units[0].take(0, needed(1));
        units[0].take(needed(1), needed(2));
        let mut entries: Vec<Option<usize>> = vec![None; names.len()];
        for (name, place) in names.iter().zip(&mut entries) {
            let Some(&at) = older.get(*name) else { continue };
            let unit = at / DIRECTORY_UNIT;
            units.resize_with(units.len().max(unit + 1), DirectoryUnit::new);
            units[unit].take(at % DIRECTORY_UNIT, needed(name.len()));
            *place = Some(at);
        }
        let mut last = units.len() - 1;
        for (name, place) in names.iter().zip(&mut entries).filter(|(_, place)| place.is_none()) {
            let len = needed(name.len());
            let found = units
                .iter_mut()
                .enumerate()
                .find_map(|(n, unit)| unit.take_first(len).map(|at| n * DIRECTORY_UNIT + at));
            *place = Some(found.unwrap_or_else(|| {
                units.push(DirectoryUnit::new());
                last = units.len() - 1;
                units[last].take(0, len);
                last * DIRECTORY_UNIT
            }));
        }
        let entries = entries.into_iter().map(|place| place.expect("each name has its place"));
        Self { entries: entries.collect(), units: units.len() }
    }

    /// Bytes of the directory.
    pub(super) fn len(&self) -> u64 {
        (self.units * DIRECTORY_UNIT) as u64
    }
}

/// The places of names in the bytes of an older directory, whose first entries are `.` and `..`;
/// `None` for another one.
pub(super) fn places_in(sb: &Super, bytes: &[u8]) -> Option<HashMap<Vec<u8>, usize>> {
    let mut places = HashMap::new();
    let mut dots = 0;
    for (n, unit) in bytes.chunks(DIRECTORY_UNIT).enumerate() {
        // A hole: a unit without any entry.
        if unit.iter().all(|&byte| byte == 0) {
            continue;
        }
        for entry in sb.entries(unit, Location::of("directory")) {
            let entry = entry.ok()?;
            let at = n * DIRECTORY_UNIT + entry.at;
            let is_dot = [(0, &b"."[..]), (needed(1), b"..")].contains(&(at, entry.name));
            dots += u32::from(is_dot && entry.is_name());
            if !is_dot && entry.is_name() && needed(entry.name.len()) <= entry.len {
                places.insert(entry.name.to_vec(), at);
            }
        }
    }
    (dots == 2).then_some(places)
}

/// The bytes of a directory whose entries have these places; else they are in order.
pub(super) fn encode(
    dir: Ino,
    parent: Ino,
    entries: &[NewEntry<'_>],
    places: Option<&Places>,
    order: Order,
) -> Vec<u8> {
    let dots = [
        NewEntry { name: b".", ino: dir, kind: FileKind::Directory },
        NewEntry { name: b"..", ino: parent, kind: FileKind::Directory },
    ];
    match places {
        Some(places) => {
            debug_assert_eq!(places.entries.len(), entries.len(), "a place for each entry");
            let at = [0, needed(1)].into_iter().chain(places.entries.iter().copied());
            let mut placed: Vec<(usize, &NewEntry<'_>)> =
                at.zip(dots.iter().chain(entries)).collect();
            placed.sort_unstable_by_key(|&(at, _)| at);
            encode_placed(&placed, places.units, order)
        }
        None => encode_in_order(dots.iter().chain(entries), order),
    }
}

/// An entry takes the bytes up to the next one of its unit. Free bytes at the start of a unit are an
/// unused entry.
fn encode_placed(placed: &[(usize, &NewEntry<'_>)], units: usize, order: Order) -> Vec<u8> {
    let mut bytes = vec![0; units * DIRECTORY_UNIT];
    let mut rest = placed;
    for start in (0..bytes.len()).step_by(DIRECTORY_UNIT) {
        let end = start + DIRECTORY_UNIT;
        let (own, behind) = rest.split_at(rest.partition_point(|&(at, _)| at < end));
        rest = behind;
        let first = own.first().map_or(end, |&(at, _)| at);
        if first > start {
            entry::put_len(order, &mut bytes, start, first - start);
        }
        let ends = own.iter().skip(1).map(|&(at, _)| at).chain([end]);
        for (&(at, new), stop) in own.iter().zip(ends) {
            let kind = entry::code_of(new.kind);
            debug_assert!(at + needed(new.name.len()) <= stop, "entries do not overlap");
            let new = entry::Entry { at, len: stop - at, ino: new.ino, kind, name: new.name };
            entry::put(order, &mut bytes, &new);
        }
    }
    bytes
}

fn encode_in_order<'a>(entries: impl Iterator<Item = &'a NewEntry<'a>>, order: Order) -> Vec<u8> {
    let mut bytes = vec![0; DIRECTORY_UNIT];
    let (mut at, mut last) = (0, 0);
    for new in entries {
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
            let bytes = encode(Ino::new(3), Ino::new(2), &entries, None, Order::Little);
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

    /// Names stay, others fill the bytes of removed ones, and then go behind.
    #[test]
    fn names_keep_their_places() {
        let entry = |name| NewEntry { name, ino: Ino::new(9), kind: FileKind::Regular };
        fn encoded(names: &[&[u8]], older: &HashMap<Vec<u8>, usize>) -> (Vec<u8>, Places) {
            let entry = |name| NewEntry { name, ino: Ino::new(9), kind: FileKind::Regular };
            let entries: Vec<_> = names.iter().map(|&name| entry(name)).collect();
            let places = Places::keeping(names, older);
            let bytes = encode(Ino::new(3), Ino::new(2), &entries, Some(&places), Order::Little);
            (bytes, places)
        }
        let all: Vec<Vec<u8>> = (0..90).map(|n| format!("name-{n:02}").into_bytes()).collect();
        let all: Vec<&[u8]> = all.iter().map(|name| &name[..]).collect();
        let entries: Vec<_> = all.iter().map(|name| entry(name)).collect();
        let fresh = encode(Ino::new(3), Ino::new(2), &entries, None, Order::Little);
        // As many of 16 bytes as fit in a unit: 30 beside the first two entries, then 32.
        let place = |n: usize| if n < 30 { 24 + n * 16 } else { 512 + (n - 30) * 16 };
        let older: HashMap<Vec<u8>, usize> =
            all.iter().enumerate().map(|(n, name)| (name.to_vec(), place(n))).collect();
        assert_eq!(encoded(&all, &older).0, fresh, "an equal directory");
        // Without the first of a unit, and two others; a longer name takes the place of the two.
        let gone = [30, 40, 41];
        let mut names = vec![&b"a name of 20 bytes.."[..], b"new"];
        names.extend(
            all.iter().enumerate().filter(|(n, _)| !gone.contains(n)).map(|(_, name)| name),
        );
        let (bytes, places) = encoded(&names, &older);
        assert_eq!(places.entries[..2], [place(40), place(30)]);
        assert_eq!(bytes.len(), fresh.len());
        let unused = u16::from_le_bytes([bytes[512 + 4], bytes[512 + 5]]);
        assert_eq!((bytes[512], unused), (9, 16), "the first of its unit is in use again");
        let (bytes, _) = encoded(&all[32..], &older);
        assert_eq!(bytes[512..520], [0, 0, 0, 0, 32, 0, 0, 0], "an unused entry in front");
        // Units without names at the end go.
        assert_eq!(encoded(&all[..20], &older).0.len(), 512);
    }
}
