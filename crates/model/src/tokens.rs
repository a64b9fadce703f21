//! Token buckets: a sustained rate, and a reserve that may be spent faster.

use seekless_units::Nanos;

/// Picoseconds in a nanosecond: the buckets have a finer resolution than the clock, so that rates
/// of many gigabytes per second do not round away.
const PICOS: u128 = 1000;

/// A token bucket in the form of the generic cell rate algorithm (ITU-T I.371): instead of a level
/// it stores the moment at which the bucket will be full again, so it costs one comparison and one
/// addition per request.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    /// Tokens added per second.
    rate: u64,
    /// Time to fill an empty bucket, in picoseconds.
    depth: u128,
    /// Time at which the bucket will be full, in picoseconds.
    full_at: u128,
}

impl Tokens {
    /// A full bucket that takes `burst` tokens and gains `rate` per second.
    pub(crate) fn new(rate: u64, burst: u64) -> Self {
        let rate = rate.max(1);
        Self { rate, depth: Self::span(burst, rate), full_at: 0 }
    }

    fn span(tokens: u64, rate: u64) -> u128 {
        u128::from(tokens) * 1_000_000_000 * PICOS / u128::from(rate)
    }

    /// Takes `tokens` as soon as there are any left, which may leave the bucket in debt; the next
    /// one waits until the debt is paid. Returns the time.
    pub(crate) fn take(&mut self, now: Nanos, tokens: u64) -> Nanos {
        let now = u128::from(now.get()) * PICOS;
        let start = now.max(self.full_at.saturating_sub(self.depth));
        self.full_at = self.full_at.max(now) + Self::span(tokens, self.rate);
        Nanos::new(u64::try_from(start.div_ceil(PICOS)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_without_reserve_spaces_requests_evenly() {
        let mut bucket = Tokens::new(1000, 0);
        let times: Vec<u64> = (0..4).map(|_| bucket.take(Nanos::ZERO, 1).get()).collect();
        assert_eq!(times, [0, 1_000_000, 2_000_000, 3_000_000]);
        // After a pause it does not catch up: one at once, the next a period later.
        assert_eq!(bucket.take(Nanos::new(10_000_000), 1).get(), 10_000_000);
        assert_eq!(bucket.take(Nanos::new(10_000_000), 1).get(), 11_000_000);
    }

    #[test]
    fn a_reserve_is_spent_and_comes_back() {
        let mut bucket = Tokens::new(100, 300);
        let at_once = (0..1000).take_while(|_| bucket.take(Nanos::ZERO, 1).get() == 0).count();
        // 300 saved, and the one that starts when the bucket is just empty.
        assert_eq!(at_once, 301);
        // The bucket is two tokens in debt, so half a second later it has 48.
        let later = Nanos::new(500_000_000);
        let at_once = (0..1000).take_while(|_| bucket.take(later, 1) == later).count();
        assert_eq!(at_once, 49);
    }

    #[test]
    fn fast_rates_do_not_round_away() {
        let mut bucket = Tokens::new(7_000_000_000, 0);
        let mut last = Nanos::ZERO;
        for _ in 0..=1_000_000 {
            last = bucket.take(Nanos::ZERO, 512);
        }
        // 512,000,000 bytes at 7 GB/s.
        let expected = 512_000_000.0 / 7.0;
        assert!((last.get() as f64 - expected).abs() < expected * 1e-4, "{last}");
    }
}
