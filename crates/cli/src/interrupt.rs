//! Signals that end commands with resources to clean up.

use crate::failure::Failure;
use seekless_images::Error;
use signal_hook::iterator::Signals;

/// The failure of a command that a signal ended.
pub(crate) fn interrupted(signal: i32) -> Failure {
    Error::interrupted(signal).into()
}

/// An error if a signal has arrived.
pub(crate) fn uninterrupted(signals: &mut Signals) -> Result<(), Error> {
    signals.pending().next().map_or(Ok(()), |signal| Err(Error::interrupted(signal)))
}
