//! Differences between repetitions of a run: the tree is the same, the random choices of policies
//! and the moments at which its phases begin are not.

use seekless_model::random::Random;
use seekless_units::Nanos;

/// Upper bound of a phase's delay in nanoseconds: many revolutions of any drive, and the second
/// between two rounds of the syncer.
const MOMENTS: u64 = 1_000_000_000;

/// The random choices of a run.
#[derive(Clone, Debug)]
pub struct Chance {
    /// The seed of the policies' random choices.
    pub seed: u64,
    moments: Option<Random>,
}

impl Chance {
    /// That of a run. Repetition 0 has the run's own seed, and never waits.
    #[must_use]
    pub fn of(seed: u64, repetition: u64) -> Self {
        if repetition == 0 {
            return Self { seed, moments: None };
        }
        // Drawn twice, so that seed 1, repetition 2 is not seed 2, repetition 1.
        let mixed = Random::new(seed).below(u64::MAX) ^ repetition;
        let mut random = Random::new(mixed);
        Self { seed: random.below(u64::MAX), moments: Some(random) }
    }

    /// How long a phase waits before it begins. The work before has left the drive at some angle;
    /// it turns on from there.
    pub fn moment(&mut self) -> Nanos {
        let random = self.moments.as_mut();
        random.map_or(Nanos::ZERO, |random| Nanos::new(random.below(MOMENTS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_are_alike_and_each_is_always_the_same() {
        let mut zero = Chance::of(7, 0);
        assert_eq!((zero.seed, zero.moment(), zero.moment()), (7, Nanos::ZERO, Nanos::ZERO));
        let all = || (1..40).flat_map(|seed| (1..40).map(move |n| Chance::of(seed, n)));
        let seeds: HashSet<u64> = all().map(|chance| chance.seed).collect();
        assert_eq!(seeds.len(), 39 * 39);
        let moments = || all().flat_map(|mut chance| [chance.moment(), chance.moment()]);
        let different: HashSet<u64> = moments().map(Nanos::get).collect();
        assert_eq!(different.len(), 39 * 39 * 2);
        assert!(different.iter().all(|moment| *moment < MOMENTS));
        assert!(moments().eq(moments()));
    }
}
