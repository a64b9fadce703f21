//! The end of a recording: by a program, a unit of systemd, a boot or a signal.

use super::boot::Boot;
use seekless_fs::term::{Term, Text};
use seekless_host::program;
use seekless_images::{Error, ErrorKind};
use signal_hook::iterator::Signals;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Interval of queries of a unit's state.
const UNIT_INTERVAL: Duration = Duration::from_millis(200);

/// Time that a program has to end after a signal.
const GRACE: Duration = Duration::from_secs(5);

/// The subject whose end ends a recording.
pub enum Subject {
    /// A program started for the recording.
    Program(Child),
    /// A process that existed before.
    Process(u32),
    /// A unit of systemd, until it is active.
    Unit(Unit),
    /// A whole boot, from before the switch of the root.
    Boot(Box<Boot>),
    /// None: only a signal ends the recording.
    Nobody,
}

/// A unit to wait for.
pub struct Unit {
    name: String,
    /// Time of the last query.
    asked: Instant,
    /// The processes of the queries.
    helpers: Vec<u32>,
}

/// The reason for the end of a recording.
pub enum End {
    /// The program ended.
    Exit(ExitStatus),
    /// The awaited event has happened.
    Done,
    /// A signal arrived.
    Signal(i32),
}

impl Subject {
    /// A unit to wait for.
    pub fn unit(name: &str) -> Self {
        Self::Unit(Unit { name: name.into(), asked: Instant::now(), helpers: Vec::new() })
    }

    /// Processes started to learn whether it is over.
    pub fn helpers(&self) -> &[u32] {
        match self {
            Self::Unit(unit) => &unit.helpers,
            Self::Boot(boot) => &boot.helpers,
            _ => &[],
        }
    }

    /// Whether it is over; `any` tells whether events arrived since the last call.
    ///
    /// # Errors
    /// `ErrorKind::System`.
    pub fn poll(&mut self, signals: &mut Signals, any: bool) -> Result<Option<End>, Error> {
        let signal = signals.pending().next();
        if let Self::Boot(boot) = self {
            return boot.poll(signal, any);
        }
        if let Some(signal) = signal {
            return Ok(Some(End::Signal(signal)));
        }
        Ok(match self {
            Self::Program(child) => {
                let status = child.try_wait().map_err(|error| Error::io("waiting", &error))?;
                status.map(End::Exit)
            }
            Self::Process(pid) => (!program::is_alive(*pid)).then_some(End::Done),
            Self::Unit(unit) if unit.asked.elapsed() >= UNIT_INTERVAL => {
                unit.asked = Instant::now();
                unit.is_active()?.then_some(End::Done)
            }
            Self::Unit(..) | Self::Boot(_) | Self::Nobody => None,
        })
    }

    /// Forwards a signal to the program, and waits for it to end.
    pub fn end(&mut self, signal: i32) {
        let Self::Program(child) = self else { return };
        let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let named = rustix::process::Signal::from_named_raw(signal);
        if let (Some(pid), Some(signal)) = (pid, named) {
            // The program may be gone, or have had the same signal from the terminal.
            let _ = rustix::process::kill_process(pid, signal);
        }
        let since = Instant::now();
        while since.elapsed() < GRACE && matches!(child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        if matches!(child.try_wait(), Ok(None)) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The state of a unit.
pub(crate) enum UnitState {
    Active,
    Failed,
    /// It may still become active.
    Other,
    /// systemd cannot be queried, with the reason.
    Unknown(String),
}

impl Unit {
    /// Whether it is active; an error if it has failed, or if there is no systemd.
    fn is_active(&mut self) -> Result<bool, Error> {
        let (state, helper) = unit_state(&self.name)?;
        self.helpers.push(helper);
        let failed = |message| Err(Error::new(ErrorKind::System, message));
        match state {
            UnitState::Active => Ok(true),
            UnitState::Other => Ok(false),
            UnitState::Failed => failed(format!("{} has failed to start", self.name)),
            UnitState::Unknown(why) => failed(format!("systemctl is-active {}: {why}", self.name)),
        }
    }
}

/// Queries systemd for a unit. Returns the state and the process of the query.
pub(crate) fn unit_state(unit: &str) -> Result<(UnitState, u32), Error> {
    let failed = |error| {
        let subject = Text::from("systemctl (a unit to wait for needs systemd; ");
        Error::io_of(subject.then(Term::Mount).then(" records without it)"), &error)
    };
    let mut command = Command::new("systemctl");
    command.args(["is-active", "--", unit]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(failed)?;
    let helper = child.id();
    let output = child.wait_with_output().map_err(failed)?;
    let state = match output.stdout.trim_ascii() {
        b"active" => UnitState::Active,
        b"failed" => UnitState::Failed,
        // Nothing on standard output: systemd itself cannot be queried.
        b"" => UnitState::Unknown(String::from_utf8_lossy(output.stderr.trim_ascii()).into_owned()),
        _ => UnitState::Other,
    };
    Ok((state, helper))
}
