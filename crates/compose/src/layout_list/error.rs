//! Errors of layout lists.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::as_conversions)]

use super::ondisk::VERSION;
use seekless_images::{Error, ErrorKind};

/// The reason why a layout list cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ListError {
    /// It is of a version that is not supported.
    #[error(
        "a layout list of version {found}, written by seekless {tool}; this program reads version \
         {VERSION}"
    )]
    Version {
        /// Its version.
        found: u32,
        /// The version of the program that wrote it.
        tool: String,
    },
    /// It ends too early.
    #[error("the layout list is cut short: it ends after {len} of {stated} bytes")]
    CutShort {
        /// Its length.
        len: u64,
        /// The length that it should have at least.
        stated: u64,
    },
    /// A checksum does not match.
    #[error("the layout list is damaged: bytes {start} to {end} do not match their checksum")]
    Checksum {
        /// The first byte that the checksum covers.
        start: u64,
        /// The byte behind the last one.
        end: u64,
    },
    /// Its contents contradict its format, or the metadata in it.
    #[error("the layout list is invalid: {part}: {fault}")]
    Invalid {
        /// The part of the list.
        part: &'static str,
        /// The fault.
        fault: String,
    },
}

impl ListError {
    /// A part that contradicts the format.
    pub(crate) fn invalid(part: &'static str, fault: impl Into<String>) -> Self {
        Self::Invalid { part, fault: fault.into() }
    }
}

impl From<ListError> for Error {
    fn from(error: ListError) -> Self {
        let kind = match error {
            ListError::Version { .. } => ErrorKind::Unsupported,
            _ => ErrorKind::Corrupt,
        };
        Self::new(kind, error.to_string())
    }
}
