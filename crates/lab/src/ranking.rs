//! Whether systems are in the order in which others found them.

use crate::cells::Cell;
use crate::experiment::{Experiment, Ranking};
use serde::Serialize;

/// The pairs of cells of a phase, and how many are in the published order.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Order {
    /// The phase.
    pub phase: String,
    /// Which policy of each cell: `first` or `last`, where it has several.
    pub policy: &'static str,
    /// Pairs whose published times are far enough apart.
    pub pairs: usize,
    /// Of them, those with the same order.
    pub same: usize,
    /// The others: the one that is published as the faster, and the other.
    pub others: Vec<(String, String)>,
}

/// A cell's name, and its seconds as published and as measured.
type Time = (String, f64, f64);

/// The orders of all phases, where the experiment asks for them: under the first and under
/// the last policy of each cell, if there are cells with several.
#[must_use]
pub fn orders(experiment: &Experiment, cells: &[Cell]) -> Vec<Order> {
    let Some(ranking) = &experiment.ranking else { return Vec::new() };
    let mut phases: Vec<&str> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.published.is_some()) {
        if !phases.contains(&&*cell.phase) {
            phases.push(&cell.phase);
        }
    }
    let several = cells.iter().any(|cell| cell.published.is_some() && cell.sides.len() > 1);
    let policies = if several { &["first", "last"][..] } else { &["last"] };
    let order = |phase: &str, policy| {
        let of_phase = cells.iter().filter(|cell| cell.phase == phase);
        let times = of_phase.filter_map(|cell| time(cell, policy, ranking)).collect::<Vec<_>>();
        compare(phase, policy, &times, ranking.apart)
    };
    phases.iter().flat_map(|phase| policies.iter().map(move |p| order(phase, p))).collect()
}

fn time(cell: &Cell, policy: &'static str, ranking: &Ranking) -> Option<Time> {
    let name = format!("{}/{}", cell.system, cell.discipline);
    if ranking.except.contains(&name) {
        return None;
    }
    let published = cell.published.as_ref()?;
    let (side, published) = match (policy, cell.sides.as_slice()) {
        ("first", [old, _, ..]) => (old, published.old_s),
        (_, sides) => (sides.last()?, published.new_s),
    };
    Some((name, published?, side.seconds))
}

fn compare(phase: &str, policy: &'static str, times: &[Time], apart: f64) -> Order {
    let mut order = Order { phase: phase.into(), policy, pairs: 0, same: 0, others: Vec::new() };
    for (at, one) in times.iter().enumerate() {
        for other in &times[at + 1..] {
            let (fast, slow) = if one.1 <= other.1 { (one, other) } else { (other, one) };
            if slow.1 < fast.1 * (1.0 + apart) {
                continue;
            }
            order.pairs += 1;
            if fast.2 < slow.2 {
                order.same += 1;
            } else {
                order.others.push((fast.0.clone(), slow.0.clone()));
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_times_are_no_pair_and_equal_ones_are_not_in_order() {
        let time = |name: &str, published, measured| (name.to_string(), published, measured);
        let times = [
            time("a", 10.0, 3.0),
            time("b", 11.0, 2.0),
            time("c", 20.0, 3.0),
            time("d", 40.0, 2.5),
        ];
        let order = compare("tar", "last", &times, 0.15);
        assert_eq!((order.pairs, order.same), (5, 2));
        let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
        assert_eq!(order.others, [pair("a", "c"), pair("a", "d"), pair("c", "d")]);
        assert_eq!(compare("tar", "last", &times, 0.1).pairs, 6);
    }

    /// The published times compared with themselves.
    #[test]
    fn the_published_pairs_are_as_many_as_they_are() {
        let tarcp = crate::builtin::experiment("tarcp").unwrap();
        for (phase, all) in [("tarcp", 46), ("tar", 38)] {
            let published = tarcp.published.iter().filter(|one| one.phase == phase);
            let name = |one: &crate::experiment::Published| {
                format!("{}/{}", one.system, one.discipline.0.name())
            };
            let times: Vec<Time> =
                published.map(|one| (name(one), one.new_s.unwrap(), one.new_s.unwrap())).collect();
            assert_eq!(times.len(), 11);
            let order = compare(phase, "last", &times, 0.15);
            assert_eq!((order.pairs, order.same), (all, all), "{phase}");
        }
    }
}
