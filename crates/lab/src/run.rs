//! One run and its measurements.

use crate::LabError;
use crate::disk::{DiskTally, Log};
use crate::experiment::{Experiment, System, Workload};
use crate::machine::{Machine, Reading, Setup};
use crate::repetition::Chance;
use crate::seekplot::SeekPlot;
use crate::workload::Measured;
use seekless_cache::Discipline;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

/// The version of the measuring engine, and a hash of the sources that affect figures where they
/// were at hand when it was built; results of different ones must not be mixed.
pub const VERSION: &str = env!("SEEKLESS_ENGINE");

/// Which run of an experiment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RunId {
    /// The workload.
    pub workload: String,
    /// On which system.
    pub system: String,
    /// Under which update discipline.
    pub discipline: String,
    /// Under which policy for directories.
    pub policy: String,
    /// With which seed.
    pub seed: u64,
    /// Which repetition, from 0.
    #[serde(default)]
    pub repetition: u64,
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, system, discipline, policy, seed, repetition } = self;
        write!(f, "{workload}/{system}/{discipline}/{policy}/{seed}")?;
        if *repetition > 0 { write!(f, "/{repetition}") } else { Ok(()) }
    }
}

/// The counters of a phase.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// The drive's requests.
    #[serde(flatten)]
    pub disk: DiskTally,
    /// Nanoseconds that the processor worked.
    pub cpu_ns: u64,
    /// Writes with changes rolled back.
    pub rolled_back_writes: u64,
    /// Times that a full graph of changes let a caller sleep.
    pub max_limit_hit: u64,
    /// Times that the syncer was asked to hurry.
    pub rush_requests: u64,
}

/// A phase of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Phase {
    /// Its name.
    pub phase: String,
    /// Virtual seconds until the commands of the phase were over.
    pub seconds: f64,
    /// The counters when all its changes were on the disk.
    pub counts: Counts,
    /// When and where its requests were.
    pub plot: SeekPlot,
}

/// A run that is over.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The experiment's name.
    pub experiment: String,
    /// A hash of the experiment's inputs.
    pub digest: String,
    /// The version that measured it.
    pub version: String,
    /// Which run.
    #[serde(flatten)]
    pub id: RunId,
    /// Its phases, in order.
    pub phases: Vec<Phase>,
}

/// A hash over an experiment's file and the drives it names.
#[must_use]
pub fn digest(text: &str, experiment: &Experiment) -> String {
    let mut hash = Sha256::new();
    hash.update(text);
    for system in &experiment.systems {
        hash.update(seekless_model::preset::text(&system.drive.0).unwrap_or_default());
    }
    let bytes = hash.finalize();
    bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The system and workload that a run names.
fn parts<'a>(
    experiment: &'a Experiment,
    id: &RunId,
) -> Option<(&'a System, &'a Workload, Discipline)> {
    let system = experiment.systems.iter().find(|system| system.name == id.system)?;
    let workload = experiment.workloads.iter().find(|w| w.name == id.workload)?;
    Some((system, workload, id.discipline.parse().ok()?))
}

/// Does a run. `log` gets a line for each request.
///
/// # Errors
/// [`LabError::Unknown`] for a run the experiment does not have;
/// [`LabError::FileSystem`] when the file system fails; [`LabError::Log`] when
/// all was done, but not written down.
pub fn perform(
    experiment: &Experiment,
    digest: &str,
    id: &RunId,
    log: Option<Log>,
) -> Result<Run, LabError> {
    let unknown = || LabError::Unknown(format!("{} has no run {id}", experiment.name));
    let (system, workload, discipline) = parts(experiment, id).ok_or_else(unknown)?;
    let failed = |source| LabError::FileSystem { run: id.to_string(), source };
    let chance = Chance::of(id.seed, id.repetition);
    let setup = Setup { policy: &id.policy, discipline, chance, workload };
    let mut machine = Machine::new(system, &setup, log).map_err(failed)?;
    let measured = workload.perform(&mut machine, id.seed).map_err(failed)?;
    let disks = machine.close().map_err(failed)?;
    disks.iter().try_for_each(|disk| disk.end_log()).map_err(LabError::Log)?;
    Ok(Run {
        experiment: experiment.name.clone(),
        digest: digest.into(),
        version: VERSION.into(),
        id: id.clone(),
        phases: measured.into_iter().map(phase).collect(),
    })
}

fn phase((name, before, after, plot): Measured) -> Phase {
    Phase {
        phase: name.into(),
        seconds: (after.now - before.now) as f64 / 1e9,
        counts: counts(&before, &after),
        plot,
    }
}

fn counts(before: &Reading, after: &Reading) -> Counts {
    let (was, is) = (&before.cache, &after.cache);
    Counts {
        disk: after.tally - before.tally,
        cpu_ns: after.cpu - before.cpu,
        rolled_back_writes: is.rolled_back_writes - was.rolled_back_writes,
        max_limit_hit: is.max_limit_hit - was.max_limit_hit,
        rush_requests: is.rush_requests - was.rush_requests,
    }
}
