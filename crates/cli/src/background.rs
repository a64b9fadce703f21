//! Serves a mount in the background: the command starts itself again, and returns when that process
//! reports that the directory is mounted, or with that process's exit code.
//!
//! The server's standard input is a pipe to the command, for this report. Until then the server
//! shares the command's standard output and error, where its messages appear.

use crate::failure::{Failure, Kind};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};

/// The argument that makes a process the server.
pub(crate) const SERVER: &str = "background-server";

/// Starts a server with the arguments of this process, and waits until it has mounted the
/// directory or has ended.
///
/// # Errors
/// [`Kind::System`] when the server cannot be started, or was killed by a signal.
pub(crate) fn start() -> Result<ExitCode, Failure> {
    let about = |error: io::Error| Failure::io("starting the server", &error);
    let (mut told, tells) = io::pipe().map_err(about)?;
    // Dropping the command closes our end of the pipe from the server.
    let mut server = Command::new(std::env::current_exe().map_err(about)?)
        .args(arguments(std::env::args_os().skip(1)))
        .stdin(tells)
        .spawn()
        .map_err(about)?;
    match told.read(&mut [0]) {
        Ok(1) => Ok(ExitCode::SUCCESS),
        _ => ended(server.wait().map_err(about)?),
    }
}

/// Arguments of a mount with the server's own one added, before any `--`.
fn arguments(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = given.collect();
    let at = all.iter().position(|argument| argument == OsStr::new("--")).unwrap_or(all.len());
    all.insert(at, format!("--{SERVER}").into());
    all
}

/// Result of the command when the server ended before it mounted the directory.
fn ended(status: ExitStatus) -> Result<ExitCode, Failure> {
    let code = status.code().map(u8::try_from);
    let Some(Ok(code)) = code else {
        let signal = status.signal().unwrap_or_default();
        let why = format!("the server was ended by signal {signal} before it had mounted");
        return Err(Failure::new(Kind::System, why));
    };
    Ok(ExitCode::from(code))
}

/// Reports to the starting command that the directory is mounted, and detaches from terminal and
/// working directory; from standard output and error too, unless something is printed at the end.
///
/// # Errors
/// I/O errors, such as a broken pipe when the command is gone: the caller then unmounts.
pub(crate) fn mounted(keeps_output: bool) -> io::Result<()> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    rustix::io::write(rustix::stdio::stdin(), &[1])?;
    rustix::stdio::dup2_stdin(&nothing)?;
    if !keeps_output {
        rustix::stdio::dup2_stdout(&nothing)?;
        rustix::stdio::dup2_stderr(&nothing)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_that_it_is_one_before_the_operands() {
        let given = |all: &[&str]| arguments(all.iter().map(OsString::from));
        assert_eq!(given(&["mount", "a", "b"]), ["mount", "a", "b", "--background-server"]);
        let with = given(&["mount", "-v", "--", "--", "b"]);
        assert_eq!(with, ["mount", "-v", "--background-server", "--", "--", "b"]);
    }
}
