//! Signals that end a command which has something to clean up.

use crate::failure::Failure;
use seekless_images::Error;
use signal_hook::iterator::Signals;

/// That a signal has ended it.
pub(crate) fn interrupted(signal: i32) -> Failure {
    Error::interrupted(signal).into()
}

/// An error if a signal to end has come.
pub(crate) fn uninterrupted(signals: &mut Signals) -> Result<(), Error> {
    signals.pending().next().map_or(Ok(()), |signal| Err(Error::interrupted(signal)))
}
