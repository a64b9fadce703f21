//! Free runs by place and by length.

use seekless_units::{BlockNo, Extent};
use std::collections::{BTreeMap, BTreeSet};

/// Disjoint free runs that do not touch.
#[derive(Debug, Default)]
pub(super) struct FreeRuns {
    by_start: BTreeMap<u64, u64>,
    by_len: BTreeSet<(u64, u64)>,
    total: u64,
}

impl FreeRuns {
    /// Free blocks in all.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Adds a run, joined to its neighbours. It must not be free already.
    pub(super) fn give(&mut self, run: Extent) {
        if run.len == 0 {
            return;
        }
        let (mut start, mut end) = (run.start.get(), run.end().get());
        self.total += run.len;
        if let Some((&before, &len)) = self.by_start.range(..start).next_back() {
            debug_assert!(before + len <= start, "{run:?} was free");
            if before + len == start {
                self.drop_run(before, len);
                start = before;
            }
        }
        if let Some(&len) = self.by_start.get(&end) {
            self.drop_run(end, len);
            end += len;
        }
        self.add_run(start, end - start);
    }

    /// Takes up to `len` blocks: the shortest run that has as many, else all of the
    /// longest; the lowest of those. `None` when nothing is free.
    pub(super) fn take(&mut self, len: u64) -> Option<Extent> {
        let fits = self.by_len.range((len, 0)..).next().copied();
        let (have, start) = match fits {
            Some(run) => run,
            None => {
                let longest = self.by_len.last()?.0;
                self.by_len.range((longest, 0)..).next().copied()?
            }
        };
        let taken = have.min(len);
        self.drop_run(start, have);
        self.add_run(start + taken, have - taken);
        self.total -= taken;
        Some(Extent::new(BlockNo::new(start), taken))
    }

    fn add_run(&mut self, start: u64, len: u64) {
        if len > 0 {
            self.by_start.insert(start, len);
            self.by_len.insert((len, start));
        }
    }

    fn drop_run(&mut self, start: u64, len: u64) {
        let known = self.by_start.remove(&start) == Some(len) && self.by_len.remove(&(len, start));
        debug_assert!(known, "{len} blocks at {start} were not free");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, len: u64) -> Extent {
        Extent::new(BlockNo::new(start), len)
    }

    #[test]
    fn runs_are_joined_and_the_best_one_is_taken() {
        let mut free = FreeRuns::default();
        for given in [run(10, 5), run(20, 3), run(15, 5), run(40, 8)] {
            free.give(given);
        }
        assert_eq!(free.total(), 21);
        // 10..23 and 40..48.
        assert_eq!(free.take(8), Some(run(40, 8)));
        assert_eq!(free.take(20), Some(run(10, 13)));
        assert_eq!((free.take(1), free.total()), (None, 0));
    }
}
