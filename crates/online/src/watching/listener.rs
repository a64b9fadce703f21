//! Who opens which files: events of the kernel, told apart by the groups of processes that
//! shells and service managers make.

use super::now;
use seekless_host::opens::{Opened, Opens};
use seekless_host::program;
use seekless_images::Error;
use seekless_layout::habits::{FileId, Habits, Seconds};
use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

/// What is known of a process is asked for again after so long: it may run another
/// program by then.
const FRESH: Seconds = 1;

/// Processes that are known at the same time.
const MOST_PROCESSES: usize = 4096;

/// Events that are kept while files are moved.
const MOST_HEARD: usize = 1 << 16;

/// What others open in less than so many seconds says nothing of a rate.
const LEAST_RATE: f64 = 2.0;

/// Whose accesses are left out, besides those that are configured.
const OWN: &str = "seekless";

/// The name of a program that has ended before it could be asked for.
const GONE: &str = "(ended)";

/// Listens to one file system.
pub(super) struct Listener {
    opens: Opens,
    ignore: Vec<String>,
    own: u32,
    heard: Vec<Opened>,
    processes: HashMap<u32, Process>,
    /// The last group that opened something, and when.
    last: Option<(Seconds, Group)>,
    /// Opens by others since the rate was asked for.
    others: u64,
    since: Instant,
    /// Events that did not fit.
    lost: u64,
}

#[derive(Clone)]
struct Group {
    number: u32,
    program: String,
}

struct Process {
    asked: Seconds,
    /// `None` where its opens are left out.
    group: Option<Group>,
}

impl Listener {
    /// # Errors
    /// Without the right to, or where the kernel cannot.
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

    /// Waits until something is opened, at most `millis`.
    pub(super) fn wait(&self, millis: u16) {
        self.opens.wait(millis);
    }

    /// Takes what there is, and keeps it for later.
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

    /// Takes what there is, and tells it; whether there was anything.
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

    /// Files that others opened each second since this was last asked for; `None` where
    /// that was a moment ago.
    pub(super) fn rate(&mut self) -> Option<f64> {
        let seconds = self.since.elapsed().as_secs_f64();
        (seconds >= LEAST_RATE).then(|| {
            let rate = self.others as f64 / seconds;
            (self.others, self.since) = (0, Instant::now());
            rate
        })
    }

    /// Events that were lost since the beginning.
    pub(super) fn lost(&self) -> u64 {
        self.lost + self.opens.lost
    }

    /// The group of a process, unless its opens are left out.
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
            // It is gone. Who opened something just before was its like: the commands of
            // a script follow each other.
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
