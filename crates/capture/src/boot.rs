//! A recording of a boot from inside: when it ends, and how it lives in the
//! background from the initramfs on.

use super::subject::{End, UnitState, unit_state};
use rustix::stdio;
use seekless_host::initramfs::{self, Switch};
use seekless_host::mounts::{Mount, Statistics};
use seekless_images::{Error, ErrorKind};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often the conditions are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// systemd is asked again after so many times as long as its answer took, since a
/// question starts a program, and the boot goes on beside it.
const ANSWERS: u32 = 20;

/// The unit whose start ends a boot.
const UNIT: &str = "default.target";

/// The longest recording, if nothing else is said.
const LIMIT: Duration = Duration::from_secs(600);

/// How long systemd may take to begin, if it is what starts the system.
const INIT: Duration = Duration::from_secs(30);

/// How long the device has done nothing when a boot is over.
const IDLE: Duration = Duration::from_secs(5);

/// When a recording of a boot ends: when the unit is active and then nothing has
/// been read for a time, as far as either is asked for; and at the limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Until {
    unit: Option<String>,
    /// Whether there need not be a systemd to ask.
    any_init: bool,
    idle: Option<Duration>,
    limit: Duration,
}

impl Until {
    /// The conditions that are given, or those of any boot if none is.
    pub fn new(unit: Option<&str>, idle: Option<Duration>, limit: Option<Duration>) -> Self {
        let any_init = unit.is_none();
        if unit.is_none() && idle.is_none() && limit.is_none() {
            return Self { unit: Some(UNIT.into()), any_init, idle: Some(IDLE), limit: LIMIT };
        }
        Self { unit: unit.map(String::from), any_init, idle, limit: limit.unwrap_or(LIMIT) }
    }

    /// Whether it ends, that long after its start, when the unit has been active and
    /// the device idle for so long.
    fn met(&self, since: Duration, active: Option<Duration>, idle: Duration) -> bool {
        if since >= self.limit {
            return true;
        }
        let started = self.unit.is_none() || active.is_some();
        // With neither, only the limit ends it.
        let asked = self.unit.is_some() || self.idle.is_some();
        let quiet = |wanted| active.map_or(idle, |active| active.min(idle)) >= wanted;
        asked && started && self.idle.is_none_or(quiet)
    }
}

/// A boot that is under way.
pub struct Boot {
    until: Until,
    switch: Switch,
    /// When this process came into the root that has been switched to.
    entered: Option<Instant>,
    start: Instant,
    looked: Option<Instant>,
    /// When systemd is asked again.
    ask_at: Option<Instant>,
    active: Option<Instant>,
    /// Reads of the device, where it counts them.
    statistics: Option<Statistics>,
    reads: Option<u64>,
    /// When something was last read.
    last: Instant,
    detached: bool,
    ready: bool,
    /// Processes that this one has started.
    pub helpers: Vec<u32>,
}

impl Boot {
    /// Begins to watch a boot from `mount`. A `detached` one tells the process that
    /// started it when it is recording.
    ///
    /// # Errors
    /// `ErrorKind::Usage` for a mount of the initramfs, `ErrorKind::System`.
    pub fn new(until: Until, mount: &Mount, detached: bool) -> Result<Self, Error> {
        let now = Instant::now();
        let switch = Switch::watch()?;
        if switch.leaves(&mount.dir)? {
            return Err(Error::usage(
                "--mount names a part of the initramfs: no root is mounted there",
            ));
        }
        Ok(Self {
            until,
            switch,
            entered: None,
            start: now,
            looked: None,
            ask_at: None,
            active: None,
            statistics: mount.device.statistics(),
            reads: None,
            last: now,
            detached,
            ready: false,
            helpers: Vec::new(),
        })
    }

