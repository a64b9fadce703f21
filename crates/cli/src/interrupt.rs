//! Signals that end commands with resources to clean up.

use seekless_images::Error;
use signal_hook::iterator::Signals;

/// An error if a signal has arrived.
pub(crate) fn uninterrupted(signals: &mut Signals) -> Result<(), Error> {
    signals.pending().next().map_or(Ok(()), |signal| Err(Error::interrupted(signal)))
}
