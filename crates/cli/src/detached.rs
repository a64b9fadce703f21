//! Starts the recorder of a boot in the background.

use crate::failure::{Failure, Kind};
use seekless_host::{initramfs, program};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode, Stdio};

/// Starts this program again in the background with the same arguments, and waits until it records.
/// Its messages go to the kernel's log, which survives the switch of the root.
pub(crate) fn detach(keep_stdout: bool) -> Result<ExitCode, Failure> {
    let failed = |error| Failure::io("starting the recorder", &error);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    command.args(args).arg("--detached");
    initramfs::keep(&mut command);
    program::lead_session(&mut command);
    command.stdin(OwnedFd::from(theirs));
    if !keep_stdout {
        command.stdout(Stdio::null());
    }
    if let Ok(log) = File::options().write(true).open("/dev/kmsg") {
        command.stderr(log);
    }
    let mut child = command.spawn().map_err(failed)?;
    // Closes this process's copy of the recorder's end, so that a read returns 0 if the recorder
    // ends.
    drop(command);
    let mut ready = [0];
    let mut ours = ours;
    match ours.read(&mut ready).map_err(failed)? {
        0 => {
            let status = child.wait().map_err(failed)?;
            let message = format!("the recorder could not start ({status}): see the kernel's log");
            Err(Failure::new(Kind::System, message))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
