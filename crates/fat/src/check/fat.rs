//! A FAT in memory, as it is and as it shall be.

use crate::boot::Boot;
use crate::table::{Link, Table};
use crate::volume::Volume;
use seekless_fs::FsError;
use seekless_fs::field::index;
use std::collections::BTreeSet;

/// The entries of all clusters, with what a repair changes. Takes four bytes a cluster.
pub(super) struct Fat {
    /// As stored, on FAT32 with the upper four bits.
    values: Vec<u32>,
    mask: u32,
    /// Entries that shall be written.
    pub(super) changed: BTreeSet<u32>,
}

impl Fat {
    /// Reads one of the FATs.
    pub(super) fn read(volume: &Volume, number: u32) -> Result<Self, FsError> {
        let end = volume.boot.last_cluster().saturating_add(1);
        let mut table = Table::of(volume, number);
        let mut values = Vec::with_capacity(index(end));
        for cluster in 0..end {
            values.push(table.raw(cluster)?);
        }
        Ok(Self { values, mask: volume.boot.width.mask(), changed: BTreeSet::new() })
    }

    /// All bits of an entry; 0 for what is none.
    pub(super) fn raw(&self, cluster: u32) -> u32 {
        self.values.get(index(cluster)).copied().unwrap_or(0)
    }

    pub(super) fn link(&self, boot: &Boot, cluster: u32) -> Link {
        Link::of(boot, self.raw(cluster) & self.mask)
    }

    /// Sets the bits of an entry that count.
    pub(super) fn set(&mut self, cluster: u32, value: u32) {
        let Some(entry) = self.values.get_mut(index(cluster)) else { return };
        let new = (*entry & !self.mask) | (value & self.mask);
        if *entry != new {
            *entry = new;
            self.changed.insert(cluster);
        }
    }

    /// Ends a chain with this cluster.
    pub(super) fn end(&mut self, cluster: u32) {
        self.set(cluster, self.mask);
    }

    /// The entries that are others in another FAT, be it in bits that do not count: to
    /// other programs copies are the same or they are not.
    pub(super) fn differences(&self, volume: &Volume, other: u32) -> Result<Vec<u32>, FsError> {
        let mut table = Table::of(volume, other);
        let mut differences = Vec::new();
        for (cluster, &ours) in (0u32..).zip(&self.values) {
            if table.raw(cluster)? != ours {
                differences.push(cluster);
            }
        }
        Ok(differences)
    }

    /// Free clusters.
    pub(super) fn free(&self) -> u32 {
        let entries = self.values.iter().skip(2);
        let free = entries.filter(|&&value| value & self.mask == 0).count();
        u32::try_from(free).unwrap_or(u32::MAX)
    }

    /// The first cluster from `from` on that is free.
    pub(super) fn next_free(&self, from: u32) -> Option<u32> {
        let mut entries = (0u32..).zip(&self.values).skip(index(from.max(2)));
        entries.find(|(_, value)| **value & self.mask == 0).map(|(cluster, _)| cluster)
    }
}
