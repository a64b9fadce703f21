//! The superblock before and after a repair, and its copies.

use crate::check::checker::Checker;
use crate::check::features;
use crate::check::fix::Fix;
use crate::encode::sums::seal_superblock;
use crate::ondisk::{
    CHECKSUM_CRC32C, IBlock, INODE_CORE_SIZE, INODE_EXTRA_SIZE, OrderedMark, STATE_ERRORS,
    STATE_VALID, SUPERBLOCK_SIZE, Superblock, compat, incompat, ro_compat, special,
};
use crate::superblock::{Super, clear_errors};
pub(super) use crate::superblock::{read_primary as read, write_primary as write};
use seekless_fs::FsError;
use seekless_fs::field::{index, le32, low16, low32};
use seekless_fs::patches::Patches;
use seekless_units::{BlockNo, GroupNo, Ino};
use zerocopy::IntoBytes;

/// Features that a kernel sets in the primary superblock alone.
const LATER_COMPAT: u32 = compat::EXT_ATTR;
const LATER_RO_COMPAT: u32 = ro_compat::LARGE_FILE | ro_compat::DIR_NLINK;

/// The time for inodes that are deleted or made now. No clock is read, so that the same image
/// always becomes the same. Never the number of an inode.
pub(super) fn time(sb: &Super) -> u32 {
    let raw = &sb.raw;
    let told = [&raw.s_wtime, &raw.s_mtime, &raw.s_lastcheck, &raw.s_mkfs_time];
    let latest = told.iter().map(|time| time.get()).max().unwrap_or(0);
    latest.max(raw.s_inodes_count.get() + 1)
}

/// Writes the superblock that was decided on: a copy of it, or the primary one with corrected
/// fields.
///
/// # Errors
/// Errors of the device.
pub(super) fn put(checker: &Checker, disk: &mut Patches) -> Result<(), FsError> {
    let mut raw = checker.sb().raw.clone();
    if checker.from_copy {
        let old = read(disk)?;
        let more = old.s_feature_compat.get() & LATER_COMPAT;
        raw.s_feature_compat = (raw.s_feature_compat.get() | more).into();
        let more = old.s_feature_ro_compat.get() & LATER_RO_COMPAT;
        raw.s_feature_ro_compat = (raw.s_feature_ro_compat.get() | more).into();
        // Only the primary one says that the journal waits, which is replayed next.
        if checker.fixes.all().any(|fix| fix == Fix::Replay) {
            raw.s_feature_incompat = (raw.s_feature_incompat.get() | incompat::RECOVER).into();
        }
    } else {
        mend(checker, &mut raw);
    }
    raw.s_state = (raw.s_state.get() & !STATE_VALID).into();
    OrderedMark::clear(&mut raw);
    write(disk, raw.clone())?;
    if !checker.from_copy {
        put_copies(checker, disk, &raw)?;
    }
    Ok(())
}

/// Corrects fields with impossible values.
fn mend(checker: &Checker, raw: &mut Superblock) {
    let sb = checker.sb();
    if let Some((cleared, _)) = features::contradicted(&checker.volume) {
        features::clear(raw, cleared);
    }
    features::clear_contradictions(raw);
    if raw.s_feature_compat.get() & compat::ORPHAN_FILE == 0 {
        raw.s_orphan_file_inum = 0.into();
    }
    if raw.s_feature_compat.get() & compat::RESIZE_INODE == 0 {
        raw.s_reserved_gdt_blocks = 0.into();
    }
    for (field, _) in checker.impossible_fields() {
        match field {
            "s_first_ino" => raw.s_first_ino = special::FIRST_ORDINARY.into(),
            "s_checksum_type" => raw.s_checksum_type = CHECKSUM_CRC32C,
            "s_rev_level" => make_dynamic(raw),
            "s_r_blocks_count" => {
                raw.s_r_blocks_count_lo = 0.into();
                raw.s_r_blocks_count_hi = 0.into();
            }
            "s_clusters_per_group" => raw.s_clusters_per_group = sb.blocks_per_group.into(),
            "s_log_groups_per_flex" => raw.s_log_groups_per_flex = 0,
            // The only block of descriptors lies where it lies without the feature.
            "s_first_meta_bg" => {
                raw.s_first_meta_bg = 0.into();
                let bits = raw.s_feature_incompat.get() & !incompat::META_BG;
                raw.s_feature_incompat = bits.into();
            }
            "s_desc_size" => raw.s_desc_size = sb.desc_size.into(),
            "s_usr_quota_inum" => raw.s_usr_quota_inum = checker.quota_number(0).into(),
            "s_grp_quota_inum" => raw.s_grp_quota_inum = checker.quota_number(1).into(),
            "s_prj_quota_inum" => raw.s_prj_quota_inum = checker.quota_number(2).into(),
            "s_min_extra_isize" => raw.s_min_extra_isize = INODE_EXTRA_SIZE.into(),
            "s_want_extra_isize" => raw.s_want_extra_isize = INODE_EXTRA_SIZE.into(),
            "s_journal_uuid" => raw.s_journal_uuid = [0; 16],
            "s_journal_inum" => {
                let journal = special::JOURNAL;
                let number = if sb.has_compat(compat::HAS_JOURNAL) { journal } else { 0 };
                raw.s_journal_inum = number.into();
            }
            _ => unreachable!("{field} has a rule and no repair"),
        }
    }
}

