//! Group descriptors, bitmaps and inode tables.

use crate::checksum::{crc16, crc32c};
use crate::ondisk::{BG_BLOCK_UNINIT, BG_INODE_UNINIT, GroupDesc, ro_compat};
use crate::part::Part;
use crate::volume::Volume;
use seekless_fs::field::{index, low16, parse, range, slice, truncated};
use seekless_fs::{FsError, GroupSummary, Location};
use seekless_units::{BlockNo, Extent, GroupNo, Ino};
use std::mem::offset_of;
use zerocopy::IntoBytes;

/// The offset of the checksum in a descriptor.
pub(crate) const CHECKSUM_AT: usize = offset_of!(GroupDesc, bg_checksum);
/// The first byte that only 64-byte descriptors have.
pub(crate) const OLD_SIZE: usize = offset_of!(GroupDesc, bg_block_bitmap_hi);

/// A checked group descriptor.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    pub(crate) number: GroupNo,
    desc: GroupDesc,
    /// Whether its flags count: only with checksums of descriptors.
    lazy: bool,
}

/// Fields of a descriptor that change when blocks and inodes come and go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) flags: u16,
    pub(crate) free_clusters: u32,
    pub(crate) free_inodes: u32,
    pub(crate) directories: u32,
    /// Inodes at the end of the table that were never used.
    pub(crate) unused: u32,
    /// Checksums of the bitmaps.
    pub(crate) block_sum: u32,
    pub(crate) inode_sum: u32,
}

fn join(high: u32, low: u32) -> u64 {
    (u64::from(high) << 32) | u64::from(low)
}

fn join16(high: u16, low: u16) -> u32 {
    (u32::from(high) << 16) | u32::from(low)
}

impl Group {
    /// As it lies on the disk.
    pub(crate) fn raw(&self) -> &GroupDesc {
        &self.desc
    }

    /// Whether the block bitmap was never written: only metadata is in use.
    pub(crate) fn block_uninit(&self) -> bool {
        self.lazy && self.desc.bg_flags.get() & BG_BLOCK_UNINIT != 0
    }

    /// Whether the inode bitmap was never written: no inode is in use.
    pub(crate) fn inode_uninit(&self) -> bool {
        self.lazy && self.desc.bg_flags.get() & BG_INODE_UNINIT != 0
    }

    pub(crate) fn block_bitmap(&self) -> BlockNo {
        let desc = &self.desc;
        BlockNo::new(join(desc.bg_block_bitmap_hi.get(), desc.bg_block_bitmap_lo.get()))
    }

    pub(crate) fn inode_bitmap(&self) -> BlockNo {
        let desc = &self.desc;
        BlockNo::new(join(desc.bg_inode_bitmap_hi.get(), desc.bg_inode_bitmap_lo.get()))
    }

    pub(crate) fn inode_table(&self) -> BlockNo {
        let desc = &self.desc;
        BlockNo::new(join(desc.bg_inode_table_hi.get(), desc.bg_inode_table_lo.get()))
    }

    /// In clusters on a volume with these.
    pub(crate) fn free_clusters(&self) -> u32 {
        let desc = &self.desc;
        join16(desc.bg_free_blocks_count_hi.get(), desc.bg_free_blocks_count_lo.get())
    }

    pub(crate) fn free_inodes(&self) -> u32 {
        let desc = &self.desc;
        join16(desc.bg_free_inodes_count_hi.get(), desc.bg_free_inodes_count_lo.get())
    }

    pub(crate) fn used_dirs(&self) -> u32 {
        let desc = &self.desc;
        join16(desc.bg_used_dirs_count_hi.get(), desc.bg_used_dirs_count_lo.get())
    }

    /// Inodes at the end of the table that were never used.
    pub(crate) fn itable_unused(&self) -> u32 {
        let desc = &self.desc;
        join16(desc.bg_itable_unused_hi.get(), desc.bg_itable_unused_lo.get())
    }
}

