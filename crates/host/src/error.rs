//! Errors of the system, with advice.

use std::fmt;
use std::io;

/// An error of the system, with the operation that failed and advice.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}{}", Advice(.advice))]
pub struct HostError {
    /// The operation, or the file.
    pub what: String,
    /// The system's error.
    pub source: io::Error,
    /// Advice to the user.
    pub advice: Option<&'static str>,
}

struct Advice<'a>(&'a Option<&'static str>);

impl fmt::Display for Advice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |advice| write!(f, " ({advice})"))
    }
}

impl HostError {
    /// The system's error in an operation or on a file.
    pub fn new(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { what: what.into(), source: source.into(), advice: None }
    }

    /// A feature that the system lacks.
    pub(crate) fn lacking(what: impl Into<String>, why: &str) -> Self {
        Self::new(what, io::Error::new(io::ErrorKind::Unsupported, why.to_string()))
    }

    /// The same error with advice.
    #[must_use]
    pub fn advise(mut self, advice: &'static str) -> Self {
        self.advice = Some(advice);
        self
    }

    /// Adds advice to `EPERM` and `EACCES`; other errors are unchanged.
    pub(crate) fn advise_rights(self, advice: &'static str) -> Self {
        match self.source.kind() {
            io::ErrorKind::PermissionDenied => self.advise(advice),
            _ => self,
        }
    }
}
