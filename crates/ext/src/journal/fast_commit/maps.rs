//! A file's map as a sorted list of runs that can be changed.

use seekless_fs::Mapping;
use seekless_units::{Extent, Lbn};

/// Removes `len` logical blocks from `from` on from `runs`; their blocks go to `freed`.
pub(super) fn cut(runs: &mut Vec<Mapping>, from: Lbn, len: u64, freed: &mut Vec<Extent>) {
    let to = from + len;
    let mut kept = Vec::with_capacity(runs.len() + 1);
    for run in runs.drain(..) {
        let end = run.lbn + run.extent.len;
        let (low, high) = (run.lbn.max(from), end.min(to));
        if low >= high {
            kept.push(run);
            continue;
        }
        freed.push(part(run, low, high).extent);
        kept.extend([part(run, run.lbn, low), part(run, high, end)].into_iter().filter(some));
    }
    *runs = kept;
    debug_assert!(rises(runs), "the runs of a file rise and do not overlap");
}

/// Whether runs are in order, each behind the one before it.
fn rises(runs: &[Mapping]) -> bool {
    runs.is_sorted_by(|one, next| one.lbn + one.extent.len <= next.lbn)
}

/// Puts a run where its blocks are to lie, in place of those mapped there.
pub(super) fn put(runs: &mut Vec<Mapping>, run: Mapping, freed: &mut Vec<Extent>) {
    if !some(&run) {
        return;
    }
    cut(runs, run.lbn, run.extent.len, freed);
    let at = runs.partition_point(|other| other.lbn < run.lbn);
    runs.insert(at, run);
    debug_assert!(rises(runs), "a run takes the place of those that it covers");
}

/// Joins runs that follow each other in file and volume.
pub(super) fn join(runs: Vec<Mapping>) -> Vec<Mapping> {
    debug_assert!(rises(&runs), "runs come in the order of the file");
    let mut joined: Vec<Mapping> = Vec::with_capacity(runs.len());
    for run in runs {
        match joined.last_mut() {
            Some(last)
                if last.lbn + last.extent.len == run.lbn
                    && last.extent.end() == run.extent.start
                    && last.unwritten == run.unwritten =>
            {
                last.extent.len += run.extent.len;
            }
            _ => joined.push(run),
        }
    }
    joined
}

fn some(run: &Mapping) -> bool {
    run.extent.len > 0
}

/// The part of a run between two logical blocks of it.
fn part(run: Mapping, low: Lbn, high: Lbn) -> Mapping {
    debug_assert!(low <= high && high <= run.lbn + run.extent.len, "{low}..{high} of a run");
    let start = run.extent.start + (low - run.lbn);
    Mapping { lbn: low, extent: Extent::new(start, high - low), ..run }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_units::BlockNo;

    fn run(lbn: u64, start: u64, len: u64) -> Mapping {
        let extent = Extent::new(BlockNo::new(start), len);
        Mapping { lbn: Lbn::new(lbn), extent, unwritten: false }
    }

    #[test]
    fn a_cut_in_the_middle_leaves_both_ends() {
        let (mut runs, mut freed) = (vec![run(0, 100, 10), run(20, 200, 5)], Vec::new());
        cut(&mut runs, Lbn::new(4), 18, &mut freed);
        assert_eq!(runs, [run(0, 100, 4), run(22, 202, 3)]);
        assert_eq!(freed, [run(0, 104, 6).extent, run(0, 200, 2).extent]);
    }

    #[test]
    fn a_new_run_takes_the_place_of_the_old() {
        let (mut runs, mut freed) = (vec![run(0, 100, 10)], Vec::new());
        put(&mut runs, run(3, 50, 2), &mut freed);
        assert_eq!(runs, [run(0, 100, 3), run(3, 50, 2), run(5, 105, 5)]);
        assert_eq!(freed, [run(0, 103, 2).extent]);
        put(&mut runs, run(3, 103, 2), &mut freed);
        assert_eq!(join(runs), [run(0, 100, 10)]);
    }
}
