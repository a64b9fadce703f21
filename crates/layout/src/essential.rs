//! The events of a trace that its layout depends on.
//!
//! An event is left out if all that it touches was touched before. Three kinds of events that touch
//! nothing new remain, since later read-ahead depends on them: a process's last open of a file and its
//! last read since then, before a read that touches something new, and faults before a fault that
//! does. Any image gets the
//! same layout from the events that remain as from all, unless one process reads a file under several
//! names.

use crate::pages::PageSet;
use crate::trace::{Event, EventRef, Events, Op};
use hashbrown::HashMap;
use std::num::NonZero;

/// Bytes that the kernel reads of a program to find its format.
const HEAD: u64 = 4096;

/// The events that a layout depends on, by their places in the trace, in order.
#[must_use]
pub fn essential(events: &Events) -> Vec<usize> {
    let mut is_needed = vec![false; events.len()];
    Pass::new(events, &mut is_needed).run();
    let needed = is_needed.iter().enumerate().filter(|(_, is_needed)| **is_needed);
    needed.map(|(at, _)| at).collect()
}

/// The events that a layout depends on, unchanged.
///
/// ```
/// use seekless_layout::essential::compact;
/// use seekless_layout::trace::{Event, Op};
/// use seekless_units::Nanos;
///
/// let read = |time| Event::new(Nanos::new(time), Op::Read, b"/bin/sh".to_vec());
/// assert_eq!(compact(vec![read(1), read(2)]), [read(1)]);
/// ```
#[must_use]
pub fn compact(events: Vec<Event>) -> Vec<Event> {
    let mut all = Events::default();
    events.iter().for_each(|event| all.push(event));
    let mut is_needed = vec![false; events.len()];
    Pass::new(&all, &mut is_needed).run();
    let kept = events.into_iter().zip(is_needed).filter(|(_, is_needed)| *is_needed);
    kept.map(|(event, _)| event).collect()
}

/// The pass over the events.
struct Pass<'a> {
    events: &'a Events,
    is_needed: &'a mut [bool],
    /// Paths that were walked, with the last symlink followed or not.
    walked: [Vec<bool>; 2],
    /// Accesses that have been seen.
    seen: Vec<bool>,
    files: Vec<FileState>,
    /// By process and path. There are many: they are small.
    open: HashMap<(u32, u32), ReadState>,
    /// Faults that matter if the process touches something new of the file by a fault.
    faults: HashMap<(u32, u32), Vec<u32>>,
}

/// The bytes of a file that were read.
#[derive(Clone, Default)]
struct FileState {
    is_listed: bool,
    is_target_read: bool,
    is_read: bool,
    /// All of them.
    read: PageSet,
    /// Ranges that were each read at once, and not as fetched: none contains another one. A page in
    /// them carries no mark that starts read-ahead. Holes between two of them may not be in memory.
    at_once: Vec<(u64, u64)>,
}

/// A file of which a process has read something, and events that matter if it touches something new
/// of it: its last open, and its last read.
#[derive(Clone, Copy, Default)]
struct ReadState {
    open: Option<NonZero<u32>>,
    read: Option<NonZero<u32>>,
}

/// An event's number as it is kept.
fn kept(at: usize) -> Option<NonZero<u32>> {
    NonZero::new(u32::try_from(at + 1).expect("a trace has fewer than 2^32 events"))
}

impl FileState {
    /// Whether a range lies in one that was read at once.
    fn has_at_once(&self, from: u64, to: u64) -> bool {
        let behind = self.at_once.partition_point(|range| range.0 <= from);
        behind.checked_sub(1).is_some_and(|at| self.at_once[at].1 >= to)
    }

    fn add_at_once(&mut self, from: u64, to: u64) {
        if self.has_at_once(from, to) {
            return;
        }
        let first = self.at_once.partition_point(|range| range.0 < from);
        let contained = self.at_once[first..].partition_point(|range| range.1 <= to);
        self.at_once.splice(first..first + contained, [(from, to)]);
    }

    /// Whether the bytes of a range were all read.
    fn has(&self, from: u64, to: u64) -> bool {
        from >= to || self.read.run_at(from).is_some_and(|(_, end)| end >= to)
    }
}

impl<'a> Pass<'a> {
    fn new(events: &'a Events, is_needed: &'a mut [bool]) -> Self {
        Self {
            events,
            is_needed,
            walked: [vec![false; events.paths()], vec![false; events.paths()]],
            seen: vec![false; events.accesses()],
            files: vec![FileState::default(); events.paths()],
            open: HashMap::new(),
            faults: HashMap::new(),
        }
    }

    fn run(mut self) {
        (0..self.events.len()).for_each(|at| {
            let event = self.events.get(at).expect("an event");
            if self.is_new(at, &event) {
                self.is_needed[at] = true;
            }
        });
    }

    /// Whether an event touches something new.
    fn is_new(&mut self, at: usize, event: &EventRef<'_>) -> bool {
        let was_seen = std::mem::replace(&mut self.seen[self.events.access(at)], true);
        if *event.op == Op::Device {
            return !was_seen;
        }
        let path = self.events.path(at);
        let follow = !matches!(event.op, Op::Readlink | Op::Lookup | Op::Stat);
        let is_walk = !std::mem::replace(&mut self.walked[usize::from(follow)][path], true);
        let file = &mut self.files[path];
        let is_first = |was: &mut bool| !std::mem::replace(was, true);
        let touches = match event.op {
            Op::Lookup | Op::Stat | Op::Device | Op::Other(_) => false,
            Op::Readdir => is_first(&mut file.is_listed),
            Op::Readlink => is_first(&mut file.is_target_read),
            Op::Open => {
                self.opened(at, path);
                false
            }
            Op::Read | Op::Mmap | Op::Fault if event.fetched => {
                let (from, to) = (event.offset, event.end().unwrap_or(u64::MAX));
                let is_new = is_first(&mut file.is_read) || !file.has(from, to);
                file.read.add(from, to);
                is_new
            }
            Op::Exec if event.fetched => !was_seen,
            Op::Read | Op::Mmap | Op::Exec | Op::Fault => self.read(at, event, path, was_seen),
        };
        is_walk || touches
    }

