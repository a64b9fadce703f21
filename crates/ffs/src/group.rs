//! Cylinder groups: their heads, bitmaps and counts.

use crate::checksum::crc32c;
use crate::ondisk::{CylinderGroup, MAGIC_GROUP, check_hash};
use crate::superblock::{Order, Super, same};
use crate::volume::Volume;
use seekless_fs::extents::append;
use seekless_fs::field::{index, parse, range, slice, truncated, wide};
use seekless_fs::read_cache::Block;
use seekless_fs::{Corruption, Fixed, FixedKind, FsError, GroupSummary, Location};
use seekless_units::{BlockNo, Extent, GroupNo};
use std::mem::offset_of;
use zerocopy::byteorder::{BE, ByteOrder, LE};

/// A checked cylinder group.
pub(crate) struct Group {
    block: Block,
    directories: u32,
    free_inodes: u32,
    /// Inodes that were ever written (UFS2; UFS1 writes all at first).
    initialised: u32,
    /// The places of its bitmaps: inodes in use, free fragments.
    inodes_at: usize,
    frags_at: usize,
}

fn place(number: GroupNo) -> Location {
    Location::of("cylinder group").in_group(number)
}

impl Volume {
    /// Reads a cylinder group and checks its magic number and hash.
    pub(crate) fn cylinder_group(&self, number: GroupNo) -> Result<Group, FsError> {
        let place = place(number);
        if number.get() >= self.sb.ncg {
            return Err(range("group", u64::from(number.get()), u64::from(self.sb.ncg), place));
        }
        let at = self.sb.in_group(number, self.sb.cblkno);
        let block = self.block(at, index(self.sb.bsize), place)?;
        match self.sb.order {
            Order::Little => self.checked_group::<LE>(number, block),
            Order::Big => self.checked_group::<BE>(number, block),
        }
    }

    fn checked_group<O: ByteOrder>(&self, number: GroupNo, block: Block) -> Result<Group, FsError> {
        let place = place(number);
        let raw: CylinderGroup<O> = parse(&block, 0).ok_or_else(|| truncated(place))?;
        let magic = raw.cg_magic.get();
        if magic != MAGIC_GROUP {
            return Err(FsError::corrupt(Corruption::Magic { found: u64::from(magic) }, place));
        }
        if raw.cg_cgx.get() != number.get() {
            let found = u64::from(raw.cg_cgx.get());
            return Err(range("cg_cgx", found, u64::from(number.get()), place));
        }
        if !self.ignore_checksums {
            verify_group(&self.sb, &block, number)?;
        }
        let bitmap = |field, at: u32, bits: u32| {
            let end = u64::from(at) + u64::from(bits.div_ceil(8));
            if end <= u64::from(self.sb.cgsize) {
                return Ok(index(at));
            }
            Err(range(field, end, u64::from(self.sb.cgsize), place))
        };
        let blocks = u32::try_from(self.sb.group_blocks(number).len).unwrap_or(u32::MAX);
        Ok(Group {
            directories: raw.cg_cs.cs_ndir.get(),
            free_inodes: raw.cg_cs.cs_nifree.get(),
            initialised: raw.cg_initediblk.get(),
            inodes_at: bitmap("cg_iusedoff", raw.cg_iusedoff.get(), self.sb.ipg)?,
            frags_at: bitmap("cg_freeoff", raw.cg_freeoff.get(), blocks)?,
            block,
        })
    }

    /// The use of a group.
    pub(crate) fn group_summary(&self, number: GroupNo) -> Result<GroupSummary, FsError> {
        let group = self.cylinder_group(number)?;
        let blocks = self.sb.group_blocks(number);
        let free = group.free_runs(blocks);
        let ends_within = free.last().is_none_or(|run| run.end() <= blocks.end());
        debug_assert!(ends_within, "free fragments of group {number} end in it");
        let mut metadata = self.sb.fixed(number);
        if blocks.contains(self.sb.summaries.start) {
            metadata.push(Fixed { extent: self.sb.summaries, kind: FixedKind::Superblock });
        }
        Ok(GroupSummary {
            group: number,
            blocks,
            free_blocks: free.iter().map(|run| run.len).sum(),
            free_inodes: group.free_inodes,
            directories: group.directories,
            metadata,
            free,
        })
    }
}

/// Compares a group's check hash, if it has one: CRC32C over `fs_cgsize` bytes, its own field being
/// zero.
pub(crate) fn verify_group(sb: &Super, block: &[u8], number: GroupNo) -> Result<(), FsError> {
    if !sb.has_check_hash(check_hash::GROUP) {
        return Ok(());
    }
    let place = place(number);
    let covered = slice(block, 0, index(sb.cgsize)).ok_or_else(|| truncated(place))?;
    let mut bytes = covered.to_vec();
    let at = offset_of!(CylinderGroup<LE>, cg_ckhash);
    let stored = sb.order.get_u32(&bytes, at).unwrap_or(0);
    sb.order.put_u32(&mut bytes, at, 0);
    same(stored, crc32c(&bytes), place)
}

impl Group {
    /// Whether an inode of the group is in use.
    pub(crate) fn in_use(&self, slot: u32) -> bool {
        bit(&self.block, self.inodes_at, slot)
    }

    /// Whether a fragment of the group is free.
    pub(crate) fn is_free(&self, at: u32) -> bool {
        bit(&self.block, self.frags_at, at)
    }

    /// Whether its bitmaps stand at these bytes of it.
    pub(crate) fn maps_are_at(&self, inodes: u64, frags: u64) -> bool {
        (wide(self.inodes_at), wide(self.frags_at)) == (inodes, frags)
    }

    /// Inodes that were ever written, on UFS2.
    pub(crate) fn initialised_inodes(&self) -> u32 {
        self.initialised
    }

    /// A set bit of the map is a free fragment.
    fn free_runs(&self, blocks: Extent) -> Vec<Extent> {
        let mut runs: Vec<Extent> = Vec::new();
        let count = u32::try_from(blocks.len).unwrap_or(u32::MAX);
        for at in (0..count).filter(|&at| bit(&self.block, self.frags_at, at)) {
            let block: BlockNo = blocks.start + u64::from(at);
            append(&mut runs, block);
        }
        runs
    }
}

fn bit(bytes: &[u8], from: usize, at: u32) -> bool {
    let byte = bytes.get(from + index(at >> 3)).copied().unwrap_or(0);
    byte >> (at & 7) & 1 == 1
}
