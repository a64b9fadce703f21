//! Runs programs that end with this process.

use seekless_host::program;
use seekless_images::Error;
use signal_hook::iterator::Signals;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Interval between checks of a process.
pub(super) const POLL: Duration = Duration::from_millis(10);

/// Time for a program to end after a signal.
const GRACE: Duration = Duration::from_secs(1);

/// Runs a program to its end, or until a signal arrives and has ended it. Processes that it started
/// end with it.
pub(super) fn run_to_end(
    command: &mut Command,
    signals: &mut Signals,
) -> Result<(ExitStatus, Option<i32>), Error> {
    program::contained(|| watch(command, signals))
}

fn watch(command: &mut Command, signals: &mut Signals) -> Result<(ExitStatus, Option<i32>), Error> {
    program::tie(command);
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error| Error::io(&name, &error);
    let mut child = command.spawn().map_err(failed)?;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok((status, signals.pending().next()));
        }
        if let Some(signal) = signals.pending().next() {
            return end(&mut child, signal).map(|status| (status, Some(signal))).map_err(failed);
        }
        std::thread::sleep(POLL);
    }
}

/// Passes a signal on, and kills the process after [`GRACE`]: the first process of a PID namespace
/// ignores signals that it has no handler for.
pub(super) fn end(child: &mut Child, signal: i32) -> io::Result<ExitStatus> {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, rustix::process::Signal::from_named_raw(signal)) {
        let _ = rustix::process::kill_process(pid, signal);
    }
    let since = Instant::now();
    while since.elapsed() < GRACE {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(POLL);
    }
    child.kill()?;
    child.wait()
}
