//! What a group's maps and counts say, as they stand, and setting them to what
//! was found instead.

use super::group::{GroupMut, at};
use crate::make::Counts;
use crate::superblock::Format;
use seekless_fs::field::{index, low16};
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

    /// The fields that say nothing of the group, or what the superblock says too:
    /// name, place, bytes and value (`check_cgmagic` and `pass5` of FreeBSD's
    /// `fsck_ffs`).
    fn fixed_fields(&self) -> impl Iterator<Item = (&'static str, usize, usize, u32)> {
        let ipg = self.sb.ipg;
        let by_format = match self.sb.format {
            Format::Ufs1 => [
                ("cg_old_niblk", at!(cg_old_niblk), 2, ipg),
                ("cg_niblk", at!(cg_niblk), 4, 0),
                ("cg_initediblk", at!(cg_initediblk), 4, 0),
            ],
            Format::Ufs2 => [
                ("cg_old_niblk", at!(cg_old_niblk), 2, 0),
                ("cg_niblk", at!(cg_niblk), 4, ipg),
                ("cg_old_ncyl", at!(cg_old_ncyl), 2, 0),
            ],
        };
        let tables = [("cg_old_btotoff", at!(cg_old_btotoff)), ("cg_old_boff", at!(cg_old_boff))];
        let tables = tables.into_iter().filter(|_| self.sb.format == Format::Ufs2);
        let spares = [("cg_firstfield", at!(cg_firstfield)), ("cg_sparecon32", at!(cg_sparecon32))];
        let more = (at!(cg_sparecon64)..).step_by(4).take(6).map(|at| ("cg_sparecon64", at));
        let zeros = tables.chain(spares).chain(more).map(|(name, at)| (name, at, 4, 0));
        by_format.into_iter().chain(zeros)
    }

    /// The first field that is not what the format has there.
    pub(crate) fn wrong_field(&self) -> Option<&'static str> {
        self.fixed_fields().find_map(|(name, at, len, value)| {
            let is = match len {
                2 => self.sb.order.get_u16(self.bytes, at).map(u32::from),
                _ => self.sb.order.get_u32(self.bytes, at),
            };
            (is != Some(value)).then_some(name)
        })
    }

    /// Sets those fields.
    pub(crate) fn reset_fields(&mut self) {
        let fields: Vec<_> = self.fixed_fields().collect();
        for (_, at, len, value) in fields {
            match len {
                2 => self.sb.order.put_u16(self.bytes, at, low16(value)),
                _ => self.sb.order.put_u32(self.bytes, at, value),
            }
        }
    }

    /// From the maps on, what is neither a bit of a map nor a count.
    fn strays(&self) -> Vec<u8> {
        let mut rest = self.bytes.to_vec();
        let first =
            [Some(self.maps.inodes), Some(self.maps.frags), self.maps.clusters.map(|c| c.map)];
        let first = first.into_iter().flatten().min().unwrap_or(0);
        rest.iter_mut().take(first).for_each(|byte| *byte = 0);
        let end = index(self.word(at!(cg_nextfreeoff)));
        rest.iter_mut().skip(end).for_each(|byte| *byte = 0);
        let mut forget = |from: usize, bits: u32| {
            let whole = index(bits / 8);
            let bytes = rest.iter_mut().skip(from);
            for (n, byte) in bytes.take(whole.saturating_add(1)).enumerate() {
                *byte &= if n < whole { 0 } else { 0xFFu8 << (bits % 8) };
            }
        };
        forget(self.maps.inodes, self.sb.ipg);
        forget(self.maps.frags, self.maps.ndblk);
        if let Some(clusters) = self.maps.clusters {
            forget(clusters.map, clusters.blocks);
            let counts = clusters.counts.saturating_add(4);
            forget(counts, clusters.longest.saturating_mul(32));
        }
        rest
    }

    /// Whether something is set there: `fsck_ffs` compares maps up to the end of
    /// what a whole group has.
    pub(crate) fn has_strays(&self) -> bool {
        self.strays().iter().any(|&byte| byte != 0)
    }

    /// Clears all that is set there.
    pub(crate) fn clear_strays(&mut self) {
        let strays = self.strays();
        self.bytes.iter_mut().zip(strays).for_each(|(byte, stray)| *byte &= !stray);
    }

    /// `cg_initediblk`: how many inodes were ever written (UFS2).
    pub(crate) fn set_initialised(&mut self, inodes: u32) {
        self.set_word(at!(cg_initediblk), inodes);
    }
}
