//! Long pauses, in which nothing happens once everything is written.

use seekless_lab::builtin;
use seekless_lab::experiment::Experiment;
use seekless_lab::plan::{Wanted, runs};
use seekless_lab::quantity::Span;
use seekless_lab::run::{Phase, perform};
use seekless_units::Nanos;
use std::time::Instant;

/// The phases of the small tree, when the machine is left alone for so many
/// seconds before the rest is written.
fn phases(linger: u64) -> Vec<Phase> {
    let mut experiment =
        Experiment::parse(builtin::text("softdep").unwrap(), "softdep.toml").unwrap();
    experiment.workloads[0].linger = Some(Span(Nanos::new(linger * 1_000_000_000)));
    let only = vec!["small-tree/softdep".into()];
    let ids = runs(&experiment, &Wanted { only, ..Wanted::default() }).unwrap();
    perform(&experiment, "", &ids[0], None).unwrap().phases
}

#[test]
fn a_long_pause_takes_no_time_and_changes_nothing() {
    let began = Instant::now();
    let (short, long) = (phases(600), phases(50 * 365 * 86_400));
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    assert!(short[0].counts.disk.async_writes > 0);
    for (short, long) in short.iter().zip(&long) {
        assert_eq!(short.seconds, long.seconds);
        // The platter stands elsewhere afterwards.
        let counts = |phase: &Phase| {
            let mut counts = phase.counts;
            counts.disk.busy_ns = 0;
            counts
        };
        assert_eq!(counts(short), counts(long));
    }
}
