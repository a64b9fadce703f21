//! Entries of the FATs, read and written through the cache.

use super::chain::Chain;
use super::map::Core;
use crate::boot::{Boot, Width};
use crate::table::{Link, entry_byte, entry_place};
use seekless_cache::{ChangeId, Piece, Role};
use seekless_fs::field::{byte, index, truncated, wide};
use seekless_fs::{FsError, Location};
use seekless_live::Ids;
use seekless_units::{BlockNo, Extent};
use std::sync::Arc;

/// The order of the two writes that an entry in two sectors takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Straddling {
    /// The first sector first, so that the number is out of range between the two writes: chains
    /// that are continued.
    Ascending,
    /// The second sector first: chains that end here from now on, and clusters taken.
    Descending,
}

/// Bytes of the FAT, and where they begin in it.
struct Window {
    at: u64,
    bytes: Vec<u8>,
}

impl Width {
    /// The value of the entry of a cluster among bytes of the FAT that begin at `at`.
    fn get(self, cluster: u32, at: u64, bytes: &[u8]) -> Option<u32> {
        let from = index(entry_byte(self, cluster).checked_sub(at)?);
        let get = |n: usize| bytes.get(from + n).copied().map(u32::from);
        let pair = get(1)? << 8 | get(0)?;
        Some(match self {
            Self::Fat12 if cluster & 1 == 1 => pair >> 4,
            Self::Fat12 => pair & 0xFFF,
            Self::Fat16 => pair,
            Self::Fat32 => get(3)? << 24 | get(2)? << 16 | pair,
        })
    }

    /// Writes the entry of a cluster; the bits that are not part of it stay.
    fn set(self, cluster: u32, value: u32, at: u64, bytes: &mut [u8]) -> Option<()> {
        let old = self.get(cluster, at, bytes)?;
        let from = index(entry_byte(self, cluster).checked_sub(at)?);
        let mask = self.mask();
        let new = old & !mask | value & mask;
        let raw = match self {
            Self::Fat12 => {
                let [low, high] = [*bytes.get(from)?, *bytes.get(from + 1)?];
                let pair = u32::from(high) << 8 | u32::from(low);
                if cluster & 1 == 1 { pair & 0x000F | new << 4 } else { pair & 0xF000 | new }
            }
            Self::Fat16 | Self::Fat32 => new,
        };
        let to = bytes.get_mut(from..from + self.entry_len())?;
        to.iter_mut().zip(raw.to_le_bytes()).for_each(|(to, from)| *to = from);
        Some(())
    }

    /// Bytes that contain a part of an entry.
    fn entry_len(self) -> usize {
        if self == Self::Fat32 { 4 } else { 2 }
    }
}

/// The FATs of a volume in use.
pub(super) struct AllocationTable {
    boot: Arc<Boot>,
}

impl AllocationTable {
    pub(super) fn new(boot: Arc<Boot>) -> Self {
        Self { boot }
    }

    /// The FATs that are written: the first one last, as in FreeBSD, or the active one alone.
    fn written_fats(&self) -> std::iter::Rev<std::ops::Range<u32>> {
        let boot = &self.boot;
        if boot.mirrored {
            return (0..boot.fats).rev();
        }
        (boot.active..boot.active + 1).rev()
    }

    /// The sector with a byte of a FAT, and the byte in the sector.
    fn in_fat(&self, fat: u32, at: u64) -> (BlockNo, usize) {
        let sector = u64::from(self.boot.sector);
        debug_assert!(fat < self.boot.fats, "FAT {fat} of {}", self.boot.fats);
        debug_assert!(at / sector < self.boot.fat_sectors.into(), "byte {at} of a FAT");
        (self.boot.fat_start(fat) + at / sector, index(at % sector))
    }

    /// Reads the FATs into the cache, as kernels of BSD do when they mount a volume
    /// (`fillinusemap`). It makes no file faster, and is for comparisons of times.
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub(super) fn load(&self, core: &mut Core) -> Result<(), FsError> {
        const PIECE: u64 = 128;
        let sectors = u64::from(self.boot.fat_sectors);
        for fat in self.written_fats() {
            let start = self.boot.fat_start(fat);
            let mut at = 0u64;
            while at < sectors {
                let count = (sectors - at).min(PIECE);
                let bytes = count * u64::from(self.boot.sector);
                let mut piece = vec![0; index(bytes)];
                core.cache.blocks_mut().read_run(start + at, 0, &mut piece)?;
                at += count;
            }
        }
        Ok(())
    }

    /// Whether the entry of a cluster lies in two sectors.
    pub(super) fn straddles(&self, cluster: u32) -> bool {
        let at = entry_byte(self.boot.width, cluster);
        let end = at + wide(self.boot.width.entry_len()) - 1;
        self.in_fat(0, at).0 != self.in_fat(0, end).0
    }

