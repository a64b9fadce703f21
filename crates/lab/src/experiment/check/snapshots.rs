//! Errors of workloads that take snapshots.

use crate::experiment::place::Fault;
use crate::experiment::{Experiment, System, Workload, WorkloadKind};
use seekless_cache::Discipline;

/// Upper bound of the snapshots that are there already: the last one of `FSMAXSNAP` (20) is taken.
const MOST_BEFORE: u32 = 19;

impl Workload {
    /// The error of the number of snapshots.
    pub(super) fn fault_of_snapshots(&self) -> Option<Fault> {
        let fault = |message: String| Some(Fault::of("snapshots", message));
        match (self.snapshots, self.kind == WorkloadKind::Snapshots) {
            (Some(before), true) if before > MOST_BEFORE => {
                fault(format!("{before} is not in the range 0 to {MOST_BEFORE}"))
            }
            (Some(_), true) | (None, false) => None,
            _ => fault("is allowed only for 'snapshots', which requires it".into()),
        }
    }

    /// The error of a system without snapshots, and of a discipline under which none are taken.
    pub(super) fn fault_of_snapshots_on(
        &self,
        system: &System,
        experiment: &Experiment,
    ) -> Option<Fault> {
        if self.kind != WorkloadKind::Snapshots {
            return None;
        }
        let kind = system.format.kind;
        if kind.known().snapshots.is_none() {
            let (family, name) = (kind.known().family, kind.name());
            let message =
                format!("needs snapshots, which {family} lacks: {} is {name}", system.name);
            return Some(Fault::of("kind", message));
        }
        let mut disciplines = self.disciplines_of(experiment).iter().map(|one| one.0);
        let other = disciplines.find(|&discipline| discipline != Discipline::SoftUpdates)?;
        let message = format!("'{}' has no snapshots, which need softdep", other.name());
        Some(Fault::of("disciplines", message))
    }
}
