//! Removal of all snapshots of a volume, after which it can be changed.
//!
//! The marks in the map of each, `BLK_NOCOPY` and `BLK_SNAP`, become holes; then its flag goes, in
//! one write; then the list in the superblock; then the files are removed like any others. After
//! each write the volume is in order, except that a listed file may be no snapshot any more: a check
//! mends that, and a removal that is started again continues there. Once the list is empty, files
//! that are left are ordinary ones.

use super::{Listed, options_at, path_of, paths};
use crate::check::{problems, refuse_damage};
use crate::image::FfsImage;
use crate::inode::Inode;
use crate::ondisk::SNAPSHOT;
use crate::operate::FfsLive;
use crate::snapshot_marks::unmark;
use crate::superblock_edit::SuperblockMut;
use crate::volume::Volume;
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, Overlay, VirtualClock};
use seekless_fs::check::Problem;
use seekless_fs::field::wide;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::operate::Operate;
use seekless_fs::patches::Patches;
use seekless_fs::{FsError, Timestamp};
use seekless_units::Ino;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Findings with which snapshots are removed: of copies of the superblock, and of a list with files
/// that are no snapshots.
const HARMLESS: &[&Problem] = &[problems::SUPERBLOCK_COPY, problems::SUPERBLOCK_TUNING];

/// Bytes in which the trial copies.
const COPIED: u64 = 4096;

/// A snapshot to be removed.
struct Doomed {
    inode: Inode,
    dir: Ino,
    name: Vec<u8>,
}

/// Removes the snapshots of a volume that is not in use, and returns their number. `names` are as
/// those of [`open_snapshot`](super::open_snapshot), and name all of them; without names they are
/// those that the superblock lists. `now` becomes the time of changed directories.
///
/// # Errors
/// [`FsError::NotFound`] and [`FsError::Invalid`] for a file that is no snapshot;
/// [`FsError::Unsupported`] for some of several snapshots, since the others would have to take over
/// their blocks, and for one without a name; [`FsError::Damaged`] for a volume with errors. A
/// removal is tried on a copy in memory, so that nothing is written where the volume cannot be
/// changed, for whatever reason. Errors of the device.
pub fn remove_snapshots(
    device: Arc<dyn BlockDevice>,
    names: Option<&[Vec<u8>]>,
    now: Timestamp,
) -> Result<u64, FsError> {
    let trial = Arc::new(Overlay::new(device.clone(), COPIED));
    remove(trial, names, now)?;
    remove(device, names, now)
}

/// Makes all snapshots of a volume that is not in use ordinary files, and returns their number. The
/// blocks that they had in common with the volume become holes in them. Afterwards a repair may
/// change everything, so that the volume may be damaged now.
///
/// # Errors
/// [`FsError::Corrupt`] for a superblock that makes no sense; errors of the device. A snapshot that
/// cannot be read keeps its mark, for a check to find.
pub fn release_snapshots(device: Arc<dyn BlockDevice>) -> Result<u64, FsError> {
    let volume = Volume::open(device.clone(), true)?;
    let mut disk = Patches::new(device.clone());
    let listed: Vec<Ino> = volume.sb.tuning.snapshots().collect();
    for &ino in listed.iter().rev() {
        let unmarked = volume.inode(ino).and_then(|inode| match inode.is(SNAPSHOT) {
            true => unmark(&volume, &inode, &mut disk),
            false => Ok(()),
        });
        match unmarked {
            Err(FsError::Corrupt { .. }) => {}
            done => done?,
        }
    }
    let mut superblock = SuperblockMut::read(&volume.sb, device.as_ref())?;
    superblock.list_snapshots(&[]);
    superblock.write(device.as_ref(), false)?;
    device.flush()?;
    Ok(wide(listed.len()))
}

fn remove(
    device: Arc<dyn BlockDevice>,
    names: Option<&[Vec<u8>]>,
    now: Timestamp,
) -> Result<u64, FsError> {
    let image = FfsImage::open(device.clone(), OpenOptions::default())?;
    let doomed = doomed(&image, names)?;
    refuse_damage(device.clone(), HARMLESS)?;
    let sb = &image.volume().sb;
    let mut disk = Patches::new(device.clone());
    // The oldest last: as long as the first one on the list is a snapshot, the list is in order.
    for ino in sb.tuning.snapshots().collect::<Vec<_>>().into_iter().rev() {
        let Some(snapshot) = doomed.iter().find(|it| it.inode.ino == ino) else { continue };
        if snapshot.inode.is(SNAPSHOT) {
            unmark(image.volume(), &snapshot.inode, &mut disk)?;
        }
    }
    let mut superblock = SuperblockMut::read(sb, device.as_ref())?;
    superblock.list_snapshots(&[]);
    superblock.write(device.as_ref(), false)?;
    device.flush()?;
    unlink(device, &doomed, now)?;
    Ok(wide(doomed.len()))
}

/// The snapshots of these names, or all, and files whose removal was cut off.
fn doomed(image: &FfsImage, names: Option<&[Vec<u8>]>) -> Result<Vec<Doomed>, FsError> {
    let volume = image.volume();
    let mut listed = BTreeMap::new();
    for ino in volume.sb.tuning.snapshots() {
        if let (Listed::Snapshot | Listed::Former, Some(inode)) = Listed::of(volume, ino)? {
            listed.insert(ino, inode);
        }
    }
    let found = match names {
        Some(names) => named(image, names, &listed)?,
        None => paths(image, &listed.keys().copied().collect())?,
    };
    if let Some(nameless) = listed.keys().find(|ino| !found.contains_key(ino)) {
        let what = match names {
            None => format!("removing the snapshot of inode {nameless}, which has no name"),
            Some(_) => format!(
                "removing {} of {} snapshots: the others would have to take over their blocks \
                 (remove all of them)",
                found.len(),
                listed.len()
            ),
        };
        return Err(FsError::Unsupported(what));
    }
    let mut doomed = Vec::new();
    for (ino, path) in found {
        let Some(inode) = listed.remove(&ino) else { continue };
        let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        let (dir, name) = path.split_at(end);
        let name = name.get(1..).unwrap_or_default().to_vec();
        doomed.push(Doomed { inode, dir: resolve(image, dir)?, name });
    }
    Ok(doomed)
}

/// The paths of named snapshots.
fn named(
    image: &FfsImage,
    names: &[Vec<u8>],
    listed: &BTreeMap<Ino, Inode>,
) -> Result<BTreeMap<Ino, Vec<u8>>, FsError> {
    let mut found = BTreeMap::new();
    for mut path in names.iter().map(|name| path_of(name)) {
        while path.ends_with(b"/") {
            path.pop();
        }
        let ino = resolve(image, &path)?;
        let last = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        if !listed.contains_key(&ino) || last == b"." || last == b".." {
            let path = String::from_utf8_lossy(&path);
            return Err(FsError::Invalid(format!("{path} is not a snapshot")));
        }
        found.entry(ino).or_insert(path);
    }
    Ok(found)
}

/// Removes files that were snapshots.
fn unlink(device: Arc<dyn BlockDevice>, doomed: &[Doomed], now: Timestamp) -> Result<(), FsError> {
    let config = Config::new(Discipline::Sync);
    let mut live = FfsLive::open(device, Arc::new(VirtualClock::new()), config, options_at(now))?;
    for snapshot in doomed {
        live.unlink(snapshot.dir, &snapshot.name)?;
    }
    live.unmount()
}
