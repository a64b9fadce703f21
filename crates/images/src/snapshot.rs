//! Snapshots in an image, named `IMAGE@SNAPSHOT`.

use crate::error::{Error, ErrorKind};
use crate::place::Place;
pub use crate::snapshot_mounted::list_mounted;
pub use crate::snapshot_path::{file_of, split};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, unlinkat};
use rustix::io::Errno;
use seekless_device::BlockDevice;
use seekless_formats::{KnownFormat, SnapshotOperations};
use seekless_fs::format::OpenOptions;
use seekless_fs::snapshot::SnapshotFile;
use seekless_fs::{FsError, Timestamp};
use seekless_host::snapshot_request::take_snapshot;
use seekless_units::Ino;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The snapshots of the file system in an image, oldest first.
///
/// # Errors
/// As [`device`](crate::device); [`ErrorKind::Unsupported`] for a format without snapshots.
pub fn list(path: &Path, place: &Place, options: OpenOptions) -> Result<Vec<SnapshotFile>, Error> {
    let device = crate::device(path, place)?;
    let operations = operations(path, device.as_ref())?;
    (operations.list)(device, options).map_err(|error| Error::from(error).about(path.display()))
}

/// The volume as a snapshot has kept it. `image` names the device in errors.
pub(crate) fn open(
    image: &Path,
    device: Arc<dyn BlockDevice>,
    name: &[u8],
) -> Result<Arc<dyn BlockDevice>, Error> {
    let operations = operations(image, device.as_ref())?;
    (operations.open)(device, name, OpenOptions::default()).map_err(|error| missing(error, image))
}

/// Takes a snapshot of the file system in an image that is not in use. `name` is its path, or its
/// name in `/.snap`; its file gets the time.
///
/// # Errors
/// As [`device_locked`](crate::device_locked); [`ErrorKind::Usage`] for a name that is taken or a
/// directory that is not there, [`ErrorKind::NoSpace`], and [`ErrorKind::Unsupported`] for a volume
/// that cannot be changed.
pub fn take(path: &Path, place: &Place, name: &[u8], time: Timestamp) -> Result<Ino, Error> {
    let device = crate::device_locked(path, place)?;
    let operations = operations(path, device.as_ref())?;
    (operations.take)(device, name, time).map_err(|error| {
        match error {
            FsError::Exists(name) => Error::usage(format!("{name} exists")),
            FsError::NotFound(dir) => Error::usage(format!("no directory {dir}")),
            FsError::Invalid(what) => Error::usage(what),
            error => Error::from(error),
        }
        .about(path.display())
    })
}

/// Takes a snapshot of the file system that is mounted on a directory and that this project serves.
/// `name` is its path in the volume, with a slash in front, or its name in `.snap`, which is made if
/// there is none. No symlink is followed. Programs may go on writing: the snapshot has all
/// that they have written so far, as far as the kernel has passed it on (fsync(2) makes sure of that).
///
/// # Errors
/// [`ErrorKind::Usage`] for a name that is taken, and for directories that are not there or on which
/// nothing is mounted; [`ErrorKind::NoSpace`]; [`ErrorKind::Unsupported`] for a mount of another
/// server or format, and for a volume that is not in use with soft updates; [`ErrorKind::System`].
pub fn take_mounted(mount: &Path, name: &[u8]) -> Result<Ino, Error> {
    let about = |error: Error| error.about(mount.display());
    let system = |errno: Errno| Error::io(mount.display(), &errno.into());
    let root = open_root(mount)?;
    let inside = Inside::new(name).map_err(about)?;
    let (mut made, mut home) = (false, root.try_clone());
    if let Some(path) = inside.directory() {
        if inside.is_in_home {
            made = match mkdirat(&root, path, Mode::from_raw_mode(0o770)) {
                Err(Errno::EXIST) => false,
                done => done.map(|()| true).map_err(system)?,
            };
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        home = match openat2(&root, path, flags, Mode::empty(), resolve) {
            Ok(directory) => Ok(File::from(directory)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
                let what = format!("no directory {} in this volume", path.display());
                return Err(about(Error::usage(what)));
            }
            Err(errno) => Err(errno.into()),
        };
    }
    let home = home.map_err(|error| Error::io(mount.display(), &error))?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let taken = match openat(&home, inside.leaf, flags, Mode::from_raw_mode(0o400)) {
        Err(Errno::EXIST) => {
            let name = String::from_utf8_lossy(name);
            return Err(about(Error::usage(format!("{name} exists"))));
        }
        Err(errno) => Err(system(errno)),
        Ok(file) => {
            let taken = convert(mount, &File::from(file));
            if taken.is_err() {
                // The first error is returned.
                let _ = unlinkat(&home, inside.leaf, AtFlags::empty());
            }
            taken
        }
    };
    if let (Err(_), true, Some(path)) = (&taken, made, inside.directory()) {
        let _ = unlinkat(&root, path, AtFlags::REMOVEDIR);
    }
    taken
}

/// The root directory of a mounted file system.
pub(crate) fn open_root(mount: &Path) -> Result<File, Error> {
    let about = |error: io::Error| Error::io(mount.display(), &error);
    let root = File::open(mount).map_err(about)?;
    let (own, above) = (root.metadata().map_err(about)?, mount.join("..").metadata());
    if own.dev() == above.map_err(about)?.dev() {
        return Err(Error::usage("not where a file system is mounted").about(mount.display()));
    }
    Ok(root)
}

/// The place of a new snapshot in a mounted volume.
struct Inside<'a> {
    /// Above the snapshot, from the root; empty for the root itself.
    above: PathBuf,
    leaf: &'a OsStr,
    /// The directory is [`HOME`].
    is_in_home: bool,
}

