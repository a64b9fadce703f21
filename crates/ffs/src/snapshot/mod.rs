//! Snapshots: files in which the blocks of the volume are kept as they were when each was made
//! (FreeBSD, `sys/ufs/ffs/ffs_snapshot.c`).
//!
//! A snapshot has a block number for each block of the volume. Zero stands for the volume's own
//! block, which has not changed since; 1 (`BLK_NOCOPY`) and 2 (`BLK_SNAP`) for blocks that were free
//! or an older snapshot's, and read as zeros. Any other number is that of a copy, or of the block
//! itself, taken over when its file was removed. Behind the image lies a list for the kernel.

mod remove;
mod take;

pub use remove::{release_snapshots, remove_snapshots};
pub use take::{take_snapshot, take_snapshot_in_use};

use crate::image::FfsImage;
use crate::inode::Inode;
use crate::ondisk::SNAPSHOT;
use crate::operate::LiveOptions;
use crate::origin::{check_len, device_error};
use crate::snapshot_map::SnapshotMap;
use crate::superblock::Super;
use crate::volume::Volume;
use seekless_device::{BlockDevice, DeviceError};
use seekless_fs::field::{range, wide};
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::snapshot::SnapshotFile;
use seekless_fs::{FileKind, FsError, Inspect, Location, Timestamp};
use seekless_units::{ByteLen, Ino, Lba};
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The directory of snapshots that have no path in their names.
const HOME: &str = "/.snap";

/// A listed inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Listed {
    /// A snapshot.
    Snapshot,
    /// A snapshot whose removal was cut off: an ordinary file of its length.
    Former,
    /// Anything else: a snapshot of an older snapshot's time, or damage.
    Other,
}

impl Listed {
    fn of(volume: &Volume, ino: Ino) -> Result<(Self, Option<Inode>), FsError> {
        let least = volume.sb.snapshot_blocks() * u64::from(volume.sb.bsize);
        match volume.live_inode(ino) {
            Ok((inode, FileKind::Regular)) if inode.is(SNAPSHOT) => {
                Ok((Self::Snapshot, Some(inode)))
            }
            Ok((inode, FileKind::Regular)) if inode.len >= least => Ok((Self::Former, Some(inode))),
            Ok(_) | Err(FsError::Corrupt { .. }) => Ok((Self::Other, None)),
            Err(error) => Err(error),
        }
    }
}

/// A snapshot that the superblock lists.
///
/// # Errors
/// [`FsError::Invalid`] for another file, [`FsError::Corrupt`] for one that is too short.
fn snapshot(volume: &Volume, ino: Ino) -> Result<Inode, FsError> {
    let (inode, kind) = volume.live_inode(ino)?;
    let is_listed = volume.sb.tuning.snapshots().any(|listed| listed == ino);
    if kind != FileKind::Regular || !inode.is(SNAPSHOT) || !is_listed {
        return Err(FsError::Invalid(format!("inode {ino} is not a snapshot of its volume")));
    }
    check_len(volume, &inode)?;
    Ok(inode)
}

/// A volume as one of its snapshots has kept it.
struct SnapshotDevice {
    volume: Volume,
    inode: Inode,
}

impl BlockDevice for SnapshotDevice {
    fn len(&self) -> ByteLen {
        ByteLen::new(self.volume.sb.size * u64::from(self.volume.sb.fsize))
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let (start, len, device_len) = (at.to_bytes().get(), wide(buf.len()), self.len());
        if start.checked_add(len).is_none_or(|end| end > device_len.get()) {
            return Err(DeviceError::OutOfRange { at, len, device_len });
        }
        let map = SnapshotMap::new(&self.volume, &self.inode);
        map.read_image(start, buf).map_err(|error| device_error(start, error))
    }

