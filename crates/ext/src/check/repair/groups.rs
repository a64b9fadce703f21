//! Bitmaps, descriptors and counts, written from the findings of the check.

use super::superblock::byte_of;
use crate::check::checker::Checker;
use crate::encode::sums::bitmap_sum;
use crate::group::{CHECKSUM_AT, Counts, OLD_SIZE, bit};
use crate::ondisk::{BG_BLOCK_UNINIT, BG_INODE_UNINIT, GroupDesc};
use crate::part::Part;
use crate::superblock::Super;
use seekless_fs::FsError;
use seekless_fs::field::{index, low16, wide};
use seekless_fs::patches::Patches;
use seekless_units::{BlockNo, GroupNo};
use std::mem::offset_of;

/// Writes a descriptor with the pointers that were decided on, and without the flags for never
/// written bitmaps and tables. If it is otherwise sound, only the flag for the inodes is cleared.
///
/// # Errors
/// Errors of the device.
pub(super) fn put_head(
    checker: &Checker,
    disk: &mut Patches,
    number: GroupNo,
) -> Result<(), FsError> {
    let volume = &checker.volume;
    let mut bytes = volume.descriptors().bytes(number)?.to_vec();
    let group = volume.descriptors().read(number)?;
    if checker.has_uninit() || volume.descriptors().has_needless_marks(&group) {
        let unsure = checker.doubtful_groups.contains(&number) || !checker.has_uninit();
        let bits = if unsure { BG_INODE_UNINIT | BG_BLOCK_UNINIT } else { BG_INODE_UNINIT };
        let at = offset_of!(GroupDesc, bg_flags);
        if let Some(slot) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) {
            *slot = (u16::from_le_bytes(*slot) & !bits).to_le_bytes();
        }
        for at in
            [offset_of!(GroupDesc, bg_itable_unused_lo), offset_of!(GroupDesc, bg_itable_unused_hi)]
        {
            if let Some(slot) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) {
                *slot = [0; 2];
            }
        }
    }
    put_descriptor(checker, disk, number, bytes)
}

/// Points a descriptor, as it lies on the disk now, to another place of a part.
///
/// # Errors
/// Errors of the device.
pub(super) fn point(
    checker: &Checker,
    disk: &mut Patches,
    number: GroupNo,
    part: Part,
    to: BlockNo,
) -> Result<(), FsError> {
    let sb = checker.sb();
    let mut bytes = disk.read(descriptor_at(sb, number), usize::from(sb.desc_size))?;
    part.point(&mut bytes, to);
    put_descriptor(checker, disk, number, bytes)
}

/// Takes the mark of a never written block bitmap from a descriptor, and leaves that of the inode
/// table, behind whose inodes in use there may be anything.
///
/// # Errors
/// Errors of the device.
pub(super) fn note_written_bitmap(
    checker: &Checker,
    disk: &mut Patches,
    number: GroupNo,
) -> Result<(), FsError> {
    let sb = checker.sb();
    let mut bytes = disk.read(descriptor_at(sb, number), usize::from(sb.desc_size))?;
    let at = offset_of!(GroupDesc, bg_flags);
    if let Some(slot) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) {
        *slot = (u16::from_le_bytes(*slot) & !BG_BLOCK_UNINIT).to_le_bytes();
    }
    put_descriptor(checker, disk, number, bytes)
}

/// The byte of the volume at which a descriptor begins.
fn descriptor_at(sb: &Super, number: GroupNo) -> u64 {
    let per_block = sb.descs_per_block().max(1);
    let block = sb.descriptor_block(number.get() / per_block);
    let slot = u64::from(number.get() % per_block);
    byte_of(sb, block) + slot * u64::from(sb.desc_size)
}

/// Writes a descriptor's bytes with their checksum.
fn put_descriptor(
    checker: &Checker,
    disk: &mut Patches,
    number: GroupNo,
    mut bytes: Vec<u8>,
) -> Result<(), FsError> {
    let sum = checker.volume.descriptors().sum(number, &bytes).unwrap_or(0);
    if let Some(slot) = bytes.get_mut(CHECKSUM_AT..OLD_SIZE) {
        slot.copy_from_slice(&low16(sum).to_le_bytes());
    }
    disk.put(descriptor_at(checker.sb(), number), &bytes)
}

