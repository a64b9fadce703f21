//! What differs between repetitions of a run: the tree is the same, what
//! policies leave to chance and the moment at which it begins are not.

use seekless_model::random::Random;
use seekless_units::Nanos;

/// A moment is drawn from so many nanoseconds: many revolutions of any drive,
/// and the second between two rounds of the syncer.
const MOMENTS: u64 = 1_000_000_000;

/// What a repetition leaves to chance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chance {
    /// The seed of what policies leave to chance.
    pub seed: u64,
    /// When the file system is mounted; the drive turns from zero on, and so
    /// its angle is another.
    pub begin: Nanos,
}

impl Chance {
    /// That of a run. Repetition 0 has the run's own seed, and begins at zero.
    #[must_use]
    pub fn of(seed: u64, repetition: u64) -> Self {
        if repetition == 0 {
            return Self { seed, begin: Nanos::ZERO };
        }
        // Two draws, so that seed 1, repetition 2 is not seed 2, repetition 1.
        let mixed = Random::new(seed).below(u64::MAX) ^ repetition;
        let mut random = Random::new(mixed);
        Self { seed: random.below(u64::MAX), begin: Nanos::new(random.below(MOMENTS)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_are_alike_and_each_is_always_the_same() {
        assert_eq!(Chance::of(7, 0), Chance { seed: 7, begin: Nanos::ZERO });
        let all = || (1..40).flat_map(|seed| (0..40).map(move |n| Chance::of(seed, n)));
        let seeds: HashSet<u64> = all().map(|chance| chance.seed).collect();
        assert_eq!(seeds.len(), 39 * 40);
        let begins: HashSet<u64> = all().map(|chance| chance.begin.get()).collect();
        assert_eq!(begins.len(), 39 * 39 + 1, "those of repetition 0 are zero");
        assert!(begins.iter().all(|begin| *begin < MOMENTS));
        assert!(all().eq(all()));
    }
}
