//! Boots of an installed system, repeated on file systems of the kernel and modelled disks: the
//! experiments of [`seekless_lab::boots`], which measure how much ageing slows a boot down, and how
//! much of that a new layout gives back.
//!
//! - `subject`: an experiment with the files that it names ([`Subject`])
//! - `images`: file systems in which the system is installed, aged and copied
//! - `replay`: one boot, the replay of a trace on such an image
//! - `measurement`: all boots of an experiment ([`Measurement`])
//! - `results`: boots that are kept in a directory ([`BootResults`])
//!
//! Warnings are events of `tracing`. Needs root.
//!
//! # Example
//!
//! ```
//! use seekless_lab::LabError;
//!
//! let error = seekless_boots::error_of(LabError::Mismatch("another version".into()));
//! assert!(error.to_string().contains("another version"));
//! ```

mod images;
mod measurement;
mod replay;
mod results;
mod subject;

pub use measurement::{Measurement, Programs};
pub use results::BootResults;
pub use subject::Subject;

use seekless_images::{Error, ErrorKind};
use seekless_lab::LabError;
use signal_hook::iterator::Signals;

/// The error of an experiment, with its kind.
#[must_use]
pub fn error_of(error: LabError) -> Error {
    match error {
        LabError::FileSystem { run, source } => Error::from(source).about(run),
        LabError::Io { path, source } => Error::io(path, &source),
        LabError::Damaged { .. } => Error::new(ErrorKind::Corrupt, error.to_string()),
        LabError::Mismatch(what) => Error::new(ErrorKind::Unsupported, what),
        LabError::Log(source) => Error::io("the request log", &source),
        LabError::Spec(_) | LabError::Unknown(_) => Error::usage(error.to_string()),
    }
}

/// An error if a signal has arrived.
fn uninterrupted(signals: &mut Signals) -> Result<(), Error> {
    signals.pending().next().map_or(Ok(()), |signal| Err(Error::interrupted(signal)))
}
