//! The events of a trace in memory: 16 bytes each, besides a table of the distinct paths and
//! accesses. A trace of 10^7 events of a machine has far fewer distinct ones.

use super::{Event, Op};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use seekless_units::Nanos;
use serde_json::{Map, Value};
use std::hash::BuildHasher;

/// Bits of [`Action::kind`] below the number of the operation.
const MISSING: u32 = 1;
const FETCHED: u32 = 2;
const HAS_LENGTH: u32 = 4;
const OP_SHIFT: u32 = 3;

/// Operations that are compared one by one.
const FIRST_OPS: usize = 16;

/// Numbers of operations fit into [`Action::kind`].
const MOST_OPS: u32 = 1 << (u32::BITS - OP_SHIFT);

/// The events of a trace, in order. Unknown fields are dropped, unless they are kept explicitly
/// ([`Events::with_unknown_fields`]).
///
/// ```
/// use seekless_layout::trace::{Event, Events, Op};
/// use seekless_units::Nanos;
///
/// let read = Event::new(Nanos::ZERO, Op::Read, b"/bin/sh".to_vec()).on(0, 4096);
/// let events: Events = [read.clone(), read].into_iter().collect();
/// assert_eq!(events.len(), 2);
/// assert!(events.iter().all(|event| event.path == b"/bin/sh"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Events {
    paths: Interned,
    comms: Interned,
    ops: Vec<Op>,
    /// Numbers of operations that are not among the first ones.
    other_ops: HashMap<Op, u32>,
    actions: Vec<Action>,
    action_table: HashTable<u32>,
    processes: Vec<NamedProcess>,
    /// Numbers of processes, by pid and number of the name.
    process_table: HashMap<(u32, Option<u32>), u32>,
    /// Numbers of pids.
    pid_table: HashMap<u32, u32>,
    stamps: Vec<Stamp>,
    /// Unknown fields, by event; `None`: they are dropped.
    unknown: Option<HashMap<u32, Map<String, Value>>>,
    hasher: DefaultHashBuilder,
}

/// An event: its time, its process and its access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    time: Nanos,
    process: u32,
    action: u32,
}

/// The access of an event, at any time and by any process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Action {
    offset: u64,
    length: u64,
    path: u32,
    kind: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NamedProcess {
    pid: u32,
    comm: Option<u32>,
    /// The number of the pid, in order of first events.
    number: u32,
}

/// An event of [`Events`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventRef<'a> {
    /// Since the start of the trace.
    pub time: Nanos,
    /// The process; 0 when not known.
    pub pid: u32,
    /// The process's name.
    pub comm: Option<&'a str>,
    /// The operation.
    pub op: &'a Op,
    /// Its path: from the root of the image, with a leading slash.
    pub path: &'a [u8],
    /// First byte read or mapped.
    pub offset: u64,
    /// Bytes read or mapped; `None`: to the end.
    pub length: Option<u64>,
    /// The name was not there.
    pub missing: bool,
    /// As [`Event::fetched`].
    pub fetched: bool,
}

impl EventRef<'_> {
    /// The byte behind its range, which a trace may put anywhere; `None`: to the end.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.length.map(|length| self.offset.saturating_add(length))
    }

    /// A copy of it, without unknown fields.
    #[must_use]
    pub fn to_event(&self) -> Event {
        Event {
            comm: self.comm.map(String::from),
            pid: self.pid,
            offset: self.offset,
            length: self.length,
            missing: self.missing,
            fetched: self.fetched,
            ..Event::new(self.time, self.op.clone(), self.path.to_vec())
        }
    }
}

impl<'a> From<&'a Event> for EventRef<'a> {
    fn from(event: &'a Event) -> Self {
        let Event { time, pid, comm, op, path, offset, length, missing, fetched, extra: _ } = event;
        Self {
            time: *time,
            pid: *pid,
            comm: comm.as_deref(),
            op,
            path,
            offset: *offset,
            length: *length,
            missing: *missing,
            fetched: *fetched,
        }
    }
}

/// Byte strings, each once, numbered in order of their first occurrence.
#[derive(Clone, Debug, Default)]
struct Interned {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    table: HashTable<u32>,
    last: u32,
}

impl Interned {
    fn get(&self, number: u32) -> &[u8] {
        let number = number as usize;
        let from = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[from..self.ends[number]]
    }

    fn number(&mut self, name: &[u8], hasher: &DefaultHashBuilder) -> u32 {
        // Most events are of the file of the event before.
        if !self.ends.is_empty() && self.get(self.last) == name {
            return self.last;
        }
        let hash = hasher.hash_one(name);
        if let Some(&known) = self.table.find(hash, |&number| self.get(number) == name) {
            self.last = known;
            return known;
        }
        let number = count(self.ends.len());
        self.bytes.extend_from_slice(name);
        self.ends.push(self.bytes.len());
        let Self { bytes, ends, table, last } = self;
        table.insert_unique(hash, number, |&number| {
            let number = number as usize;
            let from = number.checked_sub(1).map_or(0, |before| ends[before]);
            hasher.hash_one(&bytes[from..ends[number]])
        });
        *last = number;
        number
    }
}

