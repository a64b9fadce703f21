//! Taking a snapshot (`ffs_snapshot` of `sys/ufs/ffs/ffs_snapshot.c`).
//!
//! 1. Create an empty file, and write all changes: the snapshot keeps this state, in which its own
//!    file is empty.
//! 2. Allocate its blocks, and write the first copies, the list and the map to them.
//! 3. Add the inode to the superblock's list.
//! 4. Write the inode with its map and flag, in one sector.
//!
//! A crash before the last step leaves a listed empty file, which a check accepts, and blocks that
//! are marked as used without an owner.

use super::{HOME, options_at, path_of};
use crate::operate::FfsLive;
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, VirtualClock};
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_fs::{FileKind, FsError, Timestamp};
use seekless_units::Ino;
use std::sync::Arc;

/// Owner and mode of the directory for snapshots, as `fsck_ffs` makes it.
const OF_HOME: Ownership = Ownership { uid: 0, gid: 0, perm: 0o770 };

/// Owner and mode of a snapshot.
const OF_SNAPSHOT: Ownership = Ownership { uid: 0, gid: 0, perm: 0o400 };

/// Takes a snapshot of a volume that is not in use, and returns its inode. `name` is its path, or
/// its name in `/.snap`, which is made if there is none. `now` becomes the time of the file.
///
/// A snapshot is charged to nobody. Where `/.snap` is made or a directory grows, their owners have more
/// usage than the quota files say: a warning names the files.
///
/// # Errors
/// As [`take_snapshot_in_use`]; errors of opening the volume for changes.
pub fn take_snapshot(
    device: Arc<dyn BlockDevice>,
    name: &[u8],
    now: Timestamp,
) -> Result<Ino, FsError> {
    let config = Config::new(Discipline::SoftUpdates);
    let mut live = FfsLive::open(device, Arc::new(VirtualClock::new()), config, options_at(now))?;
    let before = charged(&mut live, name)?;
    let taken = take_snapshot_in_use(&mut live, name);
    let stale = match charged(&mut live, name) {
        Ok(after) if after != before => live.stale_quota_files().unwrap_or_default(),
        _ => Vec::new(),
    };
    live.unmount()?;
    if !stale.is_empty() {
        tracing::warn!(
            "usage in {} is not that of the files any more (`seekless quota check -y` corrects it)",
            stale.join(" and ")
        );
    }
    taken
}

/// The sectors of the directories on the way to a snapshot, as far as there are any.
fn charged(live: &mut FfsLive, name: &[u8]) -> Result<Vec<u64>, FsError> {
    let path = path_of(name);
    let mut at = live.root();
    let mut sectors = vec![live.attr(at)?.sectors];
    for part in path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
        match live.lookup(at, part)? {
            Some(below) if live.attr(below)?.kind == FileKind::Directory => at = below,
            _ => break,
        }
        sectors.push(live.attr(at)?.sectors);
    }
    Ok(sectors)
}

/// Takes a snapshot of a volume in use: it keeps the state of this moment, with all changes that
/// were made before. `name` is as that of [`take_snapshot`].
///
/// # Errors
/// [`FsError::Exists`]; [`FsError::NotFound`] for the directory of a path; [`FsError::NoSpace`] if
/// there are twenty snapshots already, or no room for the blocks that it has from the start;
/// [`FsError::Unsupported`] for a volume that is too small, or not in use with soft updates;
/// [`FsError::Refused`] while it is being recovered; errors of the device. Unless the last flush
/// failed, there is no snapshot then, but an empty file may be left where there is no room for its
/// removal.
pub fn take_snapshot_in_use(live: &mut FfsLive, name: &[u8]) -> Result<Ino, FsError> {
    let (format, core) = live.parts();
    format.check_takes_snapshot(core)?;
    let path = path_of(name);
    let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    let (dir, name) = path.split_at(end);
    let name = name.get(1..).unwrap_or_default();
    if name.is_empty() || name == b"." || name == b".." {
        return Err(FsError::Invalid("a snapshot has a name".into()));
    }
    let mut at = live.root();
    for part in dir.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
        at = match live.lookup(at, part)? {
            Some(below) => below,
            None if dir == HOME.as_bytes() => live.make(at, part, NewFile::Directory, OF_HOME)?.ino,
            None => return Err(FsError::NotFound(String::from_utf8_lossy(dir).into_owned())),
        };
    }
    let ino = live.make(at, name, NewFile::Regular, OF_SNAPSHOT)?.ino;
    let taken = live.take_snapshot(ino);
    if taken.is_err() {
        // The first error is returned.
        let _ = live.unlink(at, name);
    }
    taken.map(|()| ino)
}
