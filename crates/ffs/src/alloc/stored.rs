//! What a group's maps and counts say, as they stand.

use super::group::{GroupMut, at};
use crate::make::Counts;
use seekless_fs::field::index;

impl GroupMut<'_> {
    /// Whether the group says that an inode is in use.
    pub(crate) fn says_in_use(&self, slot: u32) -> bool {
        self.bit(self.maps.inodes, slot)
    }

    /// Whether the group says that a fragment is free.
    pub(crate) fn fragment_is_free(&self, at: u32) -> bool {
        self.bit(self.maps.frags, at)
    }

    /// Whether the group says that a block is free; `None` without such a map.
    pub(crate) fn block_is_free(&self, at: u32) -> Option<bool> {
        self.maps.clusters.map(|clusters| self.bit(clusters.map, at))
    }

    /// All counts of the group.
    pub(crate) fn stored_counts(&self) -> Counts {
        let summary = self.summary();
        let place = |from: usize, n: usize| from.saturating_add(n.saturating_mul(4));
        let mut runs = [0; 8];
        for (n, run) in runs.iter_mut().enumerate() {
            *run = self.word(place(at!(cg_frsum), n));
        }
        let clusters = self.maps.clusters.map_or_else(
            || vec![0],
            |clusters| {
                let count = |n: u32| self.word(place(clusters.counts, index(n)));
                // The first word is no count.
                std::iter::once(0).chain((1..=clusters.longest).map(count)).collect()
            },
        );
        Counts {
            directories: summary.ndir,
            free_blocks: summary.nbfree,
            free_inodes: summary.nifree,
            free_frags: summary.nffree,
            runs,
            clusters,
        }
    }
}
