//! The file allocation table: the successor of each cluster.

use crate::boot::{Boot, Width};
use crate::volume::{PAGE, Volume};
use seekless_fs::field::{byte, index};
use seekless_fs::read_cache::Block;
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Extent};

/// An entry of the FAT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    Free,
    /// The number of the next cluster, a valid one.
    Next(u32),
    /// The last of its chain.
    End,
    /// Bad, marked for a fault of the medium.
    Bad,
    /// A number of no cluster: reserved, or past the end.
    Wrong(u32),
}

impl Link {
    /// The link in an entry's bits.
    pub(crate) fn of(boot: &Boot, value: u32) -> Self {
        let all = boot.width.mask();
        match value {
            0 => Self::Free,
            _ if boot.is_cluster(value) => Self::Next(value),
            _ if value >= all - 7 => Self::End,
            _ if value == all - 8 => Self::Bad,
            _ => Self::Wrong(value),
        }
    }

    /// The number of the next cluster.
    pub(crate) fn next(self) -> Option<u32> {
        if let Self::Next(cluster) = self { Some(cluster) } else { None }
    }
}

impl Width {
    /// The significant bits of an entry.
    pub(crate) fn mask(self) -> u32 {
        match self {
            Self::Fat12 => 0x0FFF,
            Self::Fat16 => 0xFFFF,
            Self::Fat32 => 0x0FFF_FFFF,
        }
    }
}

/// Reads entries of a FAT; keeps the last page.
pub(crate) struct Table<'a> {
    volume: &'a Volume,
    fat: u32,
    page: Option<(u64, Block)>,
}

impl<'a> Table<'a> {
    /// The FAT that is in use.
    pub(crate) fn new(volume: &'a Volume) -> Self {
        Self::of(volume, volume.boot.active)
    }

    /// One of the FATs.
    pub(crate) fn of(volume: &'a Volume, fat: u32) -> Self {
        debug_assert!(fat < volume.boot.fats, "FAT {fat} of {}", volume.boot.fats);
        Self { volume, fat, page: None }
    }

    fn byte(&mut self, at: u64) -> Result<u8, FsError> {
        let (number, within) = (at >> 12, at & 0xFFF);
        if self.page.as_ref().is_none_or(|(held, _)| *held != number) {
            self.page = Some((number, self.volume.fat_page(self.fat, number)?));
        }
        let page = self.page.as_ref().map(|(_, page)| page);
        let within = usize::try_from(within).unwrap_or(PAGE);
        Ok(page.and_then(|page| page.get(within)).copied().unwrap_or(0))
    }

    /// The value of an entry, as stored; on FAT32 all 32 bits.
    pub(crate) fn raw(&mut self, cluster: u32) -> Result<u32, FsError> {
        let last = self.volume.boot.last_cluster();
        debug_assert!(cluster <= last, "entry {cluster} of {last}");
        let at = entry_byte(self.volume.boot.width, cluster);
        let mut bytes = [self.byte(at)?, self.byte(at + 1)?, 0, 0];
        if self.volume.boot.width == Width::Fat32 {
            let [_, _, third, fourth] = &mut bytes;
            (*third, *fourth) = (self.byte(at + 2)?, self.byte(at + 3)?);
        }
        Ok(entry_of(self.volume.boot.width, cluster, bytes))
    }

    /// The successor of a cluster.
    pub(crate) fn link(&mut self, cluster: u32) -> Result<Link, FsError> {
        let value = self.raw(cluster)? & self.volume.boot.width.mask();
        Ok(Link::of(&self.volume.boot, value))
    }

    /// The bad clusters, in order.
    pub(crate) fn bad_clusters(&mut self) -> Result<Vec<u32>, FsError> {
        let mut bad = Vec::new();
        for cluster in 2..=self.volume.boot.last_cluster() {
            if self.link(cluster)? == Link::Bad {
                bad.push(cluster);
            }
        }
        Ok(bad)
    }

    /// Visits the runs of free clusters in `from..to`.
    pub(crate) fn free_runs(
        &mut self,
        from: u32,
        to: u32,
        visit: &mut dyn FnMut(Extent),
    ) -> Result<(), FsError> {
        debug_assert!(from >= 2, "entries 0 and 1 are those of no cluster");
        let mut run = Extent::default();
        for cluster in from..to {
            if self.link(cluster)? != Link::Free {
                continue;
            }
            let at = BlockNo::new(cluster.into());
            if run.end() == at && run.len > 0 {
                run.len += 1;
                continue;
            }
            if run.len > 0 {
                visit(run);
            }
            run = Extent::new(at, 1);
        }
        if run.len > 0 {
            visit(run);
        }
        Ok(())
    }
}

/// The value of an entry, as stored, by the bytes from [`entry_byte`] on.
pub(crate) fn entry_of(width: Width, cluster: u32, bytes: [u8; 4]) -> u32 {
    let all = u32::from_le_bytes(bytes);
    match width {
        Width::Fat12 if cluster & 1 == 1 => (all & 0xFFFF) >> 4,
        Width::Fat12 => all & 0x0FFF,
        Width::Fat16 => all & 0xFFFF,
        Width::Fat32 => all,
    }
}

/// The first byte that contains a part of an entry.
pub(crate) fn entry_byte(width: Width, cluster: u32) -> u64 {
    let n = u64::from(cluster);
    match width {
        Width::Fat12 => n + (n >> 1),
        Width::Fat16 => n * 2,
        Width::Fat32 => n * 4,
    }
}

/// The place of an entry of the FAT.
pub(crate) fn entry_place(boot: &Boot, fat: u32, cluster: u32) -> Location {
    debug_assert!(cluster <= boot.last_cluster(), "entry {cluster} of a FAT");
    let at = entry_byte(boot.width, cluster);
    let sector = u64::from(boot.sector);
    let block = boot.fat_start(fat) + at / sector;
    Location::of("FAT").in_block(block).at_offset(byte(index(at % sector)))
}

impl Width {
    /// The bits of the second entry for a volume that was unmounted and for one without failed
    /// sectors; FAT12 has none.
    pub(crate) fn marks(self) -> Option<(u32, u32)> {
        match self {
            Self::Fat12 => None,
            Self::Fat16 => Some((0x8000, 0x4000)),
            Self::Fat32 => Some((0x0800_0000, 0x0400_0000)),
        }
    }
}
