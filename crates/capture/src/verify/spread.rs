//! Medians and ranges of the figures of several runs.

use super::comparison::values;
use seekless_layout::score::Figures;

/// Median and range of a figure over several runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Spread {
    /// Name of the figure.
    pub name: String,
    /// The median; for an even number of runs, the mean of the two middle values.
    pub median: f64,
    /// The least value of all runs.
    pub min: f64,
    /// The greatest value of all runs.
    pub max: f64,
}

/// Spread of each figure of the runs.
pub(super) fn spread<'a>(runs: impl Iterator<Item = &'a Figures>) -> Vec<Spread> {
    spread_of(&runs.map(values).collect::<Vec<_>>())
}

/// As [`spread`], for named figures, which all runs have in the same order.
pub(super) fn spread_of(runs: &[Vec<(String, f64)>]) -> Vec<Spread> {
    let Some(first) = runs.first() else { return Vec::new() };
    let of = |(at, (name, _)): (usize, &(String, f64))| {
        let mut all: Vec<f64> = runs.iter().map(|run| run[at].1).collect();
        all.sort_by(f64::total_cmp);
        let median = f64::midpoint(all[(all.len() - 1) / 2], all[all.len() / 2]);
        Spread { name: name.clone(), median, min: all[0], max: all[all.len() - 1] }
    };
    first.iter().enumerate().map(of).collect()
}

/// Index of the first run whose number of requests is nearest to the median.
pub(super) fn typical<'a>(runs: impl Iterator<Item = &'a Figures> + Clone) -> usize {
    let median = spread(runs.clone()).first().map_or(0.0, |requests| requests.median);
    let off = |run: &Figures| (run.requests as f64 - median).abs();
    let nearest = runs.enumerate().min_by(|(_, a), (_, b)| off(a).total_cmp(&off(b)));
    nearest.map_or(0, |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn run(requests: u64, seeks: u64) -> Figures {
        let chunks = BTreeMap::from([(4096, seeks)]);
        let bytes = requests * 512;
        let (metadata_requests, seek_distance_bytes) = (0, 0);
        Figures { requests, metadata_requests, bytes, seeks, seek_distance_bytes, chunks }
    }

    #[test]
    fn each_figure_has_its_own_median() {
        let odd = [run(7, 1), run(5, 9), run(6, 2)];
        let found = spread(odd.iter());
        assert_eq!((found[0].min, found[0].median, found[0].max), (5.0, 6.0, 7.0));
        assert_eq!(found[1].name, "seeks");
        assert_eq!((found[1].min, found[1].median, found[1].max), (1.0, 2.0, 9.0));
        assert_eq!(typical(odd.iter()), 2);
        let even = [run(4, 0), run(8, 0)];
        assert_eq!(spread(even.iter())[0].median, 6.0);
        assert_eq!(typical(even.iter()), 0);
        assert!(spread([].iter()).is_empty());
    }
}
