//! Snapshots in an image, named `IMAGE@SNAPSHOT`.

use crate::error::{Error, ErrorKind};
use crate::place::Place;
pub use crate::snapshot_mounted::{Temporary, list_mounted, remove_mounted, take_mounted};
pub use crate::snapshot_path::{file_of, split};
use seekless_device::BlockDevice;
use seekless_formats::{KnownFormat, SnapshotOperations};
use seekless_fs::format::OpenOptions;
use seekless_fs::snapshot::SnapshotFile;
use seekless_fs::{FsError, Timestamp};
use seekless_units::Ino;
use std::path::Path;
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
/// of a mounted volume, of which [`remove_mounted`] removes them.
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

/// The directory of a mounted volume is no image.
fn refuse_mounted(path: &Path) -> Result<(), Error> {
    if path.is_dir() {
        let what = "a mounted volume: unmount it, and give the image";
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
