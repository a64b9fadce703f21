//! Opening images for reading or changes.

use crate::error::{Error, ErrorKind, refuse_directory};
use crate::partition::{self, part};
use crate::place::Place;
use crate::{FORMATS, in_use, qcow2, simg, snapshot, vhd};
use seekless_device::{BlockDevice, DeviceError, FileDevice};
use seekless_fs::format::{Format, OpenOptions, Probe};
use seekless_fs::term::Text;
use seekless_fs::{FsError, Inspect};
use seekless_units::ByteLen;
use std::path::Path;
use std::sync::Arc;

/// Opens an image file, the image in a qcow2, Android sparse or VHD image, or a device for reading.
///
/// # Errors
/// [`ErrorKind::Usage`] for a directory or a missing part, [`ErrorKind::Unsupported`] for a file
/// that is no image, [`ErrorKind::Corrupt`] for a damaged one, [`ErrorKind::System`].
pub fn open(path: &Path, place: &Place, options: OpenOptions) -> Result<Arc<dyn Inspect>, Error> {
    read(path, device(path, place)?, options)
}

/// Opens a device that is known to be mounted.
///
/// # Errors
/// As [`open`].
pub fn open_in_use(path: &Path, options: OpenOptions) -> Result<Arc<dyn Inspect>, Error> {
    read(path, device_in_use(path, &Place::default())?, options)
}

fn read(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    options: OpenOptions,
) -> Result<Arc<dyn Inspect>, Error> {
    refuse_others(path, device.as_ref(), FORMATS, "")?;
    seekless_fs::format::open(FORMATS, device, options)
        .map_err(|error| Error::from(error).about(path.display()))
}

/// The selected part of an image file, of the disk in a qcow2 image, or of a device, for reading;
/// for a path `IMAGE@SNAPSHOT` ([`snapshot::split`]), as the snapshot has kept it.
/// Warns of a device that is mounted read-write.
///
/// # Errors
/// [`ErrorKind::Usage`] for a directory or a missing part, [`ErrorKind::Corrupt`] for a damaged
/// table or qcow2 image, [`ErrorKind::System`].
pub fn device(path: &Path, place: &Place) -> Result<Arc<dyn BlockDevice>, Error> {
    in_use::warn(path);
    device_in_use(path, place)
}

/// As [`device`], for a device that is known to be mounted.
///
/// # Errors
/// As [`device`].
pub fn device_in_use(path: &Path, place: &Place) -> Result<Arc<dyn BlockDevice>, Error> {
    if let Some((image, name)) = snapshot::split(path) {
        return snapshot::open(&image, device_in_use(&image, place)?, &name);
    }
    refuse_directory(path)?;
    let device = seekless_qcow2::open(path).map_err(|error| qcow2::failed(error, path))?;
    part(path, disk(device, path)?, place)
}

/// The disk in an Android sparse image or a VHD image, or another device as it is.
fn disk(device: Arc<dyn BlockDevice>, path: &Path) -> Result<Arc<dyn BlockDevice>, Error> {
    vhd::disk(simg::disk(device, path)?, path)
}

/// The selected bytes of an image: start and length; `None` for all of it.
///
/// # Errors
/// As [`device`].
pub fn part_of(path: &Path, place: &Place) -> Result<Option<(ByteLen, ByteLen)>, Error> {
    let whole = || device_in_use(path, &Place::default());
    place.is_part().then(|| partition::range(path, &whole()?, place)).transpose()
}

/// As [`device`] for reading and writing, with exclusive access.
///
/// # Errors
/// As [`locked`] and [`part`].
pub fn device_locked(path: &Path, place: &Place) -> Result<Arc<dyn BlockDevice>, Error> {
    part(path, locked(path)?, place)
}

/// The block device of the root of this process for reading and writing, while it is mounted
/// read-only.
///
/// # Errors
/// [`ErrorKind::System`] if it is not, or is in use.
pub fn read_only_root(path: &Path) -> Result<Arc<dyn BlockDevice>, Error> {
    let failed = |error: DeviceError| Error::from(FsError::from(error)).about(path.display());
    if !in_use::is_read_only_root(path) {
        return Err(failed(DeviceError::InUse));
    }
    Ok(Arc::new(FileDevice::open_mounted(path).map_err(failed)?))
}

/// All of a file or device for reading and writing, with exclusive access. qcow2 images are
/// refused: they are read-only.
///
/// # Errors
/// [`ErrorKind::Usage`] for a directory, [`ErrorKind::Unsupported`] for a qcow2 image,
/// [`ErrorKind::System`] if it is mounted, in use or cannot be written.
pub fn locked(path: &Path) -> Result<Arc<dyn BlockDevice>, Error> {
    Ok(Arc::new(locked_file(path)?))
}

/// As [`locked`], as the file that it is.
pub(crate) fn locked_file(path: &Path) -> Result<FileDevice, Error> {
    let about = |error: DeviceError| Error::from(FsError::from(error)).about(path.display());
    refuse_read_only(path)?;
    in_use::refuse_mounted(path)?;
    FileDevice::open_locked(path).map_err(about)
}

/// Refuses paths that no command can change: snapshots, directories, qcow2, Android sparse and VHD
/// images.
pub(crate) fn refuse_read_only(path: &Path) -> Result<(), Error> {
    if let Some((image, _)) = snapshot::split(path) {
        let what = "a snapshot is read-only";
        return Err(Error::new(ErrorKind::Unsupported, what).about(image.display()));
    }
    refuse_directory(path)?;
    vhd::refuse_change(path)?;
    qcow2::refuse_change(path)
}

/// The error with a hint for a file or device, or the disk in a qcow2 image, that has partitions
/// and no file system of its own.
pub fn partitions_of(path: &Path) -> Option<Error> {
    let device = disk(seekless_qcow2::open(path).ok()?, path).ok()?;
    let is_one = FORMATS.iter().any(|format| (format.probe)(device.as_ref()) != Probe::No);
    if is_one { None } else { partition::hint(path, device.as_ref()) }
}

/// Refuses a device without marks of any of these formats, naming its apparent format. `only` ends
/// the message: the formats that the command supports.
///
/// # Errors
/// [`ErrorKind::Unsupported`] with the apparent format, [`ErrorKind::Usage`] for a directory.
pub fn refuse_others(
    path: &Path,
    device: &dyn BlockDevice,
    formats: &[Format],
    only: &str,
) -> Result<(), Error> {
    let claims = |format: &&Format| (format.probe)(device) != Probe::No;
    if formats.iter().any(|format| claims(&format)) {
        return Ok(());
    }
    refuse_directory(path)?;
    if let Some(failure) = partition::hint(path, device) {
        return Err(failure);
    }
    let mut all = seekless_formats::FORMATS.into_iter();
    let what = match all.find(|known| claims(&&known.reader)) {
        Some(known) => Some(known.called.into()),
        None => seekless_source::what_it_seems(device),
    };
    let what = what.map_or_else(
        || Text::from("no known file system was found"),
        |what| Text::from("is ").then(what).then(", not an image that can be read here"),
    );
    let only = if only.is_empty() { String::new() } else { format!("; {only}") };
    Err(Error::new(ErrorKind::Unsupported, what.then(only)).about(path.display()))
}