/// Sets or clears a bit of a bitmap.
fn mark(bitmap: &mut [u8], at: u32, set: bool) {
    if let Some(byte) = bitmap.get_mut(index(at >> 3)) {
        let mask = 1u8 << (at & 7);
        *byte = if set { *byte | mask } else { *byte & !mask };
    }
}

/// Writes a group's bitmaps and its descriptor. Bitmaps that were never written are left so where
/// only the volume's own metadata is in use.
///
/// # Errors
/// Errors of the device.
pub(super) fn put(checker: &Checker, disk: &mut Patches, number: GroupNo) -> Result<(), FsError> {
    if checker.lost_groups.contains(&number) {
        return Ok(());
    }
    let volume = &checker.volume;
    let sb = &volume.sb;
    let group = volume.descriptors().read(number)?;
    let mut flags = group.raw().bg_flags.get();
    let size = volume.block_len();

    let blocks = sb.group_blocks(number);
    let mut bitmap = vec![0xFF; size];
    let (mut free_clusters, mut others) = (0u32, false);
    // Blocks of inodes that cannot be found may be in use: then nothing becomes free.
    let old = if checker.has_lost_blocks() && !group.block_uninit() {
        volume.bitmaps().blocks(&group).ok()
    } else {
        None
    };
    for (at, cluster) in (0u32..).zip(sb.clusters_of(blocks)) {
        let kept = old.as_ref().is_some_and(|old| bit(old, at));
        let used = checker.used.get(index(cluster)) || kept;
        others |= used && !checker.fixed.get(index(cluster));
        free_clusters += u32::from(!used);
        mark(&mut bitmap, at, used);
    }
    if group.block_uninit() && others {
        flags &= !BG_BLOCK_UNINIT;
    }
    let is_written = !group.block_uninit() || others;
    if is_written && !checker.lost_block_bitmaps.contains(&number) {
        disk.put(byte_of(sb, group.block_bitmap()), &bitmap)?;
    }

    let count = sb.inodes_per_group;
    let (taken, directories) = checker.taken_of_group(number);
    let mut inodes = vec![0xFF; size];
    let (mut free_inodes, mut used_end) = (0u32, 0u32);
    for at in 0..count {
        let used = taken.get(index(at));
        mark(&mut inodes, at, used);
        free_inodes += u32::from(!used);
        if used {
            used_end = at + 1;
        }
    }
    if group.inode_uninit() && used_end > 0 {
        flags &= !BG_INODE_UNINIT;
    }
    let is_written = !group.inode_uninit() || used_end > 0;
    if is_written && !checker.lost_inode_bitmaps.contains(&number) {
        disk.put(byte_of(sb, group.inode_bitmap()), &inodes)?;
    }
    disk.flush()?;

    let unused = if checker.has_uninit() { group.itable_unused().min(count - used_end) } else { 0 };
    let sums = sb.has_metadata_csum();
    let sum = |bits: &[u8], len: u32| {
        if sums { bitmap_sum(sb.checksum_seed, bits, u64::from(len)) } else { 0 }
    };
    // The sums of bitmaps that were never written are those in the descriptor.
    let raw = group.raw();
    let join = |high: u16, low: u16| (u32::from(high) << 16) | u32::from(low);
    let kept = |written: bool, sum: u32, high: u16, low: u16| {
        if written { sum } else { join(high, low) }
    };
    let counts = Counts {
        flags,
        free_clusters,
        free_inodes,
        directories,
        unused,
        block_sum: kept(
            flags & BG_BLOCK_UNINIT == 0 || !checker.has_uninit(),
            sum(&bitmap, sb.clusters_per_group()),
            raw.bg_block_bitmap_csum_hi.get(),
            raw.bg_block_bitmap_csum_lo.get(),
        ),
        inode_sum: kept(
            flags & BG_INODE_UNINIT == 0 || !checker.has_uninit(),
            sum(&inodes, count),
            raw.bg_inode_bitmap_csum_hi.get(),
            raw.bg_inode_bitmap_csum_lo.get(),
        ),
    };
    let bytes = volume.descriptors().recounted(&group, &counts)?;
    debug_assert!(wide(bytes.len()) >= wide(OLD_SIZE), "a whole descriptor");
    debug_assert!(directories + free_inodes <= count, "directories are inodes in use");
    put_descriptor(checker, disk, number, bytes)
}
