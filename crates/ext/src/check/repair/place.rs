//! Bitmaps and inode tables that are not where they should be, put elsewhere (e2fsck,
//! `handle_fs_bad_blocks`).

use super::groups;
use super::space::Space;
use super::superblock::byte_of;
use crate::check::checker::Checker;
use crate::ondisk::incompat;
use crate::part::Part;
use seekless_fs::field::index;
use seekless_fs::patches::Patches;
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Extent, GroupNo};

/// Puts a part of a group into free blocks: of the group, or with `flex_bg` of the volume.
/// Whether there was room. The pointer is written last.
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
    let volume = &checker.volume;
    let sb = &volume.sb;
    let group = volume.descriptors().read(number)?;
    let old = part.of(&group, sb.itable_blocks());
    let own = sb.group_blocks(number);
    let whole = Extent::new(sb.first_block, sb.blocks - sb.first_block.get());
    let is_free = sb.has_incompat(incompat::FLEX_BG);
    let ranges = [Some(own), Some(whole).filter(|_| is_free)];
    let mut found = None;
    for range in ranges.into_iter().flatten() {
        found = found.or_else(|| space.run(checker, old.len, range));
    }
    let Some(new) = found else { return Ok(false) };
    let is_inside = volume.check_extent(old, Location::of("group descriptor")).is_ok()
        && (is_free || (old.start >= own.start && old.end() <= own.end()));
    // Inodes of a table that lies in other metadata are sound where they were not overwritten.
    let is_kept = part == Part::Table && is_inside && old.start != BlockNo::ZERO;
    for at in 0..new.len {
        let bytes = match part {
            // The check after this one tells the bits that are to be cleared.
            Part::BlockBitmap | Part::InodeBitmap => vec![0xFF; volume.block_len()],
            Part::Table if is_kept => {
                disk.read(byte_of(sb, old.start + at), index(sb.block_size))?
            }
            Part::Table => vec![0; volume.block_len()],
        };
        disk.put(byte_of(sb, new.start + at), &bytes)?;
    }
    disk.flush()?;
    groups::point(checker, disk, number, part, new.start)?;
    Ok(true)
}