    /// Whether it is over; `any` tells whether events came since the last time.
    ///
    /// # Errors
    /// `ErrorKind::System`.
    pub fn poll(&mut self, signal: Option<i32>, any: bool) -> Result<Option<End>, Error> {
        if !self.ready {
            self.ready = true;
            if self.detached {
                tell_ready()?;
            }
        }
        if any && self.statistics.is_none() {
            self.last = Instant::now();
        }
        if self.entered.is_none() && self.switch.enter()? {
            self.entered = Some(Instant::now());
            // What comes now is a shutdown, and it has to be heard.
            initramfs::no_longer_kept()?;
        }
        if let Some(signal) = signal {
            self.in_root("a signal came")?;
            return Ok(Some(End::Signal(signal)));
        }
        if self.looked.is_some_and(|looked| looked.elapsed() < INTERVAL) {
            return Ok(None);
        }
        self.looked = Some(Instant::now());
        let reads = self.statistics.as_ref().and_then(Statistics::reads);
        if reads != self.reads {
            self.reads = reads;
            self.last = Instant::now();
        }
        if self.entered.is_some() && self.active.is_none() {
            self.ask()?;
        }
        let active = self.active.map(|active| active.elapsed());
        if self.until.met(self.start.elapsed(), active, self.last.elapsed()) {
            if self.start.elapsed() >= self.until.limit {
                self.in_root("the time is over")?;
            }
            return Ok(self.entered.map(|_| End::Done));
        }
        Ok(None)
    }

    /// Before the switch there are no names that hold afterwards, and no place for
    /// the trace.
    fn in_root(&self, why: &str) -> Result<(), Error> {
        if self.entered.is_some() {
            return Ok(());
        }
        let message = format!("{why}, but the root has not been switched: nothing is written");
        Err(Error::new(ErrorKind::System, message))
    }

    /// Asks systemd for the unit.
    fn ask(&mut self) -> Result<(), Error> {
        let Some(unit) = &self.until.unit else { return Ok(()) };
        // So does sd_booted(3).
        if !Path::new("/run/systemd/system").exists() {
            // It may not have come so far, or not be what starts this system.
            if self.until.any_init && self.entered.is_some_and(|at| at.elapsed() >= INIT) {
                self.until.unit = None;
            }
            return Ok(());
        }
        let asked = Instant::now();
        if self.ask_at.is_some_and(|at| asked < at) {
            return Ok(());
        }
        let (state, helper) = unit_state(unit)?;
        self.helpers.push(helper);
        self.ask_at = Some(Instant::now() + asked.elapsed() * ANSWERS);
        match state {
            UnitState::Active => self.active = Some(Instant::now()),
            // What has been read until then is worth keeping.
            UnitState::Failed => {
                tracing::warn!("{unit} has failed to start: the recording goes on without it");
                self.until.unit = None;
                self.until.idle.get_or_insert(IDLE);
            }
            // Early on nobody answers.
            UnitState::Other | UnitState::Unknown(_) => {}
        }
        Ok(())
    }
}

/// Tells the process that started this one that it records, and lets go of it.
fn tell_ready() -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::io("standard input", &error);
    rustix::io::write(stdio::stdin(), b"\n").map_err(|error| failed(error.into()))?;
    let null = File::open("/dev/null").map_err(failed)?;
    stdio::dup2_stdin(&null).map_err(|error| failed(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn without_conditions_it_is_the_default_target_then_silence_and_a_limit() {
        let until = Until::new(None, None, None);
        assert!(!until.met(seconds(100), None, seconds(50)), "the unit is not active");
        assert!(!until.met(seconds(100), Some(seconds(4)), seconds(50)), "not silent since");
        assert!(!until.met(seconds(100), Some(seconds(50)), seconds(4)), "not silent");
        assert!(until.met(seconds(100), Some(seconds(5)), seconds(5)));
        assert!(until.met(seconds(600), None, seconds(0)), "the limit holds in any case");
    }

    #[test]
    fn each_condition_stands_alone() {
        let unit = Until::new(Some("a.service"), None, None);
        assert!(!unit.met(seconds(1), None, seconds(1)));
        assert!(unit.met(seconds(1), Some(seconds(0)), seconds(0)));
        assert!(unit.met(LIMIT, None, seconds(0)));

        let idle = Until::new(None, Some(seconds(3)), None);
        assert!(!idle.met(seconds(10), None, seconds(2)));
        assert!(idle.met(seconds(10), None, seconds(3)));

        let time = Until::new(None, None, Some(seconds(20)));
        assert!(!time.met(seconds(19), None, seconds(19)), "silence does not end it");
        assert!(time.met(seconds(20), None, seconds(0)));
    }
}
