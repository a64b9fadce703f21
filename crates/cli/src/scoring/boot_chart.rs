//! A replay over time: who waited for the device.

use super::{Scored, Timed};
use seekless_layout::trace::Events;
use seekless_report::bootchart::{BootChart, Process};
use std::collections::BTreeMap;

/// The picture of a replay on a device, with a row for each process of the trace.
pub(crate) fn chart(scored: &Scored, timed: &Timed, events: &Events) -> BootChart {
    let mut processes: BTreeMap<u32, Process> = BTreeMap::new();
    for span in timed.timing.spans(&scored.replayed.requests) {
        let Some(event) = events.get(span.event) else { continue };
        let process = processes.entry(event.pid).or_default();
        // The name after the last exec.
        process.name = match event.comm {
            Some(comm) => format!("{comm} ({})", event.pid),
            None => format!("process {}", event.pid),
        };
        let spans = if span.waits { &mut process.waits } else { &mut process.runs };
        spans.push(span.time);
    }
    let total = timed.timing.total;
    let seconds = total.get() as f64 / 1e9;
    BootChart {
        title: format!("{} on {}: {seconds:.2} s", scored.name, timed.device),
        total,
        processes: processes.into_values().collect(),
    }
}