/// The next number in a table. 2^32 entries of any of them take more memory than there is.
fn count(len: usize) -> u32 {
    u32::try_from(len).expect("a trace has fewer than 2^32 events")
}

impl Events {
    /// No events; those that are added keep their unknown fields.
    #[must_use]
    pub fn with_unknown_fields() -> Self {
        Self { unknown: Some(HashMap::new()), ..Self::default() }
    }

    /// Adds an event.
    pub fn push(&mut self, event: &Event) {
        if let Some(unknown) = self.unknown.as_mut().filter(|_| !event.extra.is_empty()) {
            unknown.insert(count(self.stamps.len()), event.extra.clone());
        }
        let op = self.op(&event.op);
        self.add(EventRef::from(event), op);
    }

    /// Adds an event without unknown fields.
    pub fn push_ref(&mut self, event: EventRef<'_>) {
        let op = self.op(event.op);
        self.add(event, op);
    }

    fn op(&mut self, op: &Op) -> u32 {
        // There are a dozen of them, and most are reads. A trace may have any number of unknown ones.
        if let Some(known) = self.ops.iter().take(FIRST_OPS).position(|known| known == op) {
            return count(known);
        }
        let next = count(self.ops.len());
        assert!(next < MOST_OPS, "a trace has fewer than 2^29 operations");
        let number = if self.ops.len() < FIRST_OPS {
            next
        } else {
            *self.other_ops.entry_ref(op).or_insert(next)
        };
        if number == next {
            self.ops.push(op.clone());
        }
        number
    }

    fn add(&mut self, event: EventRef<'_>, op: u32) {
        let flag = |is: bool, bit| if is { bit } else { 0 };
        let kind = op << OP_SHIFT
            | flag(event.missing, MISSING)
            | flag(event.fetched, FETCHED)
            | flag(event.length.is_some(), HAS_LENGTH);
        let (offset, length) = (event.offset, event.length.unwrap_or(0));
        let path = self.paths.number(event.path, &self.hasher);
        let action = self.action(Action { offset, length, path, kind });
        let process = self.process(event.pid, event.comm);
        // Its number must fit.
        let _ = count(self.stamps.len());
        self.stamps.push(Stamp { time: event.time, process, action });
    }

    fn action(&mut self, action: Action) -> u32 {
        let Self { actions, action_table, hasher, .. } = self;
        let hash = hasher.hash_one(action);
        let number = count(actions.len());
        let entry = action_table.entry(
            hash,
            |&known| actions[known as usize] == action,
            |&known| hasher.hash_one(actions[known as usize]),
        );
        match entry {
            hashbrown::hash_table::Entry::Occupied(known) => *known.get(),
            hashbrown::hash_table::Entry::Vacant(vacant) => {
                vacant.insert(number);
                actions.push(action);
                number
            }
        }
    }

    fn process(&mut self, pid: u32, comm: Option<&str>) -> u32 {
        let comm = comm.map(|comm| self.comms.number(comm.as_bytes(), &self.hasher));
        if let Some(last) = self.stamps.last() {
            let process = self.processes[last.process as usize];
            if process.pid == pid && process.comm == comm {
                return last.process;
            }
        }
        let pids = count(self.pid_table.len());
        let number = *self.pid_table.entry(pid).or_insert(pids);
        let next = count(self.processes.len());
        let process = *self.process_table.entry((pid, comm)).or_insert(next);
        if process == next {
            self.processes.push(NamedProcess { pid, comm, number });
        }
        process
    }

