//! The journal over a model of a log: after a crash at any write, within any write,
//! a recovery gives the state after one of the operations, and never an older one
//! than was asked to be durable.

mod counts;
mod disk;
mod late;
mod model;
mod run;

use run::{Run, judge_crashes};
use seekless_cache::{CommitReason, JournalMode};

fn operations(mode: JournalMode, seed: u64, count: usize, states: usize) -> Run {
    judged(Run::new(mode, seed), mode, seed, count, states)
}

fn judged(mut run: Run, mode: JournalMode, seed: u64, count: usize, states: usize) -> Run {
    for _ in 0..count {
        run.step();
        assert_eq!(run.cache.broken_invariant(), None, "{mode:?} seed {seed}");
    }
    judge_crashes(&run, states);
    run
}

#[test]
fn a_prefix_of_the_operations_is_recovered() {
    for mode in JournalMode::ALL {
        for seed in 0..12 {
            let run = operations(mode, seed, 500, 60);
            let counted = run.cache.blocks().counters().journal;
            assert!(counted.checkpoints > 5 && counted.frozen > 0, "{mode:?}: {counted:?}");
            assert!(counted.revokes > 20, "{mode:?}: {counted:?}");
            assert!(counted.full_commits > 0 && counted.timed_commits > 0, "{counted:?}");
            assert_eq!(counted.ordered > 20, mode == JournalMode::Ordered, "{counted:?}");
        }
    }
}

/// As above, on a disk that completes writes late and in any order: what was submitted
/// is not at home, nor is what has completed and was not flushed.
#[test]
fn a_prefix_is_recovered_where_writes_complete_late() {
    for mode in JournalMode::ALL {
        let mut most = 0;
        for seed in 100..112 {
            let run = judged(Run::late(mode, seed), mode, seed, 500, 120);
            let counted = run.cache.blocks().counters().journal;
            assert!(counted.checkpoints > 5 && counted.revokes > 20, "{mode:?}: {counted:?}");
            most = most.max(run.disk.most_under_way());
        }
        assert!(most > 4, "{mode:?}: {most} under way");
    }
}

/// As above, of many more operations and states.
#[test]
#[ignore = "takes minutes"]
fn a_prefix_of_the_operations_is_recovered_for_long() {
    for mode in JournalMode::ALL {
        for seed in 1000..1200 {
            operations(mode, seed, 2000, 300);
            judged(Run::late(mode, seed), mode, seed, 2000, 300);
        }
    }
}

#[test]
fn what_is_closed_needs_no_recovery() {
    for mode in JournalMode::ALL {
        for late in [false, true] {
            closed(mode, late);
        }
    }
}

fn closed(mode: JournalMode, late: bool) {
    let run = if late { Run::late(mode, 99) } else { Run::new(mode, 99) };
    let mut run = judged(run, mode, 99, 300, 1);
    run.cache.transactions().close_log().expect("close");
    let bytes = run.disk.bytes();
    assert!(!model::is_marked(&bytes), "{mode:?}");
    run.check_closed(&bytes);
    // A log can be opened again; its numbers go on.
    let next = model::next_tid(&bytes);
    assert!(next > 10, "{mode:?}: {next}");
    run.reopen();
    for _ in 0..200 {
        run.step();
    }
    run.cache.transactions().commit(CommitReason::Asked).expect("commit");
    judge_crashes(&run, 40);
}
