//! Predictions of the score compared with the requests of a kernel that replays the trace or runs a
//! program on the mounted image, from cold caches.
//!
//! An image is attached to a loop device ([`AttachedImage`]). There, [`replay_trace`] replays a
//! trace with real system calls, or [`Program::measure`] runs a program. [`Comparison`] compares
//! the requests of either with those of the prediction. Needs root and trace events.

mod attached;
mod comparison;
mod difference;
mod kernel_replay;
mod program;
mod replayer;
mod reread;
mod scratch_dir;
mod spread;

pub use attached::{AttachedImage, ImageFile, Requests};
pub use comparison::{ComparedFigure, Comparison, Measured, MeasuredRun, Outcome, Prediction};
pub use difference::{ComparedCost, Cost, Difference, NamedRequest, Owner};
pub use kernel_replay::{TraceReplay, replay_trace};
pub use program::{Program, ProgramRun};
pub use replayer::Replayer;
pub use spread::Spread;

use seekless_images::Error;
use signal_hook::iterator::Signals;

/// An error if a signal has arrived.
fn uninterrupted(signals: &mut Signals) -> Result<(), Error> {
    signals.pending().next().map_or(Ok(()), |signal| Err(Error::interrupted(signal)))
}
