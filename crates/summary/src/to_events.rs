//! The events that stand for a summary.

use crate::row::{Group, PARTS, Run, Stream, TO_THE_END};
use crate::{Form, Summary};
use seekless_layout::trace::{EventRef, Events, Op};
use seekless_units::Nanos;
use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

/// A run, with its key.
#[derive(Clone, Copy)]
struct Row<'a> {
    group: &'a Group,
    run: &'a Run,
    /// The largest weight of a part of the file.
    weight: u64,
}

impl Summary {
    /// Events in the order to lay out by, without times. Those of a summary of one trace give the
    /// layout of the trace. Of several traces, files that more of them touch come first, by weight;
    /// then ranges that are touched earlier by most, and on average.
    #[must_use]
    pub fn to_events(&self) -> Events {
        let rows = self.in_order();
        let mut pids: HashMap<&Stream, u32> = HashMap::new();
        let mut events = Events::default();
        for row in &rows {
            let Row { group: Group { key, .. }, run: Run { from, to, touches }, .. } = row;
            let next = u32::try_from(pids.len() + 1).expect("a stream for each event at most");
            let event = EventRef {
                time: Nanos::ZERO,
                pid: *pids.entry(&touches.stream).or_insert(next),
                comm: Some(&*touches.stream.name).filter(|name| !name.is_empty()),
                op: &Op::named(&key.op),
                path: &key.path,
                offset: *from,
                length: (*to != TO_THE_END).then(|| to - from),
                missing: key.missing,
                fetched: key.fetched,
            };
            events.push_ref(event);
        }
        events
    }

    fn in_order(&self) -> Vec<Row<'_>> {
        let mut rows = self.rows();
        match self.header.form {
            Form::Exact => rows.sort_by_key(|row| row.run.touches.rank),
            Form::Pages => rows.sort_by(order),
        }
        rows
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let mut rows = Vec::new();
        for file in self.groups.chunk_by(|one, two| one.key.path == two.key.path) {
            let runs = || file.iter().flat_map(|group| &group.runs);
            let weight = runs().map(|run| run.touches.weight).max().unwrap_or(0);
            let of_group = |group| move |run| Row { group, run, weight };
            rows.extend(file.iter().flat_map(|group| group.runs.iter().map(of_group(group))));
        }
        rows
    }
}

/// A range of a summary, for readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touched<'a> {
    /// The file.
    pub path: &'a [u8],
    /// The operation, as in traces.
    pub op: &'a str,
    /// The name was not there.
    pub missing: bool,
    /// The range came from the disk at once.
    pub fetched: bool,
    /// First byte.
    pub offset: u64,
    /// Bytes; `None`: to the end.
    pub length: Option<u64>,
    /// Traces that touched it.
    pub traces: u64,
    /// Machines that touched it.
    pub machines: u64,
    /// The sum of their weights, in parts of [`UNIT`](crate::UNIT).
    pub weight: u64,
    /// Name and number of the process.
    pub process: &'a str,
    /// The process's number among those of its name.
    pub number: u64,
    /// The places in the traces, in percent, at which a tenth, half and nine tenths of those that
    /// touch it have done so; rounded down to sixteenths.
    pub quantiles: [usize; 3],
}

impl Summary {
    /// All ranges, in the order to lay out by.
    #[must_use]
    pub fn touched(&self) -> Vec<Touched<'_>> {
        let touched = self.in_order().into_iter().map(|row| {
            let Row { group: Group { key, .. }, run: Run { from, to, touches }, .. } = row;
            let place = |percent| touches.quantile(percent) * 100 / PARTS;
            Touched {
                path: &key.path,
                op: &key.op,
                missing: key.missing,
                fetched: key.fetched,
                offset: *from,
                length: (*to != TO_THE_END).then(|| to - from),
                traces: touches.traces,
                machines: touches.machines,
                weight: touches.weight,
                process: &touches.stream.name,
                number: touches.stream.number,
                quantiles: [10, 50, 90].map(place),
            }
        });
        touched.collect()
    }
}

/// The order to lay out by.
fn order(one: &Row<'_>, two: &Row<'_>) -> Ordering {
    let (a, b) = (&one.run.touches, &two.run.touches);
    let mean = |a_sum: u64, b_sum: u64| {
        let a = u128::from(a_sum) * u128::from(b.traces);
        a.cmp(&(u128::from(b_sum) * u128::from(one.run.touches.traces)))
    };
    Reverse(one.weight)
        .cmp(&Reverse(two.weight))
        .then_with(|| a.quantile(50).cmp(&b.quantile(50)))
        .then_with(|| mean(a.rank, b.rank))
        .then_with(|| a.stream.cmp(&b.stream))
}
