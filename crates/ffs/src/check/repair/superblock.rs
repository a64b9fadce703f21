//! The superblock before and after a repair.

use crate::check::checker::Checker;
use crate::ondisk::flag;
use crate::superblock::Super;
use crate::superblock_edit::SuperblockMut;
use seekless_fs::FsError;
use seekless_fs::patches::Patches;
use seekless_placement::Totals;

/// Writes the superblock that was decided on, or a copy of it, marked as not clean.
///
/// # Errors
/// Errors of the device.
pub(super) fn put(checker: &Checker, disk: &mut Patches, at: u64) -> Result<(), FsError> {
    let sb = checker.sb();
    let mut bytes = SuperblockMut::of(sb, checker.superblock.clone());
    bytes.set_clean(false);
    bytes.retire_journal(sb.tuning.mtime);
    disk.put(at, bytes.sealed())?;
    disk.flush()
}

/// Marks the volume on the disk as not clean, if it is not marked yet. The journal of soft
/// updates does not describe a volume that is repaired in part.
pub(super) fn mark_unclean(sb: &Super, disk: &mut Patches) -> Result<(), FsError> {
    if !sb.clean && !sb.is_journaled() {
        return Ok(());
    }
    let device = disk.device().clone();
    let mut bytes = SuperblockMut::read(sb, device.as_ref())?;
    bytes.set_clean(false);
    bytes.retire_journal(sb.tuning.mtime);
    disk.put(sb.at, bytes.sealed())?;
    disk.flush()
}

/// Writes the totals, and when these are on the disk marks the volume as clean, if it is.
///
/// # Errors
/// Errors of the device.
pub(super) fn finish(
    sb: &Super,
    totals: Totals,
    clean: bool,
    disk: &mut Patches,
) -> Result<(), FsError> {
    let device = disk.device().clone();
    let mut bytes = SuperblockMut::read(sb, device.as_ref())?;
    bytes.set_totals(totals);
    bytes.forget_unreferenced();
    disk.put(sb.at, bytes.sealed())?;
    disk.flush()?;
    if !clean {
        return Ok(());
    }
    bytes.set_flags(sb.flags & !(flag::UNCLEAN | flag::NEEDS_FSCK));
    bytes.set_clean(true);
    disk.put(sb.at, bytes.sealed())?;
    disk.flush()
}
