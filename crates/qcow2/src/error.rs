//! Why an image cannot be read.

use seekless_device::DeviceError;
use std::io;
use std::path::PathBuf;

/// Why an image cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Qcow2Error {
    /// A file could not be opened, or its length not be found.
    #[error("{path}: {source}", path = .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The image needs something that is not supported; with what may help.
    #[error("{0}")]
    Unsupported(String),
    /// The file could not be read, or what stands in it makes no sense
    /// ([`DeviceError::Damaged`]).
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// What is wrong with an image, and at which of its bytes.
pub(crate) fn damaged(offset: u64, what: impl Into<String>) -> DeviceError {
    DeviceError::Damaged { container: "qcow2 image", offset, what: what.into() }
}
