//! A group's maps and counts as stored, and corrections to the counts that were found.

use super::group::{GroupMut, HEAD, at};
use crate::make::{Counts, HeadLayout, count, head_layout};
use crate::ondisk::check_hash;
use crate::superblock::{Format, Super};
use seekless_fs::field::{index, low16, wide};
use seekless_placement::GroupSummary;
use seekless_units::GroupNo;

impl GroupMut<'_> {
    /// Whether an inode is marked as in use.
    pub(crate) fn says_in_use(&self, slot: u32) -> bool {
        self.bit(self.maps.inodes, slot)
    }

    /// Whether a fragment is marked as free.
    pub(crate) fn fragment_is_free(&self, at: u32) -> bool {
        self.bit(self.maps.frags, at)
    }

    /// Whether a block is marked as free; `None` without such a map.
    pub(crate) fn block_is_free(&self, at: u32) -> Option<bool> {
        self.maps.clusters.map(|clusters| self.bit(clusters.map, at))
    }

    /// All counts of the group.
    pub(crate) fn stored_counts(&self) -> Counts {
        let summary = self.summary();
        let place = |from: usize, n: usize| from + n * 4;
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
        debug_assert!(slot < self.sb.ipg, "slot {slot} of a group of {}", self.sb.ipg);
        self.set_bit(self.maps.inodes, slot, in_use);
    }

    /// Sets whether a fragment is free.
    pub(crate) fn set_fragment_free(&mut self, at: u32, free: bool) {
        debug_assert!(at < self.maps.ndblk, "fragment {at} of {}", self.maps.ndblk);
        self.set_bit(self.maps.frags, at, free);
    }

    /// Derives the map of free blocks from that of free fragments.
    pub(crate) fn derive_clusters(&mut self) {
        let Some(clusters) = self.maps.clusters else { return };
        for block in 0..clusters.blocks {
            let free = self.block_bits(block).count_ones() == self.sb.frag;
            self.set_bit(clusters.map, block, free);
        }
    }

    /// Sets all counts of the group.
    pub(crate) fn set_counts(&mut self, counts: &Counts) {
        let place = |from: usize, n: usize| from + n * 4;
        debug_assert!(counts.free_inodes <= self.sb.ipg, "as many as there are");
        debug_assert!(counts.free_frags <= self.maps.ndblk, "as many as there are");
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
            let lengths = index(clusters.longest) + 1;
            debug_assert_eq!(counts.clusters.len(), lengths, "a count for each length");
            for (n, &count) in counts.clusters.iter().enumerate().skip(1) {
                self.set_word(place(clusters.counts, n), count);
            }
        }
    }

    /// Whether the rotors, where searches resume, lie in the group.
    pub(crate) fn rotors_are_within(&self) -> bool {
        let within = |at: usize, end: u32| self.word(at) < end;
        within(at!(cg_rotor), self.maps.ndblk)
            && within(at!(cg_frotor), self.maps.ndblk)
            && within(at!(cg_irotor), self.sb.ipg)
    }

    /// Resets rotors outside of the group to its start.
    pub(crate) fn reset_rotors(&mut self) {
        let ends = [(at!(cg_rotor), self.maps.ndblk), (at!(cg_frotor), self.maps.ndblk)];
        for (at, end) in ends.into_iter().chain([(at!(cg_irotor), self.sb.ipg)]) {
            if self.word(at) >= end {
                self.set_word(at, 0);
            }
        }
    }

    /// The first field with a wrong value.
    pub(crate) fn wrong_field(&self) -> Option<&'static str> {
        head_fields(self.sb, self.number).into_iter().find_map(|field| {
            let is = match field.len {
                2 => self.sb.order.get_u16(self.bytes, field.at).map(u32::from),
                _ => self.sb.order.get_u32(self.bytes, field.at),
            };
            (is != Some(field.value)).then_some(field.name)
        })
    }

    /// Sets those fields.
    pub(crate) fn reset_fields(&mut self) {
        put_head_fields(self.sb, self.number, self.bytes);
    }

    /// The first offset of a map that differs from the format's.
    pub(crate) fn misplaced_map(&self) -> Option<(&'static str, u64)> {
        let layout = head_layout_of(self.sb);
        let mut places = vec![
            ("cg_iusedoff", wide(self.maps.inodes), layout.inodes),
            ("cg_freeoff", wide(self.maps.frags), layout.frags),
        ];
        if let Some(clusters) = self.maps.clusters {
            places.push(("cg_clustersumoff", wide(clusters.counts), layout.cluster_counts));
            places.push(("cg_clusteroff", wide(clusters.map), layout.clusters));
        }
        let wrong = places.into_iter().find(|(_, is, should)| is != should)?;
        Some((wrong.0, wrong.1))
    }

    /// A check hash on a volume without hashes of groups: for older kernels the field is a spare,
    /// which `fsck_ffs` wants to be zero.
    pub(crate) fn stray_hash(&self) -> Option<u32> {
        let hash = self.word(at!(cg_ckhash));
        (hash != 0 && !self.sb.has_check_hash(check_hash::GROUP)).then_some(hash)
    }

    /// Removes such a hash.
    pub(crate) fn clear_stray_hash(&mut self) {
        if self.stray_hash().is_some() {
            self.set_word(at!(cg_ckhash), 0);
        }
    }

    /// The bytes from the maps on, with the bits of the maps and the counts cleared.
    fn strays(&self) -> Vec<u8> {
        let mut rest = self.bytes.to_vec();
        let first =
            [Some(self.maps.inodes), Some(self.maps.frags), self.maps.clusters.map(|c| c.map)];
        let first = first.into_iter().flatten().min().unwrap_or(0);
        rest.iter_mut().take(first).for_each(|byte| *byte = 0);
        let end = index(head_layout_of(self.sb).end);
        rest.iter_mut().skip(end).for_each(|byte| *byte = 0);
        let mut forget = |from: usize, bits: u32| {
            let whole = index(bits / 8);
            let bytes = rest.iter_mut().skip(from);
            for (n, byte) in bytes.take(whole + 1).enumerate() {
                *byte &= if n < whole { 0 } else { 0xFFu8 << (bits % 8) };
            }
        };
        forget(self.maps.inodes, self.sb.ipg);
        forget(self.maps.frags, self.maps.ndblk);
        if let Some(clusters) = self.maps.clusters {
            forget(clusters.map, clusters.blocks);
            let counts = clusters.counts + 4;
            forget(counts, clusters.longest * 32);
        }
        rest
    }

    /// Whether any stray bit is set: `fsck_ffs` compares maps up to the end of a whole group's.
    pub(crate) fn has_strays(&self) -> bool {
        self.strays().iter().any(|&byte| byte != 0)
    }

    /// Clears all stray bits.
    pub(crate) fn clear_strays(&mut self) {
        let strays = self.strays();
        self.bytes.iter_mut().zip(strays).for_each(|(byte, stray)| *byte &= !stray);
    }

    /// `cg_initediblk`: how many inodes were ever written (UFS2).
    pub(crate) fn set_initialised(&mut self, inodes: u32) {
        debug_assert!(inodes <= self.sb.ipg, "{inodes} of {} inodes", self.sb.ipg);
        self.set_word(at!(cg_initediblk), inodes);
    }
}

