//! The entries of directories, kept while they are in use: names without case, and free slots.

use super::{Chain, Core, Fat};
use crate::compose::shorts::{Short, Shorts};
use crate::directory::Entry;
use crate::entry::{LongName, Slot};
use crate::files::ROOT;
use crate::name;
use crate::ondisk::{ENTRY_SIZE, MOST_ENTRIES};
use hashbrown::HashMap;
use seekless_fs::field::{byte, index, truncated};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Ino};
use std::collections::BTreeMap;

/// Most names in memory, of all directories together.
const MOST_NAMES: usize = 1 << 18;
/// Most slots of a name: its pieces and the short entry.
const MOST_SLOTS: usize = 21;

/// A file in a directory.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// The first of its slots.
    pub(super) start: u32,
    /// The name that is shown.
    pub(super) name: Vec<u8>,
    pub(super) short: Short,
    pub(super) is_dir: bool,
}

/// A directory in memory.
pub(super) struct Dir {
    /// Files by the slots of their short entries.
    pub(super) entries: BTreeMap<u32, Known>,
    /// Short and long names in upper case, and the slots of the short entries.
    names: HashMap<Vec<u16>, u32>,
    pub(super) shorts: Shorts,
    free: FreeSlots,
    /// The first slot that was never used.
    pub(super) end: u32,
    /// How many slots there are.
    pub(super) capacity: u32,
    /// The number of its subdirectories.
    pub(super) subdirectories: u32,
    /// The time of its last use.
    asked: u64,
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
    fn new(capacity: u32) -> Self {
        Self {
            entries: BTreeMap::new(),
            names: HashMap::new(),
            shorts: Shorts::default(),
            free: FreeSlots::default(),
            end: 0,
            capacity,
            subdirectories: 0,
            asked: 0,
        }
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
    pub(super) fn enter(&mut self, slot: u32, known: Known) {
        debug_assert!(known.start <= slot && slot < self.capacity, "slot {slot}: {known:?}");
        for folded in keys(&known) {
            self.names.entry(folded).or_insert(slot);
        }
        self.shorts.take(known.short);
        self.subdirectories += u32::from(known.is_dir);
        let before = self.entries.insert(slot, known);
        debug_assert!(before.is_none(), "slot {slot} has one entry");
    }

    /// Takes slots out of those that are free.
    pub(super) fn use_slots(&mut self, start: u32, count: u32) {
        self.free.take(start, count);
        self.end = self.end.max(start + count);
        debug_assert!(self.end <= self.capacity, "slot {} of {}", self.end, self.capacity);
    }

    /// Forgets a file, and frees its slots.
    pub(super) fn leave(&mut self, slot: u32) -> Option<Known> {
        let known = self.entries.remove(&slot)?;
        for folded in keys(&known) {
            if self.names.get(&folded) == Some(&slot) {
                self.names.remove(&folded);
            }
        }
        self.shorts.give(&known.short);
        self.subdirectories -= u32::from(known.is_dir);
        self.free.give(known.start, slot - known.start + 1);
        Some(known)
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

/// The names of a file in upper case.
pub(super) fn keys(known: &Known) -> [Vec<u16>; 2] {
    let folded = |name: &[u8]| name::fold(&name::to_units(name).unwrap_or_default());
    [folded(&known.name), folded(&name::short(&known.short, 0))]
}

/// Directories in memory.
#[derive(Default)]
pub(super) struct Directories {
    dirs: HashMap<Ino, Dir>,
    asked: u64,
}

impl Directories {
    fn get(&mut self, dir: Ino) -> Option<&mut Dir> {
        self.asked += 1;
        let asked = self.asked;
        let found = self.dirs.get_mut(&dir)?;
        found.asked = asked;
        Some(found)
    }

    pub(super) fn forget(&mut self, dir: Ino) {
        self.dirs.remove(&dir);
    }

    /// Keeps a directory in memory; the least recently used ones are dropped while there are too
    /// many names.
    fn keep(&mut self, ino: Ino, dir: Dir) {
        let count = |dirs: &HashMap<Ino, Dir>| -> usize {
            dirs.values().map(|dir| dir.entries.len() + 8).sum()
        };
        if count(&self.dirs) + dir.entries.len() > MOST_NAMES {
            let mut order: Vec<(u64, Ino, usize)> =
                self.dirs.iter().map(|(&ino, dir)| (dir.asked, ino, dir.entries.len())).collect();
            order.sort_unstable();
            let mut gone = 0usize;
            for (_, old, names) in order {
                if gone >= MOST_NAMES >> 2 {
                    break;
                }
                self.dirs.remove(&old);
                gone += names + 8;
            }
        }
        let before = self.dirs.insert(ino, dir);
        debug_assert!(before.is_none(), "directory {ino} is read once");
    }
}

impl Fat {
    /// Slots in a sector.
    pub(super) fn per_sector(&self) -> u32 {
        self.volume.slots()
    }

    /// Sectors of a directory; `chain` is none for a fixed root.
    pub(super) fn dir_sectors(&self, chain: Option<&Chain>) -> u64 {
        match chain {
            Some(chain) => u64::from(chain.len) * u64::from(self.boot().spc),
            None => self.boot().fixed_root().1,
        }
    }

    /// The number of usable slots of a directory.
    pub(super) fn slots_of(&self, chain: Option<&Chain>) -> u32 {
        let all = self.dir_sectors(chain) * u64::from(self.per_sector());
        let most = if chain.is_some() { MOST_ENTRIES } else { self.boot().root_entries };
        u32::try_from(all).unwrap_or(u32::MAX).min(most)
    }

    /// A sector of a directory.
    pub(super) fn dir_sector(&self, chain: Option<&Chain>, nth: u64) -> Option<BlockNo> {
        let Some(chain) = chain else {
            let (start, len) = self.boot().fixed_root();
            return (nth < len).then(|| start + nth);
        };
        let spc = u64::from(self.boot().spc);
        let lcn = u32::try_from(nth / spc).ok()?;
        let (cluster, _) = chain.at(lcn)?;
        Some(self.boot().sector_of(cluster) + nth % spc)
    }

    /// A directory in memory; its node must be loaded.
    pub(super) fn dir(&mut self, core: &mut Core, dir: Ino) -> Result<&mut Dir, FsError> {
        if self.directories.get(dir).is_none() {
            let chain = core.node(dir)?.map.chain.clone();
            self.scan(core, dir, chain.as_ref())?;
        }
        let gone = || truncated(Location::of("directory").in_inode(dir));
        self.directories.get(dir).ok_or_else(gone)
    }

    /// Reads a directory; returns the number of its subdirectories.
    pub(super) fn scan(
        &mut self,
        core: &mut Core,
        dir: Ino,
        chain: Option<&Chain>,
    ) -> Result<u32, FsError> {
        if let Some(known) = self.directories.get(dir) {
            return Ok(known.subdirectories);
        }
        let capacity = self.slots_of(chain);
        let per = self.per_sector();
        let len = index(self.boot().sector);
        let mut found = Dir::new(capacity);
        let mut long = LongName::default();
        let mut slot = 0u32;
        let mut free = 0u32;
        // Pieces before the slot without a short entry so far.
        let mut pieces = 0u32;
        'all: for nth in 0..self.dir_sectors(chain) {
            let Some(sector) = self.dir_sector(chain, nth) else { break };
            let bytes = core.cache.blocks_mut().read(sector, 0, len)?;
            let place = Location::of("directory entry").in_inode(dir).in_block(sector);
            for (at, bytes) in (0u32..).zip(bytes.chunks(ENTRY_SIZE)).take(index(per)) {
                if slot >= capacity {
                    break 'all;
                }
                let here = slot;
                let parsed = Slot::parse(bytes);
                let is_piece = matches!(parsed, Some(Slot::Long(_)));
                match parsed {
                    None | Some(Slot::End) => {
                        free += pieces;
                        break 'all;
                    }
                    Some(Slot::Deleted) => {
                        long.gap();
                        // A file that is entered behind them may have the short name that they
                        // belonged to, and would get their long name.
                        free += pieces + 1;
                        pieces = 0;
                        slot += 1;
                        continue;
                    }
                    Some(Slot::Long(piece)) => long.piece(here, &piece),
                    Some(Slot::Label(_)) => {
                        long.gap();
                    }
                    Some(Slot::Short(short)) => {
                        let head = long.finish(here, &short);
                        if !(here < 2 && dir != ROOT && short.dots().is_some()) {
                            let offset = at * byte(ENTRY_SIZE);
                            let entry = Entry { slot: here, short, head, sector, offset };
                            self.volume.check_name(&entry, place.at_offset(offset))?;
                            let (name, start) = (entry.name(), entry.head.start);
                            let is_dir = short.is_directory();
                            let known = Known { start, name, short: short.DIR_Name, is_dir };
                            found.enter(here, known);
                        }
                    }
                }
                if free > 0 {
                    found.free.give(here - free, free);
                    free = 0;
                }
                pieces = if is_piece { pieces + 1 } else { 0 };
                slot += 1;
            }
        }
        debug_assert!(free <= slot && slot <= capacity, "slot {slot}, {free} of them free");
        found.end = slot;
        let behind = capacity - slot + free;
        if behind > 0 {
            found.free.give(slot - free, behind);
        }
        let subdirectories = found.subdirectories;
        self.directories.keep(dir, found);
        Ok(subdirectories)
    }

    /// The slot of a name, short or long.
    pub(super) fn slot_of(
        &mut self,
        core: &mut Core,
        dir: Ino,
        name: &[u8],
    ) -> Result<Option<u32>, FsError> {
        let Some(units) = name::to_units(trimmed(name)) else { return Ok(None) };
        let folded = name::fold(&units);
        Ok(self.dir(core, dir)?.find(&folded))
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