    fn write(&self, _at: Lba, _buf: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// The snapshots of a volume, oldest first.
///
/// # Errors
/// [`FsError::Corrupt`] for a snapshot that is too short or has no superblock; errors of the device.
/// Listed inodes that are no snapshots are left out.
pub fn snapshots(
    device: Arc<dyn BlockDevice>,
    options: OpenOptions,
) -> Result<Vec<SnapshotFile>, FsError> {
    let image = FfsImage::open(device.clone(), options)?;
    let volume = image.volume();
    let mut listed = BTreeSet::new();
    let mut found = Vec::new();
    for ino in volume.sb.tuning.snapshots() {
        if !listed.insert(ino) || Listed::of(volume, ino)?.0 != Listed::Snapshot {
            continue;
        }
        let inode = snapshot(volume, ino)?;
        let place = Location::of("inode").in_inode(ino);
        let held = inode.sectors().checked_mul(512);
        let held =
            held.ok_or_else(|| range("di_blocks", inode.sectors(), u64::MAX / 512, place))?;
        let kept = device_of(device.clone(), options, inode)?;
        let made = Super::read(kept.as_ref(), options.ignore_checksums)?.tuning.time;
        found.push(SnapshotFile { ino, path: None, made, held: ByteLen::new(held) });
    }
    let mut paths = paths(&image, &listed)?;
    for file in &mut found {
        file.path = paths.remove(&file.ino);
    }
    Ok(found)
}

/// The volume as a snapshot has kept it. `name` is the snapshot's path, or its name in `/.snap`.
///
/// # Errors
/// [`FsError::NotFound`], [`FsError::Invalid`] for a file that is no snapshot, and
/// [`FsError::Corrupt`].
pub fn open_snapshot(
    device: Arc<dyn BlockDevice>,
    name: &[u8],
    options: OpenOptions,
) -> Result<Arc<dyn BlockDevice>, FsError> {
    let image = FfsImage::open(device.clone(), options)?;
    let path = path_of(name);
    let ino = resolve(&image, &path)?;
    let inode = snapshot(image.volume(), ino).map_err(|error| match error {
        FsError::Invalid(_) => {
            FsError::Invalid(format!("{} is not a snapshot", String::from_utf8_lossy(&path)))
        }
        other => other,
    })?;
    device_of(device, options, inode)
}

/// How a volume is opened for a change of its snapshots.
pub(crate) fn options_at(now: Timestamp) -> LiveOptions {
    LiveOptions {
        directories: "orlov".into(),
        inodes: None,
        blocks: None,
        seed: 0,
        reallocblks: false,
        force: false,
        recover: false,
        ignore_checksums: false,
        wall: Box::new(move || now),
    }
}

/// The path of a snapshot by its path, or its name in `/.snap`.
fn path_of(name: &[u8]) -> Vec<u8> {
    match name.first() {
        Some(b'/') => name.to_vec(),
        _ => [HOME.as_bytes(), b"/", name].concat(),
    }
}

fn device_of(
    device: Arc<dyn BlockDevice>,
    options: OpenOptions,
    inode: Inode,
) -> Result<Arc<dyn BlockDevice>, FsError> {
    let volume = Volume::open(device, options.ignore_checksums)?;
    Ok(Arc::new(SnapshotDevice { volume, inode }))
}

/// A path of each of some inodes. Directories that cannot be read are left out.
fn paths(image: &FfsImage, wanted: &BTreeSet<Ino>) -> Result<BTreeMap<Ino, Vec<u8>>, FsError> {
    let mut found = BTreeMap::new();
    // The parent and the name of each directory.
    let mut above: BTreeMap<Ino, (Ino, Vec<u8>)> = BTreeMap::new();
    let mut pending = vec![image.root()];
    while let Some(dir) = pending.pop().filter(|_| found.len() < wanted.len()) {
        let mut below = Vec::new();
        let read = image.read_dir(dir, 0, &mut |entry| {
            if entry.name == b"." || entry.name == b".." {
                return ControlFlow::Continue(());
            }
            let is_new = entry.ino != image.root() && !above.contains_key(&entry.ino);
            if wanted.contains(&entry.ino) {
                found.entry(entry.ino).or_insert_with(|| path_in(&above, dir, entry.name));
            } else if is_new && entry.kind.is_none_or(|kind| kind == FileKind::Directory) {
                below.push((entry.name.to_vec(), entry.ino));
            }
            ControlFlow::Continue(())
        });
        readable(read)?;
        for (name, ino) in below {
            let attr = readable(image.attr(ino))?;
            if attr.is_some_and(|attr| attr.kind == FileKind::Directory)
                && let Entry::Vacant(place) = above.entry(ino)
            {
                place.insert((dir, name));
                pending.push(ino);
            }
        }
    }
    Ok(found)
}

/// A result; `None` where a structure is damaged.
fn readable<T>(result: Result<T, FsError>) -> Result<Option<T>, FsError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(FsError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The path of a name in a directory.
fn path_in(above: &BTreeMap<Ino, (Ino, Vec<u8>)>, dir: Ino, name: &[u8]) -> Vec<u8> {
    let mut names = vec![name];
    let mut at = dir;
    // Each directory is entered once, so that this ends at the root.
    while let Some((parent, name)) = above.get(&at) {
        names.push(name);
        at = *parent;
    }
    names.iter().rev().flat_map(|name| [&b"/"[..], name]).flatten().copied().collect()
}
