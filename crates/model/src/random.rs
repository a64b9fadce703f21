//! Random numbers that are the same on every machine.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A seeded random generator (PCG, O'Neill 2014).
#[derive(Clone, Debug)]
pub struct Random(Pcg64Mcg);

impl Random {
    /// Creates a generator from a seed; equal seeds give equal draws.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// A number from 0 up to, not including, 1.
    pub fn unit(&mut self) -> f64 {
        // An f64 has 53 bits of precision.
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number below `limit`; zero when `limit` is zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        let wide = u128::from(self.0.next_u64()) * u128::from(limit);
        (wide >> 64) as u64
    }

    /// Shuffles `things`; every permutation is equally likely (Fisher and Yates, in Durstenfeld's
    /// form of 1964).
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for at in (1..things.len()).rev() {
            things.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}
