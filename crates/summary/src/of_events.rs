//! The summary of one trace.

use crate::row::{Group, Key, Run, Stream, TO_THE_END, Touches};
use crate::{Form, Header, Summary};
use seekless_layout::essential::essential;
use seekless_layout::trace::{EventRef, Events};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

impl Summary {
    /// The summary of a trace, of which each touch counts as `weight`.
    #[must_use]
    pub fn of(events: &Events, weight: u64) -> Self {
        let streams = streams(events);
        let mut names: HashMap<&str, Arc<str>> = HashMap::new();
        let mut rows: BTreeMap<Key, Vec<Run>> = BTreeMap::new();
        let place = |at: usize| ((at as u64) << 32) / events.len() as u64;
        for at in essential(events) {
            let event = events.get(at).expect("an event of the trace");
            let name = event.op.name();
            let op = names.entry(name).or_insert_with(|| name.into()).clone();
            let EventRef { missing, fetched, .. } = event;
            let key = Key { path: event.path.to_vec(), op, missing, fetched };
            // A length may lead behind any file, but not to the end of each.
            let to = event.end().map_or(TO_THE_END, |end| end.min(TO_THE_END - 1));
            let touches = Touches::once(weight, place(at), streams[&event.pid].clone());
            rows.entry(key).or_default().push(Run { from: event.offset.min(to), to, touches });
        }
        let header = Header { traces: 1, machines: 1, form: Form::Exact, min_machines: 0 };
        let groups = rows.into_iter().map(|(key, mut runs)| {
            runs.sort_unstable();
            Group { key, runs }
        });
        Self { header, groups: groups.collect() }
    }
}

/// The stream of each process.
fn streams(events: &Events) -> HashMap<u32, Stream> {
    let mut streams: HashMap<u32, Stream> = HashMap::new();
    let mut numbers: HashMap<&str, (u64, Arc<str>)> = HashMap::new();
    for event in events.iter() {
        streams.entry(event.pid).or_insert_with(|| {
            let name = event.comm.unwrap_or("");
            let (next, name) = numbers.entry(name).or_insert_with(|| (0, name.into()));
            let stream = Stream { number: *next, name: name.clone() };
            *next += 1;
            stream
        });
    }
    streams
}
