//! The times at which samples are taken.

use super::drive::Settings;

/// Operations from one look to the next, at most, while a run goes on: one that
/// is ended early shall have its curve too.
const MOST_BETWEEN: u64 = 4096;

/// Looks that divide a run evenly. Where a part of it is long they are more at
/// first, and each second one is dropped whenever there are twice as many as
/// asked for: a whole run ends with those asked for.
pub(super) struct Schedule {
    ops: u128,
    samples: u128,
    /// Parts that a whole run is divided into by now: `samples`, doubled some
    /// times.
    parts: u128,
}

impl Schedule {
    pub(super) fn new(settings: &Settings) -> Self {
        let (ops, samples) = (settings.ops.max(1), u64::from(settings.samples.max(1)));
        // A single sample must disturb a mounted file system as little as possible.
        let wanted = if samples > 1 { (ops / samples).div_ceil(MOST_BETWEEN) } else { 1 };
        let finer = wanted.next_power_of_two();
        let (ops, samples) = (u128::from(ops), u128::from(samples));
        Self { ops, samples, parts: samples * u128::from(finer) }
    }

    /// Whether to look after so many operations, 1 at least.
    pub(super) fn is_due(&self, done: u64) -> bool {
        let done = u128::from(done);
        done * self.parts / self.ops > (done - 1) * self.parts / self.ops
    }

    /// Drops each second look when there are too many, the first being that
    /// before anything was done.
    pub(super) fn thin<T>(&mut self, kept: &mut Vec<T>) {
        if self.parts > self.samples && kept.len() as u128 > 2 * self.samples {
            let mut at = 0..;
            kept.retain(|_| at.next().is_some_and(|at: u64| at.is_multiple_of(2)));
            self.parts /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of a run that is ended after `end` operations; and their number at most.
    fn looks(ops: u64, samples: u32, end: u64) -> (Vec<u64>, usize) {
        let settings = Settings { ops, fullness: 0.8, seed: 1, samples };
        let mut schedule = Schedule::new(&settings);
        let (mut kept, mut most) = (vec![0], 0);
        for done in 1..=end {
            if schedule.is_due(done) {
                kept.push(done);
                schedule.thin(&mut kept);
                most = most.max(kept.len());
            }
        }
        (kept, most)
    }

    #[test]
    fn a_whole_run_has_those_asked_for() {
        for (ops, samples) in [(3000, 100), (1_000_003, 7), (400_000, 10), (50, 100), (90_000, 1)] {
            let (kept, most) = looks(ops, samples, ops);
            let many = u64::from(samples).min(ops);
            let even: Vec<u64> = (0..=many).map(|part| (part * ops).div_ceil(many)).collect();
            assert_eq!(kept, even, "{ops} {samples}");
            assert!(most <= 2 * samples as usize + 1);
        }
    }

    #[test]
    fn a_run_ended_early_has_a_curve() {
        for (ops, end) in [(u64::MAX, 300_000), (1_000_000_000, 300_000), (1 << 40, 2_000_000)] {
            let (kept, most) = looks(ops, 20, end);
            assert!((20..=41).contains(&kept.len()) && most <= 41, "{ops}: {}", kept.len());
            let gap = |two: &[u64]| two[1] - two[0];
            let (least, widest) =
                (kept.windows(2).map(gap).min().unwrap(), kept.windows(2).map(gap).max().unwrap());
            assert!(widest - least <= 1 && end - kept[kept.len() - 1] <= widest);
        }
        // If one sample is wanted, one is taken.
        assert_eq!(looks(1_000_000, 1, 999_999).0, [0]);
    }
}
