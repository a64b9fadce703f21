//! Snapshots: files in which the blocks of the volume are kept as they were when each was made
//! (FreeBSD, `sys/ufs/ffs/ffs_snapshot.c`).
//!
//! A snapshot has a block number for each block of the volume. Zero stands for the volume's own
//! block, which has not changed since; 1 (`BLK_NOCOPY`) and 2 (`BLK_SNAP`) for blocks that were free
//! or an older snapshot's, and read as zeros. Any other number is that of a copy, or of the block
//! itself, taken over when its file was removed. Behind the image lies a list for the kernel.

mod remove;

pub use remove::remove_snapshots;

use crate::image::{FfsImage, SNAPSHOT};
use crate::inode::Inode;
use crate::ondisk::{BLK_NOCOPY, BLK_SNAP, DIRECT};
use crate::superblock::Super;
use crate::volume::Volume;
use seekless_device::{BlockDevice, DeviceError};
use seekless_fs::field::{index, invalid, range, wide};
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::snapshot::SnapshotFile;
use seekless_fs::{FileKind, FsError, Inspect, Location};
use seekless_units::{BlockNo, ByteLen, Extent, Ino, Lba};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The directory of snapshots that have no path in their names.
const HOME: &str = "/.snap";

/// The contents of a block of the volume at the time of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// The block was free, or an older snapshot's: zeros.
    Nothing,
    /// The block at this fragment.
    At(BlockNo),
}

/// The map of a snapshot.
#[derive(Clone, Copy)]
pub(crate) struct SnapshotMap<'a> {
    volume: &'a Volume,
    inode: &'a Inode,
}

impl<'a> SnapshotMap<'a> {
    pub(crate) const fn new(volume: &'a Volume, inode: &'a Inode) -> Self {
        Self { volume, inode }
    }

    /// The number for a block.
    fn number(self, at: u64) -> Result<u64, FsError> {
        let (volume, inode) = (self.volume, self.inode);
        if let Some(&number) = inode.direct.get(index(at)) {
            return Ok(number);
        }
        let mut within = at - wide(DIRECT);
        let mut span = 1;
        for &root in &inode.indirect {
            span *= volume.sb.pointers();
            if within >= span {
                within -= span;
                continue;
            }
            let mut number = root;
            while span > 1 && number != 0 {
                let start = BlockNo::new(number);
                let place = Location::of("indirect block").in_inode(inode.ino).in_block(start);
                let block = volume.block(start, index(volume.sb.bsize), place)?;
                span /= volume.sb.pointers();
                number = volume.pointer(&block, within / span);
                within %= span;
            }
            return Ok(number);
        }
        Ok(0)
    }

    /// The contents that the snapshot has for a block of the volume.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a number outside of the volume.
    pub(crate) fn kept(self, at: u64) -> Result<Kept, FsError> {
        let sb = &self.volume.sb;
        debug_assert!(at < sb.snapshot_blocks(), "block {at} is one of the volume");
        match self.number(at)? {
            0 => Ok(Kept::At(BlockNo::new(at * u64::from(sb.frag)))),
            BLK_NOCOPY | BLK_SNAP => Ok(Kept::Nothing),
            number => {
                let start = BlockNo::new(number);
                let place = Location::of("block map").in_inode(self.inode.ino);
                self.volume.check_extent(Extent::new(start, u64::from(sb.frag)), place)?;
                Ok(Kept::At(start))
            }
        }
    }

    /// Reads bytes of the image.
    fn read_image(self, mut at: u64, mut buf: &mut [u8]) -> Result<(), FsError> {
        let bsize = u64::from(self.volume.sb.bsize);
        while !buf.is_empty() {
            let (block, within) = (at / bsize, at % bsize);
            let len = index((bsize - within).min(wide(buf.len())));
            let (part, rest) = buf.split_at_mut(len);
            match self.kept(block)? {
                Kept::Nothing => part.fill(0),
                Kept::At(start) => self.volume.read_bytes(start, within, part)?,
            }
            (at, buf) = (at + wide(len), rest);
        }
        Ok(())
    }

    /// Reads bytes of the file, which must lie within it: of the image, and of the list behind it.
    pub(crate) fn read(self, offset: ByteLen, buf: &mut [u8]) -> Result<(), FsError> {
        let sb = &self.volume.sb;
        let image = sb.snapshot_blocks() * u64::from(sb.bsize);
        let len = image.saturating_sub(offset.get()).min(wide(buf.len()));
        let (kept, list) = buf.split_at_mut(index(len));
        self.read_image(offset.get(), kept)?;
        match list.is_empty() {
            true => Ok(()),
            false => self.volume.read_mapped(self.inode, ByteLen::new(offset.get() + len), list),
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
    let least = volume.sb.snapshot_blocks() * u64::from(volume.sb.bsize);
    if inode.len < least {
        let place = Location::of("snapshot").in_inode(ino);
        return Err(range("di_size", inode.len, least, place));
    }
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
        SnapshotMap::new(&self.volume, &self.inode).read_image(start, buf).map_err(|error| {
            match error {
                FsError::Device(error) => error,
                error => DeviceError::Damaged {
                    container: "snapshot",
                    offset: start,
                    what: error.to_string(),
                },
            }
        })
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
/// [`FsError::Corrupt`] for an inode that is listed twice, or a snapshot without a superblock;
/// errors of the device. Listed inodes that are no snapshots are left out: the image in a snapshot
/// lists older ones so.
pub fn snapshots(
    device: Arc<dyn BlockDevice>,
    options: OpenOptions,
) -> Result<Vec<SnapshotFile>, FsError> {
    let image = FfsImage::open(device.clone(), options)?;
    let volume = image.volume();
    let mut listed = BTreeSet::new();
    let mut found = Vec::new();
    for ino in volume.sb.tuning.snapshots() {
        if !listed.insert(ino) {
            return Err(invalid("fs_snapinum", ino.get().into(), Location::of("superblock")));
        }
        let inode = match snapshot(volume, ino) {
            Err(FsError::Invalid(_)) => continue,
            other => other?,
        };
        let held = ByteLen::new(inode.sectors() * 512);
        let kept = device_of(device.clone(), options, inode)?;
        let made = Super::read(kept.as_ref(), options.ignore_checksums)?.tuning.time;
        found.push(SnapshotFile { ino, path: None, made, held });
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

/// The first path of each of some inodes.
fn paths(image: &FfsImage, wanted: &BTreeSet<Ino>) -> Result<BTreeMap<Ino, Vec<u8>>, FsError> {
    let mut found = BTreeMap::new();
    let mut seen = BTreeSet::from([image.root()]);
    let mut pending = vec![(Vec::new(), image.root())];
    while let Some((path, dir)) = pending.pop() {
        if found.len() == wanted.len() {
            break;
        }
        let mut below = Vec::new();
        image.read_dir(dir, 0, &mut |entry| {
            if entry.name == b"." || entry.name == b".." {
                return ControlFlow::Continue(());
            }
            let child = || [&path[..], b"/", entry.name].concat();
            if wanted.contains(&entry.ino) {
                found.entry(entry.ino).or_insert_with(child);
            } else if entry.kind.is_none_or(|kind| kind == FileKind::Directory) {
                below.push((child(), entry.ino));
            }
            ControlFlow::Continue(())
        })?;
        for (path, ino) in below {
            let is_dir = image.attr(ino)?.kind == FileKind::Directory;
            if is_dir && seen.insert(ino) {
                pending.push((path, ino));
            }
        }
    }
    Ok(found)
}
