//! Clusters: runs of free blocks, mapped and counted by length.

use super::group::{Clusters, GroupMut};
use super::{Allocation, Delta};
use seekless_fs::FsError;
use seekless_fs::field::index;
use seekless_units::{BlockNo, Extent};

/// Whole clusters.
impl GroupMut<'_> {
    /// Takes `len` whole blocks in a row, the first such from the preferred one on; a preferred
    /// block of another group only tells that data belong into the zone for data. Blocks before it
    /// are not looked at, since a file should not go backwards. `None` when there is no such
    /// cluster.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when the group's maps and counts contradict.
    pub(crate) fn alloc_cluster(
        &mut self,
        len: u32,
        preference: Option<BlockNo>,
    ) -> Result<Option<Allocation>, FsError> {
        let Some(clusters) = self.maps.clusters else { return Ok(None) };
        if len == 0 || (len..=clusters.longest).all(|len| self.count(&clusters, len) == 0) {
            return Ok(None);
        }
        let frag = self.sb.frag;
        let wanted = preference.and_then(|block| self.within(block));
        let start = wanted.unwrap_or_else(|| self.data_zone());
        let found = self.find_cluster(&clusters, start / frag, len);
        let Some(first) = found else { return Ok(None) };
        let end = first + len;
        debug_assert!(end <= clusters.blocks, "the cluster ends in the group");
        let whole = |&block: &u32| self.block_bits(block).count_ones() == frag;
        if let Some(block) = (first..end).find(|block| !whole(block)) {
            return Err(self.contradiction("cg_clustersfree", block));
        }
        let mut delta = Delta::default();
        for block in first..end {
            delta = delta.and(self.set_block(block, 0)?);
            debug_assert!(!self.bit(clusters.map, block), "both maps have it as taken");
        }
        let run = Extent::new(self.on_volume(first * frag), u64::from(len * frag));
        Ok(Some(Allocation { run, delta }))
    }

    /// The length of the longest cluster that is counted.
    #[cfg(test)]
    pub(crate) fn longest_cluster(&self) -> u32 {
        let Some(clusters) = self.maps.clusters else { return 0 };
        (1..=clusters.longest).rev().find(|&len| self.count(&clusters, len) > 0).unwrap_or(0)
    }

    /// The first of `len` free blocks in a row.
    fn find_cluster(&self, clusters: &Clusters, start: u32, len: u32) -> Option<u32> {
        let mut run = 0u32;
        for block in start..clusters.blocks {
            run = if self.bit(clusters.map, block) { run + 1 } else { 0 };
            if run == len {
                return Some(block + 1 - len);
            }
        }
        None
    }
}

impl GroupMut<'_> {
    /// Maps and counts a block that becomes free, or is taken (`ffs_clusteracct`). Changes nothing
    /// when a count would leave its range.
    pub(super) fn set_cluster(&mut self, block: u32, free: bool) -> Result<(), FsError> {
        let Some(clusters) = self.maps.clusters.filter(|clusters| block < clusters.blocks) else {
            return Ok(());
        };
        let longest = clusters.longest;
        let is_free = |block: &u32| self.bit(clusters.map, *block);
        let lengths = |blocks: &mut dyn Iterator<Item = u32>| {
            u32::try_from(blocks.take(index(longest)).take_while(is_free).count()).unwrap_or(0)
        };
        let behind = lengths(&mut (block + 1..clusters.blocks));
        let front = lengths(&mut (0..block).rev());
        let joined = (front + behind + 1).min(longest);
        let (come, gone) = if free { (1, -1) } else { (-1, 1) };
        let changes = [(joined, come), (front, gone), (behind, gone)];
        // Two of the lengths may be equal.
        let changed = |len: u32| {
            let by = changes.iter().filter(|(other, _)| *other == len).map(|(_, by)| by).sum();
            self.count(&clusters, len).checked_add_signed(by)
        };
        let counts = changes.map(|(len, _)| (len, changed(len)));
        if counts.iter().any(|(len, count)| *len > 0 && count.is_none()) {
            return Err(self.contradiction("cg_clustersum", block));
        }
        for (len, count) in counts {
            if let Some(count) = count.filter(|_| len > 0) {
                self.set_word(place_of(&clusters, len), count);
            }
        }
        self.set_bit(clusters.map, block, free);
        Ok(())
    }

    /// The number of clusters of a length.
    fn count(&self, clusters: &Clusters, len: u32) -> u32 {
        self.word(place_of(clusters, len))
    }
}

fn place_of(clusters: &Clusters, len: u32) -> usize {
    debug_assert!(len <= clusters.longest, "a cluster of {len} blocks is not counted");
    clusters.counts + index(len) * 4
}
