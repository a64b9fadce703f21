//! Opening an image by path.

pub(crate) mod partition;

use crate::args::{OpenArgs, PlaceArgs};
use crate::failure::{Failure, Kind};
use seekless_device::{BlockDevice, FileDevice};
use seekless_fs::format::{Format, OpenOptions, Probe};
use seekless_fs::{FsError, Inspect};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

pub(crate) use partition::part;

pub(crate) use seekless_formats::READERS as FORMATS;

/// Opens an image file or device for reading.
pub(crate) fn open(
    path: &Path,
    place: &PlaceArgs,
    args: OpenArgs,
) -> Result<Arc<dyn Inspect>, Failure> {
    let device = device(path, place)?;
    refuse_others(path, device.as_ref(), FORMATS, "")?;
    seekless_fs::format::open(FORMATS, device, open_options(args))
        .map_err(|error| Failure::from(error).about(path.display()))
}

/// What is meant of an image file or device, for reading.
pub(crate) fn device(path: &Path, place: &PlaceArgs) -> Result<Arc<dyn BlockDevice>, Failure> {
    let device = FileDevice::open(path).map_err(|error| Failure::io(path.display(), &error))?;
    part(path, Arc::new(device), place)
}

/// The same for reading and writing, by nobody else at the same time.
pub(crate) fn device_locked(
    path: &Path,
    place: &PlaceArgs,
) -> Result<Arc<dyn BlockDevice>, Failure> {
    let device = FileDevice::open_locked(path)
        .map_err(|error| Failure::from(FsError::from(error)).about(path.display()))?;
    part(path, Arc::new(device), place)
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
    if path.is_dir() {
        return Err(Failure::usage(format!("{}: is a directory", path.display())));
    }
    if let Some(failure) = partition::hint(path, device) {
        return Err(failure);
    }
    let mut all = seekless_formats::FORMATS.into_iter();
    let what = match all.find(|known| claims(&&known.reader)) {
        Some(known) => Some(known.called.into()),
        None => File::open(path).ok().and_then(|file| seekless_source::what_it_seems(&file)),
    };
    let what = what.map_or_else(
        || "no known file system was found".into(),
        |what| format!("is {what}, not an image that can be read here"),
    );
    let only = if only.is_empty() { String::new() } else { format!("; {only}") };
    Err(Failure::new(Kind::Unsupported, format!("{what}{only}")).about(path.display()))
}
