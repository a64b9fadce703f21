//! `seekless lab run` of boots: uses file systems of the running kernel, and needs root.

mod show;

use super::go::LabRunArgs;
use crate::args::Global;
use crate::failure::Failure;
use crate::modelled_disk::ModelledDisk;
use crate::progress;
use crate::source::temp_dir;
use seekless_boots::{BootResults, Measurement, Programs, Subject};
use seekless_images::{Error, ErrorKind};
use seekless_lab::boots::outcome::{BootId, wanted};
use seekless_serve::testbed::ServedDisk;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Refuses arguments that do not apply to boots.
fn check(args: &LabRunArgs) -> Result<(), Failure> {
    let given = [
        ("--jobs", args.jobs.is_some()),
        ("--shard", args.shard.is_some()),
        ("--io-log", args.io_log.is_some()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(Failure::usage(format!("{name} cannot be used with boots"))),
        None => Ok(()),
    }
}

/// Runs an experiment, or resumes it.
pub(super) fn run(text: &str, args: &LabRunArgs, global: &Global) -> Result<ExitCode, Failure> {
    check(args)?;
    let mut subject = Subject::new(text, &args.experiment)?;
    if let Some(seeds) = args.seeds {
        subject = subject.with_seeds(seeds);
    }
    if let Some(repetitions) = args.repetitions {
        subject = subject.with_repetitions(repetitions);
    }
    let ids = wanted(subject.experiment(), &args.only);
    if ids.is_empty() {
        return Err(Failure::usage(format!("no boot is called {}", args.only.join(" "))));
    }
    // Before anything is mounted: a signal during setup must find its handler.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.map_err(|error| Failure::io("signals", &error))?;
    let mut results = BootResults::open(args.output.as_deref(), &subject)?;
    let open: Vec<BootId> = ids.into_iter().filter(|id| !results.has(id)).collect();
    let bar = progress::count(global, open.len() as u64);
    let programs = Programs { disk: &modelled_disk, relayout: &optimize };
    let done = Measurement::new(&subject, &temp_dir(), programs).run(
        &open,
        &mut signals,
        &mut results,
        &mut || bar.inc(1),
    );
    bar.finish_and_clear();
    // Completed boots are shown even if others failed.
    if done.is_ok() || !results.all().is_empty() {
        show::results(subject.experiment(), results.all(), global);
    }
    done?;
    Ok(ExitCode::SUCCESS)
}

fn modelled_disk(model: &str, served: &ServedDisk<'_>) -> Result<Command, Error> {
    ModelledDisk { model, realtime: false, io_log: None }.command(served)
}

/// Runs the command itself, so that the measured layout is the one users get.
fn optimize(trace: &Path, from: &Path, to: &Path) -> Result<(), Error> {
    let program = std::env::current_exe().map_err(|error| Error::io("seekless", &error))?;
    let mut command = Command::new(program);
    command.args(["optimize", "--quiet", "--json", "--trace"]).arg(trace).arg(from);
    let output = command.arg("-o").arg(to).output();
    let output = output.map_err(|error| Error::io("seekless optimize", &error))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(Error::new(ErrorKind::System, format!("seekless optimize: {why}")))
        }
    }
}
