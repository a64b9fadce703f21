//! Properties that hold for all inputs.

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRunner};

/// How many inputs a test has by default, and which.
#[derive(Debug)]
pub(crate) struct Cases {
    number: u32,
    seed: u64,
}

impl From<u32> for Cases {
    fn from(number: u32) -> Self {
        Self { number, seed: 1 }
    }
}

/// For each of several kinds, say of volumes: the inputs of each kind are different ones.
impl From<(u32, usize)> for Cases {
    fn from((number, kind): (u32, usize)) -> Self {
        Self { number, seed: 1 + kind as u64 }
    }
}

/// Calls `test` with as many inputs of `strategy` as `PROPTEST_CASES` says, by default `cases`. They
/// are the same ones in each run.
///
/// # Panics
/// With the smallest input that was found for which `test` panics.
pub(crate) fn for_all<S: Strategy>(cases: impl Into<Cases>, strategy: S, test: impl Fn(S::Value)) {
    let Cases { number, seed } = cases.into();
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|value| value.parse().ok());
    let config = Config {
        cases: asked.unwrap_or(number),
        // Without optimisation ChaCha would take most of the time.
        rng_algorithm: RngAlgorithm::XorShift,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        // By default few, which do not suffice for sequences of thousands of operations.
        max_shrink_iters: 100_000,
        max_shrink_time: 120_000,
        ..Config::default()
    };
    let checked = TestRunner::new(config).run(&strategy, |input| {
        test(input);
        Ok(())
    });
    if let Err(failed) = checked {
        panic!("{failed}");
    }
}
