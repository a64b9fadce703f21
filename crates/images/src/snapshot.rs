//! Snapshots in an image, named `IMAGE@SNAPSHOT`.

use crate::error::{Error, ErrorKind};
use crate::place::Place;
pub use crate::snapshot_path::{file_of, split};
use seekless_device::BlockDevice;
use seekless_formats::{KnownFormat, SnapshotOperations};
use seekless_fs::format::OpenOptions;
use seekless_fs::snapshot::SnapshotFile;
use seekless_fs::{FsError, Timestamp};
use seekless_host::snapshot_request::take_snapshot;
use seekless_units::Ino;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
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

/// Takes a snapshot of the mounted file system of a directory, which this project serves. `name` is
/// its path from there, or its name in `.snap`. Programs may go on writing: the snapshot has what
/// they have written so far, as far as the kernel has passed it on (fsync(2) makes sure of that).
///
/// # Errors
/// [`ErrorKind::Usage`] for a name that is taken or a directory that is not there;
/// [`ErrorKind::NoSpace`]; [`ErrorKind::Unsupported`] for a mount of another server or format, and
/// for a volume that is not in use with soft updates; [`ErrorKind::System`].
pub fn take_mounted(mount: &Path, name: &[u8]) -> Result<Ino, Error> {
    let about = |error: Error| error.about(mount.display());
    let name = Path::new(OsStr::from_bytes(name));
    let inside: PathBuf =
        name.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    let path = match name.has_root() {
        true => mount.join(inside),
        false => mount.join(".snap").join(inside),
    };
    let system = |error: &io::Error| Error::io(path.display(), error);
    if let Some(home) = path.parent().filter(|home| !name.has_root() && !home.exists()) {
        let made = DirBuilder::new().mode(0o770).create(home);
        made.map_err(|error| about(system(&error)))?;
    }
    let file = File::options().write(true).create_new(true).mode(0o400).open(&path);
    let file = file.map_err(|error| {
        about(match error.kind() {
            io::ErrorKind::AlreadyExists => Error::usage(format!("{} exists", path.display())),
            io::ErrorKind::NotFound => Error::usage(format!("no directory for {}", path.display())),
            _ => system(&error),
        })
    })?;
    if let Err(error) = take_snapshot(&file) {
        // The first error is returned.
        let _ = fs::remove_file(&path);
        let kind = match error.raw_os_error() {
            Some(ENOTTY | EOPNOTSUPP) => ErrorKind::Unsupported,
            _ if error.kind() == io::ErrorKind::StorageFull => ErrorKind::NoSpace,
            _ => return Err(about(system(&error))),
        };
        let what = match kind {
            ErrorKind::NoSpace => "no room for a snapshot",
            _ => "a file system that takes no snapshots, or not in this state",
        };
        return Err(about(Error::new(kind, what)));
    }
    let ino = file.metadata().map_err(|error| about(system(&error)))?.ino();
    Ok(Ino::new(u32::try_from(ino).unwrap_or(0)))
}

/// `ENOTTY` and `EOPNOTSUPP`, for which there is no `ErrorKind`.
const ENOTTY: i32 = 25;
const EOPNOTSUPP: i32 = 95;

/// Makes all snapshots of the file system in an image ordinary files, and returns their number. The
/// volume may be damaged.
///
/// # Errors
/// As [`device_locked`](crate::device_locked); [`ErrorKind::Corrupt`].
pub fn release(path: &Path, place: &Place) -> Result<u64, Error> {
    let device = crate::device_locked(path, place)?;
    let operations = operations(path, device.as_ref())?;
    (operations.release)(device).map_err(|error| Error::from(error).about(path.display()))
}

/// Removes the snapshots of the file system in an image, and returns their number: all, of these
/// names if there are any. Directories get the time.
///
/// # Errors
/// As [`device_locked`](crate::device_locked); [`ErrorKind::Usage`] for a file that is no snapshot,
/// [`ErrorKind::Unsupported`] for some of several, and for a volume that cannot be changed.
pub fn remove(
    path: &Path,
    place: &Place,
    names: Option<&[Vec<u8>]>,
    time: Timestamp,
) -> Result<u64, Error> {
    let device = crate::device_locked(path, place)?;
    let operations = operations(path, device.as_ref())?;
    (operations.remove)(device, names, time).map_err(|error| missing(error, path))
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
