//! Directories in memory.

use super::chain::Chain;
use super::directory::{CachedEntry, Dir, trimmed};
use super::layout::DirectoryLayout;
use super::map::Core;
use crate::boot::Boot;
use crate::directory::Entry;
use crate::entry::{LongName, Slot};
use crate::files::ROOT;
use crate::name;
use crate::ondisk::{ENTRY_SIZE, ShortEntry};
use hashbrown::HashMap;
use seekless_fs::field::{byte, index, truncated};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Ino};
use std::sync::Arc;

/// Most names in memory, of all directories together.
const MOST_NAMES: usize = 1 << 18;

/// Directories in memory.
pub(super) struct Directories {
    boot: Arc<Boot>,
    /// Each with the time of its last use.
    dirs: HashMap<Ino, (u64, Dir)>,
    /// Uses so far.
    asked: u64,
}

impl Directories {
    pub(super) fn new(boot: Arc<Boot>) -> Self {
        Self { boot, dirs: HashMap::new(), asked: 0 }
    }

    fn cached(&mut self, dir: Ino) -> Option<&mut Dir> {
        self.asked += 1;
        let (asked, found) = self.dirs.get_mut(&dir)?;
        *asked = self.asked;
        Some(found)
    }

    pub(super) fn forget(&mut self, dir: Ino) {
        self.dirs.remove(&dir);
    }

    /// Keeps a directory in memory; the least recently used ones are dropped while there are too
    /// many names.
    fn keep(&mut self, ino: Ino, dir: Dir) {
        let names: usize = self.dirs.values().map(|(_, dir)| dir.len() + 8).sum();
        if names + dir.len() > MOST_NAMES {
            let order = self.dirs.iter().map(|(&ino, (asked, dir))| (*asked, ino, dir.len()));
            let mut order: Vec<(u64, Ino, usize)> = order.collect();
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
        let before = self.dirs.insert(ino, (0, dir));
        debug_assert!(before.is_none(), "directory {ino} is read once");
    }

    /// A directory in memory; its node must be loaded.
    pub(super) fn get(&mut self, core: &mut Core, dir: Ino) -> Result<&mut Dir, FsError> {
        if self.cached(dir).is_none() {
            let chain = core.node(dir)?.map.chain.clone();
            self.scan(core, dir, chain.as_ref())?;
        }
        let gone = || truncated(Location::of("directory").in_inode(dir));
        self.cached(dir).ok_or_else(gone)
    }

    /// Reads a directory; returns the number of its subdirectories.
    pub(super) fn scan(
        &mut self,
        core: &mut Core,
        dir: Ino,
        chain: Option<&Chain>,
    ) -> Result<u32, FsError> {
        if let Some(found) = self.cached(dir) {
            return Ok(found.subdirectories());
        }
        let boot = Arc::clone(&self.boot);
        let layout = DirectoryLayout::new(&boot, chain);
        let capacity = layout.slots();
        let len = index(boot.sector);
        let mut scan = SlotScan::new(dir, capacity);
        'all: for nth in 0..layout.sectors() {
            let Some(sector) = layout.sector(nth) else { break };
            let bytes = core.cache.blocks_mut().read(sector, 0, len)?;
            let slots = bytes.chunks(ENTRY_SIZE).take(index(boot.slots_per_sector()));
            for (at, bytes) in (0u32..).zip(slots) {
                if scan.slot >= capacity || !scan.visit(bytes, (sector, at * byte(ENTRY_SIZE)))? {
                    break 'all;
                }
            }
        }
        let found = scan.finish();
        let subdirectories = found.subdirectories();
        self.keep(dir, found);
        Ok(subdirectories)
    }

    /// The slot of a name, short or long.
    pub(super) fn find(
        &mut self,
        core: &mut Core,
        dir: Ino,
        name: &[u8],
    ) -> Result<Option<u32>, FsError> {
        let Some(units) = name::to_units(trimmed(name)) else { return Ok(None) };
        let folded = name::fold(&units);
        Ok(self.get(core, dir)?.find(&folded))
    }
}

/// A scan of the slots of a directory, in order.
struct SlotScan {
    dir: Ino,
    found: Dir,
    long: LongName,
    /// The next slot.
    slot: u32,
    /// Free slots right before it.
    free: u32,
    /// Pieces before it without a short entry so far.
    pieces: u32,
}

impl SlotScan {
    fn new(dir: Ino, capacity: u32) -> Self {
        let (found, long) = (Dir::new(capacity), LongName::default());
        Self { dir, found, long, slot: 0, free: 0, pieces: 0 }
    }

    /// Visits the next slot, at a byte of a sector. False where the directory ends.
    fn visit(&mut self, bytes: &[u8], at: (BlockNo, u32)) -> Result<bool, FsError> {
        let here = self.slot;
        debug_assert!(here < self.found.capacity(), "slot {here} of {}", self.found.capacity());
        let parsed = Slot::parse(bytes);
        let is_piece = matches!(parsed, Some(Slot::Long(_)));
        match parsed {
            None | Some(Slot::End) => {
                self.free += self.pieces;
                return Ok(false);
            }
            Some(Slot::Deleted) => {
                self.long.gap();
                // A file that is entered behind them may have the short name that they
                // belonged to, and would get their long name.
                self.free += self.pieces + 1;
                self.pieces = 0;
                self.slot += 1;
                return Ok(true);
            }
            Some(Slot::Long(piece)) => self.long.piece(here, &piece),
            Some(Slot::Label(_)) => {
                self.long.gap();
            }
            Some(Slot::Short(short)) => self.short(&short, at)?,
        }
        if self.free > 0 {
            self.found.give_slots(here - self.free, self.free);
            self.free = 0;
        }
        self.pieces = if is_piece { self.pieces + 1 } else { 0 };
        self.slot += 1;
        Ok(true)
    }

    /// Enters a file, unless it is the directory's entry for itself or for its parent.
    fn short(
        &mut self,
        short: &ShortEntry,
        (sector, offset): (BlockNo, u32),
    ) -> Result<(), FsError> {
        let here = self.slot;
        let head = self.long.finish(here, short);
        if here < 2 && self.dir != ROOT && short.dots().is_some() {
            return Ok(());
        }
        let place = Location::of("directory entry").in_inode(self.dir).in_block(sector);
        let entry = Entry { slot: here, short: *short, head, sector, offset };
        entry.check_name(place.at_offset(offset))?;
        let (name, start) = (entry.name(), entry.head.start);
        let (short, is_dir) = (short.DIR_Name, short.is_directory());
        self.found.enter(here, CachedEntry { start, name, short, is_dir });
        Ok(())
    }

    /// The directory, with the slots that were visited.
    fn finish(mut self) -> Dir {
        let (slot, capacity) = (self.slot, self.found.capacity());
        debug_assert!(self.free <= slot && slot <= capacity, "slot {slot}, {} free", self.free);
        self.found.set_end(slot);
        let behind = capacity - slot + self.free;
        if behind > 0 {
            self.found.give_slots(slot - self.free, behind);
        }
        self.found
    }
}
