//! Rebuilt heads of cylinder groups.

use super::groups;
use crate::alloc::{identify_head, seal_group};
use crate::check::checker::Checker;
use crate::inode_edit::InodeMut;
use crate::ondisk::{CylinderGroup, MAGIC_GROUP};
use crate::superblock::Format;
use seekless_fs::FsError;
use seekless_fs::field::index;
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

/// Writes the constant and derived fields of a group's head; its maps and counts are left for
/// later. Bytes that were no head are cleared, as by `rebuild_cg` of `fsck_ffs`.
///
/// # Errors
/// Errors of the device.
pub(super) fn put(checker: &Checker, disk: &mut Patches, number: GroupNo) -> Result<(), FsError> {
    let sb = checker.sb();
    let at = sb.in_group(number, sb.cblkno).get() * u64::from(sb.fsize);
    let mut bytes = disk.read(at, index(sb.bsize))?;
    if sb.order.get_u32(&bytes, at!(cg_magic)) != Some(MAGIC_GROUP) {
        bytes.iter_mut().take(index(sb.cgsize)).for_each(|byte| *byte = 0);
    }
    identify_head(sb, number, &mut bytes);
    if sb.format == Format::Ufs2 {
        let written = checker.written.get(index(number.get())).copied().unwrap_or(sb.ipg);
        sb.order.put_u32(&mut bytes, at!(cg_initediblk), written);
    }
    seal_group(sb, &mut bytes);
    disk.put(at, &bytes)
}

/// Sets the number of a group's written inodes, after writing the unused ones between.
///
/// # Errors
/// Errors of the device.
pub(super) fn initialise(
    checker: &Checker,
    disk: &mut Patches,
    number: GroupNo,
    inodes: u32,
) -> Result<(), FsError> {
    debug_assert!(inodes <= checker.sb().ipg, "{inodes} inodes of group {number}");
    let group = checker.volume.cylinder_group(number)?;
    let first = number.get() * checker.sb().ipg;
    for slot in group.initialised_inodes()..inodes {
        if !group.in_use(slot) {
            let ino = Ino::new(first + slot);
            let mut inode = InodeMut::read(&checker.volume, disk, ino)?;
            inode.clear();
            inode.write(disk)?;
        }
    }
    disk.flush()?;
    groups::set_written(checker, disk, number, inodes)
}
