//! The changes of a recovery, written in an order in which they can be cut off.
//!
//! A recovery that was cut off is done again, by the same records: nothing that records lead to is
//! lost before all that they lead to is on the disk.
//!
//! 1. bitmaps, but for index blocks that became free: the blocks that they lead to are found by them
//! 2. all of the bitmaps
//! 3. index blocks, and entries of directories
//! 4. inodes, as far as the list of unreferenced ones still leads on
//! 5. the superblock without that list, and those inodes as they are to be
//! 6. the summary area, and the superblock, marked as clean
//!
//! The exceptions are links that are lowered for a name without a record, of which a second recovery
//! would lower too many or too few, and index blocks below others, which it would not find. Then the
//! volume is marked for a full check meanwhile.

use super::tables::Pass;
use crate::alloc::encode_summary;
use crate::inode_edit::InodeMut;
use crate::ondisk::flag;
use crate::superblock::Super;
use crate::superblock_edit::SuperblockMut;
use seekless_fs::FsError;
use seekless_fs::field::{index, wide};
use seekless_fs::patches::Patches;
use seekless_placement::{GroupSummary, Totals};
use seekless_units::{GroupNo, Ino};
use std::collections::BTreeMap;

/// Writes a recovery; `summaries` are those of all groups.
///
/// # Errors
/// Errors of the device.
pub(super) fn write(
    pass: &Pass,
    summaries: &[GroupSummary],
    disk: &mut Patches,
) -> Result<(), FsError> {
    let sb = &pass.staged.volume.sb;
    if pass.is_relative {
        mark(sb, disk, |superblock| superblock.set_flags(sb.flags | flag::NEEDS_FSCK))?;
    }
    put_groups(pass, disk)?;
    for (&fragment, bytes) in pass.staged.changed_fragments() {
        disk.put(fragment * u64::from(sb.fsize), bytes)?;
    }
    disk.flush()?;
    let next: BTreeMap<Ino, u32> = pass.unlinked.iter().copied().collect();
    if !next.is_empty() {
        put_inodes(pass, &next, disk)?;
        let flags = if pass.is_relative { sb.flags | flag::NEEDS_FSCK } else { sb.flags };
        mark(sb, disk, |superblock| {
            superblock.forget_unreferenced();
            superblock.set_flags(flags);
        })?;
    }
    put_inodes(pass, &BTreeMap::new(), disk)?;
    put_summaries(sb, summaries, disk)?;
    let totals: Totals = summaries.iter().copied().collect();
    mark(sb, disk, |superblock| {
        superblock.set_totals(totals);
        superblock.forget_unreferenced();
        superblock.retire_journal(sb.tuning.mtime);
        superblock.set_flags(sb.flags & !(flag::UNCLEAN | flag::NEEDS_FSCK));
        superblock.set_clean(true);
    })
}

/// Changes the superblock.
fn mark(
    sb: &Super,
    disk: &mut Patches,
    change: impl FnOnce(&mut SuperblockMut<'_>),
) -> Result<(), FsError> {
    let device = disk.device().clone();
    let mut bytes = SuperblockMut::read(sb, device.as_ref())?;
    change(&mut bytes);
    disk.put(sb.at, bytes.sealed())?;
    disk.flush()
}

fn put_groups(pass: &Pass, disk: &mut Patches) -> Result<(), FsError> {
    let sb = &pass.staged.volume.sb;
    let groups = &pass.staged.groups;
    let at = |number: GroupNo| sb.in_group(number, sb.cblkno).get() * u64::from(sb.fsize);
    if groups.has_late() {
        for (number, bytes) in groups.all() {
            disk.put(at(number), &groups.early(sb, number, bytes)?)?;
        }
        disk.flush()?;
    }
    for (number, bytes) in groups.all() {
        disk.put(at(number), bytes)?;
    }
    disk.flush()
}

/// Writes the changed inodes; some of them still lead to others.
fn put_inodes(pass: &Pass, next: &BTreeMap<Ino, u32>, disk: &mut Patches) -> Result<(), FsError> {
    let sb = &pass.staged.volume.sb;
    for (&ino, bytes) in pass.staged.changed_inodes() {
        let place = sb.inode_place(ino)?;
        let at = place.block.get() * u64::from(sb.fsize) + wide(place.skip);
        match next.get(&ino) {
            Some(&next) => {
                let mut inode = InodeMut::of(sb, bytes.clone());
                inode.set_depth(next);
                disk.put(at, &inode.sealed())?;
            }
            None => disk.put(at, bytes)?,
        }
    }
    disk.flush()
}

fn put_summaries(sb: &Super, all: &[GroupSummary], disk: &mut Patches) -> Result<(), FsError> {
    let at = sb.summaries.start.get() * u64::from(sb.fsize);
    let mut area = disk.read(at, index(sb.summaries.len * u64::from(sb.fsize)))?;
    for (number, summary) in (0..).map(GroupNo::new).zip(all) {
        encode_summary(sb.order, &mut area, number, *summary);
    }
    disk.put(at, &area)?;
    disk.flush()
}
