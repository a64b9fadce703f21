use crate::failure::{Failure, Kind};
use seekless_host::program;
use signal_hook::iterator::Signals;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How often a unit's state is asked for.
const UNIT_INTERVAL: Duration = Duration::from_millis(200);

/// How long a program may take to end after a signal.
const GRACE: Duration = Duration::from_secs(5);

/// What ends a recording.
pub(crate) enum Subject {
    /// A program that was started for it.
    Program(Child),
    /// A process that was there before.
    Process(u32),
    /// A unit of systemd that is to become active.
    Unit(String, Instant),
    /// Only a signal.
    Nobody,
}

/// Why a recording ended.
pub(crate) enum End {
    /// The program did.
    Exit(ExitStatus),
    /// What was waited for has happened.
    Done,
    /// A signal came.
    Signal(i32),
}

impl Subject {
    /// Whether it is over.
    pub(crate) fn poll(&mut self, signals: &mut Signals) -> Result<Option<End>, Failure> {
        if let Some(signal) = signals.pending().next() {
            return Ok(Some(End::Signal(signal)));
        }
        Ok(match self {
            Self::Program(child) => {
                let status = child.try_wait().map_err(|error| Failure::io("waiting", &error))?;
                status.map(End::Exit)
            }
            Self::Process(pid) => (!program::is_alive(*pid)).then_some(End::Done),
            Self::Unit(name, asked) if asked.elapsed() >= UNIT_INTERVAL => {
                *asked = Instant::now();
                is_active(name)?.then_some(End::Done)
            }
            Self::Unit(..) | Self::Nobody => None,
        })
    }

    /// Hands a signal on to the program, and waits for it to end.
    pub(crate) fn end(&mut self, signal: i32) {
        let Self::Program(child) = self else { return };
        let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let named = rustix::process::Signal::from_named_raw(signal);
        if let (Some(pid), Some(signal)) = (pid, named) {
            // It may be gone, or have had the same signal from the terminal.
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

/// Whether a unit is active; an error when it has failed, or there is no systemd.
fn is_active(unit: &str) -> Result<bool, Failure> {
    let output = Command::new("systemctl").args(["is-active", "--", unit]).output();
    let output = output.map_err(|error| {
        Failure::io("systemctl (--boot-unit needs systemd; --mount records without it)", &error)
    })?;
    match output.stdout.trim_ascii() {
        b"active" => Ok(true),
        b"failed" => Err(Failure::new(Kind::System, format!("{unit} has failed to start"))),
        // Nothing on standard output: systemd itself cannot be asked.
        b"" => {
            let why = String::from_utf8_lossy(output.stderr.trim_ascii()).into_owned();
            Err(Failure::new(Kind::System, format!("systemctl is-active {unit}: {why}")))
        }
        _ => Ok(false),
    }
}
