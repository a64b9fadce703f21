//! Bitmaps and counts, as what was found has them.

use super::disk::Disk;
use crate::alloc::{GroupMut, encode_summary, seal_group};
use crate::check::Checker;
use crate::check::groups::summary_of;
use seekless_fs::FsError;
use seekless_fs::field::index;
use seekless_placement::Totals;
use seekless_units::{GroupNo, Ino};

/// Writes a group's maps and counts.
///
/// # Errors
/// [`FsError::Corrupt`] for a group without a head; what the device gives.
pub(super) fn put(checker: &Checker, number: GroupNo, disk: &mut Disk) -> Result<(), FsError> {
    let sb = checker.sb();
    let at = sb.in_group(number, sb.cblkno).get().saturating_mul(u64::from(sb.fsize));
    let mut bytes = disk.read(at, index(sb.bsize))?;
    let mut group = GroupMut::check(sb, number, &mut bytes)?;
    let first = number.get().saturating_mul(sb.ipg);
    for slot in 0..sb.ipg {
        group.set_in_use(slot, checker.is_taken(Ino::new(first.saturating_add(slot))));
    }
    let blocks = sb.group_blocks(number);
    for (at, block) in (0u32..).zip(blocks.start.get()..blocks.end().get()) {
        group.set_fragment_free(at, !checker.used.get(index(block)));
    }
    group.derive_clusters();
    group.set_counts(&checker.recount(number));
    group.reset_rotors();
    seal_group(sb, &mut bytes);
    disk.put(at, &bytes)
}

/// Writes the summary area; returns what the groups have together.
pub(super) fn put_summaries(checker: &Checker, disk: &mut Disk) -> Result<Totals, FsError> {
    let sb = checker.sb();
    let mut area = checker.summary_area()?;
    let mut all = Vec::new();
    for number in (0..sb.ncg).map(GroupNo::new) {
        let summary = summary_of(&checker.recount(number));
        encode_summary(sb.order, &mut area, number, summary);
        all.push(summary);
    }
    let at = sb.summaries.start.get().saturating_mul(u64::from(sb.fsize));
    disk.put(at, &area)?;
    Ok(all.into_iter().collect())
}
