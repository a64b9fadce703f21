//! Errors of the system, with advice.

use std::fmt;
use std::io;

/// Why the system did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}{}", Advice(.advice))]
pub struct HostError {
    /// What was asked for.
    pub what: String,
    /// What the system said.
    pub source: io::Error,
    /// What the user can do about it.
    pub advice: Option<&'static str>,
}

struct Advice<'a>(&'a Option<&'static str>);

impl fmt::Display for Advice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |advice| write!(f, " ({advice})"))
    }
}

impl HostError {
    /// The system's word about something.
    pub fn new(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { what: what.into(), source: source.into(), advice: None }
    }

    /// Something that the system does not have.
    pub(crate) fn lacking(what: impl Into<String>, why: &str) -> Self {
        Self::new(what, io::Error::new(io::ErrorKind::Unsupported, why.to_string()))
    }

    /// The same with a word on what to do.
    #[must_use]
    pub fn advise(mut self, advice: &'static str) -> Self {
        self.advice = Some(advice);
        self
    }

    /// What to do when rights are lacking; other errors are left as they are.
    pub(crate) fn advise_rights(self, advice: &'static str) -> Self {
        match self.source.kind() {
            io::ErrorKind::PermissionDenied => self.advise(advice),
            _ => self,
        }
    }
}
