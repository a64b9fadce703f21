//! Bitmaps and counts, written from the findings of the check.

use crate::alloc::{GroupMut, encode_summary, seal_group};
use crate::check::checker::Checker;
use crate::check::groups::summary_of;
use seekless_fs::FsError;
use seekless_fs::field::{index, low32};
use seekless_fs::patches::Patches;
use seekless_placement::Totals;
use seekless_units::{Extent, GroupNo, Ino};

/// Changes a group's bytes in place.
fn change(
    checker: &Checker,
    disk: &mut Patches,
    number: GroupNo,
    with: impl FnOnce(&mut GroupMut<'_>),
) -> Result<(), FsError> {
    let sb = checker.sb();
    let at = sb.in_group(number, sb.cblkno).get() * u64::from(sb.fsize);
    let mut bytes = disk.read(at, index(sb.bsize))?;
    let mut group = GroupMut::check(sb, number, &mut bytes)?;
    with(&mut group);
    seal_group(sb, &mut bytes);
    disk.put(at, &bytes)
}

/// Writes a group's maps and counts.
///
/// # Errors
/// [`FsError::Corrupt`] for a group without a head; errors of the device.
pub(super) fn put(checker: &Checker, disk: &mut Patches, number: GroupNo) -> Result<(), FsError> {
    let sb = checker.sb();
    let first = number.get() * sb.ipg;
    let blocks = sb.group_blocks(number);
    change(checker, disk, number, |group| {
        for slot in 0..sb.ipg {
            group.set_in_use(slot, checker.is_taken(Ino::new(first + slot)));
        }
        for (at, block) in (0u32..).zip(blocks.start.get()..blocks.end().get()) {
            group.set_fragment_free(at, !checker.used.get(index(block)));
        }
        group.derive_clusters();
        group.set_counts(&checker.recount(number));
        group.reset_rotors();
        group.reset_fields();
        group.clear_stray_hash();
        group.clear_strays();
    })
}

/// Marks fragments of a group as in use; the counts are left for later.
///
/// # Errors
/// As [`put`].
pub(super) fn reserve_run(
    checker: &Checker,
    disk: &mut Patches,
    number: GroupNo,
    run: Extent,
) -> Result<(), FsError> {
    let start = checker.sb().group_blocks(number).start;
    let end = checker.sb().group_blocks(number).end();
    debug_assert!(run.end() <= end, "{run} lies in group {number}");
    let from = low32(run.start - start);
    change(checker, disk, number, |group| {
        for at in (from..).take(index(run.len)) {
            group.set_fragment_free(at, false);
        }
        group.derive_clusters();
    })?;
    disk.flush()
}

/// Marks an inode of a group as in use; the counts are left for later.
///
/// # Errors
/// As [`put`].
pub(super) fn reserve_inode(
    checker: &Checker,
    disk: &mut Patches,
    number: GroupNo,
    ino: Ino,
) -> Result<(), FsError> {
    let first = number.get() * checker.sb().ipg;
    let slot = ino.get() - first;
    change(checker, disk, number, |group| group.set_in_use(slot, true))?;
    disk.flush()
}

/// Raises the number of a group's written inodes (UFS2).
///
/// # Errors
/// As [`put`].
pub(super) fn set_written(
    checker: &Checker,
    disk: &mut Patches,
    number: GroupNo,
    inodes: u32,
) -> Result<(), FsError> {
    change(checker, disk, number, |group| group.set_initialised(inodes))
}

/// Writes the summary area; returns the totals of all groups.
///
/// # Errors
/// Errors of the device.
pub(super) fn put_summaries(checker: &Checker, disk: &mut Patches) -> Result<Totals, FsError> {
    let sb = checker.sb();
    let mut area = checker.summary_area()?;
    let mut all = Vec::new();
    for number in (0..sb.ncg).map(GroupNo::new) {
        let summary = summary_of(&checker.recount(number));
        encode_summary(sb.order, &mut area, number, summary);
        all.push(summary);
    }
    let at = sb.summaries.start.get() * u64::from(sb.fsize);
    disk.put(at, &area)?;
    Ok(all.into_iter().collect())
}
