//! Sets of pages.

/// Pages of a file that have been seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSet {
    /// Sorted, disjoint, not touching: first page and the page after the last.
    runs: Vec<(u64, u64)>,
}

impl PageSet {
    /// Adds pages `from..to` and returns the runs that were not there.
    pub fn add(&mut self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut missing = Vec::new();
        if from >= to {
            return missing;
        }
        let first = self.runs.partition_point(|run| run.1 < from);
        let (mut at, mut last) = (from, first);
        let (mut low, mut high) = (from, to);
        while let Some(&(have, end)) = self.runs.get(last).filter(|run| run.0 <= to) {
            if at < have {
                missing.push((at, have.min(to)));
            }
            at = at.max(end);
            (low, high) = (low.min(have), high.max(end));
            last += 1;
        }
        if at < to {
            missing.push((at, to));
        }
        self.runs.splice(first..last, [(low, high)]);
        missing
    }

    /// The parts of `from..to` that are there.
    #[must_use]
    pub fn within(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let start = self.runs.partition_point(|run| run.1 <= from);
        let inside = self.runs.iter().skip(start).take_while(|run| run.0 < to);
        inside.map(|run| (run.0.max(from), run.1.min(to))).collect()
    }

    /// The run that holds a page.
    #[must_use]
    pub fn run_at(&self, page: u64) -> Option<(u64, u64)> {
        let at = self.runs.partition_point(|run| run.1 <= page);
        self.runs.get(at).copied().filter(|run| run.0 <= page)
    }

    /// All runs: first page and the page after the last.
    #[must_use]
    pub fn runs(&self) -> &[(u64, u64)] {
        &self.runs
    }
}

impl FromIterator<(u64, u64)> for PageSet {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(runs: I) -> Self {
        let mut set = Self::default();
        runs.into_iter().for_each(|(from, to)| drop(set.add(from, to)));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_and_report_what_was_missing() {
        let mut set = PageSet::default();
        assert_eq!(set.add(4, 8), [(4, 8)]);
        assert_eq!(set.add(0, 2), [(0, 2)]);
        assert_eq!(set.add(1, 10), [(2, 4), (8, 10)]);
        assert_eq!(set.runs(), [(0, 10)]);
        assert!(set.add(3, 5).is_empty() && set.add(5, 5).is_empty());
        set.add(20, 30);
        assert_eq!(set.within(5, 25), [(5, 10), (20, 25)]);
    }
}
