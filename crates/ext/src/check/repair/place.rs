//! Bitmaps that are not where they should be, put elsewhere (e2fsck, `handle_fs_bad_blocks`).

use super::groups;
use super::space::Space;
use super::superblock::byte_of;
use crate::check::checker::Checker;
use crate::ondisk::incompat;
use crate::part::Part;
use seekless_fs::FsError;
use seekless_fs::patches::Patches;
use seekless_units::GroupNo;

/// Puts a bitmap of a group into a free block: of the group, or with `flex_bg` of the volume. Whether
/// there was room, and all inode tables are known. The pointer is written last.
///
/// # Errors
/// Errors of the device.
pub(super) fn place(
    checker: &Checker,
    disk: &mut Patches,
    space: &mut Space,
    number: GroupNo,
    part: Part,
) -> Result<bool, FsError> {
    debug_assert!(part != Part::Table, "an inode table is not made again");
    // Inodes that cannot be found may have any block.
    if !checker.lost_groups.is_empty() {
        return Ok(false);
    }
    let volume = &checker.volume;
    let own = volume.sb.group_blocks(number);
    let is_any = volume.sb.has_incompat(incompat::FLEX_BG);
    let found = space.unmarked_in(checker, own);
    let found = found.or_else(|| if is_any { space.cluster(checker) } else { None });
    let Some(new) = found.or_else(|| space.cluster_in(&volume.sb, own)) else { return Ok(false) };
    // The check after this one tells the bits that are to be cleared.
    disk.put(byte_of(&volume.sb, new), &vec![0xFF; volume.block_len()])?;
    disk.flush()?;
    groups::point(checker, disk, number, part, new)?;
    Ok(true)
}
