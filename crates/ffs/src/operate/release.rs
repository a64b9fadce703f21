//! Empties a snapshot of a volume in use, and makes it an ordinary file.
//!
//! Other than `ffs_snapremove` of `sys/ufs/ffs/ffs_snapshot.c`, which puts holes in place of the marks
//! in the map first, all numbers go with the flag, in one write of the inode: a listed snapshot with
//! holes would need all blocks that were free when it was taken, and after a crash there would be no
//! room for anything. Its blocks are freed next. A crash before that leaves blocks that are marked as
//! used, which a check frees, and a listed file that is no snapshot.

use super::map::Core;
use super::node::restrictions;
use super::recovery::Progress;
use super::take::within_operation;
use super::{Ffs, FfsLive};
use crate::ondisk::SNAPSHOT;
use seekless_cache::Role;
use seekless_fs::FsError;
use seekless_fs::operate::Operate;
use seekless_live::indirect::Trees;
use seekless_units::Ino;

/// Empties a snapshot, and makes it an ordinary file.
///
/// # Errors
/// As [`Operate::release_snapshot`].
pub(super) fn release(live: &mut FfsLive, ino: Ino) -> Result<(), FsError> {
    live.attr(ino)?;
    let (format, core) = live.parts();
    check_releases(format, core, ino)?;
    live.sync()?;
    within_operation(live, reserve)?;
    live.sync()?;
    let (format, _) = live.parts();
    let runs = format.copies.device().runs_of(ino, format.ignore_checksums)?;
    within_operation(live, |format, core| empty(format, core, ino))?;
    live.sync()?;
    within_operation(live, |format, core| {
        format.write_superblock(core, false)?;
        format.copies.release(&mut format.allocator, core, &runs)?;
        match format.copies.listed().is_empty() {
            true => format.release_reserve(core),
            false => Ok(()),
        }
    })?;
    live.sync()
}

fn check_releases(format: &Ffs, core: &mut Core, ino: Ino) -> Result<(), FsError> {
    if !format.copies.listed().contains(&ino) {
        return Err(FsError::Invalid(format!("inode {ino} is not a snapshot")));
    }
    if format.progress != Progress::None {
        return Err(FsError::Refused("the volume is being recovered".into()));
    }
    // The caller has it open.
    if core.node(ino)?.holds() > 1 {
        return Err(FsError::Refused(format!("the snapshot of inode {ino} is in use").into()));
    }
    Ok(())
}

/// Reserves room for copies that the other snapshots may need. A volume may be full because of its
/// only snapshot, whose removal needs no copies.
fn reserve(format: &mut Ffs, core: &mut Core) -> Result<(), FsError> {
    match format.copies.listed().len() {
        1 => Ok(()),
        _ => format.copies.reserve_within(&mut format.allocator, core, 0),
    }
}

/// Takes all block numbers and the flag out of its inode. Nothing is copied for it any more.
fn empty(format: &mut Ffs, core: &mut Core, ino: Ino) -> Result<(), FsError> {
    format.copies.remove(ino);
    let node = core.node(ino)?;
    node.map.trees = Trees::default();
    (node.size, node.sectors) = (0, 0);
    node.flags &= !SNAPSHOT;
    node.restrictions = restrictions(node.flags);
    format.put_whole(core, ino, Role::PointerClear)
}