/// Derives the map of free blocks of a group, and all counts but that of directories, from its maps
/// of inodes and of fragments.
pub(crate) fn count_maps(group: &mut GroupMut<'_>) {
    let free: Vec<bool> = (0..group.maps.ndblk).map(|at| group.fragment_is_free(at)).collect();
    let used = (0..group.sb.ipg).filter(|&slot| group.says_in_use(slot)).count();
    let used = u32::try_from(used).unwrap_or(group.sb.ipg);
    group.derive_clusters();
    group.set_counts(&Counts {
        directories: group.summary().ndir.min(used),
        free_inodes: group.sb.ipg - used,
        ..count(&free, group.sb.frag, group.sb.tuning.contigsumsize)
    });
    group.clear_stray_hash();
}

/// A field of a head that is constant, or follows from the superblock and the group's number.
pub(crate) struct HeadField {
    name: &'static str,
    at: usize,
    /// Bytes: 2 or 4.
    len: usize,
    value: u32,
}

/// The places of the parts of a head, by the format.
pub(crate) fn head_layout_of(sb: &Super) -> HeadLayout {
    head_layout(sb.head_tables(), sb.ipg, sb.fpg, sb.frag, sb.tuning.contigsumsize)
}

/// These fields of a group's head, with the values that `check_cgmagic` and `pass5` of FreeBSD's
/// `fsck_ffs` want; its magic, number and size are not among them.
fn head_fields(sb: &Super, number: GroupNo) -> Vec<HeadField> {
    let layout = head_layout_of(sb);
    let offset = |at: u64| u32::try_from(at).unwrap_or(u32::MAX);
    let ndblk = u32::try_from(sb.group_blocks(number).len).unwrap_or(u32::MAX);
    let nclusterblks = match sb.tuning.contigsumsize {
        0 => 0,
        _ => ndblk / sb.frag,
    };
    let mut fields = Vec::new();
    let mut put = |name, at, len, value| fields.push(HeadField { name, at, len, value });
    put("cg_firstfield", at!(cg_firstfield), 4, 0);
    match sb.format {
        Format::Ufs1 => {
            let last = number.get() + 1 == sb.ncg;
            let ncyl = match sb.fpg.checked_div(sb.old_cpg) {
                Some(each @ 1..) if last => ndblk.div_ceil(each),
                _ => sb.old_cpg,
            };
            put("cg_old_ncyl", at!(cg_old_ncyl), 2, u32::from(low16(ncyl)));
            put("cg_old_niblk", at!(cg_old_niblk), 2, sb.ipg);
            put("cg_old_btotoff", at!(cg_old_btotoff), 4, offset(HEAD));
            let boff = HEAD + u64::from(sb.old_cpg) * 4;
            put("cg_old_boff", at!(cg_old_boff), 4, offset(boff));
            put("cg_niblk", at!(cg_niblk), 4, 0);
            put("cg_initediblk", at!(cg_initediblk), 4, 0);
        }
        Format::Ufs2 => {
            put("cg_old_ncyl", at!(cg_old_ncyl), 2, 0);
            put("cg_old_niblk", at!(cg_old_niblk), 2, 0);
            put("cg_old_btotoff", at!(cg_old_btotoff), 4, 0);
            put("cg_old_boff", at!(cg_old_boff), 4, 0);
            put("cg_niblk", at!(cg_niblk), 4, sb.ipg);
        }
    }
    put("cg_iusedoff", at!(cg_iusedoff), 4, offset(layout.inodes));
    put("cg_freeoff", at!(cg_freeoff), 4, offset(layout.frags));
    put("cg_nextfreeoff", at!(cg_nextfreeoff), 4, offset(layout.end));
    put("cg_clustersumoff", at!(cg_clustersumoff), 4, offset(layout.cluster_counts));
    put("cg_clusteroff", at!(cg_clusteroff), 4, offset(layout.clusters));
    put("cg_nclusterblks", at!(cg_nclusterblks), 4, nclusterblks);
    put("cg_sparecon32", at!(cg_sparecon32), 4, 0);
    for at in (at!(cg_sparecon64)..).step_by(4).take(6) {
        put("cg_sparecon64", at, 4, 0);
    }
    fields
}

/// Sets these fields in the bytes of a head.
pub(super) fn put_head_fields(sb: &Super, number: GroupNo, bytes: &mut [u8]) {
    for HeadField { at, len, value, .. } in head_fields(sb, number) {
        match len {
            2 => sb.order.put_u16(bytes, at, low16(value)),
            _ => sb.order.put_u32(bytes, at, value),
        }
    }
}
