//! Converting an empty file of a volume in use into a snapshot, and listing the snapshots.

use super::map::Core;
use super::{Ffs, FfsLive};
use seekless_fs::operate::Operate;
use seekless_fs::snapshot::SnapshotFile;
use seekless_fs::{FileKind, FsError};
use seekless_units::{ByteLen, Ino, SECTOR};
use std::sync::Arc;

/// Converts an empty file into a snapshot.
///
/// # Errors
/// As [`Operate::take_snapshot`].
pub(super) fn fill(live: &mut FfsLive, ino: Ino) -> Result<(), FsError> {
    let attr = live.attr(ino)?;
    let (format, core) = live.parts();
    let node = core.node(ino)?;
    // Without a name it would be taken apart when it is closed.
    let has_name = node.links > 0 && node.effective > 0;
    if attr.kind != FileKind::Regular || attr.size > 0 || attr.sectors > 0 || !has_name {
        return Err(FsError::Invalid(format!("inode {ino} is not an empty file with a name")));
    }
    format.check_takes_snapshot(core)?;
    live.sync()?;
    // Reserved blocks have no owner: a check of the image would find them.
    within_operation(live, Ffs::release_reserve)?;
    live.sync()?;
    within_operation(live, |format, core| format.fill_snapshot(core, ino))?;
    live.sync()
}

/// The snapshots, oldest first, without their paths.
///
/// # Errors
/// As [`Operate::snapshots`].
pub(super) fn listed(live: &mut FfsLive) -> Result<Vec<SnapshotFile>, FsError> {
    let (format, _) = live.parts();
    let origin = Arc::clone(format.copies.device());
    let mut found = Vec::new();
    for ino in format.copies.listed() {
        let made = origin.time_of(ino)?;
        let held = ByteLen::new(live.attr(ino)?.sectors * SECTOR);
        found.push(SnapshotFile { ino, path: None, made, held });
    }
    Ok(found)
}

/// Runs a part of the change of a snapshot in one operation of the cache.
pub(super) fn within_operation(
    live: &mut FfsLive,
    operation: impl FnOnce(&mut Ffs, &mut Core) -> Result<(), FsError>,
) -> Result<(), FsError> {
    let (format, core) = live.parts();
    core.cache.begin()?;
    let done = operation(format, core);
    let done = core.cache.end().and(done);
    if let Err(error) = &done
        && !matches!(error, FsError::NoSpace(_) | FsError::Refused(_))
    {
        // Blocks without an owner may be left: the volume must not be marked clean.
        live.fail(error);
    }
    done
}
