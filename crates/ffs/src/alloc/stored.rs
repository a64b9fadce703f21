//! What a group's maps and counts say, as they stand, and setting them to what
//! was found instead.

use super::group::{GroupMut, at};
use crate::make::Counts;
use seekless_fs::field::index;
use seekless_placement::GroupSummary;

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

    /// Sets whether an inode is in use.
    pub(crate) fn set_in_use(&mut self, slot: u32, in_use: bool) {
        self.set_bit(self.maps.inodes, slot, in_use);
    }

    /// Sets whether a fragment is free.
    pub(crate) fn set_fragment_free(&mut self, at: u32, free: bool) {
        self.set_bit(self.maps.frags, at, free);
    }

    /// Makes the map of free blocks say what that of free fragments does.
    pub(crate) fn derive_clusters(&mut self) {
        let Some(clusters) = self.maps.clusters else { return };
        for block in 0..clusters.blocks {
            let free = self.block_bits(block).count_ones() == self.sb.frag;
            self.set_bit(clusters.map, block, free);
        }
    }

    /// Sets all counts of the group.
    pub(crate) fn set_counts(&mut self, counts: &Counts) {
        let place = |from: usize, n: usize| from.saturating_add(n.saturating_mul(4));
        self.set_summary(GroupSummary {
            ndir: counts.directories,
            nbfree: counts.free_blocks,
            nifree: counts.free_inodes,
            nffree: counts.free_frags,
        });
        for (n, &runs) in counts.runs.iter().enumerate() {
            self.set_word(place(at!(cg_frsum), n), runs);
        }
        if let Some(clusters) = self.maps.clusters {
            for (n, &count) in counts.clusters.iter().enumerate().skip(1) {
                self.set_word(place(clusters.counts, n), count);
            }
        }
    }

    /// Whether the searches that go on where the last one ended begin in the
    /// group.
    pub(crate) fn rotors_are_within(&self) -> bool {
        let within = |at: usize, end: u32| self.word(at) < end;
        within(at!(cg_rotor), self.maps.ndblk)
            && within(at!(cg_frotor), self.maps.ndblk)
            && within(at!(cg_irotor), self.sb.ipg)
    }

    /// Lets the searches that would begin outside of the group begin at its
    /// start.
    pub(crate) fn reset_rotors(&mut self) {
        let ends = [(at!(cg_rotor), self.maps.ndblk), (at!(cg_frotor), self.maps.ndblk)];
        for (at, end) in ends.into_iter().chain([(at!(cg_irotor), self.sb.ipg)]) {
            if self.word(at) >= end {
                self.set_word(at, 0);
            }
        }
    }

    /// `cg_initediblk`: how many inodes were ever written (UFS2).
    pub(crate) fn set_initialised(&mut self, inodes: u32) {
        self.set_word(at!(cg_initediblk), inodes);
    }
}
