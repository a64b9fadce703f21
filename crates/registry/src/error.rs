//! The reasons for which an image cannot be fetched.

use std::fmt::Display;
use std::io;

/// The reason for which an image, or a part of it, could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The name of an image that is not one.
    #[error("{0}")]
    Reference(String),
    /// The registry sent something else than it announced.
    #[error("{0}")]
    Damaged(String),
    /// A kind of image, digest or authentication that is not supported.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// The registry does not answer, or refuses.
    #[error("{0}")]
    Answer(String),
    /// A file of the cache, or of credentials, cannot be read or written.
    #[error("{subject}: {source}")]
    Io {
        /// The file.
        subject: String,
        /// The system's error.
        source: io::Error,
    },
}

impl RegistryError {
    /// An error on a file.
    pub(crate) fn io(subject: impl Display, source: io::Error) -> Self {
        Self::Io { subject: subject.to_string(), source }
    }
}
