//! Bitmaps and counts of the groups that the operations change.

use super::records::place;
use crate::encode::sums::{bitmap_sum, seal_superblock};
use crate::group::{Counts, Group};
use crate::ondisk::{BG_BLOCK_UNINIT, BG_INODE_UNINIT, Superblock};
use crate::volume::Volume;
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_fs::field::{index, invalid, low32, truncated};
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino, Lba};
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// A group's bitmaps in memory; a set bit is in use.
struct GroupBitmaps {
    group: Group,
    clusters: Vec<u8>,
    inodes: Vec<u8>,
    directories: u32,
}

/// Blocks and inodes in use, group by group, as far as they were looked at.
pub(super) struct Ledger<'a> {
    volume: &'a Volume,
    groups: BTreeMap<GroupNo, GroupBitmaps>,
}

impl<'a> Ledger<'a> {
    pub(super) fn new(volume: &'a Volume) -> Self {
        Self { volume, groups: BTreeMap::new() }
    }

    fn group(&mut self, number: GroupNo) -> Result<&mut GroupBitmaps, FsError> {
        if !self.groups.contains_key(&number) {
            let bits = self.load(number)?;
            self.groups.insert(number, bits);
        }
        self.groups.get_mut(&number).ok_or_else(|| truncated(place().in_group(number)))
    }

    fn load(&self, number: GroupNo) -> Result<GroupBitmaps, FsError> {
        let volume = self.volume;
        let group = volume.descriptors().read_checked(number)?;
        let summary = volume.bitmaps().group_summary(number)?;
        let mut clusters = vec![0xFF; volume.block_len()];
        for run in &summary.free {
            let (from, to) = self.clusters(*run, summary.blocks);
            fill(&mut clusters, from, to, false);
        }
        let mut inodes = vec![0xFF; volume.block_len()];
        fill(&mut inodes, 0, u64::from(volume.sb.inodes_per_group), false);
        for ino in volume.bitmaps().allocated_inodes(number)? {
            let (_, slot) = volume.sb.inode_slot(ino)?;
            fill(&mut inodes, u64::from(slot), u64::from(slot) + 1, true);
        }
        Ok(GroupBitmaps { group, clusters, inodes, directories: group.used_dirs() })
    }

    /// The clusters of a group that a run of its blocks touches.
    fn clusters(&self, run: Extent, blocks: Extent) -> (u64, u64) {
        let ratio = u64::from(self.volume.sb.cluster_ratio).max(1);
        debug_assert!(run.end() <= blocks.end(), "{run} lies in the group of {blocks}");
        let from = run.start - blocks.start;
        let to = run.end() - blocks.start;
        (from / ratio, to.div_ceil(ratio))
    }

    /// Marks the clusters that a run of blocks touches. The run lies in the
    /// volume.
    pub(super) fn mark(&mut self, run: Extent, used: bool) -> Result<(), FsError> {
        let sb = &self.volume.sb;
        let mut next = run.start;
        while next < run.end() {
            let within = next - sb.first_block;
            let number = within / u64::from(sb.blocks_per_group);
            let number = GroupNo::new(u32::try_from(number).unwrap_or(u32::MAX));
            let blocks = self.volume.sb.group_blocks(number);
            let end = run.end().min(blocks.end());
            let (from, to) = self.clusters(Extent::new(next, end - next), blocks);
            fill(&mut self.group(number)?.clusters, from, to, used);
            debug_assert!(end > next, "the run lies in the volume");
            next = end;
        }
        Ok(())
    }

    /// Marks an inode; `directories` is the change of its group's number of directories.
    pub(super) fn mark_inode(
        &mut self,
        ino: Ino,
        used: bool,
        directories: i32,
    ) -> Result<(), FsError> {
        let (number, slot) = self.volume.sb.inode_slot(ino)?;
        let group = self.group(number)?;
        fill(&mut group.inodes, u64::from(slot), u64::from(slot) + 1, used);
        group.directories = group.directories.saturating_add_signed(directories);
        Ok(())
    }

    /// A free block outside the runs of `reserved`, marked as used; the first of its cluster.
    pub(super) fn allocate(&mut self, reserved: &[Extent]) -> Result<BlockNo, FsError> {
        let ratio = u64::from(self.volume.sb.cluster_ratio).max(1);
        for number in (0..self.volume.sb.groups).map(GroupNo::new) {
            let blocks = self.volume.sb.group_blocks(number);
            let clusters = blocks.len / ratio;
            let bits = self.group(number)?;
            let free = (0..clusters).find(|&at| {
                let start = blocks.start + at * ratio;
                let cluster = Extent::new(start, ratio);
                !is_set(&bits.clusters, at) && !reserved.iter().any(|run| run.overlaps(cluster))
            });
            if let Some(at) = free {
                debug_assert!(!is_set(&bits.clusters, at), "a cluster is free before it is taken");
                fill(&mut bits.clusters, at, at + 1, true);
                return Ok(blocks.start + at * ratio);
            }
        }
        Err(FsError::NoSpace("no free block left to replay a fast commit".into()))
    }

