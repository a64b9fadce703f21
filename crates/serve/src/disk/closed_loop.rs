//! A closed loop in virtual time: the device waits until the program has all the requests in flight
//! that it keeps there, however long the host needs to submit them.

use std::time::{Duration, Instant};

/// The host's time without a new request after which the program is taken to have no more.
const QUIET: Duration = Duration::from_millis(100);

/// The number of requests that a program keeps in flight.
pub(super) struct ClosedLoop {
    /// 0 or 1: the device does not wait.
    depth: usize,
    /// The arrival of the last request.
    arrived: Instant,
    /// Nothing arrived for [`QUIET`]: the device does not wait for those still missing, until the
    /// next arrival.
    is_over: bool,
}

impl ClosedLoop {
    pub(super) fn new(depth: usize) -> Self {
        Self { depth, arrived: Instant::now(), is_over: false }
    }

    /// Records the arrival of a request.
    pub(super) fn arrive(&mut self) {
        self.arrived = Instant::now();
        self.is_over = false;
    }

    /// The time for which the device waits for further requests; `None` if it may continue.
    pub(super) fn hold(&mut self, in_flight: usize) -> Option<Duration> {
        if in_flight >= self.depth || self.is_over {
            return None;
        }
        let left = QUIET.saturating_sub(self.arrived.elapsed());
        self.is_over = left.is_zero();
        (!self.is_over).then_some(left)
    }
}
