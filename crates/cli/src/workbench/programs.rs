//! Runs programs on a mounted file system; they end with this process.

use super::POLL;
use crate::failure::Failure;
use seekless_host::program;
use signal_hook::iterator::Signals;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

/// Time for a script to end after a signal.
const GRACE: Duration = Duration::from_secs(1);

/// A command with its arguments. A single word that names no program is a line for the shell.
pub(super) fn command(script: &[OsString], dir: &Path) -> Command {
    match script {
        [line] if !is_program(line, dir) => {
            let mut command = Command::new("sh");
            command.arg("-ec").arg(line);
            command
        }
        [] => Command::new("true"),
        [program, args @ ..] => {
            // A path is relative to the directory in which seekless was started.
            let whole = Path::new(program).canonicalize().ok().filter(|path| path.is_file());
            let mut command = match whole {
                Some(path) if program.as_encoded_bytes().contains(&b'/') => Command::new(path),
                _ => Command::new(program),
            };
            command.args(args);
            command
        }
    }
}

fn is_program(word: &OsStr, dir: &Path) -> bool {
    if word.as_encoded_bytes().contains(&b'/') {
        return Path::new(word).is_file() || dir.join(word).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(word).is_file())
}

/// Runs a program to its end, or until a signal arrives and has ended it. Processes that it started
/// end with it.
pub(super) fn run_program(
    command: &mut Command,
    signals: &mut Signals,
) -> Result<(ExitStatus, Option<i32>), Failure> {
    program::contained(|| watch_program(command, signals))
}

fn watch_program(
    command: &mut Command,
    signals: &mut Signals,
) -> Result<(ExitStatus, Option<i32>), Failure> {
    program::tie(command);
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error| Failure::io(&name, &error);
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

/// The script's exit code; 128 plus the signal's number if a signal killed it, as in a shell.
pub(super) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
