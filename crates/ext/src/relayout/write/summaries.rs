//! Summaries of the new image: bitmaps, descriptors, superblocks.
#![allow(
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "values are of our own plan and of structures that the survey checked"
)]

use super::{GroupCount, RelayoutWriter};
use crate::checksum::crc32c;
use crate::encode::sums::seal_superblock;
use crate::group::Counts;
use crate::ondisk::{
    BG_BLOCK_UNINIT, BG_INODE_UNINIT, OrderedMark, STATE_VALID, incompat, ro_compat,
};
use crate::relayout::is_64bit;
use seekless_fs::FsError;
use seekless_fs::extents::difference;
use seekless_units::{Extent, GroupNo};
use zerocopy::IntoBytes;

impl RelayoutWriter<'_> {
    /// Clusters that are free on the new image.
    fn free_clusters(&self) -> Vec<Extent> {
        difference(&self.survey.room, &self.plan.extents())
    }

    pub(super) fn write_summaries(&self, counts: &[GroupCount]) -> Result<(), FsError> {
        let sb = &self.survey.volume.sb;
        let free = self.free_clusters();
        let mut descriptors = Vec::new();
        let (mut free_blocks, mut free_inodes) = (0, 0);
        for (group, count) in (0u32..).zip(counts) {
            let (desc, group_free) = self.write_group(GroupNo::new(group), count, &free)?;
            free_blocks += group_free * self.survey.cluster;
            free_inodes += sb.inodes_per_group - count.inodes.len() as u32;
            descriptors.extend_from_slice(&desc);
        }
        debug_assert_eq!(counts.len(), sb.groups as usize, "a count for each group");
        self.write_superblocks(&descriptors, free_blocks, free_inodes)
    }

    /// Writes a group's bitmaps; returns its descriptor and free clusters.
    fn write_group(
        &self,
        group: GroupNo,
        count: &GroupCount,
        free: &[Extent],
    ) -> Result<(Vec<u8>, u64), FsError> {
        let sb = &self.survey.volume.sb;
        let old = self.survey.volume.descriptors().read_checked(group)?;
        let lazy = sb.has_group_checksums();
        let bits = u64::from(sb.clusters_per_group());
        let first = sb.group_blocks(group).start.get() / self.survey.cluster;
        let clusters = sb.group_blocks(group).len.div_ceil(self.survey.cluster);
        let mut bitmap = vec![0xFF; self.block_size() as usize];
        let mut free_here = 0;
        let from = free.partition_point(|run| run.end().get() <= first);
        for run in &free[from..] {
            let (low, high) =
                (run.start.get().max(first) - first, run.end().get().min(first + clusters) - first);
            if low >= high {
                break;
            }
            for bit in low..high {
                debug_assert!(bitmap[(bit / 8) as usize] >> (bit % 8) & 1 == 1, "freed once");
                bitmap[(bit / 8) as usize] &= !(1 << (bit % 8));
            }
            free_here += high - low;
        }
        debug_assert!(free_here <= clusters, "{free_here} of {clusters} clusters are free");
        let mut flags = old.raw().bg_flags.get();
        if free_here != u64::from(old.free_clusters()) {
            flags &= !BG_BLOCK_UNINIT;
        }
        let mut block_sum = 0;
        if !lazy || flags & BG_BLOCK_UNINIT == 0 {
            self.put(old.block_bitmap(), &bitmap)?;
            block_sum = self.bitmap_sum(&bitmap, bits);
        }
        let mut inode_sum = 0;
        if count.inodes.is_empty() && lazy {
            flags |= BG_INODE_UNINIT;
        } else {
            flags &= !BG_INODE_UNINIT;
            let bitmap = self.inode_bitmap(&count.inodes);
            self.put(old.inode_bitmap(), &bitmap)?;
            inode_sum = self.bitmap_sum(&bitmap, u64::from(sb.inodes_per_group));
        }
        let free_inodes = sb.inodes_per_group - count.inodes.len() as u32;
        let unused = match (lazy, count.inodes.last()) {
            (false, _) => 0,
            (true, None) => sb.inodes_per_group,
            (true, Some(last)) => sb.inodes_per_group - last - 1,
        };
        let counts = Counts {
            flags,
            free_clusters: free_here as u32,
            free_inodes,
            directories: count.directories,
            unused,
            block_sum,
            inode_sum,
        };
        Ok((self.survey.volume.descriptors().recounted(&old, &counts)?, free_here))
    }

    fn bitmap_sum(&self, bitmap: &[u8], bits: u64) -> u32 {
        match self.seed() {
            Some(seed) => crc32c(seed, &bitmap[..(bits / 8) as usize]),
            None => 0,
        }
    }

    fn inode_bitmap(&self, inodes: &[u32]) -> Vec<u8> {
        let mut bitmap = vec![0xFF; self.block_size() as usize];
        for bit in 0..self.survey.volume.sb.inodes_per_group {
            bitmap[bit as usize / 8] &= !(1 << (bit % 8));
        }
        for &bit in inodes {
            debug_assert!(
                bitmap[bit as usize / 8] >> (bit % 8) & 1 == 0,
                "slot {bit} is used once"
            );
            bitmap[bit as usize / 8] |= 1 << (bit % 8);
        }
        bitmap
    }

    /// Writes superblocks and descriptors with all their copies, the primary superblock last: it
    /// makes the image a file system.
    fn write_superblocks(
        &self,
        descriptors: &[u8],
        free_blocks: u64,
        free_inodes: u32,
    ) -> Result<(), FsError> {
        let volume = self.survey.volume;
        let sb = &volume.sb;
        let bs = self.block_size() as usize;
        let mut raw = sb.raw.clone();
        raw.s_free_blocks_count_lo = (free_blocks as u32).into();
        if is_64bit(self.survey.image) {
            raw.s_free_blocks_count_hi = ((free_blocks >> 32) as u32).into();
        }
        raw.s_free_inodes_count = free_inodes.into();
        raw.s_feature_incompat = (raw.s_feature_incompat.get() & !incompat::RECOVER).into();
        raw.s_state = (raw.s_state.get() | STATE_VALID).into();
        OrderedMark::clear(&mut raw);
        let first_orphan = self.first_orphan()?;
        // Copies have the state of a file system at rest.
        raw.s_last_orphan = 0.into();
        let ro_compat = raw.s_feature_ro_compat.get() & !ro_compat::ORPHAN_PRESENT;
        raw.s_feature_ro_compat = ro_compat.into();
        debug_assert_eq!(
            descriptors.len(),
            sb.groups as usize * usize::from(sb.desc_size),
            "a descriptor for each group"
        );
        let per_block = sb.descs_per_block() as usize * usize::from(sb.desc_size);
        let mut tables = descriptors.chunks(per_block).map(|part| {
            let mut block = part.to_vec();
            block.resize(bs, 0);
            block
        });
        let tables: Vec<Vec<u8>> = tables.by_ref().collect();
        for group in (0..sb.groups).rev() {
            let group = GroupNo::new(group);
            for (nr, block) in volume.descriptors().copy_blocks(group) {
                if let Some(table) = tables.get(nr as usize) {
                    self.put(block, table)?;
                }
            }
            if !sb.group_has_super(group) {
                continue;
            }
            if group == GroupNo::ZERO {
                raw.s_last_orphan = first_orphan.get().into();
                if self.has_filed_orphans()? {
                    raw.s_feature_ro_compat = sb.raw.s_feature_ro_compat;
                }
            }
            seal_superblock(&mut raw, group.get());
            let (block, inset) = if group == GroupNo::ZERO {
                (sb.superblock_block(), if bs > 1024 { 1024 } else { 0 })
            } else {
                (sb.group_blocks(group).start, 0)
            };
            let mut bytes = vec![0; bs];
            volume.read_bytes(block, 0, &mut bytes)?;
            bytes[inset..inset + 1024].copy_from_slice(raw.as_bytes());
            self.put(block, &bytes)?;
        }
        Ok(())
    }
}