/// The directory of snapshots that have only a name.
pub(crate) const HOME: &str = ".snap";

impl<'a> Inside<'a> {
    fn new(name: &'a [u8]) -> Result<Self, Error> {
        let path = Path::new(OsStr::from_bytes(name));
        let inside = path.strip_prefix("/").unwrap_or(path);
        let mut parts = inside.components();
        let is_plain = parts.clone().all(|part| matches!(part, Component::Normal(_)));
        let leaf = parts.next_back().map(Component::as_os_str).filter(|_| is_plain);
        let leaf = leaf.ok_or_else(|| Error::usage("not the name of a snapshot"))?;
        let above: PathBuf = parts.collect();
        match path.has_root() {
            true => Ok(Self { above, leaf, is_in_home: false }),
            false if above.as_os_str().is_empty() => {
                Ok(Self { above: HOME.into(), leaf, is_in_home: true })
            }
            false => Err(Error::usage("a path in the volume begins with a slash")),
        }
    }

    fn directory(&self) -> Option<&Path> {
        Some(self.above.as_path()).filter(|path| !path.as_os_str().is_empty())
    }
}

/// Has an empty file of a mounted volume converted into a snapshot.
fn convert(mount: &Path, file: &File) -> Result<Ino, Error> {
    let about = |error: Error| error.about(mount.display());
    if let Err(error) = take_snapshot(file) {
        return Err(about(match error.raw_os_error() {
            Some(ENOTTY | EOPNOTSUPP) => Error::new(
                ErrorKind::Unsupported,
                "a file system that takes no snapshots, or not in this state",
            ),
            _ if error.kind() == io::ErrorKind::StorageFull => {
                Error::new(ErrorKind::NoSpace, "no room for a snapshot")
            }
            _ => Error::io(mount.display(), &error),
        }));
    }
    let ino = file.metadata().map_err(|error| Error::io(mount.display(), &error))?.ino();
    u32::try_from(ino).map(Ino::new).map_err(|_| about(Error::usage("inode numbers of 64 bits")))
}

/// For which there is no `ErrorKind`.
pub(crate) const ENOTTY: i32 = Errno::NOTTY.raw_os_error();
pub(crate) const EOPNOTSUPP: i32 = Errno::OPNOTSUPP.raw_os_error();

/// Makes all snapshots of the file system in an image ordinary files, and returns their number. The
/// volume may be damaged.
///
/// # Errors
/// As [`device_locked`](crate::device_locked); [`ErrorKind::Corrupt`]; [`ErrorKind::Unsupported`] for
/// the directory of a mounted volume.
pub fn release(path: &Path, place: &Place) -> Result<u64, Error> {
    refuse_mounted(path)?;
    let device = crate::device_locked(path, place)?;
    let operations = operations(path, device.as_ref())?;
    (operations.release)(device).map_err(|error| Error::from(error).about(path.display()))
}

/// Removes snapshots of the file system in an image, those of these names or all, and returns their
/// number. The others stay as they are. Directories get the time.
///
/// # Errors
/// As [`device_locked`](crate::device_locked); [`ErrorKind::Usage`] for a file that is no snapshot,
/// [`ErrorKind::Unsupported`] for a volume that cannot be changed, [`ErrorKind::NoSpace`] if there is
/// no room for copies that other snapshots may need. [`ErrorKind::Unsupported`] also for the directory
/// of a mounted volume.
pub fn remove(
    path: &Path,
    place: &Place,
    names: Option<&[Vec<u8>]>,
    time: Timestamp,
) -> Result<u64, Error> {
    refuse_mounted(path)?;
    let device = crate::device_locked(path, place)?;
    let operations = operations(path, device.as_ref())?;
    (operations.remove)(device, names, time).map_err(|error| missing(error, path))
}

/// Snapshots are removed from images, not from mounted volumes.
fn refuse_mounted(path: &Path) -> Result<(), Error> {
    if path.is_dir() {
        let what = "removing snapshots of a mounted volume: unmount it, and give the image";
        return Err(Error::new(ErrorKind::Unsupported, what).about(path.display()));
    }
    Ok(())
}

/// The error of a snapshot that is not there, or of its image.
fn missing(error: FsError, image: &Path) -> Error {
    match error {
        FsError::NotFound(path) => Error::usage(format!("no snapshot {path}")),
        FsError::Invalid(what) => Error::usage(what),
        error => Error::from(error),
    }
    .about(image.display())
}

/// The operations of a device's format.
fn operations(path: &Path, device: &dyn BlockDevice) -> Result<SnapshotOperations, Error> {
    let known: &KnownFormat = seekless_formats::claim(device)
        .map_err(|error| Error::from(error).about(path.display()))?;
    known.snapshots.ok_or_else(|| {
        let what = format!("{} images have no snapshots", known.family);
        Error::new(ErrorKind::Unsupported, what).about(path.display())
    })
}
