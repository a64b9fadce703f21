//! Several processes side by side: the order of their reads.
//!
//! A trace has the one order that came about when it was recorded. Each process keeps its own order
//! in every run; the interleaving of different processes depends on when each is given a processor
//! and the disk, and no two runs agree. So here every process goes at its own pace, its pauses
//! drawn around those of the trace.

use crate::trace::Event;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::HashMap;

/// By how many percent a pause is shorter or longer than the one in the trace, at most.
/// Processes that wait for one disk are served in turn, in every run: drawn more widely,
/// pauses let each go on longer than it does before the next one is served.
const SPREAD_PERCENT: u64 = 25;

/// A pause this many times as long as half of a process's pauses is one in which
/// it waited for another process: it goes on behind that, not at its own pace.
const LONG_PAUSE: u64 = 16;

/// The dependency of an event on those before it.
#[derive(Clone, Copy)]
struct EventDependency {
    /// The event of the same process before it.
    own: Option<usize>,
    /// Whether its process went on to it by itself, and did not wait for others.
    goes_on: bool,
}

/// Each event's step. Without times there is no telling that a process goes on by
/// itself.
fn steps(events: &[Event]) -> impl Iterator<Item = EventDependency> {
    let patience = patience(events);
    let mut last: HashMap<u32, usize> = HashMap::new();
    events.iter().enumerate().map(move |(at, event)| {
        let own = last.insert(event.pid, at);
        let pause = own.map(|own| pause_between(events, own, at));
        let longest = patience.get(&event.pid).copied().unwrap_or(0);
        EventDependency { own, goes_on: longest > 0 && pause.is_some_and(|pause| pause <= longest) }
    })
}

/// How long after event `from` event `to` was, in the trace, in nanoseconds.
fn pause_between(events: &[Event], from: usize, to: usize) -> u64 {
    events[to].time.get().saturating_sub(events[from].time.get())
}

/// The events in the order of one more run, by their places in the trace. The
/// events of a process stay in their order, and so do all of a trace in which
/// processes follow each other; a trace without processes is left as it is.
pub(super) fn drawn(events: &[Event], seed: u64) -> Vec<usize> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut draw = |pause: u64| {
        let percent = 100 - SPREAD_PERCENT + random.next_u64() % (2 * SPREAD_PERCENT + 1);
        u64::try_from(u128::from(pause) * u128::from(percent) / 100).unwrap_or(u64::MAX)
    };
    // When each event is in the run that is drawn.
    let mut times: Vec<u64> = Vec::with_capacity(events.len());
    for (at, step) in steps(events).enumerate() {
        let own_time = step.own.map_or(0, |own| times[own]);
        let time = match (step.own.filter(|_| step.goes_on), at.checked_sub(1)) {
            (Some(own), _) => own_time + draw(pause_between(events, own, at)),
            // It waited for the event just before, or began then.
            (None, Some(before)) => {
                (times[before] + draw(pause_between(events, before, at))).max(own_time)
            }
            (None, None) => 0,
        };
        times.push(time);
    }
    sorted_by(&times)
}

/// The places of `keys` in ascending order of their values; equal ones stay in order.
fn sorted_by<K: Ord>(keys: &[K]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..keys.len()).collect();
    places.sort_by_key(|&at| &keys[at]);
    places
}

/// For each process, the pause beyond which it is taken to have waited for
/// another one.
fn patience(events: &[Event]) -> HashMap<u32, u64> {
    let mut pauses: HashMap<u32, (u64, Vec<u64>)> = HashMap::new();
    for event in events {
        let time = event.time.get();
        let (last, pauses) = pauses.entry(event.pid).or_insert_with(|| (time, Vec::new()));
        if time > *last {
            pauses.push(time - *last);
            *last = time;
        }
    }
    let patience = |(pid, (_, mut pauses)): (u32, (u64, Vec<u64>))| {
        let middle = pauses.len() / 2;
        let median = match pauses.is_empty() {
            true => 0,
            false => *pauses.select_nth_unstable(middle).1,
        };
        (pid, median * LONG_PAUSE)
    };
    pauses.into_iter().map(patience).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Op;
    use seekless_units::Nanos;

    fn event(time: u64, pid: u32) -> Event {
        Event::new(Nanos::new(time), Op::Read, format!("/{pid}").into_bytes()).by(pid)
    }

    fn in_order(events: &[Event]) -> bool {
        drawn(events, 1).is_sorted()
    }

    #[test]
    fn one_process_keeps_its_order() {
        let events: Vec<Event> = (0..100).map(|n| event(n * n, 7)).collect();
        assert!(in_order(&events));
        // Without times, and without processes.
        assert!(in_order(&[event(0, 7), event(0, 8), event(0, 7), event(0, 8)]));
        assert!(in_order(&(0..100).map(|n| event(n * 10, 0)).collect::<Vec<_>>()));
    }

    #[test]
    fn processes_that_take_turns_keep_their_order() {
        // A shell that waits for each of its children.
        let mut events = Vec::new();
        for child in 0..20u64 {
            let start = child * 1000;
            events.push(event(start, 1));
            events.push(event(start + 1, 1));
            let of_child = (0..30).map(|n| event(start + 10 + n * 10, 100 + child as u32));
            events.extend(of_child);
        }
        assert!(in_order(&events));
    }

    #[test]
    fn processes_side_by_side_drift_apart() {
        let events: Vec<Event> = (0..4000).map(|n| event(n * 100, 1 + (n % 4) as u32)).collect();
        let order = drawn(&events, 1);
        for pid in 1..=4 {
            let own: Vec<usize> =
                order.iter().copied().filter(|at| events[*at].pid == pid).collect();
            assert!(own.is_sorted());
            assert_eq!(own.len(), 1000);
        }
        let followed = order.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!(followed < 2000, "{followed} of 3999 still follow each other");
        assert_eq!(order, super::drawn(&events, 1), "one seed, one order");
        assert_ne!(order, super::drawn(&events, 2));
    }
}
