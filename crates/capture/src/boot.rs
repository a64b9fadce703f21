//! Recording of a boot from inside: its end, and its survival in the background from the initramfs
//! on.

use super::subject::{End, UnitState, unit_state};
use rustix::stdio;
use seekless_fs::term::{Term, Text};
use seekless_host::initramfs::{self, Switch};
use seekless_host::mounts::{Mount, Statistics};
use seekless_images::{Error, ErrorKind};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// Interval of checks of the conditions.
const INTERVAL: Duration = Duration::from_secs(1);

/// Pause between queries of systemd, as a multiple of the last one's duration: a query starts a
/// program, while the boot continues.
const ANSWERS: u32 = 20;

/// The unit whose start ends a boot.
const UNIT: &str = "default.target";

/// Default limit of a recording.
const LIMIT: Duration = Duration::from_secs(600);

/// Time that systemd has to start, if it is the system's init.
const INIT: Duration = Duration::from_secs(30);

/// Idle time of the device at the end of a boot.
const IDLE: Duration = Duration::from_secs(5);

/// The end of a boot's recording: the unit is active, and then nothing has been read for a time, as
/// far as either condition is set; in any case at the limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Until {
    unit: Option<String>,
    /// Whether the init may be another one than systemd.
    any_init: bool,
    idle: Option<Duration>,
    limit: Duration,
}

impl Until {
    /// The given conditions, or the defaults if none is given.
    pub fn new(unit: Option<&str>, idle: Option<Duration>, limit: Option<Duration>) -> Self {
        let any_init = unit.is_none();
        if unit.is_none() && idle.is_none() && limit.is_none() {
            return Self { unit: Some(UNIT.into()), any_init, idle: Some(IDLE), limit: LIMIT };
        }
        Self { unit: unit.map(String::from), any_init, idle, limit: limit.unwrap_or(LIMIT) }
    }

    /// Whether the recording ends: `since` its start, with the unit active for `active`, and the
    /// device idle for `idle`.
    fn met(&self, since: Duration, active: Option<Duration>, idle: Duration) -> bool {
        if since >= self.limit {
            return true;
        }
        let started = self.unit.is_none() || active.is_some();
        // Without both, only the limit ends it.
        let asked = self.unit.is_some() || self.idle.is_some();
        let quiet = |wanted| active.map_or(idle, |active| active.min(idle)) >= wanted;
        asked && started && self.idle.is_none_or(quiet)
    }
}

/// A boot in progress.
pub struct Boot {
    until: Until,
    switch: Switch,
    /// The time at which this process entered the new root.
    entered: Option<Instant>,
    start: Instant,
    looked: Option<Instant>,
    /// Time of the next query of systemd.
    ask_at: Option<Instant>,
    active: Option<Instant>,
    /// The device's statistics, if it counts reads.
    statistics: Option<Statistics>,
    reads: Option<u64>,
    /// Time of the last read.
    last: Instant,
    detached: bool,
    ready: bool,
    /// Processes started by this one.
    pub helpers: Vec<u32>,
}

impl Boot {
    /// Begins to watch a boot from `mount`. A `detached` recorder notifies the process that started
    /// it once it records.
    ///
    /// # Errors
    /// `ErrorKind::Usage` for a mount of the initramfs, `ErrorKind::System`.
    pub fn new(until: Until, mount: &Mount, detached: bool) -> Result<Self, Error> {
        let now = Instant::now();
        let switch = Switch::watch()?;
        if switch.leaves(&mount.dir)? {
            let what = " names a part of the initramfs: no root is mounted there";
            return Err(Error::usage(Text::from(Term::Mount).then(what)));
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

    /// Whether the boot is over; `any` tells whether events arrived since the last call.
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
            // Later signals belong to a shutdown, and must reach this process.
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

    /// Fails before the switch: names would not be valid later, and there is no place for the
    /// trace.
    fn in_root(&self, why: &str) -> Result<(), Error> {
        if self.entered.is_some() {
            return Ok(());
        }
        let message = format!("{why}, but the root has not been switched: nothing is written");
        Err(Error::new(ErrorKind::System, message))
    }

    /// Queries systemd for the state of the unit.
    fn ask(&mut self) -> Result<(), Error> {
        let Some(unit) = &self.until.unit else { return Ok(()) };
        // The same test as sd_booted(3).
        if !Path::new("/run/systemd/system").exists() {
            // systemd may not have started yet, or not be the init.
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
            // The data read until then are worth keeping.
            UnitState::Failed => {
                tracing::warn!("{unit} has failed to start: the recording goes on without it");
                self.until.unit = None;
                self.until.idle.get_or_insert(IDLE);
            }
            // Early in a boot systemd does not answer.
            UnitState::Other | UnitState::Unknown(_) => {}
        }
        Ok(())
    }
}

/// Notifies the process that started this one, and detaches from it.
fn tell_ready() -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::io("standard input", &error);
    // The starter moves `/dev` to the new root as soon as it is notified.
    let null = File::open("/dev/null").map_err(failed)?;
    rustix::io::write(stdio::stdin(), b"\n").map_err(|error| failed(error.into()))?;
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
