//! Growth of the file system in an image, or of one that is mounted.

use crate::error::{Error, ErrorKind};
use crate::grow_mounted::{self, Wanted};
use crate::open::{device, locked_file, refuse_others, refuse_read_only};
use crate::partition::part;
use crate::place::Place;
use seekless_device::{BlockDevice, FileDevice};
use seekless_formats::GrowthOperations;
use seekless_fs::format::Format;
use seekless_fs::growth::Growth;
use seekless_fs::term::{Term, Text};
use seekless_fs::{FsError, Timestamp};
use seekless_partition::Table;
use seekless_units::{ByteLen, format_size};
use std::path::Path;
use std::sync::Arc;

/// The growth of the file system in an image to a size, without one to that of its file, device or
/// partition. Writes nothing; but a volume in use, whose directory is given, first writes its changes.
///
/// # Errors
/// As [`grow`].
pub fn plan(path: &Path, place: &Place, size: Option<ByteLen>) -> Result<Growth, Error> {
    if path.is_dir() {
        return mounted(path, place, Wanted { size, dry_run: true });
    }
    refuse_read_only(path)?;
    refuse_neighbours(path, device(path, &Place::default())?.as_ref(), place, size)?;
    let now = device(path, place)?;
    let operations = operations(path, now.as_ref())?;
    let size = size.unwrap_or(now.len());
    if size > now.len() {
        let file = FileDevice::open(path).map_err(|error| Error::io(path.display(), &error))?;
        can_extend(path, &file, place, now.len(), size)?;
    }
    (operations.plan)(now, size).map_err(|error| failed(error, path))
}

/// Makes the file system in an image larger: a size, without one that of its file, device or
/// partition. A regular file that is shorter becomes longer, by a hole, unless the file system is a
/// partition of it. `time` becomes the time of changed structures. A directory stands for the volume
/// that this project has mounted on it for changes, whose server makes it larger, as of its own time.
///
/// # Errors
/// As [`device_locked`](crate::device_locked); [`ErrorKind::Usage`] for a size that the file system
/// cannot have, and for an offset without a size or on a disk with partitions,
/// [`ErrorKind::NoSpace`] for a size beyond its device or partition, or with no room for more,
/// [`ErrorKind::Unsupported`] for another format, and a volume that cannot be changed,
/// [`ErrorKind::Corrupt`] for a damaged one. Nothing is written then.
pub fn grow(
    path: &Path,
    place: &Place,
    size: Option<ByteLen>,
    time: Timestamp,
) -> Result<Growth, Error> {
    if path.is_dir() {
        return mounted(path, place, Wanted { size, dry_run: false });
    }
    let file = Arc::new(locked_file(path)?);
    refuse_neighbours(path, file.as_ref(), place, size)?;
    let mut volume = part(path, file.clone(), place)?;
    let operations = operations(path, volume.as_ref())?;
    let size = size.unwrap_or(volume.len());
    if size > volume.len() {
        let end = can_extend(path, &file, place, volume.len(), size)?;
        (operations.plan)(volume, size).map_err(|error| failed(error, path))?;
        file.extend(end).map_err(|error| failed(error.into(), path))?;
        volume = part(path, file, place)?;
    }
    (operations.grow)(volume, size, time).map_err(|error| failed(error, path))
}

/// Asks the server of a mounted volume.
fn mounted(path: &Path, place: &Place, wanted: Wanted) -> Result<Growth, Error> {
    for (given, term) in
        [(place.offset.is_some(), Term::Offset), (place.partition.is_some(), Term::Partition)]
    {
        if given {
            let what = Text::from(term).then(": the directory of a mount says which volume grows");
            return Err(Error::usage(what).about(path.display()));
        }
    }
    grow_mounted::grow(path, wanted)
}

/// Refuses an offset on a disk with a partition table, whose partitions have ends, and one without a
/// size, since nothing says where the file system may end.
fn refuse_neighbours(
    path: &Path,
    disk: &dyn BlockDevice,
    place: &Place,
    size: Option<ByteLen>,
) -> Result<(), Error> {
    if place.offset.is_none() {
        return Ok(());
    }
    let about = |error: Error| error.about(path.display());
    if Table::read(disk).map_err(|error| about(error.into()))?.is_some() {
        let what = Text::from(Term::Offset).then(": the disk has a partition table");
        let hint = Text::from("select the file system with ").then(Term::Partition);
        return Err(about(Error::usage(what)).hint(hint));
    }
    match size {
        Some(_) => Ok(()),
        None => Err(about(Error::usage(Text::from(Term::Offset).then(" needs a size (-s)")))),
    }
}

/// The length of a file in which a volume of `len` bytes has become one of `size`.
fn can_extend(
    path: &Path,
    file: &FileDevice,
    place: &Place,
    len: ByteLen,
    size: ByteLen,
) -> Result<ByteLen, Error> {
    let (has, wanted) = (format_size(len), format_size(size));
    let no = |what: String| Err(Error::new(ErrorKind::NoSpace, what).about(path.display()));
    if place.partition.is_some() && place.offset.is_none() {
        return no(format!("no space: the partition has {has}, not {wanted}"));
    }
    if !file.is_regular() {
        return no(format!("no space: the device has {has}, not {wanted}"));
    }
    let start = place.offset.unwrap_or(ByteLen::ZERO);
    match start.get().checked_add(size.get()) {
        Some(end) => Ok(ByteLen::new(end)),
        None => Err(Error::usage(format!("{size} bytes are too many")).about(path.display())),
    }
}

/// The operations of a device's format.
fn operations(path: &Path, device: &dyn BlockDevice) -> Result<GrowthOperations, Error> {
    let growing = seekless_formats::FORMATS.into_iter().filter(|known| known.growth.is_some());
    let readers: Vec<Format> = growing.map(|known| known.reader).collect();
    let only = "growfs works on UFS1 and UFS2 images (for ext there is resize2fs)";
    refuse_others(path, device, &readers, only)?;
    let known = seekless_formats::claim(device).map_err(|error| failed(error, path))?;
    known.growth.ok_or_else(|| {
        let what = format!("{} images do not grow", known.family);
        Error::new(ErrorKind::Unsupported, what).about(path.display())
    })
}

fn failed(error: FsError, path: &Path) -> Error {
    match error {
        FsError::Invalid(what) => Error::usage(what),
        error => Error::from(error),
    }
    .about(path.display())
}