/// Writes the copies of the superblock, each with its own fields.
fn put_copies(checker: &Checker, disk: &mut Patches, raw: &Superblock) -> Result<(), FsError> {
    let sb = checker.sb();
    for number in (1..sb.groups).map(GroupNo::new) {
        if !sb.group_has_super(number) {
            continue;
        }
        let mut copy = raw.clone();
        seal_superblock(&mut copy, number.get());
        let start = sb.group_blocks(number).start.get();
        disk.put(start * u64::from(sb.block_size), copy.as_bytes())?;
    }
    disk.flush()
}

/// Marks the volume on the disk as not clean, if it is not marked yet, and no longer as one that can
/// be used before it is checked: a repair that is cut off leaves more than a crash under soft updates.
///
/// # Errors
/// Errors of the device.
pub(super) fn mark_unclean(disk: &mut Patches) -> Result<(), FsError> {
    let mut raw = read(disk)?;
    raw.s_state = (raw.s_state.get() & !STATE_VALID).into();
    OrderedMark::clear(&mut raw);
    write(disk, raw)
}

/// Sets the block of multiple mount protection.
///
/// # Errors
/// Errors of the device.
pub(super) fn set_mmp_block(disk: &mut Patches, block: BlockNo) -> Result<(), FsError> {
    let mut raw = read(disk)?;
    raw.s_mmp_block = block.get().into();
    write(disk, raw)
}

/// Sets where the list of orphans begins.
///
/// # Errors
/// Errors of the device.
pub(super) fn set_last_orphan(disk: &mut Patches, ino: Ino) -> Result<(), FsError> {
    let mut raw = read(disk)?;
    raw.s_last_orphan = ino.get().into();
    write(disk, raw)
}

/// Makes a superblock one of the revision that has features, with the sizes that the first revision
/// has by itself (`ext2fs_update_dynamic_rev`).
fn make_dynamic(raw: &mut Superblock) {
    if raw.s_rev_level.get() == 0 {
        raw.s_first_ino = special::FIRST_ORDINARY.into();
        raw.s_inode_size = low16(u32::try_from(INODE_CORE_SIZE).unwrap_or(0)).into();
    }
    raw.s_rev_level = 1.into();
}

/// Sets a feature of `s_feature_ro_compat`: that for files of 2 GiB and more, or that for
/// directories with many subdirectories.
///
/// # Errors
/// Errors of the device.
pub(super) fn set_feature(disk: &mut Patches, feature: u32) -> Result<(), FsError> {
    let mut raw = read(disk)?;
    if raw.s_rev_level.get() == 0 {
        make_dynamic(&mut raw);
    }
    let bits = raw.s_feature_ro_compat.get() | feature;
    raw.s_feature_ro_compat = bits.into();
    write(disk, raw)
}

/// Clears a feature without which kernels only read a volume.
///
/// # Errors
/// Errors of the device.
pub(super) fn clear_feature(disk: &mut Patches, feature: u32) -> Result<(), FsError> {
    let mut raw = read(disk)?;
    raw.s_feature_ro_compat = (raw.s_feature_ro_compat.get() & !feature).into();
    write(disk, raw)
}

