//! A device that takes no time, for the limit of a figure.

use crate::device::{DeviceModel, Refused, check};
use crate::in_flight::InFlight;
use crate::request::{Completion, Request, Tag};
use seekless_units::Nanos;

/// Every request completes at the moment it arrives.
#[derive(Clone, Debug, Default)]
pub struct Null {
    requests: InFlight,
}

impl DeviceModel for Null {
    fn capacity(&self) -> Option<u64> {
        None
    }

    fn submit(&mut self, at: Nanos, tag: Tag, request: Request) -> Result<(), Refused> {
        check(request, None)?;
        let at = self.requests.arrive(at);
        self.requests.push(at, at, tag);
        Ok(())
    }

    fn advance(&mut self, until: Nanos) -> Option<Completion> {
        self.requests.advance(until)
    }

    fn next_event(&self) -> Option<Nanos> {
        self.requests.next()
    }

    fn in_flight(&self) -> usize {
        self.requests.len()
    }

    fn busy(&self) -> Nanos {
        Nanos::ZERO
    }
}