    fn opened(&mut self, at: usize, path: usize) {
        let key = self.key(at, path);
        // Its read-ahead begins again.
        if let Some(opened) = self.open.get_mut(&key) {
            *opened = ReadState { open: kept(at), read: None };
            self.faults.remove(&key);
        }
    }

    /// Process and path.
    fn key(&self, at: usize, path: usize) -> (u32, u32) {
        let number = |number: usize| u32::try_from(number).expect("a number of 32 bits");
        (number(self.events.process_at(at).0), number(path))
    }

    fn need(&mut self, at: Option<NonZero<u32>>) {
        if let Some(at) = at {
            self.is_needed[at.get() as usize - 1] = true;
        }
    }

    /// A read with read-ahead.
    fn read(&mut self, at: usize, event: &EventRef<'_>, path: usize, was_seen: bool) -> bool {
        let file = &mut self.files[path];
        let (from, end) = (event.offset, event.end());
        let to = match (event.op, end) {
            (_, Some(end)) => end,
            (Op::Exec, None) => from.saturating_add(HEAD),
            (_, None) => u64::MAX,
        };
        let is_first = !std::mem::replace(&mut file.is_read, true);
        // A first start reads attributes, and names the whole file where no length is given.
        let is_start = *event.op == Op::Exec && !was_seen;
        let is_new = is_first || is_start || !file.has_at_once(from, to);
        file.read.add(from, to);
        file.add_at_once(from, to);
        let key = self.key(at, path);
        let opened = self.open.entry(key).or_default();
        match (*event.op == Op::Fault, is_new) {
            (true, false) => self.faults.entry(key).or_default().extend(kept(at).map(NonZero::get)),
            (false, false) => opened.read = kept(at),
            (true, true) => {
                let open = opened.open.take();
                self.need(open);
                let faults = self.faults.remove(&key).unwrap_or_default();
                faults.into_iter().for_each(|at| self.need(NonZero::new(at)));
            }
            (false, true) => {
                let (open, read) = (opened.open.take(), opened.read.take());
                self.need(open);
                self.need(read);
            }
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_units::Nanos;

    fn essentials(events: Vec<Event>) -> Vec<usize> {
        let events: Events = events.into_iter().collect();
        essential(&events)
    }

    fn event(pid: u32, op: Op, path: &str) -> Event {
        Event::new(Nanos::ZERO, op, path.into()).by(pid)
    }

    fn read(pid: u32, from: u64, len: u64) -> Event {
        event(pid, Op::Read, "/a").on(from, len)
    }

    fn fetched(from: u64, len: u64) -> Event {
        Event { fetched: true, ..read(1, from, len) }
    }

    #[test]
    fn what_was_touched_before_is_left_out() {
        let stat = || event(1, Op::Stat, "/b");
        assert_eq!(essentials(vec![stat(), read(1, 0, 100), stat(), read(2, 0, 50)]), [0, 1]);
        assert_eq!(
            essentials(vec![stat(), event(2, Op::Open, "/b"), event(3, Op::Open, "/b")]),
            [0, 1]
        );
        let list = || event(1, Op::Readdir, "/");
        assert_eq!(essentials(vec![list(), list(), event(1, Op::Readlink, "/")]), [0, 2]);
        // Two that were fetched make one; two that were read leave a hole between them.
        let parts = |read: &dyn Fn(u64, u64) -> Event| {
            vec![read(0, 4096), read(4096, 4096), read(0, 4096), read(0, 8192)]
        };
        assert_eq!(essentials(parts(&fetched)), [0, 1]);
        assert_eq!(essentials(parts(&|from, len| read(1, from, len))), [0, 1, 2, 3]);
    }

    #[test]
    fn read_ahead_depends_on_the_last_read_before() {
        let all =
            vec![read(1, 0, 4096), read(1, 8192, 4096), read(1, 0, 4096), read(1, 4096, 4096)];
        assert_eq!(essentials(all), [0, 1, 2, 3]);
        // Of two, the last; none of another process; none before an open.
        let others = [read(1, 8192, 4096), read(1, 0, 4096), read(2, 0, 4096)];
        let mut all = vec![read(1, 0, 4096), read(1, 8192, 4096)];
        all.extend(others.clone());
        all.push(read(1, 4096, 4096));
        assert_eq!(essentials(all.clone()), [0, 1, 3, 5]);
        all.insert(5, event(1, Op::Open, "/a"));
        assert_eq!(essentials(all), [0, 1, 5, 6]);
    }

    #[test]
    fn faults_count_before_a_fault_that_misses() {
        let fault = |pid, page: u64| event(pid, Op::Fault, "/a").on(page * 4096, 4096);
        assert_eq!(essentials(vec![fault(1, 0), fault(2, 0), fault(2, 9)]), [0, 1, 2]);
        assert_eq!(essentials(vec![fault(1, 0), fault(2, 0), fault(3, 9)]), [0, 2]);
    }
}
