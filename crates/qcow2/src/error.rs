//! Errors of reading an image.

use seekless_device::DeviceError;
use std::io;
use std::path::PathBuf;

/// The reason why an image cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Qcow2Error {
    /// A file could not be opened, or its length not be determined.
    #[error("{path}: {source}", path = .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The image needs an unsupported feature; with advice.
    #[error("{0}")]
    Unsupported(String),
    /// The file could not be read, or its contents are invalid ([`DeviceError::Damaged`]).
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// The error for damage in an image, with the offset in bytes.
pub(crate) fn damaged(offset: u64, what: impl Into<String>) -> DeviceError {
    DeviceError::Damaged { container: "qcow2 image", offset, what: what.into() }
}
