//! The entries of a directory, kept while it is in use: names without case, and free slots.

use crate::compose::shorts::{Basis, Short, Shorts};
use crate::name;
use hashbrown::HashMap;
use seekless_fs::field::index;
use std::collections::BTreeMap;

/// Most slots of a name: its pieces and the short entry.
const MOST_SLOTS: usize = 21;

/// A file in a directory.
#[derive(Clone, Debug)]
pub(super) struct CachedEntry {
    /// The first of its slots.
    pub(super) start: u32,
    /// The name that is shown.
    pub(super) name: Vec<u8>,
    pub(super) short: Short,
    pub(super) is_dir: bool,
}

impl CachedEntry {
    /// The names of the file in upper case.
    pub(super) fn keys(&self) -> [Vec<u16>; 2] {
        let folded = |name: &[u8]| name::fold(&name::to_units(name).unwrap_or_default());
        [folded(&self.name), folded(&name::short(&self.short, 0))]
    }
}

/// A directory in memory.
pub(super) struct Dir {
    /// Files by the slots of their short entries.
    entries: BTreeMap<u32, CachedEntry>,
    /// Short and long names in upper case, and the slots of the short entries.
    names: HashMap<Vec<u16>, u32>,
    shorts: Shorts,
    free: FreeSlots,
    /// The first slot that was never used.
    end: u32,
    /// How many slots there are.
    capacity: u32,
    /// The number of its subdirectories.
    subdirectories: u32,
}

/// Slots that are free, in runs.
#[derive(Default)]
struct FreeSlots {
    runs: BTreeMap<u32, u32>,
    /// By length: no run of that many slots begins before this one.
    lowest: [u32; MOST_SLOTS + 1],
}

impl FreeSlots {
    fn give(&mut self, start: u32, len: u32) {
        let (mut start, mut end) = (start, start + len);
        debug_assert!(len > 0, "slots are given back");
        debug_assert!(self.runs.range(start..end).next().is_none(), "{start}..{end}: once");
        if let Some((&before, &len)) = self.runs.range(..start).next_back()
            && before + len == start
        {
            start = before;
        }
        if let Some(&len) = self.runs.get(&end) {
            self.runs.remove(&end);
            end += len;
        }
        self.runs.insert(start, end - start);
        self.lowest.iter_mut().for_each(|lowest| *lowest = start.min(*lowest));
    }

    /// Takes some of a free run.
    fn take(&mut self, start: u32, len: u32) {
        let found = self.runs.range(..=start).next_back().map(|(&at, &len)| (at, len));
        debug_assert!(found.is_some(), "slot {start} is free");
        let Some((at, run)) = found else { return };
        let (end, last) = (start + len, at + run);
        debug_assert!(end <= last, "the slots {start}..{end} are free");
        self.runs.remove(&at);
        if at < start {
            self.runs.insert(at, start - at);
        }
        if end < last {
            self.runs.insert(end, last - end);
        }
    }

    /// The first run of `len` slots.
    fn find(&mut self, len: u32) -> Option<u32> {
        debug_assert!((1..=MOST_SLOTS).contains(&index(len)), "a name of {len} slots");
        let from = self.lowest.get(index(len)).copied().unwrap_or(0);
        let from = self.runs.range(..from).next_back().map_or(from, |(&at, _)| at);
        let found = self.runs.range(from..).find(|&(_, &run)| run >= len).map(|(&at, _)| at);
        if let (Some(lowest), Some(at)) = (self.lowest.get_mut(index(len)), found) {
            *lowest = at;
        }
        found
    }

    /// A run of `len` free slots, the last of which is in `last`.
    fn find_among(&self, len: u32, last: std::ops::Range<u32>) -> Option<u32> {
        let least = last.start - last.start.min(len - 1);
        let from = self.runs.range(..least).next_back().map_or(least, |(&at, _)| at);
        self.runs.range(from..last.end).find_map(|(&at, &run)| {
            let start = at.max(least);
            let end = start + len;
            (end <= at + run && end <= last.end).then_some(start)
        })
    }
}

