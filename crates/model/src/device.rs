//! The interface of all models: requests in at their times, completions out.

use crate::request::{Completion, Op, Request, Tag};
use seekless_units::{Lba, Nanos};

/// The reason why a model refuses a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The request ends past the end of the device.
    #[error("sectors {at}+{sectors} extend past the end of the device ({capacity} sectors)")]
    PastTheEnd {
        /// First sector requested.
        at: Lba,
        /// Number of sectors requested.
        sectors: u32,
        /// Number of sectors of the device.
        capacity: u64,
    },
    /// A read or write of zero sectors.
    #[error("a read or write of zero sectors")]
    Empty,
}

/// A device that accepts requests at moments of virtual time.
///
/// Many requests may be in flight; the model decides in which order it serves them. Time only goes
/// forward: a request submitted earlier than the latest moment that the model has seen (by
/// [`submit`](Self::submit) or as a completion handed out) counts as submitted at that moment.
///
/// A loop over a model:
///
/// ```
/// use seekless_model::{DeviceModel, Request, Tag, preset};
/// use seekless_units::{Lba, Nanos};
///
/// let mut disk = preset("null")?;
/// disk.submit(Nanos::new(0), Tag(1), Request::read(Lba::new(0), 8))?;
/// disk.submit(Nanos::new(5), Tag(2), Request::write(Lba::new(64), 8))?;
/// while let Some(done) = disk.advance(Nanos::new(u64::MAX)) {
///     println!("{:?} at {}", done.tag, done.at);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait DeviceModel: Send {
    /// Number of sectors; `None` if any address is valid.
    fn capacity(&self) -> Option<u64>;

    /// Submits a request at a moment.
    ///
    /// # Errors
    /// [`Refused`]; the model is then unchanged.
    fn submit(&mut self, at: Nanos, tag: Tag, request: Request) -> Result<(), Refused>;

    /// Runs the device until its next completion, but not past `until`. `None` if nothing completes
    /// by then; the device has then run up to `until`, unless that is the end of time.
    ///
    /// Completions are in order of time, and of submission among equals. Nothing may be submitted
    /// later that should have arrived before the returned completion.
    fn advance(&mut self, until: Nanos) -> Option<Completion>;

    /// The earliest moment of a possible completion, for callers that sleep until then: never later
    /// than the next completion if nothing else is submitted. `None` if nothing is in flight.
    fn next_event(&self) -> Option<Nanos>;

    /// Number of requests in flight.
    fn in_flight(&self) -> usize;

    /// Total time with at least one request in service so far. Background work (read-ahead,
    /// destaging) is not counted.
    fn busy(&self) -> Nanos;

    /// Submits a request and runs until it is done: for callers with one request at a time.
    /// Completions of others on the way are lost, so none should be in flight.
    ///
    /// # Errors
    /// [`Refused`], as [`submit`](Self::submit).
    fn serve(&mut self, at: Nanos, request: Request) -> Result<Nanos, Refused> {
        const OWN: Tag = Tag(u64::MAX);
        debug_assert_eq!(self.in_flight(), 0, "serve with other requests in flight");
        self.submit(at, OWN, request)?;
        while let Some(done) = self.advance(Nanos::new(u64::MAX)) {
            if done.tag == OWN {
                return Ok(done.at);
            }
        }
        unreachable!("a model forgot a request");
    }
}

/// Whether a device of `capacity` sectors accepts a request.
pub(crate) fn check(request: Request, capacity: Option<u64>) -> Result<(), Refused> {
    if request.op == Op::Flush {
        return Ok(());
    }
    if request.sectors == 0 {
        return Err(Refused::Empty);
    }
    match capacity {
        Some(capacity) if request.end().get() > capacity => {
            Err(Refused::PastTheEnd { at: request.at, sectors: request.sectors, capacity })
        }
        _ => Ok(()),
    }
}
