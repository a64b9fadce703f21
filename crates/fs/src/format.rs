//! The table of formats: selection of the reader of an image.

use crate::{FsError, Inspect};
use seekless_device::BlockDevice;
use std::sync::Arc;

/// Whether a device contains a format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probe {
    /// Another format, or none.
    No,
    /// This format.
    Yes,
    /// This format's marks, but too damaged to open, with the reason.
    Damaged(String),
}

/// Options for opening an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenOptions {
    /// Ignore checksums that do not match, instead of failing.
    pub ignore_checksums: bool,
    /// Show the present state of the disk instead of replaying the journal.
    pub skip_journal: bool,
}

/// Opens a device as a format.
pub type Open = fn(Arc<dyn BlockDevice>, OpenOptions) -> Result<Arc<dyn Inspect>, FsError>;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The family's name: `ext`, `ffs`, `fat`.
    pub name: &'static str,
    /// Probes the device without trusting it.
    pub probe: fn(&dyn BlockDevice) -> Probe,
    /// Opens it for reading.
    pub open: Open,
}

/// Opens a device with the only format that claims it.
///
/// # Errors
/// As [`claim`]; otherwise the error of opening.
pub fn open(
    formats: &[Format],
    device: Arc<dyn BlockDevice>,
    options: OpenOptions,
) -> Result<Arc<dyn Inspect>, FsError> {
    (claim(formats, device.as_ref())?.open)(device, options)
}

/// The only format that claims a device.
///
/// # Errors
/// [`FsError::Invalid`] when no format or more than one claims it; [`FsError::Marks`] when none
/// claims it and some find damage, with the reason of each.
pub fn claim<'a>(formats: &'a [Format], device: &dyn BlockDevice) -> Result<&'a Format, FsError> {
    let mut claims = Vec::new();
    let mut damage = Vec::new();
    for format in formats {
        match (format.probe)(device) {
            Probe::Yes => claims.push(format),
            Probe::Damaged(why) => damage.push(format!("{}: {why}", format.name)),
            Probe::No => {}
        }
    }
    match claims.as_slice() {
        [format] => Ok(format),
        [] if damage.is_empty() => {
            Err(FsError::Invalid("no known file system was found on this image".into()))
        }
        [] => Err(FsError::Marks(damage.join("; "))),
        several => Err(FsError::Invalid(format!(
            "the image matches several formats: {}",
            several.iter().map(|format| format.name).collect::<Vec<_>>().join(", ")
        ))),
    }
}
