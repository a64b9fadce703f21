//! The table of formats: how an image finds its reader.

use crate::{FsError, Inspect};
use seekless_device::BlockDevice;
use std::sync::Arc;

/// Whether a device holds a format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probe {
    /// Something else.
    No,
    /// This format.
    Yes,
    /// This format's marks, but too damaged to open; with the reason.
    Damaged(String),
}

/// How to open an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenOptions {
    /// Read on where a checksum does not match, instead of failing.
    pub ignore_checksums: bool,
    /// Show what is on the disk now instead of what the journal would make of it.
    pub skip_journal: bool,
}

/// How a format opens a device.
pub type Open = fn(Arc<dyn BlockDevice>, OpenOptions) -> Result<Arc<dyn Inspect>, FsError>;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The family's name: `ext`, `ffs`, `fat`.
    pub name: &'static str,
    /// Looks at the device without trusting it.
    pub probe: fn(&dyn BlockDevice) -> Probe,
    /// Opens it for reading.
    pub open: Open,
}

/// Opens a device with the one format that claims it.
///
/// # Errors
/// As [`claim`]; otherwise whatever opening gives.
pub fn open(
    formats: &[Format],
    device: Arc<dyn BlockDevice>,
    options: OpenOptions,
) -> Result<Arc<dyn Inspect>, FsError> {
    (claim(formats, device.as_ref())?.open)(device, options)
}

/// The one format that claims a device.
///
/// # Errors
/// [`FsError::Invalid`] when no format or more than one claims it; [`FsError::Marks`] when
/// none does, and one might, with what each says.
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
