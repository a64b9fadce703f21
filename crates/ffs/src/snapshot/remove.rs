//! Removal of snapshots (`ffs_snapremove` of `sys/ufs/ffs/ffs_snapshot.c`).
//!
//! The marks in the map of each, `BLK_NOCOPY` and `BLK_SNAP`, become holes; then its flag goes, in
//! one write; then its entry in the superblock's list; then the files are removed like any others.
//! After each write the volume is in order, except that a listed file may be no snapshot any more: a
//! check mends that, and a removal that is started again continues there. Files that are on the list
//! no more are ordinary ones.
//!
//! # Other snapshots
//!
//! Snapshots that stay need no copy that a removed one has: each has copies of its own. They may need
//! blocks that it has taken over, since only the oldest snapshot that needs a freed block takes it
//! over ([`Origin::claim`]): a newer one has no number for the block then, and finds it in place.
//! Removing the file frees these blocks like any others', and so the oldest of the others that needs
//! one takes it over. In newer snapshots, the blocks of the removed one keep `BLK_SNAP`, which is read
//! as zeros and never copied, like `BLK_NOCOPY`.

use super::{Listed, options_at, path_of, paths};
use crate::check::{problems, refuse_damage};
use crate::image::FfsImage;
use crate::inode::Inode;
use crate::ondisk::SNAPSHOT;
use crate::operate::FfsLive;
use crate::origin::Origin;
use crate::snapshot_marks::unmark;
use crate::superblock_edit::SuperblockMut;
use crate::volume::Volume;
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, DeviceError, Overlay, VirtualClock};
use seekless_fs::check::Problem;
use seekless_fs::field::wide;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::operate::Operate;
use seekless_fs::patches::Patches;
use seekless_fs::{FsError, Timestamp};
use seekless_units::Ino;
use std::collections::BTreeMap;
use std::io;
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

/// The snapshots to be removed, and the others, oldest first.
struct Removal {
    doomed: Vec<Doomed>,
    kept: Vec<Ino>,
}

/// Removes snapshots of a volume that is not in use, and returns their number. `names` are as those
/// of [`open_snapshot`](super::open_snapshot); without names, all that the superblock lists are
/// removed. The others stay as they are. `now` becomes the time of changed directories.
///
/// # Errors
/// [`FsError::NotFound`] and [`FsError::Invalid`] for a file that is no snapshot;
/// [`FsError::Unsupported`] for one without a name if all are removed, and if one that stays lacks a
/// copy that it should have; [`FsError::NoSpace`] if there is no room for copies that those which stay
/// may need meanwhile; [`FsError::Damaged`] for a volume with errors. A removal is tried on a copy in
/// memory, so that nothing is written where the volume cannot be changed, for whatever reason. Errors
/// of the device.
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
    let Removal { doomed, kept } = removal(&image, names)?;
    refuse_damage(device.clone(), HARMLESS)?;
    release(device.clone(), image.volume(), &doomed, &kept)?;
    unlink(device, &doomed, &kept, now)?;
    Ok(wide(doomed.len()))
}

/// Makes some snapshots ordinary files, and lists only those that stay.
fn release(
    device: Arc<dyn BlockDevice>,
    volume: &Volume,
    doomed: &[Doomed],
    kept: &[Ino],
) -> Result<(), FsError> {
    let sb = Arc::new(volume.sb.clone());
    // There is no room for copies: a write to a block that a snapshot needs fails.
    let guarded = Origin::with_some(device, &sb, false, |ino| kept.contains(&ino))?;
    let device: Arc<dyn BlockDevice> = Arc::new(guarded);
    let mut disk = Patches::new(device.clone());
    let mut released = || -> Result<(), FsError> {
        // The oldest last: as long as the first one on the list is a snapshot, the list is in order.
        for ino in sb.tuning.snapshots().collect::<Vec<_>>().into_iter().rev() {
            let Some(snapshot) = doomed.iter().find(|it| it.inode.ino == ino) else { continue };
            if snapshot.inode.is(SNAPSHOT) {
                unmark(volume, &snapshot.inode, &mut disk)?;
            }
        }
        let mut superblock = SuperblockMut::read(&sb, device.as_ref())?;
        superblock.list_snapshots(kept);
        superblock.write(device.as_ref(), false)?;
        Ok(device.flush()?)
    };
    released().map_err(|error| match error {
        FsError::Device(DeviceError::Io { source, .. })
            if source.kind() == io::ErrorKind::StorageFull =>
        {
            FsError::Unsupported(
                "removing a snapshot while the removal of another one is not complete: remove both"
                    .into(),
            )
        }
        error => error,
    })
}

/// The snapshots of these names, or all, and files whose removal was cut off.
fn removal(image: &FfsImage, names: Option<&[Vec<u8>]>) -> Result<Removal, FsError> {
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
    if names.is_none()
        && let Some(nameless) = listed.keys().find(|ino| !found.contains_key(ino))
    {
        let what = format!("removing the snapshot of inode {nameless}, which has no name");
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
    // Files that are no snapshots any more are left out: the list has each snapshot once.
    let mut kept = Vec::new();
    for ino in volume.sb.tuning.snapshots() {
        if listed.remove(&ino).is_some_and(|inode| inode.is(SNAPSHOT)) {
            kept.push(ino);
        }
    }
    Ok(Removal { doomed, kept })
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

/// Removes files that were snapshots. Those that stay take over the blocks that they need.
fn unlink(
    device: Arc<dyn BlockDevice>,
    doomed: &[Doomed],
    kept: &[Ino],
    now: Timestamp,
) -> Result<(), FsError> {
    let discipline = if kept.is_empty() { Discipline::Sync } else { Discipline::SoftUpdates };
    let config = Config::new(discipline);
    let mut live = FfsLive::open(device, Arc::new(VirtualClock::new()), config, options_at(now))?;
    let unlinked = doomed.iter().try_for_each(|it| live.unlink(it.dir, &it.name));
    live.unmount()?;
    unlinked
}
