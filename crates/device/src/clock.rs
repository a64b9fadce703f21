//! The engine's time: real, or virtual.

use seekless_units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A clock with a sleep. Time zero is its creation.
pub trait Clock: Send + Sync {
    /// The time since then.
    fn now(&self) -> Nanos;

    /// Lets time pass.
    fn sleep(&self, span: Nanos);
}

/// The time of this machine.
#[derive(Debug)]
pub struct RealClock(Instant);

impl RealClock {
    /// A clock that starts now.
    #[must_use]
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn now(&self) -> Nanos {
        Nanos::new(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn sleep(&self, span: Nanos) {
        std::thread::sleep(Duration::from_nanos(span.get()));
    }
}

/// A clock that advances only in calls of [`Clock::sleep`], so equal runs have equal times. After
/// 584 years it stops.
#[derive(Debug, Default)]
pub struct VirtualClock(AtomicU64);

impl VirtualClock {
    /// A clock at time zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Nanos {
        Nanos::new(self.0.load(Ordering::Relaxed))
    }

    fn sleep(&self, span: Nanos) {
        let later = |now: u64| Some(now.saturating_add(span.get()));
        // The update never declines.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_ends_and_does_not_begin_again() {
        let clock = VirtualClock::new();
        clock.sleep(Nanos::new(u64::MAX - 1));
        clock.sleep(Nanos::new(7));
        assert_eq!(clock.now(), Nanos::new(u64::MAX));
    }
}
