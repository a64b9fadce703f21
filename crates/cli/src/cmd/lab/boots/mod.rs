//! `seekless lab run` of boots: uses file systems of the running kernel, and needs root.

mod boot;
mod images;
mod keep;
mod show;

use super::go::LabRunArgs;
use crate::args::Global;
use crate::failure::{Failure, Kind};
use crate::progress;
use boot::BootTrace;
use images::Images;
use keep::BootResults;
use seekless_compose::traces;
use seekless_lab::boots::outcome::{Boot, BootId, wanted};
use seekless_lab::boots::system::InstalledSystem;
use seekless_lab::boots::{BootExperiment, BootMachine, State};
use seekless_lab::builtin;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::borrow::Cow;
use std::path::Path;
use std::process::ExitCode;

/// Maximum length of a list of packages, and of a trace, decompressed.
const UNPACKED_MAX: usize = 1 << 30;

/// An experiment, with the files that it names.
struct Subject {
    text: String,
    experiment: BootExperiment,
    system: InstalledSystem,
    trace: BootTrace,
    digest: String,
}

impl Subject {
    fn new(text: &str, name: &str) -> Result<Self, Failure> {
        let experiment = BootExperiment::parse(text, name).map_err(seekless_lab::LabError::from)?;
        let system = read(&experiment.system, builtin::system(&experiment.system))?;
        let about = |error: &dyn std::fmt::Display, what: &str| {
            Failure::new(Kind::Corrupt, format!("{what}: {error}"))
        };
        let parsed = std::str::from_utf8(&system).map_err(|error| about(&error, "system"))?;
        let parsed =
            parsed.parse::<InstalledSystem>().map_err(|error| about(&error, &experiment.system))?;
        let trace = read(&experiment.trace, builtin::boot_trace(&experiment.trace))?;
        let digest = experiment.digest([text.as_bytes(), &system, &trace]);
        let events = traces::parse(&*trace, Path::new(&experiment.trace))?;
        let trace = BootTrace::new(trace, events);
        Ok(Self { text: text.into(), experiment, system: parsed, trace, digest })
    }
}

/// Contents of a built-in name or of a file, decompressed if it is zstd.
fn read(name: &str, built_in: Option<&'static [u8]>) -> Result<Vec<u8>, Failure> {
    let bytes: Cow<'_, [u8]> = match built_in {
        Some(bytes) => bytes.into(),
        None => std::fs::read(name).map_err(|error| Failure::io(name, &error))?.into(),
    };
    if !bytes.starts_with(&ZSTD) {
        return Ok(bytes.into_owned());
    }
    let unpacked = zstd::bulk::decompress(&bytes, UNPACKED_MAX);
    unpacked.map_err(|error| Failure::new(Kind::Corrupt, format!("{name}: {error}")))
}

/// Magic number of zstd (RFC 8878, 3.1.1).
const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

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
        let first = subject.experiment.seeds[0];
        subject.experiment.seeds = (first..first.saturating_add(seeds)).collect();
    }
    if let Some(repetitions) = args.repetitions {
        subject.experiment.repetitions = repetitions;
    }
    let ids = wanted(&subject.experiment, &args.only);
    if ids.is_empty() {
        return Err(Failure::usage(format!("no boot is called {}", args.only.join(" "))));
    }
    // Before anything is mounted: a signal during setup must find its handler.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.map_err(|error| Failure::io("signals", &error))?;
    let mut kept = BootResults::open(args.output.as_deref(), &subject)?;
    let open: Vec<BootId> = ids.into_iter().filter(|id| !kept.has(id)).collect();
    let bar = progress::count(global, open.len() as u64);
    let done = measure(&subject, &open, &mut signals, &mut |boot| {
        bar.inc(1);
        kept.keep(boot)
    });
    bar.finish_and_clear();
    let boots = kept.all();
    // Completed boots are shown even if others failed.
    if done.is_ok() || !boots.is_empty() {
        show::results(&subject.experiment, boots, global);
    }
    done.map(|()| ExitCode::SUCCESS)
}

/// Measures the boots of `open`; the boots of a state share one image.
fn measure(
    subject: &Subject,
    open: &[BootId],
    signals: &mut Signals,
    keep: &mut dyn FnMut(Boot) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for machine in &subject.experiment.machines {
        for &seed in &subject.experiment.seeds {
            let of_it: Vec<&BootId> =
                open.iter().filter(|id| id.machine == machine.name && id.seed == seed).collect();
            if !of_it.is_empty() {
                let failed = |failure: Failure| failure.about(&machine.name);
                all_states(subject, machine, seed, &of_it, signals, keep).map_err(failed)?;
            }
        }
    }
    Ok(())
}

fn all_states(
    subject: &Subject,
    machine: &BootMachine,
    seed: u64,
    ids: &[&BootId],
    signals: &mut Signals,
    keep: &mut dyn FnMut(Boot) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut images = Images::new(subject, machine, seed)?;
    // In the order in which the images are made from each other.
    let states =
        [State::Fresh, State::Aged, State::ReaddirOrder, State::ProfileOrder, State::Optimized];
    for state in states {
        let of_state: Vec<&&BootId> = ids.iter().filter(|id| id.state == state).collect();
        if of_state.is_empty() {
            continue;
        }
        let image = images.of(state, signals)?;
        for id in of_state {
            let counted = boot::measure(&subject.trace, machine, &image, id.prefetched, signals)?;
            keep(counted.told(subject, id))?;
        }
    }
    Ok(())
}
