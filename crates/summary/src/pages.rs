//! Ranges on a grid of pages, which add up exactly: for each page the touches of all traces, whatever
//! the order in which they are added. Pages with equal touches that follow each other are one run,
//! as long as possible, so that equal sums have equal runs.

use crate::SummaryError;
use crate::row::{Run, TO_THE_END, Touches};
use seekless_layout::pages::PageSet;

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// The runs of a trace, of which several may touch a page, on the grid: each page has the touches of
/// the run that came first. If all of them are empty, the first one remains, as an empty run at 0: it
/// touches the inode.
pub(crate) fn on_grid(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_by(|one, two| one.touches.rank.cmp(&two.touches.rank).then_with(|| one.cmp(two)));
    let mut taken = PageSet::default();
    let mut on_pages = Vec::new();
    for Run { from, to, touches } in &runs {
        let end = if from < to { to.div_ceil(PAGE) } else { 0 };
        on_pages.extend(taken.add(from / PAGE, end).into_iter().map(|(first, end)| {
            // The last page of the largest file is cut short.
            let to = end.checked_mul(PAGE).unwrap_or(TO_THE_END);
            Run { from: first * PAGE, to, touches: touches.clone() }
        }));
    }
    if on_pages.is_empty() {
        on_pages.extend(runs.into_iter().next().map(|run| Run { from: 0, to: 0, ..run }));
    }
    on_pages.sort_unstable_by_key(|run| run.from);
    let mut joined = Vec::with_capacity(on_pages.len());
    on_pages.into_iter().for_each(|run| push(&mut joined, run));
    joined
}

/// Appends a run, which is joined with the last one where it continues it.
pub(crate) fn push(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if !last.is_empty() && last.to == run.from && last.touches == run.touches => {
            last.to = run.to;
        }
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
        if a.from == b.from && a.is_empty() != b.is_empty() {
            let empty = if a.is_empty() { a } else { b };
            push(&mut sum, empty.clone());
            let of_one = first.as_ref().is_some_and(Run::is_empty);
            if of_one {
                first = one.next();
            } else {
                second = two.next();
            }
            continue;
        }
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
