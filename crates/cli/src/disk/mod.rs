//! A disk that is a file, with the times of a modelled device: what it was asked
//! is counted, and can be waited for as long as the device would take.

mod counters;
mod engine;
mod log;
mod served;

pub(crate) use counters::{Counters, Report};
pub(crate) use engine::{Clock, Disk, Kind};
pub(crate) use served::{DiskMount, serve, spawn};

use crate::failure::{Failure, Kind as FailureKind};
use seekless_model::{DeviceModel, SpecError};
use seekless_units::ByteLen;
use std::fs::{File, OpenOptions};
use std::path::Path;

/// A device by the name of its preset, or from a parameter file.
pub(crate) fn model(name: &str) -> Result<Box<dyn DeviceModel>, Failure> {
    let path = Path::new(name);
    let made = if path.extension().is_some_and(|extension| extension == "toml") || name.contains('/') {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::io(name, &error))?;
        seekless_model::from_toml(&text, name)
    } else {
        seekless_model::preset(name)
    };
    made.map_err(|error| {
        let kind = match error {
            SpecError::Unknown { .. } => FailureKind::Usage,
            SpecError::Invalid { .. } => FailureKind::Corrupt,
        };
        Failure::new(kind, error.to_string())
    })
}

/// Opens an image for reading and writing; `create` makes one of that size, all
/// zeros, that must not be there yet.
pub(crate) fn open_image(path: &Path, create: Option<ByteLen>) -> Result<File, Failure> {
    let failed = |error| Failure::io(path.display(), &error);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(create.is_some());
    let file = options.open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::io(format!("{} (--create --size SIZE makes one)", path.display()), &error)
        }
        _ => failed(error),
    })?;
    if let Some(size) = create {
        file.set_len(size.get()).map_err(failed)?;
    }
    Ok(file)
}
