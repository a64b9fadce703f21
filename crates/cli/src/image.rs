//! Opening an image by path.

pub(crate) mod in_use;
pub(crate) mod partition;
mod qcow2;

use crate::args::{OpenArgs, PlaceArgs};
use crate::failure::{Failure, Kind};
use seekless_device::{BlockDevice, DeviceError, FileDevice};
use seekless_fs::format::{Format, OpenOptions, Probe};
use seekless_fs::{FsError, Inspect};
use seekless_units::ByteLen;
use std::path::Path;
use std::sync::Arc;

pub(crate) use partition::part;
pub(crate) use qcow2::refuse_qcow2;

pub(crate) use seekless_formats::READERS as FORMATS;

/// Opens an image file, the image in a qcow2 image, or a device for reading.
pub(crate) fn open(
    path: &Path,
    place: &PlaceArgs,
    args: OpenArgs,
) -> Result<Arc<dyn Inspect>, Failure> {
    read(path, device(path, place)?, args)
}

/// Opens a device that is known to be mounted.
pub(crate) fn open_in_use(path: &Path, args: OpenArgs) -> Result<Arc<dyn Inspect>, Failure> {
    read(path, device_in_use(path, &PlaceArgs::default())?, args)
}

fn read(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    args: OpenArgs,
) -> Result<Arc<dyn Inspect>, Failure> {
    refuse_others(path, device.as_ref(), FORMATS, "")?;
    seekless_fs::format::open(FORMATS, device, open_options(args))
        .map_err(|error| Failure::from(error).about(path.display()))
}

/// What is meant of an image file, of the disk in a qcow2 image, or of a device, for reading.
/// Warns of a device that is mounted read-write.
pub(crate) fn device(path: &Path, place: &PlaceArgs) -> Result<Arc<dyn BlockDevice>, Failure> {
    in_use::warn(path);
    device_in_use(path, place)
}

/// The same of a device that is known to be mounted.
pub(crate) fn device_in_use(
    path: &Path,
    place: &PlaceArgs,
) -> Result<Arc<dyn BlockDevice>, Failure> {
    Failure::unless_directory(path)?;
    let device = seekless_qcow2::open(path).map_err(|error| qcow2::failed(error, path))?;
    part(path, device, place)
}

/// Which bytes of an image are meant: the first, and how many; `None` when all are.
pub(crate) fn part_of(
    path: &Path,
    place: &PlaceArgs,
) -> Result<Option<(ByteLen, ByteLen)>, Failure> {
    let whole = || device_in_use(path, &PlaceArgs::default());
    place.is_part().then(|| partition::range(path, &whole()?, place)).transpose()
}

/// The same for reading and writing, by nobody else at the same time.
pub(crate) fn device_locked(
    path: &Path,
    place: &PlaceArgs,
) -> Result<Arc<dyn BlockDevice>, Failure> {
    part(path, locked(path)?, place)
}

/// All of a file or device for reading and writing, by nobody else at the same time. qcow2 images
/// are refused: they are only read.
pub(crate) fn locked(path: &Path) -> Result<Arc<dyn BlockDevice>, Failure> {
    let about = |error: DeviceError| Failure::from(FsError::from(error)).about(path.display());
    Failure::unless_directory(path)?;
    qcow2::refuse_change(path)?;
    in_use::refuse_mounted(path)?;
    Ok(Arc::new(FileDevice::open_locked(path).map_err(about)?))
}

/// What helps where a file or device, or the disk in a qcow2 image, has partitions and no file
/// system of its own.
pub(crate) fn partitions_of(path: &Path) -> Option<Failure> {
    let device = seekless_qcow2::open(path).ok()?;
    let is_one = FORMATS.iter().any(|format| (format.probe)(device.as_ref()) != Probe::No);
    if is_one { None } else { partition::hint(path, device.as_ref()) }
}

/// The options as the formats take them.
pub(crate) fn open_options(args: OpenArgs) -> OpenOptions {
    OpenOptions { ignore_checksums: args.ignore_checksums, skip_journal: args.skip_journal }
}

/// Refuses what shows no mark of any of these formats, with what it seems to be.
/// `only` ends the message: what the command works on.
pub(crate) fn refuse_others(
    path: &Path,
    device: &dyn BlockDevice,
    formats: &[Format],
    only: &str,
) -> Result<(), Failure> {
    let claims = |format: &&Format| (format.probe)(device) != Probe::No;
    if formats.iter().any(|format| claims(&format)) {
        return Ok(());
    }
    Failure::unless_directory(path)?;
    if let Some(failure) = partition::hint(path, device) {
        return Err(failure);
    }
    let mut all = seekless_formats::FORMATS.into_iter();
    let what = match all.find(|known| claims(&&known.reader)) {
        Some(known) => Some(known.called.into()),
        None => seekless_source::what_it_seems(device),
    };
    let what = what.map_or_else(
        || "no known file system was found".into(),
        |what| format!("is {what}, not an image that can be read here"),
    );
    let only = if only.is_empty() { String::new() } else { format!("; {only}") };
    Err(Failure::new(Kind::Unsupported, format!("{what}{only}")).about(path.display()))
}
