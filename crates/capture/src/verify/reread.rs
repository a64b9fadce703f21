//! Repeats runs in which blocks are read twice: the kernel reclaims pages, or another process drops
//! the caches, between read-ahead and use.

use super::attached::Requests;
use seekless_images::Error;

/// Maximum number of attempts.
const TRIES: u32 = 3;

/// Blocks that were read more than once.
pub(super) fn reread_blocks(requests: &Requests) -> u64 {
    let mut runs: Vec<(u64, u64)> =
        requests.iter().map(|(run, _)| (run.start.get(), run.end().get())).collect();
    runs.sort_unstable();
    let mut so_far = 0;
    let again = |(start, end): (u64, u64)| {
        let known = so_far.min(end).saturating_sub(start);
        so_far = so_far.max(end);
        known
    };
    runs.into_iter().map(again).sum()
}

/// Performs a run, and repeats it while blocks are read twice; returns the attempt with the fewest
/// of these.
pub(super) fn least_reread<T>(
    mut run: impl FnMut() -> Result<T, Error>,
    requests: impl Fn(&T) -> &Requests,
) -> Result<T, Error> {
    let mut best = run()?;
    for _ in 1..TRIES {
        let again = reread_blocks(requests(&best));
        if again == 0 {
            break;
        }
        let other = run()?;
        if reread_blocks(requests(&other)) < again {
            best = other;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_report::disk::Class;
    use seekless_units::{BlockNo, Extent};

    fn requests(runs: &[(u64, u64)]) -> Requests {
        let one = |&(start, len)| (Extent::new(BlockNo::new(start), len), Class::Free);
        runs.iter().map(one).collect()
    }

    #[test]
    fn blocks_count_each_time_that_they_are_read_again() {
        assert_eq!(reread_blocks(&requests(&[(10, 5), (0, 10), (15, 1)])), 0);
        assert_eq!(reread_blocks(&requests(&[(10, 5), (0, 11), (14, 4), (12, 1)])), 1 + 1 + 1);
        assert_eq!(reread_blocks(&requests(&[(0, 9), (2, 1), (2, 1)])), 2);
        assert_eq!(reread_blocks(&requests(&[])), 0);
    }

    #[test]
    fn the_least_disturbed_of_three_runs_counts() {
        let does = |list: &[&[(u64, u64)]]| {
            let mut left = list.iter();
            let found = least_reread(|| Ok(requests(left.next().expect("a run"))), |run| run);
            (found.unwrap_or_default().len(), left.len())
        };
        let (clean, two, three) = ([(0, 1)], [(0, 2), (0, 1)], [(0, 2), (1, 1), (0, 2)]);
        assert_eq!(does(&[&clean, &two]), (1, 1));
        assert_eq!(does(&[&two, &clean, &two]), (1, 1));
        assert_eq!(does(&[&three, &two, &three, &clean]), (2, 1));
    }
}
