//! Heads of cylinder groups, made anew.

use super::groups;
use super::inode::InodeMut;
use crate::alloc::{GroupMut, seal_group};
use crate::check::Checker;
use crate::make::head_layout;
use crate::ondisk::{CylinderGroup, MAGIC_GROUP};
use crate::superblock::{Format, Super};
use seekless_fs::FsError;
use seekless_fs::field::{index, low16};
use seekless_fs::patches::Patches;
use seekless_units::{GroupNo, Ino};
use std::mem::offset_of;
use zerocopy::byteorder::LE;

/// A place in a group's head.
macro_rules! at {
    ($field:ident) => {
        offset_of!(CylinderGroup<LE>, $field)
    };
}

/// Where the maps and counts of a group stand, by what is written: the fields
/// that are the same in all groups of a volume.
const PLACES: [usize; 7] = [
    at!(cg_old_btotoff),
    at!(cg_old_boff),
    at!(cg_iusedoff),
    at!(cg_freeoff),
    at!(cg_nextfreeoff),
    at!(cg_clustersumoff),
    at!(cg_clusteroff),
];

/// Writes what a group's head says of itself; its maps and counts are left for
/// later. Where they stand is taken from another group, or else is where `newfs`
/// has them.
///
/// # Errors
/// What the device gives.
pub(super) fn put(checker: &Checker, disk: &mut Patches, number: GroupNo) -> Result<(), FsError> {
    let sb = checker.sb();
    let at = sb.in_group(number, sb.cblkno).get().saturating_mul(u64::from(sb.fsize));
    let mut bytes = disk.read(at, index(sb.bsize))?;
    let ndblk = u32::try_from(sb.group_blocks(number).len).unwrap_or(u32::MAX);
    let put = |bytes: &mut [u8], at: usize, value: u32| sb.order.put_u32(bytes, at, value);
    let same = sb.order.get_u32(&bytes, at!(cg_magic)) == Some(MAGIC_GROUP);
    put(&mut bytes, at!(cg_magic), MAGIC_GROUP);
    put(&mut bytes, at!(cg_cgx), number.get());
    put(&mut bytes, at!(cg_ndblk), ndblk);
    for (at, value) in PLACES.into_iter().zip(places(checker, disk, number)?) {
        put(&mut bytes, at, value);
    }
    if sb.tuning.contigsumsize > 0 {
        let blocks = ndblk.checked_div(sb.frag).unwrap_or(0);
        put(&mut bytes, at!(cg_nclusterblks), blocks);
    }
    match sb.format {
        Format::Ufs1 => {
            sb.order.put_u16(&mut bytes, at!(cg_old_ncyl), 1);
            sb.order.put_u16(&mut bytes, at!(cg_old_niblk), low16(sb.ipg));
        }
        Format::Ufs2 => {
            put(&mut bytes, at!(cg_niblk), sb.ipg);
            // A head that was something else says nothing of the inodes.
            if !same {
                put(&mut bytes, at!(cg_initediblk), sb.ipg);
            }
        }
    }
    seal_group(sb, &mut bytes);
    disk.put(at, &bytes)
}

/// Where things stand in a head: as in the first sound one, or as `newfs` has it.
fn places(checker: &Checker, disk: &Patches, lost: GroupNo) -> Result<[u32; 7], FsError> {
    let sb = checker.sb();
    for number in (0..sb.ncg).map(GroupNo::new).filter(|&number| number != lost) {
        let at = sb.in_group(number, sb.cblkno).get().saturating_mul(u64::from(sb.fsize));
        let mut bytes = disk.read(at, index(sb.bsize))?;
        if GroupMut::check(sb, number, &mut bytes).is_ok() {
            return Ok(PLACES.map(|at| sb.order.get_u32(&bytes, at).unwrap_or(0)));
        }
    }
    Ok(usual_places(sb))
}

fn usual_places(sb: &Super) -> [u32; 7] {
    let tables = u32::try_from(size_of::<CylinderGroup<LE>>()).unwrap_or(0);
    let old = sb.format == Format::Ufs1;
    let layout = head_layout(old, sb.ipg, sb.fpg, sb.frag, sb.tuning.contigsumsize);
    let small = |at: u64| u32::try_from(at).unwrap_or(u32::MAX);
    [
        if old { tables } else { 0 },
        if old { tables.saturating_add(4) } else { 0 },
        small(layout.inodes),
        small(layout.frags),
        small(layout.end),
        small(layout.cluster_counts),
        small(layout.clusters),
    ]
}

/// Says that so many inodes of a group were written, once those between that are
/// not in use have been.
///
/// # Errors
/// What the device gives.
pub(super) fn initialise(
    checker: &Checker,
    disk: &mut Patches,
    number: GroupNo,
    inodes: u32,
) -> Result<(), FsError> {
    let group = checker.volume.cylinder_group(number)?;
    let first = number.get().saturating_mul(checker.sb().ipg);
    for slot in group.initialised_inodes()..inodes {
        if !group.in_use(slot) {
            let ino = Ino::new(first.saturating_add(slot));
            let mut inode = InodeMut::read(&checker.volume, disk, ino)?;
            inode.clear();
            inode.write(disk)?;
        }
    }
    disk.flush()?;
    groups::set_written(checker, disk, number, inodes)
}