impl Volume {
    /// The descriptors of groups, and their copies.
    pub(crate) fn descriptors(&self) -> DescriptorTable<'_> {
        DescriptorTable { volume: self }
    }

    /// The bitmaps of groups.
    pub(crate) fn bitmaps(&self) -> Bitmaps<'_> {
        Bitmaps { volume: self }
    }

    /// Takes the pointer to a part of a group from another version of its descriptor. Nothing is
    /// written.
    pub(crate) fn replace_pointer(&mut self, number: GroupNo, part: Part, from: &[u8]) {
        let size = index(self.sb.desc_size);
        let start = index(number.get()) * size;
        let Some(own) = self.descriptors.get_mut(start..start + size) else { return };
        for at in part.pointer() {
            let word = at..at + 4;
            if let (Some(to), Some(from)) = (own.get_mut(word.clone()), from.get(word)) {
                to.copy_from_slice(from);
            }
        }
    }

    /// Sets the right checksum of a descriptor in memory.
    pub(crate) fn reseal_descriptor(&mut self, number: GroupNo) {
        let size = index(self.sb.desc_size);
        let start = index(number.get()) * size;
        let own = start..start + size;
        let bytes = self.descriptors.get(own.clone()).unwrap_or_default();
        let Some(sum) = self.descriptors().sum(number, bytes) else { return };
        let own = self.descriptors.get_mut(own).unwrap_or_default();
        if let Some(slot) = own.get_mut(CHECKSUM_AT..OLD_SIZE) {
            slot.copy_from_slice(&low16(sum).to_le_bytes());
        }
    }
}

/// Reads the descriptors of groups.
#[derive(Clone, Copy)]
pub(crate) struct DescriptorTable<'a> {
    volume: &'a Volume,
}

impl<'a> DescriptorTable<'a> {
    /// The volume that they lie in.
    pub(crate) fn volume(self) -> &'a Volume {
        self.volume
    }

    /// A descriptor's bytes.
    pub(crate) fn bytes(&self, number: GroupNo) -> Result<&'a [u8], FsError> {
        let size = index(self.volume.sb.desc_size);
        let place = Location::of("group descriptor").in_group(number);
        slice(&self.volume.descriptors, index(number.get()) * size, size).ok_or_else(|| {
            range("group", u64::from(number.get()), u64::from(self.volume.sb.groups), place)
        })
    }

    /// A group's descriptor, parsed from `bytes`: its checksum is checked, its pointers are not.
    pub(crate) fn parse(&self, number: GroupNo, bytes: &[u8]) -> Result<Group, FsError> {
        let place = Location::of("group descriptor").in_group(number);
        self.verify(number, bytes, place)?;
        let mut whole = [0; size_of::<GroupDesc>()];
        for (to, from) in whole.iter_mut().zip(bytes) {
            *to = *from;
        }
        let desc = parse(&whole, 0).ok_or_else(|| truncated(place))?;
        let lazy = self.volume.sb.has_group_checksums();
        Ok(Group { number, desc, lazy })
    }

    /// A group's descriptor, its checksum checked. Readers of a bitmap or the inode table check the
    /// pointer to it: a damaged pointer to one does not make the others unreadable.
    pub(crate) fn read(&self, number: GroupNo) -> Result<Group, FsError> {
        self.parse(number, self.bytes(number)?)
    }

    /// A group's descriptor, its checksum and all its pointers checked.
    pub(crate) fn read_checked(&self, number: GroupNo) -> Result<Group, FsError> {
        let place = Location::of("group descriptor").in_group(number);
        let group = self.read(number)?;
        self.volume.check_block(group.block_bitmap(), place)?;
        self.volume.check_block(group.inode_bitmap(), place)?;
        self.volume.check_extent(
            Extent::new(group.inode_table(), self.volume.sb.itable_blocks()),
            place,
        )?;
        Ok(group)
    }

    /// A group's descriptor with new counts and its checksum, in as many bytes as the volume has
    /// for one: bytes behind the known fields (`s_desc_size` may be up to 1024) stay as they are.
    pub(crate) fn recounted(&self, group: &Group, counts: &Counts) -> Result<Vec<u8>, FsError> {
        let mut desc = group.desc;
        desc.bg_flags = counts.flags.into();
        desc.bg_free_blocks_count_lo = low16(counts.free_clusters).into();
        desc.bg_free_inodes_count_lo = low16(counts.free_inodes).into();
        desc.bg_used_dirs_count_lo = low16(counts.directories).into();
        desc.bg_itable_unused_lo = low16(counts.unused).into();
        desc.bg_block_bitmap_csum_lo = low16(counts.block_sum).into();
        desc.bg_inode_bitmap_csum_lo = low16(counts.inode_sum).into();
        if index(self.volume.sb.desc_size) >= size_of::<GroupDesc>() {
            desc.bg_free_blocks_count_hi = low16(counts.free_clusters >> 16).into();
            desc.bg_free_inodes_count_hi = low16(counts.free_inodes >> 16).into();
            desc.bg_used_dirs_count_hi = low16(counts.directories >> 16).into();
            desc.bg_itable_unused_hi = low16(counts.unused >> 16).into();
            desc.bg_block_bitmap_csum_hi = low16(counts.block_sum >> 16).into();
            desc.bg_inode_bitmap_csum_hi = low16(counts.inode_sum >> 16).into();
        }
        let mut bytes = self.bytes(group.number)?.to_vec();
        for (to, from) in bytes.iter_mut().zip(desc.as_bytes()) {
            *to = *from;
        }
        let sum = self.sum(group.number, &bytes).unwrap_or(0);
        let place = Location::of("group descriptor").in_group(group.number);
        let slot = bytes.get_mut(CHECKSUM_AT..OLD_SIZE).ok_or_else(|| truncated(place))?;
        slot.copy_from_slice(&low16(sum).to_le_bytes());
        Ok(bytes)
    }

    /// `ext4_group_desc_csum`; `None` on volumes without such checksums. The checksum's own field
    /// counts as zero or, in the old kind, not at all.
    pub(crate) fn sum(&self, number: GroupNo, bytes: &[u8]) -> Option<u32> {
        let (before, after) = (bytes.get(..CHECKSUM_AT)?, bytes.get(OLD_SIZE..)?);
        if self.volume.sb.has_metadata_csum() {
            let seed = crc32c(self.volume.sb.checksum_seed, &number.get().to_le_bytes());
            Some(crc32c(crc32c(crc32c(seed, before), &[0; 2]), after) & 0xFFFF)
        } else if self.volume.sb.has_ro_compat(ro_compat::GDT_CSUM) {
            let seed = crc16(!0, &self.volume.sb.raw.s_uuid);
            let seed = crc16(seed, &number.get().to_le_bytes());
            Some(u32::from(crc16(crc16(seed, before), after)))
        } else {
            None
        }
    }

    fn verify(&self, number: GroupNo, bytes: &[u8], place: Location) -> Result<(), FsError> {
        if bytes.len() < OLD_SIZE {
            return Err(truncated(place));
        }
        let Some(computed) = self.sum(number, bytes) else { return Ok(()) };
        let stored = slice(bytes, CHECKSUM_AT, 2).and_then(<[u8]>::first_chunk);
        let stored = stored.map_or(0, |pair| u16::from_le_bytes(*pair));
        self.volume.verify(u32::from(stored), computed, place)
    }

    /// Whether a descriptor has flags for never written bitmaps or tables on a volume without
    /// checksums of descriptors, where these flags mean nothing (e2fsck, `PR_0_GDT_UNINIT`).
    pub(crate) fn has_needless_marks(&self, group: &Group) -> bool {
        let marks = group.desc.bg_flags.get() & (BG_BLOCK_UNINIT | BG_INODE_UNINIT);
        !group.lazy && (marks != 0 || group.itable_unused() != 0)
    }
}