    /// Writes bitmaps, descriptors and the superblock's totals.
    pub(super) fn write(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        let (mut blocks, mut inodes) = (0i64, 0i64);
        for bits in self.groups.values() {
            let counts = self.counts(bits);
            let free = i64::from(counts.free_clusters);
            blocks += free - i64::from(bits.group.free_clusters());
            let free = i64::from(counts.free_inodes);
            inodes += free - i64::from(bits.group.free_inodes());
            self.put(device, bits.group.block_bitmap(), &bits.clusters)?;
            self.put(device, bits.group.inode_bitmap(), &bits.inodes)?;
            self.write_descriptor(device, bits, &counts)?;
        }
        // The old counts of damaged groups may be any.
        let ratio = i64::from(self.volume.sb.cluster_ratio);
        let blocks = blocks.checked_mul(ratio);
        let blocks = blocks.ok_or_else(|| invalid("bg_free_blocks_count", u64::MAX, place()))?;
        self.write_superblock(device, blocks, inodes)
    }

    fn put(&self, device: &dyn BlockDevice, at: BlockNo, bytes: &[u8]) -> Result<(), FsError> {
        let byte = at.get() * u64::from(self.volume.sb.block_size);
        device.write(Lba::containing(ByteLen::new(byte)), bytes)?;
        Ok(())
    }

    fn counts(&self, bits: &GroupBitmaps) -> Counts {
        let sb = &self.volume.sb;
        let blocks = sb.group_blocks(bits.group.number);
        let (_, clusters) = self.clusters(blocks, blocks);
        let inodes = u64::from(sb.inodes_per_group);
        let last = (0..inodes).rev().find(|&at| is_set(&bits.inodes, at));
        let used = last.map_or(0, |last| last + 1);
        let unused = inodes - used;
        // The tail only ever grows shorter: slots that were used once were written.
        let unused = u32::try_from(unused).unwrap_or(0).min(bits.group.itable_unused());
        debug_assert!(used <= inodes, "inode {used} of {inodes} in a group");
        let flags = bits.group.raw().bg_flags.get() & !(BG_BLOCK_UNINIT | BG_INODE_UNINIT);
        Counts {
            flags,
            free_clusters: zeros(&bits.clusters, clusters),
            free_inodes: zeros(&bits.inodes, inodes),
            directories: bits.directories,
            unused,
            block_sum: self.sum(&bits.clusters, u64::from(sb.clusters_per_group())),
            inode_sum: self.sum(&bits.inodes, inodes),
        }
    }

    fn sum(&self, bitmap: &[u8], bits: u64) -> u32 {
        let sb = &self.volume.sb;
        if sb.has_metadata_csum() { bitmap_sum(sb.checksum_seed, bitmap, bits) } else { 0 }
    }

    fn write_descriptor(
        &self,
        device: &dyn BlockDevice,
        bits: &GroupBitmaps,
        counts: &Counts,
    ) -> Result<(), FsError> {
        let sb = &self.volume.sb;
        let desc = self.volume.descriptors().recounted(&bits.group, counts)?;
        let number = bits.group.number.get();
        let per_block = sb.descs_per_block().max(1);
        let block = sb.descriptor_block(number / per_block);
        let mut bytes = vec![0; self.volume.block_len()];
        let byte = block.get() * u64::from(sb.block_size);
        let at = Lba::containing(ByteLen::new(byte));
        device.read(at, &mut bytes)?;
        let size = usize::from(sb.desc_size);
        let offset = index(number % per_block) * size;
        debug_assert!(offset + size <= bytes.len(), "a descriptor lies in one block");
        let room = bytes.get_mut(offset..).unwrap_or_default();
        for (to, from) in room.iter_mut().take(size).zip(&desc) {
            *to = *from;
        }
        device.write(at, &bytes)?;
        Ok(())
    }

    fn write_superblock(
        &self,
        device: &dyn BlockDevice,
        blocks: i64,
        inodes: i64,
    ) -> Result<(), FsError> {
        let mut raw: Superblock = self.volume.sb.raw.clone();
        // The superblock's own totals are those of the last clean unmount.
        let (free_blocks, free_inodes) = self.volume.bitmaps().free_totals();
        let free = free_blocks.saturating_add_signed(blocks);
        raw.s_free_blocks_count_lo = low32(free).into();
        raw.s_free_blocks_count_hi = low32(free >> 32).into();
        let free = i64::from(free_inodes) + inodes;
        raw.s_free_inodes_count = u32::try_from(free).unwrap_or(0).into();
        seal_superblock(&mut raw, 0);
        device.write(Lba::new(2), raw.as_bytes())?;
        Ok(())
    }
}

fn is_set(bits: &[u8], at: u64) -> bool {
    let byte = bits.get(index(at >> 3)).copied().unwrap_or(0xFF);
    byte >> (at & 7) & 1 == 1
}

/// Sets or clears the bits from `from` up to `to`.
fn fill(bits: &mut [u8], from: u64, to: u64, set: bool) {
    debug_assert!(from <= to && index(to) <= bits.len() * 8, "bits {from}..{to} of a bitmap");
    let mut at = from;
    while at < to {
        let Some(byte) = bits.get_mut(index(at >> 3)) else { return };
        if at & 7 == 0 && to - at >= 8 {
            *byte = if set { 0xFF } else { 0 };
            at += 8;
            continue;
        }
        let mask = 1u8 << (at & 7);
        *byte = if set { *byte | mask } else { *byte & !mask };
        at += 1;
    }
}

fn zeros(bits: &[u8], len: u64) -> u32 {
    debug_assert!(index(len) <= bits.len() * 8, "{len} bits of a bitmap");
    let count = (0..len).filter(|&at| !is_set(bits, at)).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}
