//! Signals that end a command which has something to clean up.

use crate::failure::{Failure, Kind};
use signal_hook::iterator::Signals;

/// That a signal has ended it.
pub(crate) fn interrupted(signal: i32) -> Failure {
    let what = format!("interrupted by signal {signal}; everything was cleaned up");
    Failure::new(Kind::System, what)
}

/// An error if a signal to end has come.
pub(crate) fn uninterrupted(signals: &mut Signals) -> Result<(), Failure> {
    signals.pending().next().map_or(Ok(()), |signal| Err(interrupted(signal)))
}