/// Reads the bitmaps of groups.
#[derive(Clone, Copy)]
pub(crate) struct Bitmaps<'a> {
    volume: &'a Volume,
}

impl<'a> Bitmaps<'a> {
    /// Reads a bitmap block and checks the first `bits` bits' checksum.
    fn read(
        &self,
        block: BlockNo,
        bits: u32,
        stored: (u16, u16),
        place: Location,
    ) -> Result<seekless_fs::read_cache::Block, FsError> {
        let bytes = self.volume.block(block, place)?;
        if self.volume.sb.has_metadata_csum() {
            let covered = bytes.get(..index(bits).div_ceil(8)).unwrap_or(&bytes);
            let mut computed = crc32c(self.volume.sb.checksum_seed, covered);
            let (low, mut high) = stored;
            if index(self.volume.sb.desc_size) < size_of::<GroupDesc>() {
                computed &= 0xFFFF;
                high = 0;
            }
            self.volume.verify(join16(high, low), computed, place.in_block(block))?;
        }
        Ok(bytes)
    }

    /// A group's inode bitmap.
    pub(crate) fn inodes(&self, group: &Group) -> Result<seekless_fs::read_cache::Block, FsError> {
        let place = Location::of("inode bitmap").in_group(group.number);
        let (low, high) = (group.desc.bg_inode_bitmap_csum_lo, group.desc.bg_inode_bitmap_csum_hi);
        let sums = (low.get(), high.get());
        self.read(group.inode_bitmap(), self.volume.sb.inodes_per_group, sums, place)
    }

    /// A group's block bitmap.
    pub(crate) fn blocks(&self, group: &Group) -> Result<seekless_fs::read_cache::Block, FsError> {
        let place = Location::of("block bitmap").in_group(group.number);
        let (low, high) = (group.desc.bg_block_bitmap_csum_lo, group.desc.bg_block_bitmap_csum_hi);
        let sums = (low.get(), high.get());
        self.read(group.block_bitmap(), self.volume.sb.clusters_per_group(), sums, place)
    }