/// Clears the feature for a nonempty orphan file.
///
/// # Errors
/// Errors of the device.
pub(super) fn no_filed_orphans(disk: &mut Patches) -> Result<(), FsError> {
    let mut raw = read(disk)?;
    let bits = raw.s_feature_ro_compat.get() & !ro_compat::ORPHAN_PRESENT;
    raw.s_feature_ro_compat = bits.into();
    write(disk, raw)
}

/// Takes the orphan file from a volume: orphans are on the list from now on.
///
/// # Errors
/// Errors of the device.
pub(super) fn drop_orphan_file(disk: &mut Patches) -> Result<(), FsError> {
    let mut raw = read(disk)?;
    let bits = raw.s_feature_compat.get() & !compat::ORPHAN_FILE;
    raw.s_feature_compat = bits.into();
    let bits = raw.s_feature_ro_compat.get() & !ro_compat::ORPHAN_PRESENT;
    raw.s_feature_ro_compat = bits.into();
    raw.s_orphan_file_inum = 0.into();
    write(disk, raw)
}

/// Writes the totals, and when these are on the disk marks the volume as clean, if it is.
///
/// # Errors
/// Errors of the device.
pub(super) fn finish(checker: &Checker, disk: &mut Patches, clean: bool) -> Result<(), FsError> {
    let mut raw = read(disk)?;
    if !checker.has_lost_blocks() {
        let (blocks, inodes) = checker.free_totals();
        raw.s_free_blocks_count_lo = low32(blocks).into();
        if checker.sb().has_incompat(incompat::BIT64) {
            raw.s_free_blocks_count_hi = low32(blocks >> 32).into();
        }
        raw.s_free_inodes_count = inodes.into();
    }
    write(disk, raw.clone())?;
    if !clean {
        return Ok(());
    }
    raw.s_state = ((raw.s_state.get() | STATE_VALID) & !STATE_ERRORS).into();
    clear_errors(&mut raw);
    write(disk, raw)
}

/// Forgets a journal that is lost: its transactions, the copy of its map, and the device it might
/// lie on. The volume still has the feature, and gets a new journal.
///
/// # Errors
/// Errors of the device.
pub(super) fn forget_journal(disk: &mut Patches) -> Result<(), FsError> {
    let mut raw = read(disk)?;
    raw.s_feature_incompat = (raw.s_feature_incompat.get() & !incompat::RECOVER).into();
    raw.s_journal_inum = special::JOURNAL.into();
    raw.s_journal_uuid = [0; 16];
    raw.s_jnl_backup_type = 0;
    raw.s_jnl_blocks = [0.into(); 17];
    write(disk, raw)
}

/// Notes the map and the length of a journal that was made.
///
/// # Errors
/// Errors of the device.
pub(super) fn note_journal(
    disk: &mut Patches,
    ino: Ino,
    map: &IBlock,
    len: u64,
) -> Result<(), FsError> {
    let mut raw = read(disk)?;
    raw.s_journal_inum = ino.get().into();
    raw.s_jnl_backup_type = crate::journal::BACKUP_BLOCKS;
    let words = map.0.chunks_exact(4).filter_map(|word| le32(word, 0));
    for (slot, word) in raw.s_jnl_blocks.iter_mut().zip(words.chain([low32(len >> 32), low32(len)]))
    {
        *slot = word.into();
    }
    write(disk, raw)
}

/// Removes the journal feature from a volume whose journal is unusable.
///
/// # Errors
/// Errors of the device.
pub(super) fn drop_journal(disk: &mut Patches) -> Result<(), FsError> {
    let mut raw = read(disk)?;
    let bits = raw.s_feature_compat.get() & !(compat::HAS_JOURNAL | compat::FAST_COMMIT);
    raw.s_feature_compat = bits.into();
    raw.s_feature_incompat = (raw.s_feature_incompat.get() & !incompat::RECOVER).into();
    raw.s_journal_inum = 0.into();
    raw.s_journal_dev = 0.into();
    raw.s_journal_uuid = [0; 16];
    raw.s_jnl_backup_type = 0;
    raw.s_jnl_blocks = [0.into(); 17];
    write(disk, raw)
}

/// Where byte `offset` of a block lies.
pub(super) fn byte_of(sb: &Super, block: seekless_units::BlockNo) -> u64 {
    debug_assert!(index(sb.block_size) >= SUPERBLOCK_SIZE, "a block holds a superblock");
    block.get() * u64::from(sb.block_size)
}
