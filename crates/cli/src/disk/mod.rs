//! A disk that is a file, with the times of a modelled device: what it was asked
//! is counted, and can be waited for as long as the device would take.

mod counters;
mod engine;
mod log;
mod served;

pub(crate) use counters::{Counters, Report};
pub(crate) use engine::{BeforePhase, Clock, Disk, Kind};
pub(crate) use served::{DiskMount, serve};

use crate::failure::Failure;
use seekless_images::output::in_the_way;
use seekless_units::ByteLen;
use std::fs::{File, OpenOptions};
use std::path::Path;

/// Opens an image for reading and writing; `create` makes one of that size, all
/// zeros, that must not be there yet.
pub(crate) fn open_image(path: &Path, create: Option<ByteLen>) -> Result<File, Failure> {
    let failed = |error| Failure::io(path.display(), &error);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(create.is_some());
    let file = options.open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::io(
            format!("{} (use --create --size SIZE to create it)", path.display()),
            &error,
        ),
        std::io::ErrorKind::AlreadyExists => {
            in_the_way(path, "without --create it is served as it is").into()
        }
        _ => failed(error),
    })?;
    if let Some(size) = create {
        file.set_len(size.get()).map_err(failed)?;
    }
    Ok(file)
}