    /// The inodes of a group that are in use.
    pub(crate) fn allocated_inodes(&self, number: GroupNo) -> Result<Vec<Ino>, FsError> {
        let group = self.volume.descriptors().read(number)?;
        if group.inode_uninit() {
            return Ok(Vec::new());
        }
        let count = self.volume.sb.inodes_per_group;
        let bitmap = self.inodes(&group)?;
        let first = number.get() * count + 1;
        Ok((0..count).filter(|&at| bit(&bitmap, at)).map(|at| Ino::new(first + at)).collect())
    }

    /// Whether an inode is in use by the bitmap of its group.
    pub(crate) fn is_allocated(&self, ino: Ino) -> Result<bool, FsError> {
        let (number, at) = self.volume.sb.inode_slot(ino)?;
        let group = self.volume.descriptors().read(number)?;
        Ok(!group.inode_uninit() && bit(&self.inodes(&group)?, at))
    }

    /// The use of a group.
    pub(crate) fn group_summary(&self, number: GroupNo) -> Result<GroupSummary, FsError> {
        let group = self.volume.descriptors().read_checked(number)?;
        let blocks = self.volume.sb.group_blocks(number);
        let free = if group.block_uninit() {
            self.uninit_free(&group, blocks)
        } else {
            self.free_runs(&group, blocks)?
        };
        Ok(GroupSummary {
            group: number,
            blocks,
            free_blocks: free.iter().map(|run| run.len).sum(),
            free_inodes: group.free_inodes(),
            directories: group.used_dirs(),
            metadata: self.volume.descriptors().fixed(&group),
            free,
        })
    }

    /// Free runs by the block bitmap.
    fn free_runs(&self, group: &Group, blocks: Extent) -> Result<Vec<Extent>, FsError> {
        let clusters = self.volume.sb.clusters_per_group();
        let bitmap = self.blocks(group)?;
        let ratio = u64::from(self.volume.sb.cluster_ratio);
        let mut runs = Vec::new();
        for at in (0..clusters).filter(|&at| !bit(&bitmap, at)) {
            let skip = u64::from(at) * ratio;
            if let Some(left) = blocks.len.checked_sub(skip) {
                push_run(&mut runs, Extent::new(blocks.start + skip, left.min(ratio)));
            }
        }
        Ok(runs)
    }

    /// Free runs of a group whose block bitmap was never written: all but the metadata in it, its
    /// own or its flex group's.
    fn uninit_free(&self, group: &Group, blocks: Extent) -> Vec<Extent> {
        let mut used = self.volume.descriptors().metadata(group);
        used.retain(|run| run.overlaps(blocks));
        used.sort_unstable();
        let ratio = u64::from(self.volume.sb.cluster_ratio);
        let mut runs = Vec::new();
        let mut next = blocks.start;
        for run in used {
            // A cluster with any metadata is wholly in use.
            let before = run.start.max(blocks.start) - blocks.start;
            let free_end = (blocks.start + (before - before % ratio)).max(next);
            push_run(&mut runs, Extent::new(next, free_end - next));
            let after = (run.end().min(blocks.end()) - blocks.start).div_ceil(ratio);
            next = next.max(blocks.start + after * ratio);
        }
        // The last cluster may go on behind the volume's end.
        push_run(&mut runs, Extent::new(next, blocks.end().max(next) - next));
        runs
    }

    /// Sums of free blocks and inodes over all groups, as a mount counts them.
    pub(crate) fn free_totals(&self) -> (u64, u32) {
        // The counts of damaged groups may be any.
        let (mut clusters, mut inodes) = (0u64, 0u64);
        for number in 0..self.volume.sb.groups {
            if let Ok(group) = self.volume.descriptors().read_checked(GroupNo::new(number)) {
                clusters += u64::from(group.free_clusters());
                inodes += u64::from(group.free_inodes());
            }
        }
        let blocks = clusters.saturating_mul(u64::from(self.volume.sb.cluster_ratio));
        (blocks, u32::try_from(inodes).unwrap_or(u32::MAX))
    }
}

/// Whether bit `at` of a bitmap is set; past its end it counts as set.
pub(crate) fn bit(bitmap: &[u8], at: u32) -> bool {
    bitmap.get(index(at >> 3)).is_none_or(|byte| byte >> (at & 7) & 1 == 1)
}

/// Adds a run, joined to the last one where they touch.
fn push_run(runs: &mut Vec<Extent>, run: Extent) {
    if run.len == 0 {
        return;
    }
    debug_assert!(runs.last().is_none_or(|last| last.end() <= run.start), "runs rise");
    match runs.last_mut() {
        Some(last) if last.end() == run.start => last.len += run.len,
        _ => runs.push(run),
    }
}
