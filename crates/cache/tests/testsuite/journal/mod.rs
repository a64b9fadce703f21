//! The journal over a model of a log: after a crash at any write, within any write,
//! a recovery gives the state after one of the operations, and never an older one
//! than was asked to be durable.

mod counts;
mod disk;
mod late;
mod model;
mod run;

use crate::list::list;
use crate::property::for_all;
use proptest::prelude::{Just, any};
use run::{Run, Step, judge_crashes, step};
use seekless_cache::{CommitReason, JournalCounters, JournalMode};
use std::cell::{Cell, RefCell};

fn judged(mut run: Run, steps: &[Step], states: usize, seed: u64) -> Run {
    for step in steps {
        run.step(step);
        assert_eq!(run.cache.broken_invariant(), None);
    }
    judge_crashes(&run, states, seed);
    run
}

/// Runs `cases` lists of `steps` steps, and judges the states that a crash leaves. Returns the
/// counters of each run.
fn prefixes(mode: JournalMode, cases: u32, steps: usize, states: usize) -> Vec<JournalCounters> {
    let counted = RefCell::new(Vec::new());
    let input = (Just(mode), any::<u64>(), list(step(), steps..=steps));
    for_all(cases, input, |(mode, seed, steps)| {
        let run = judged(Run::new(mode), &steps, states, seed);
        counted.borrow_mut().push(run.cache.blocks().counters().journal);
    });
    counted.into_inner()
}

/// As [`prefixes`], on a disk that completes writes late and in any order: neither a write that was
/// submitted nor one that completed without a flush is on the disk. It also returns the largest
/// number of writes that were under way at once.
fn late_prefixes(
    mode: JournalMode,
    cases: u32,
    steps: usize,
    states: usize,
) -> (Vec<JournalCounters>, usize) {
    let (counted, most) = (RefCell::new(Vec::new()), Cell::new(0));
    let input = (Just(mode), any::<u64>(), list(step(), steps..=steps));
    for_all(cases, input, |(mode, seed, steps)| {
        let run = judged(Run::late(mode, seed), &steps, states, seed);
        counted.borrow_mut().push(run.cache.blocks().counters().journal);
        most.update(|most| most.max(run.disk.most_under_way()));
    });
    (counted.into_inner(), most.get())
}

#[test]
fn a_prefix_of_the_operations_is_recovered() {
    for mode in JournalMode::ALL {
        for counted in prefixes(mode, 12, 500, 60) {
            assert!(counted.checkpoints > 5 && counted.frozen > 0, "{mode:?}: {counted:?}");
            assert!(counted.revokes > 20, "{mode:?}: {counted:?}");
            assert!(counted.full_commits > 0 && counted.timed_commits > 0, "{counted:?}");
            assert_eq!(counted.ordered > 20, mode == JournalMode::Ordered, "{counted:?}");
        }
    }
}

#[test]
fn a_prefix_is_recovered_where_writes_complete_late() {
    for mode in JournalMode::ALL {
        let (counted, most) = late_prefixes(mode, 12, 500, 120);
        for counted in counted {
            assert!(counted.checkpoints > 5 && counted.revokes > 20, "{mode:?}: {counted:?}");
        }
        assert!(most > 4, "{mode:?}: {most} under way");
    }
}

/// As above, of many more operations and states.
#[test]
#[ignore = "takes minutes"]
fn a_prefix_of_the_operations_is_recovered_for_long() {
    for mode in JournalMode::ALL {
        prefixes(mode, 200, 2000, 300);
        late_prefixes(mode, 200, 2000, 300);
    }
}

#[test]
fn what_is_closed_needs_no_recovery() {
    for mode in JournalMode::ALL {
        for late in [false, true] {
            let next = Cell::new(0);
            let steps = (list(step(), 300..=300), list(step(), 200..=200));
            for_all(1, (Just((mode, late)), any::<u64>(), steps), |((mode, late), seed, steps)| {
                let run = if late { Run::late(mode, seed) } else { Run::new(mode) };
                next.set(closed(run, seed, &steps.0, &steps.1));
            });
            assert!(next.get() > 10, "{mode:?}: {next:?}");
        }
    }
}

/// Returns the number of the next transaction when the log is opened again.
fn closed(run: Run, seed: u64, before: &[Step], after: &[Step]) -> u64 {
    let mut run = judged(run, before, 1, seed);
    run.cache.transactions().close_log().expect("close");
    let bytes = run.disk.bytes();
    assert!(!model::is_marked(&bytes));
    run.check_closed(&bytes);
    // Its numbers go on.
    let next = model::next_tid(&bytes);
    run.reopen();
    after.iter().for_each(|step| run.step(step));
    run.cache.transactions().commit(CommitReason::Asked).expect("commit");
    judge_crashes(&run, 40, seed);
    next
}