    /// The number of events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stamps.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stamps.is_empty()
    }

    /// Whether none is earlier than the one before.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        self.stamps.is_sorted_by_key(|stamp| stamp.time)
    }

    /// An event; `None` behind the last one.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<EventRef<'_>> {
        self.stamps.get(at).map(|stamp| self.event(stamp))
    }

    /// All events.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = EventRef<'_>> + Clone {
        self.stamps.iter().map(|stamp| self.event(stamp))
    }

    /// Copies of all events, with their unknown fields if these are kept.
    pub fn to_events(&self) -> impl Iterator<Item = Event> {
        self.iter().zip(0u32..).map(|(event, at)| {
            let extra = self.unknown.as_ref().and_then(|unknown| unknown.get(&at));
            Event { extra: extra.cloned().unwrap_or_default(), ..event.to_event() }
        })
    }

    fn event(&self, stamp: &Stamp) -> EventRef<'_> {
        let action = self.actions[stamp.action as usize];
        let process = self.processes[stamp.process as usize];
        let comm = process.comm.map(|comm| self.comms.get(comm));
        EventRef {
            time: stamp.time,
            pid: process.pid,
            comm: comm.map(|comm| std::str::from_utf8(comm).expect("it was a string")),
            op: &self.ops[(action.kind >> OP_SHIFT) as usize],
            path: self.paths.get(action.path),
            offset: action.offset,
            length: (action.kind & HAS_LENGTH != 0).then_some(action.length),
            missing: action.kind & MISSING != 0,
            fetched: action.kind & FETCHED != 0,
        }
    }

    /// The number of distinct accesses: [`Events::access`] counts them from 0.
    pub(crate) fn accesses(&self) -> usize {
        self.actions.len()
    }

    /// The number of an event's access: equal for events that differ in time and process only.
    pub(crate) fn access(&self, at: usize) -> usize {
        self.stamps[at].action as usize
    }

    /// The number of paths: [`Events::path`] counts them from 0.
    pub(crate) fn paths(&self) -> usize {
        self.paths.ends.len()
    }

    /// The number of an event's path.
    pub(crate) fn path(&self, at: usize) -> usize {
        self.actions[self.access(at)].path as usize
    }

    /// The number of an event's process, and the time.
    pub(crate) fn process_at(&self, at: usize) -> (usize, Nanos) {
        let stamp = &self.stamps[at];
        (self.processes[stamp.process as usize].number as usize, stamp.time)
    }

    /// The number of processes: [`Events::process_at`] counts them from 0.
    pub(crate) fn processes(&self) -> usize {
        self.pid_table.len()
    }
}

impl PartialEq for Events {
    /// Whether the events are equal, with their processes and times.
    fn eq(&self, other: &Self) -> bool {
        self.stamps == other.stamps && self.iter().eq(other.iter())
    }
}

impl Extend<Event> for Events {
    fn extend<I: IntoIterator<Item = Event>>(&mut self, events: I) {
        events.into_iter().for_each(|event| self.push(&event));
    }
}

impl FromIterator<Event> for Events {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Self {
        let mut all = Self::default();
        all.extend(events);
        all
    }
}

/// Several traces as one, in order of time; of events at the same time those of the earlier trace
/// come first.
#[must_use]
pub fn merge(traces: &[Events]) -> Events {
    let mut order: Vec<(Nanos, u32, u32)> = Vec::new();
    for (trace, events) in (0u32..).zip(traces) {
        order.extend(events.stamps.iter().zip(0..).map(|(stamp, at)| (stamp.time, trace, at)));
    }
    order.sort_unstable();
    let keeps_unknown = traces.iter().any(|events| events.unknown.is_some());
    let mut merged = if keeps_unknown { Events::with_unknown_fields() } else { Events::default() };
    for (_, trace, at) in order {
        let events = &traces[trace as usize];
        if let Some(extra) = events.unknown.as_ref().and_then(|unknown| unknown.get(&at)) {
            let number = count(merged.stamps.len());
            merged.unknown.get_or_insert_default().insert(number, extra.clone());
        }
        merged.push_ref(events.event(&events.stamps[at as usize]));
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(time: u64, pid: u32, path: &str) -> Event {
        Event::new(Nanos::new(time), Op::Read, path.into()).by(pid).on(0, 10)
    }

    #[test]
    fn events_come_back_as_they_were() {
        let mut odd = read(5, 7, "/b");
        (odd.comm, odd.missing, odd.length) = (Some("sh".into()), true, None);
        odd.op = Op::Other("chroot".into());
        odd.extra.insert("cpu".into(), Value::from(3));
        let all = [read(1, 7, "/a"), odd, read(9, 8, "/a"), read(9, 7, "/a")];
        let mut events = Events::with_unknown_fields();
        events.extend(all.clone());
        assert_eq!(events.to_events().collect::<Vec<_>>(), all);
        assert_eq!((events.accesses(), events.paths(), events.processes()), (2, 2, 2));
        let plain: Events = all.into_iter().collect();
        assert_eq!(plain, events, "unknown fields are no part of an event");
        assert!(plain.to_events().all(|event| event.extra.is_empty()));
        assert_ne!(plain, [read(1, 7, "/a")].into_iter().collect());
    }

    #[test]
    fn any_number_of_operations_is_kept() {
        let op = |n: u32| Op::named(&format!("op{}", n % 60));
        let all = (0..200).map(|n| Event::new(Nanos::ZERO, op(n), b"/a".to_vec()));
        let events: Events = all.clone().collect();
        assert_eq!((events.ops.len(), events.other_ops.len()), (60, 60 - FIRST_OPS));
        assert!(events.to_events().eq(all));
    }

    #[test]
    fn merging_keeps_the_order_of_equal_times_and_unknown_fields() {
        let mut extra = read(3, 1, "/b");
        extra.extra.insert("cpu".into(), Value::from(3));
        let mut first = Events::with_unknown_fields();
        first.extend([read(1, 1, "/a"), extra.clone()]);
        let merged = merge(&[first, [read(1, 2, "/c")].into_iter().collect()]);
        let all: Vec<Event> = merged.to_events().collect();
        assert_eq!(all, [read(1, 1, "/a"), read(1, 2, "/c"), extra]);
    }
}
