//! A FAT in memory, as read and as repaired.

use crate::boot::Boot;
use crate::table::{Link, Table};
use crate::volume::Volume;
use seekless_fs::FsError;
use seekless_fs::field::index;
use std::collections::BTreeMap;

/// The FAT's entries of all clusters, with the changes of a repair. Takes four bytes a cluster.
pub(super) struct FatEntries {
    /// As stored, on FAT32 with the upper four bits.
    values: Vec<u32>,
    mask: u32,
    /// Entries to be written, with their old values.
    before: BTreeMap<u32, u32>,
}

/// The steps in which changed entries are written, a flush after each: a repair that is cut off
/// then leaves no chain that leads to a free cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The entries of free clusters have their new values.
    Taken,
    /// All others but those to be freed have theirs. The latter are chains without a name now, to
    /// the next check too.
    Cut,
    /// All have their values.
    Freed,
}

impl FatEntries {
    /// Reads one of the FATs.
    pub(super) fn read(volume: &Volume, number: u32) -> Result<Self, FsError> {
        let end = volume.boot.last_cluster() + 1;
        let mut table = Table::of(volume, number);
        let mut values = Vec::with_capacity(index(end));
        for cluster in 0..end {
            values.push(table.raw(cluster)?);
        }
        Ok(Self { values, mask: volume.boot.width.mask(), before: BTreeMap::new() })
    }

    /// All bits of an entry; 0 for a cluster that does not exist.
    pub(super) fn raw(&self, cluster: u32) -> u32 {
        self.values.get(index(cluster)).copied().unwrap_or(0)
    }

    pub(super) fn link(&self, boot: &Boot, cluster: u32) -> Link {
        Link::of(boot, self.raw(cluster) & self.mask)
    }

    /// Sets the significant bits of an entry.
    pub(super) fn set(&mut self, cluster: u32, value: u32) {
        debug_assert!(index(cluster) < self.values.len(), "cluster {cluster} has an entry");
        let Some(entry) = self.values.get_mut(index(cluster)) else { return };
        let new = (*entry & !self.mask) | (value & self.mask);
        if *entry != new {
            self.before.entry(cluster).or_insert(*entry);
            *entry = new;
        }
    }

    /// Entries to be written.
    pub(super) fn changed(&self) -> impl Iterator<Item = u32> + '_ {
        self.before.keys().copied()
    }

    /// All bits of an entry after a step.
    pub(super) fn raw_after(&self, cluster: u32, step: Step) -> u32 {
        let now = self.raw(cluster);
        let is_free = |value: u32| value & self.mask == 0;
        match (step, self.before.get(&cluster)) {
            (Step::Taken, Some(&before)) if !is_free(before) => before,
            (Step::Cut, Some(&before)) if is_free(now) => before,
            _ => now,
        }
    }

    /// Ends a chain with this cluster.
    pub(super) fn end(&mut self, cluster: u32) {
        debug_assert!(cluster >= 2, "entry {cluster} is that of no cluster");
        self.set(cluster, self.mask);
    }

    /// The entries that differ in another FAT, even in bits that do not count: other programs
    /// compare copies as a whole.
    pub(super) fn differences(&self, volume: &Volume, other: u32) -> Result<Vec<u32>, FsError> {
        debug_assert_eq!(self.mask, volume.boot.width.mask(), "the FATs have one width");
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

    /// The first free cluster from `from` on.
    pub(super) fn next_free(&self, from: u32) -> Option<u32> {
        let mut entries = (0u32..).zip(&self.values).skip(index(from.max(2)));
        entries.find(|(_, value)| **value & self.mask == 0).map(|(cluster, _)| cluster)
    }
}
