//! Ranges on a grid of pages, which add up exactly: for each page the touches of all traces, whatever
//! the order in which they are added. Pages with equal touches that follow each other are one run,
//! as long as possible, so that equal sums have equal runs.

use crate::SummaryError;
use crate::row::{Run, TO_THE_END, Touches};
use std::collections::BTreeMap;

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// The runs of a trace, of which several may touch a page, on the grid: each page has the touches of
/// the run that came first.
pub(crate) fn on_grid(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_by(|one, two| one.touches.rank.cmp(&two.touches.rank).then_with(|| one.cmp(two)));
    // Parts of the grid that are taken: disjoint, by their beginnings.
    let mut taken: BTreeMap<u64, Run> = BTreeMap::new();
    for run in runs {
        if run.from >= run.to {
            continue;
        }
        let from = run.from / PAGE * PAGE;
        // The last page of the largest file is cut short.
        let to = run.to.checked_next_multiple_of(PAGE).unwrap_or(TO_THE_END);
        let before = taken.range(..=from).next_back().map_or(from, |(_, run)| run.to);
        let mut at = from.max(before);
        let mut new = Vec::new();
        for (&have, there) in taken.range(from..to) {
            if at < have {
                new.push((at, have));
            }
            at = at.max(there.to);
        }
        if at < to {
            new.push((at, to));
        }
        for (from, to) in new {
            taken.insert(from, Run { from, to, touches: run.touches.clone() });
        }
    }
    let mut runs = Vec::with_capacity(taken.len());
    taken.into_values().for_each(|run| push(&mut runs, run));
    runs
}

/// Appends a run, which is joined with the last one where it continues it.
pub(crate) fn push(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.to == run.from && last.touches == run.touches => last.to = run.to,
        _ => runs.push(run),
    }
}

/// The sum of runs on the grid.
pub(crate) fn sum(one: Vec<Run>, two: Vec<Run>) -> Result<Vec<Run>, SummaryError> {
    let mut sum = Vec::with_capacity(one.len().max(two.len()));
    let (mut one, mut two) = (one.into_iter(), two.into_iter());
    let (mut first, mut second) = (one.next(), two.next());
    loop {
        let (a, b) = match (&mut first, &mut second) {
            (None, None) => return Ok(sum),
            (Some(_), None) => {
                first.take().into_iter().chain(one.by_ref()).for_each(|run| push(&mut sum, run));
                continue;
            }
            (None, Some(_)) => {
                second.take().into_iter().chain(two.by_ref()).for_each(|run| push(&mut sum, run));
                continue;
            }
            (Some(a), Some(b)) => (a, b),
        };
        if a.from == b.from {
            let to = a.to.min(b.to);
            let touches = a.touches.plus(&b.touches).ok_or(SummaryError::TooMany)?;
            push(&mut sum, Run { from: a.from, to, touches });
            (a.from, b.from) = (to, to);
        } else {
            let (earlier, later) = if a.from < b.from { (&mut *a, &*b) } else { (&mut *b, &*a) };
            let to = earlier.to.min(later.from);
            let touches: Touches = earlier.touches.clone();
            push(&mut sum, Run { from: earlier.from, to, touches });
            earlier.from = to;
        }
        if a.from == a.to {
            first = one.next();
        }
        if b.from == b.to {
            second = two.next();
        }
    }
}
