//! Removal of snapshots (`ffs_snapremove` of `sys/ufs/ffs/ffs_snapshot.c`).
//!
//! Their entries leave the superblock's list, in one write; then the marks in the map of each,
//! `BLK_NOCOPY` and `BLK_SNAP`, become holes, and its flag is cleared, in one write; then the files
//! are removed like any others. After each write the volume is in order, except that a file may have
//! the flag and not be on the list: nothing is copied for it any more, a preen makes it an ordinary
//! file, and a removal that is started again continues there. The kernel clears the entry last: a
//! listed snapshot with holes would need all blocks that were free when it was taken, so that after
//! a crash there would be no room for anything.
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
use crate::check::{check, problems};
use crate::image::FfsImage;
use crate::inode::Inode;
use crate::ondisk::SNAPSHOT;
use crate::operate::FfsLive;
use crate::origin::{Origin, check_len};
use crate::snapshot_marks::unmark;
use crate::superblock::Format;
use crate::superblock_edit::SuperblockMut;
use crate::volume::Volume;
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, DeviceError, Overlay, VirtualClock};
use seekless_fs::check::{Class, Finding, Problem};
use seekless_fs::field::wide;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::operate::Operate;
use seekless_fs::patches::Patches;
use seekless_fs::{FileKind, FsError, Timestamp};
use seekless_units::{GroupNo, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// Findings with which snapshots are removed: of copies of the superblock, of a list with files that
/// are no snapshots, and of snapshots that are not on it.
const HARMLESS: &[&Problem] =
    &[problems::SUPERBLOCK_COPY, problems::SUPERBLOCK_TUNING, problems::INODE_SNAPSHOT];

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
    let listed: BTreeSet<Ino> = volume.sb.tuning.snapshots().collect();
    let unlisted = unlisted(&volume)?;
    list(&volume, device.as_ref(), &[])?;
    for &ino in listed.iter().chain(&unlisted) {
        let unmarked = volume.inode(ino).and_then(|inode| match inode.is(SNAPSHOT) {
            true => unmark(&volume, &inode, &mut disk),
            false => Ok(()),
        });
        match unmarked {
            Err(FsError::Corrupt { .. }) => {}
            done => done?,
        }
    }
    Ok(wide(listed.len() + unlisted.len()))
}

fn remove(
    device: Arc<dyn BlockDevice>,
    names: Option<&[Vec<u8>]>,
    now: Timestamp,
) -> Result<u64, FsError> {
    let image = FfsImage::open(device.clone(), OpenOptions::default())?;
    let report = check(device.clone())?;
    let is_left = |finding: &&Finding| {
        finding.is(problems::INODE_SNAPSHOT) && finding.class == Class::Expected
    };
    let left = report.findings.iter().filter(is_left);
    let left = left.filter_map(|finding| finding.location.ino).collect();
    let Removal { doomed, kept } = removal(&image, names, &left)?;
    report.refuse(|finding| HARMLESS.iter().any(|problem| finding.is(problem)))?;
    release(device.clone(), image.volume(), &doomed, &kept)?;
    unlink(device, &doomed, &kept, now)?;
    Ok(wide(doomed.len()))
}

/// Lists only the snapshots that stay, and makes the others ordinary files.
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
        list(volume, device.as_ref(), kept)?;
        let snapshots = doomed.iter().filter(|it| it.inode.is(SNAPSHOT));
        snapshots.map(|it| &it.inode).try_for_each(|inode| unmark(volume, inode, &mut disk))
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

/// Writes the superblock's list of snapshots. A journal of soft updates is not used from now on: it
/// does not know the blocks that a snapshot has taken over.
fn list(volume: &Volume, device: &dyn BlockDevice, kept: &[Ino]) -> Result<(), FsError> {
    let mut superblock = SuperblockMut::read(&volume.sb, device)?;
    superblock.list_snapshots(kept);
    superblock.retire_journal(volume.sb.tuning.mtime);
    superblock.write(device, false)?;
    Ok(device.flush()?)
}

/// Files that have the flag and the length of a snapshot, and are not on the superblock's list. Groups
/// and inodes that cannot be read are left out.
fn unlisted(volume: &Volume) -> Result<BTreeSet<Ino>, FsError> {
    let listed: BTreeSet<Ino> = volume.sb.tuning.snapshots().collect();
    let mut found = BTreeSet::new();
    let is_snapshot = |inode: &Inode| inode.is(SNAPSHOT) && check_len(volume, inode).is_ok();
    for group in (0..volume.sb.ncg).map(GroupNo::new) {
        let written = match volume.cylinder_group(group) {
            Ok(head) if volume.sb.format == Format::Ufs2 => head.initialised_inodes(),
            Ok(_) => volume.sb.ipg,
            Err(FsError::Corrupt { .. }) => continue,
            Err(error) => return Err(error),
        };
        let first = group.get() * volume.sb.ipg;
        for ino in (0..written.min(volume.sb.ipg)).map(|slot| Ino::new(first + slot)) {
            match volume.live_inode(ino) {
                Ok((inode, FileKind::Regular)) if is_snapshot(&inode) && !listed.contains(&ino) => {
                    found.insert(ino);
                }
                Ok(_) | Err(FsError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found)
}

/// The snapshots of these names, or all. `left` are those that are not listed, since their removal was
/// cut off.
fn removal(
    image: &FfsImage,
    names: Option<&[Vec<u8>]>,
    left: &BTreeSet<Ino>,
) -> Result<Removal, FsError> {
    let volume = image.volume();
    let mut listed = BTreeMap::new();
    for ino in volume.sb.tuning.snapshots().chain(left.iter().copied()) {
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
