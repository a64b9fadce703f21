//! Opens of files by process: events of the kernel, separated by the process groups that shells and
//! service managers make.

use super::now;
use seekless_host::opens::{Opened, Opens};
use seekless_host::program;
use seekless_images::Error;
use seekless_layout::habits::{FileId, Habits, Seconds};
use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

/// Time after which the cached data of a process are read again: it may run another program by
/// then.
const FRESH: Seconds = 1;

/// Maximum number of cached processes.
const MOST_PROCESSES: usize = 4096;

/// Maximum number of events kept while files are moved.
const MOST_HEARD: usize = 1 << 16;

/// Minimum time in seconds for measuring a rate.
const LEAST_RATE: f64 = 2.0;

/// Name of the program whose accesses are always ignored.
const OWN: &str = "seekless";

/// Name used for a program that has ended before it could be read.
const GONE: &str = "(ended)";

/// A listener on one file system.
pub(super) struct Listener {
    opens: Opens,
    ignore: Vec<String>,
    own: u32,
    heard: Vec<Opened>,
    processes: HashMap<u32, Process>,
    /// The last group that opened a file, with the time.
    last: Option<(Seconds, Group)>,
    /// Opens by others since the rate was last read.
    others: u64,
    since: Instant,
    /// Number of events that did not fit.
    lost: u64,
}

#[derive(Clone)]
struct Group {
    number: u32,
    program: String,
}

struct Process {
    asked: Seconds,
    /// `None` if its opens are ignored.
    group: Option<Group>,
}

impl Listener {
    /// # Errors
    /// Without the right to, or if the kernel lacks support.
    pub(super) fn new(dir: &Path, ignore: &[String]) -> Result<Self, Error> {
        Ok(Self {
            opens: Opens::new(dir)?,
            ignore: ignore.to_vec(),
            own: std::process::id(),
            heard: Vec::new(),
            processes: HashMap::new(),
            last: None,
            others: 0,
            since: Instant::now(),
            lost: 0,
        })
    }

    /// Waits for an open, at most `millis` milliseconds.
    pub(super) fn wait(&self, millis: u16) {
        self.opens.wait(millis);
    }

    /// Reads pending events, and keeps them for later.
    pub(super) fn drain(&mut self) -> Result<(), Error> {
        loop {
            let before = self.heard.len();
            if !self.opens.read(&mut self.heard)? {
                break;
            }
            let own = self.own;
            let mut at = 0;
            self.heard.retain(|event| {
                at += 1;
                at <= before || event.pid != own
            });
            self.others += (self.heard.len() - before) as u64;
            if self.heard.len() > MOST_HEARD {
                self.lost += (self.heard.len() - MOST_HEARD) as u64;
                self.heard.truncate(MOST_HEARD);
            }
        }
        Ok(())
    }

    /// Reads pending events and records them in `habits`. Returns whether there were any.
    pub(super) fn tell(&mut self, habits: &mut Habits) -> Result<bool, Error> {
        self.drain()?;
        let moment = now();
        let heard = std::mem::take(&mut self.heard);
        for &Opened { pid, ino, generation } in &heard {
            if let Some(Group { number, program }) = self.group(pid, moment) {
                habits.opened(moment, number, &program, FileId { ino, generation });
            }
        }
        let any = !heard.is_empty();
        if heard.capacity() <= MOST_PROCESSES {
            self.heard = heard;
            self.heard.clear();
        }
        Ok(any)
    }

    /// Rate of opens by others per second since the last call; `None` if that was too recent.
    pub(super) fn rate(&mut self) -> Option<f64> {
        let seconds = self.since.elapsed().as_secs_f64();
        (seconds >= LEAST_RATE).then(|| {
            let rate = self.others as f64 / seconds;
            (self.others, self.since) = (0, Instant::now());
            rate
        })
    }

    /// Number of events lost since the start.
    pub(super) fn lost(&self) -> u64 {
        self.lost + self.opens.lost
    }

    /// The group of a process, unless its opens are ignored.
    fn group(&mut self, pid: u32, now: Seconds) -> Option<Group> {
        let is_fresh = |asked: Seconds| now.saturating_sub(asked) <= FRESH;
        let known = self.processes.get(&pid).filter(|known| is_fresh(known.asked));
        let group = match known {
            Some(known) => known.group.clone(),
            None => {
                let group = self.ask(pid, now);
                if self.processes.len() >= MOST_PROCESSES {
                    self.processes.clear();
                }
                self.processes.insert(pid, Process { asked: now, group: group.clone() });
                group
            }
        };
        self.last = group.clone().map(|group| (now, group));
        group
    }

    fn ask(&self, pid: u32, now: Seconds) -> Option<Group> {
        let Some((number, name)) = program::group_of(pid) else {
            // The process is gone. The group of a recent open is a good guess: the commands of a
            // script follow each other.
            let last = self.last.as_ref().filter(|(when, _)| now.saturating_sub(*when) <= FRESH);
            let alone = || Group { number: pid, program: GONE.into() };
            return Some(last.map_or_else(alone, |(_, group)| group.clone()));
        };
        let is_out = name == OWN || self.ignore.contains(&name);
        (!is_out).then(|| {
            let leader = if number == pid { None } else { program::name_of(number) };
            Group { number, program: leader.unwrap_or(name) }
        })
    }
}
