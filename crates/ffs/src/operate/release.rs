//! Empties a snapshot of a volume in use, and makes it an ordinary file.
//!
//! Unlike `ffs_snapremove` of `sys/ufs/ffs/ffs_snapshot.c`, which puts holes in place of the marks
//! in the map first, all numbers go with the flag, in one write of the inode: a listed snapshot with
//! holes would need all blocks that were free when it was taken, and after a crash there would be no
//! room for anything. Its blocks are freed next. A crash before that leaves blocks that are marked as
//! used, which a check frees, and a listed file that is no snapshot.

use super::allocator::by_block;
use super::map::Core;
use super::node::restrictions;
use super::take::within_operation;
use super::{Ffs, FfsLive};
use crate::ondisk::SNAPSHOT;
use seekless_cache::Role;
use seekless_fs::field::invalid;
use seekless_fs::operate::Operate;
use seekless_fs::{FsError, Location};
use seekless_live::Progress;
use seekless_live::indirect::Trees;
use seekless_units::{Extent, Ino};

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
    let runs = runs_of(format, ino)?;
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
    if matches!(format.progress, Progress::UnderWay | Progress::NeedsCheck) {
        return Err(FsError::Refused("the volume is being recovered".into()));
    }
    // The caller has it open. A server of which the kernel does not request opens cannot count them.
    if core.node(ino)?.holds() > 1 {
        return Err(FsError::Refused(format!("the snapshot of inode {ino} is in use").into()));
    }
    Ok(())
}

/// Makes sure of room for copies that the other snapshots may need. Only inodes are overwritten of
/// which these may lack copies: its own, and those of snapshots that get its blocks. The volume may be
/// full because of the snapshots.
fn reserve(format: &mut Ffs, core: &mut Core) -> Result<(), FsError> {
    let others = format.copies.listed().len() - 1;
    match format.copies.device().reserved() >= others * (others + 1) {
        true => Ok(()),
        false => format.copies.reserve_within(&mut format.allocator, core, 0),
    }
}

/// All blocks of a snapshot, in pieces that do not cross blocks.
fn runs_of(format: &Ffs, ino: Ino) -> Result<Vec<Extent>, FsError> {
    let runs = format.copies.device().runs_of(ino, format.ignore_checksums)?;
    let frag = u64::from(format.sb.frag);
    let mut pieces: Vec<Extent> = runs.iter().flat_map(|&run| by_block(run, frag)).collect();
    pieces.sort_unstable_by_key(|piece| piece.start);
    let mut end = 0;
    for piece in &pieces {
        let start = piece.start.get();
        let place = || Location::of("block map").in_inode(ino);
        let wrong = || invalid("block number", start, place());
        format.allocator.check_run(ino, start, u32::try_from(piece.len).map_err(|_| wrong())?)?;
        // A block that it has twice.
        if start < end {
            return Err(wrong());
        }
        end = piece.end().get();
    }
    Ok(pieces)
}

/// Takes all block numbers of its contents and the flag out of its inode. Nothing is copied for it any
/// more.
fn empty(format: &mut Ffs, core: &mut Core, ino: Ino) -> Result<(), FsError> {
    let attributes = format.ext_runs(core, ino)?;
    let sectors = format.sb.sectors(attributes.iter().map(|run| run.len).sum());
    format.copies.remove(ino);
    let node = core.node(ino)?;
    node.map.trees = Trees::default();
    (node.size, node.sectors) = (0, sectors);
    node.flags &= !SNAPSHOT;
    node.restrictions = restrictions(node.flags);
    format.put_whole(core, ino, Role::PointerClear)
}