impl Dir {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            entries: BTreeMap::new(),
            names: HashMap::new(),
            shorts: Shorts::default(),
            free: FreeSlots::default(),
            end: 0,
            capacity,
            subdirectories: 0,
        }
    }

    /// Whether there is no file in it.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many files are in it.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The file of a slot.
    pub(super) fn entry(&self, slot: u32) -> Option<&CachedEntry> {
        self.entries.get(&slot)
    }

    /// The files from a slot on, in order.
    pub(super) fn entries_from(&self, slot: u32) -> impl Iterator<Item = (u32, &CachedEntry)> {
        self.entries.range(slot..).map(|(&slot, entry)| (slot, entry))
    }

    /// The first slot that was never used.
    pub(super) fn end(&self) -> u32 {
        self.end
    }

    /// Sets the first slot that was never used.
    pub(super) fn set_end(&mut self, end: u32) {
        debug_assert!(end <= self.capacity, "slot {end} of {}", self.capacity);
        self.end = end;
    }

    /// How many slots there are.
    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The number of its subdirectories.
    pub(super) fn subdirectories(&self) -> u32 {
        self.subdirectories
    }

    /// A short name for a new file, which is not taken yet.
    pub(super) fn propose_short(&mut self, basis: &Basis) -> Option<Short> {
        let short = match basis.fits && self.shorts.take(basis.name) {
            true => basis.name,
            false => self.shorts.with_tail(&basis.name)?,
        };
        // It is taken again when the file is entered.
        self.shorts.give(&short);
        Some(short)
    }

    /// Gives back the short name of a file that is about to have another.
    pub(super) fn give_short(&mut self, short: &Short) {
        self.shorts.give(short);
    }

    /// Takes a short name.
    pub(super) fn take_short(&mut self, short: Short) {
        self.shorts.take(short);
    }

    /// Notes that slots are free.
    pub(super) fn give_slots(&mut self, start: u32, count: u32) {
        self.free.give(start, count);
    }

    /// How many slots are free.
    pub(super) fn free_slots(&self) -> u32 {
        self.free.runs.values().sum()
    }

    /// The slot of the short entry of a name in upper case.
    pub(super) fn find(&self, folded: &[u16]) -> Option<u32> {
        self.names.get(folded).copied()
    }

    /// Enters a file; an existing name keeps its slot.
    pub(super) fn enter(&mut self, slot: u32, entry: CachedEntry) {
        debug_assert!(entry.start <= slot && slot < self.capacity, "slot {slot}: {entry:?}");
        for folded in entry.keys() {
            self.names.entry(folded).or_insert(slot);
        }
        self.shorts.take(entry.short);
        self.subdirectories += u32::from(entry.is_dir);
        let before = self.entries.insert(slot, entry);
        debug_assert!(before.is_none(), "slot {slot} has one entry");
    }

    /// Takes slots out of those that are free.
    pub(super) fn use_slots(&mut self, start: u32, count: u32) {
        self.free.take(start, count);
        self.end = self.end.max(start + count);
        debug_assert!(self.end <= self.capacity, "slot {} of {}", self.end, self.capacity);
    }

    /// Forgets a file, and frees its slots.
    pub(super) fn leave(&mut self, slot: u32) -> Option<CachedEntry> {
        let entry = self.entries.remove(&slot)?;
        for folded in entry.keys() {
            if self.names.get(&folded) == Some(&slot) {
                self.names.remove(&folded);
            }
        }
        self.shorts.give(&entry.short);
        self.subdirectories -= u32::from(entry.is_dir);
        self.free.give(entry.start, slot - entry.start + 1);
        Some(entry)
    }

    /// The first free slots in a row.
    pub(super) fn find_free(&mut self, count: u32) -> Option<u32> {
        self.free.find(count)
    }

    /// As [`Dir::find_free`], with the last one in `last`.
    pub(super) fn find_free_at(&self, count: u32, last: std::ops::Range<u32>) -> Option<u32> {
        self.free.find_among(count, last)
    }

    /// Adds slots, none of them used.
    pub(super) fn grow(&mut self, capacity: u32) {
        debug_assert!(capacity > self.capacity, "a directory grows");
        self.free.give(self.capacity, capacity - self.capacity);
        self.capacity = capacity;
    }
}

/// A name without trailing dots and blanks, which are no part of it.
pub(super) fn trimmed(name: &[u8]) -> &[u8] {
    let kept = name.iter().rposition(|byte| !matches!(byte, b'.' | b' '));
    name.get(..kept.map_or(0, |at| at + 1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_slots_are_found_and_joined() {
        let mut free = FreeSlots::default();
        free.give(10, 4);
        free.give(20, 6);
        assert_eq!((free.find(4), free.find(5), free.find(7)), (Some(10), Some(20), None));
        free.give(14, 6);
        assert_eq!(free.find(16), Some(10));
        free.take(12, 3);
        assert_eq!(free.runs, BTreeMap::from([(10, 2), (15, 11)]));
        assert_eq!((free.find(2), free.find(3)), (Some(10), Some(15)));
        free.give(12, 1);
        assert_eq!(free.find(3), Some(10));
        // The last slot is to be one of 16 to 31.
        assert_eq!(free.find_among(3, 16..32), Some(15));
        assert_eq!(free.find_among(1, 16..32), Some(16));
        assert_eq!(free.find_among(3, 0..16), Some(10));
        assert_eq!(free.find_among(12, 16..32), None);
    }

    #[test]
    fn dots_and_blanks_behind_are_no_part_of_a_name() {
        assert_eq!(trimmed(b"a. ."), b"a");
        assert_eq!(trimmed(b" .a b"), b" .a b");
        assert_eq!(trimmed(b"..."), b"");
    }
}
