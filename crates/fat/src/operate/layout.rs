//! Where the slots of a directory lie.

use super::chain::Chain;
use crate::boot::Boot;
use crate::ondisk::{ENTRY_SIZE, MOST_ENTRIES};
use seekless_fs::field::index;
use seekless_units::{BlockNo, Extent};
use std::ops::Range;

impl Boot {
    /// The number of a slot's sector in a directory.
    pub(super) fn slot_sector(&self, slot: u32) -> u32 {
        slot / self.slots_per_sector()
    }

    /// The slots in the sector of a slot.
    pub(super) fn slots_beside(&self, slot: u32) -> Range<u32> {
        let start = self.slot_sector(slot) * self.slots_per_sector();
        start..start + self.slots_per_sector()
    }
}

/// The sectors of a directory: those of its clusters, or of the root directory of FAT12 and FAT16.
#[derive(Clone, Copy)]
pub(super) struct DirectoryLayout<'a> {
    boot: &'a Boot,
    /// None for a fixed root directory.
    chain: Option<&'a Chain>,
}

impl<'a> DirectoryLayout<'a> {
    /// `chain` is none for a fixed root directory.
    pub(super) fn new(boot: &'a Boot, chain: Option<&'a Chain>) -> Self {
        Self { boot, chain }
    }

    /// How many sectors there are.
    pub(super) fn sectors(self) -> u64 {
        match self.chain {
            Some(chain) => u64::from(chain.len()) * u64::from(self.boot.spc),
            None => self.boot.fixed_root().1,
        }
    }

    /// The number of usable slots.
    pub(super) fn slots(self) -> u32 {
        let all = self.sectors() * u64::from(self.boot.slots_per_sector());
        let most = if self.chain.is_some() { MOST_ENTRIES } else { self.boot.root_entries };
        u32::try_from(all).unwrap_or(u32::MAX).min(most)
    }

    /// The sector with this number in the directory.
    pub(super) fn sector(self, nth: u64) -> Option<BlockNo> {
        let Some(chain) = self.chain else {
            let (start, len) = self.boot.fixed_root();
            return (nth < len).then(|| start + nth);
        };
        let spc = u64::from(self.boot.spc);
        let lcn = u32::try_from(nth / spc).ok()?;
        let (cluster, _) = chain.at(lcn)?;
        Some(self.boot.sector_of(cluster) + nth % spc)
    }

    /// The sector of a slot, and the byte in it.
    pub(super) fn place(self, slot: u32) -> Option<(BlockNo, usize)> {
        debug_assert!(slot < self.slots(), "slot {slot} of {}", self.slots());
        let sector = self.sector(u64::from(self.boot.slot_sector(slot)))?;
        Some((sector, index(slot % self.boot.slots_per_sector()) * ENTRY_SIZE))
    }

    /// The runs of its sectors.
    pub(super) fn runs(self) -> Vec<Extent> {
        match self.chain {
            Some(chain) => chain.runs().map(|run| self.boot.sectors_of(run)).collect(),
            None => {
                let (start, len) = self.boot.fixed_root();
                vec![Extent::new(start, len)]
            }
        }
    }
}