    /// The successor of a cluster.
    pub(super) fn link(&self, core: &mut Core, cluster: u32) -> Result<Link, FsError> {
        let window = self.window(core, self.boot.active, cluster, 1)?;
        let value = self.boot.width.get(cluster, window.at, &window.bytes);
        let value = value.ok_or_else(|| truncated(Location::of("FAT")))?;
        Ok(Link::of(&self.boot, value & self.boot.width.mask()))
    }

    /// The bytes of the entries of clusters.
    fn window(
        &self,
        core: &mut Core,
        fat: u32,
        first: u32,
        count: usize,
    ) -> Result<Window, FsError> {
        debug_assert!(count > 0, "entries are read");
        let width = self.boot.width;
        let last = first + byte(count) - 1;
        debug_assert!(last <= self.boot.last_cluster(), "entry {last} of a FAT");
        let at = entry_byte(width, first);
        let end = entry_byte(width, last) + wide(width.entry_len());
        let mut bytes = vec![0; index(end - at)];
        let mut done = 0usize;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let (sector, skip) = self.in_fat(fat, at + wide(done));
            let room = (index(self.boot.sector) - skip).min(rest.len());
            let from = core.cache.blocks_mut().read(sector, skip, room)?;
            rest.iter_mut().zip(from).for_each(|(to, &from)| *to = from);
            done += room;
        }
        Ok(Window { at, bytes })
    }

    /// Writes the entries of consecutive clusters, in all FATs, after the changes that must be on
    /// the disk before: one change for each sector.
    pub(super) fn put(
        &self,
        core: &mut Core,
        first: u32,
        values: &[u32],
        role: Role,
        straddling: Straddling,
        after: &[ChangeId],
    ) -> Result<Ids, FsError> {
        let mut ids = Ids::new();
        let width = self.boot.width;
        debug_assert!(first >= 2, "entry {first} is that of no cluster");
        debug_assert!(values.iter().all(|&value| value <= width.mask()), "{values:?}");
        for fat in self.written_fats() {
            let mut window = self.window(core, fat, first, values.len())?;
            for (cluster, &value) in (first..).zip(values) {
                let set = width.set(cluster, value, window.at, &mut window.bytes);
                set.ok_or_else(|| truncated(entry_place(&self.boot, fat, cluster)))?;
            }
            let mut clusters = (first..).take(values.len());
            let in_order = width == Width::Fat12 && clusters.any(|n| self.straddles(n));
            let mut parts = self.parts(fat, &window);
            if in_order && straddling == Straddling::Descending {
                parts.reverse();
            }
            let mut before = Ids::from_slice(after);
            for (sector, skip, bytes) in parts {
                let piece = Piece { offset: byte(skip), bytes };
                let id = core.cache.changes().change(sector, &[piece], role, &before)?;
                ids.push(id);
                if in_order {
                    before.push(id);
                }
            }
        }
        Ok(ids)
    }

    /// Bytes of a FAT by the sectors that they lie in.
    fn parts<'a>(&self, fat: u32, window: &'a Window) -> Vec<(BlockNo, usize, &'a [u8])> {
        let mut parts = Vec::new();
        let mut rest = window.bytes.as_slice();
        let mut at = window.at;
        while !rest.is_empty() {
            let (sector, skip) = self.in_fat(fat, at);
            let room = (index(self.boot.sector) - skip).min(rest.len());
            let (now, later) = rest.split_at(room);
            parts.push((sector, skip, now));
            at += wide(room);
            rest = later;
        }
        parts
    }

    /// The sectors of all FATs with entries of a chain.
    pub(super) fn runs(&self, chain: &Chain) -> Vec<Extent> {
        let width = self.boot.width;
        let mut found = Vec::new();
        for run in chain.runs() {
            let first = u32::try_from(run.start.get()).unwrap_or(u32::MAX);
            let last = u32::try_from(run.end().get()).unwrap_or(u32::MAX) - 1;
            for fat in self.written_fats() {
                let (start, _) = self.in_fat(fat, entry_byte(width, first));
                let end = entry_byte(width, last) + wide(width.entry_len());
                let (end, _) = self.in_fat(fat, end - 1);
                found.push(Extent::new(start, end - start + 1));
            }
        }
        found
    }

    /// Sets the marks of the second entry in all FATs that are written: `clean` for a
    /// volume that is not in use. Nothing on FAT12.
    pub(super) fn put_marks(&self, core: &mut Core, clean: bool) -> Result<(), FsError> {
        let Some((unmounted, _)) = self.boot.width.marks() else { return Ok(()) };
        for fat in self.written_fats() {
            let window = self.window(core, fat, 1, 1)?;
            let Some(old) = self.boot.width.get(1, window.at, &window.bytes) else { continue };
            let new = if clean { old | unmounted } else { old & !unmounted };
            let len = self.boot.width.entry_len();
            let (sector, skip) = self.in_fat(fat, window.at);
            let bytes = new.to_le_bytes();
            let bytes = bytes.get(..len).unwrap_or_default();
            core.cache.changes().change(
                sector,
                &[Piece { offset: byte(skip), bytes }],
                Role::Summary,
                &[],
            )?;
        }
        Ok(())
    }
}
