//! Times of boots, compared with published ones.

use super::{BootExperiment, BootMachine, PublishedBoot, State};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;

/// Which boot of an experiment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct BootId {
    /// On which machine.
    pub machine: String,
    /// How its files came to lie where they do.
    pub state: State,
    /// Whether all that it reads was fetched first.
    pub prefetched: bool,
    /// With which seed.
    pub seed: u64,
    /// Which repetition, from 0.
    pub repetition: u64,
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, state, prefetched, seed, repetition } = self;
        let prefetched = if *prefetched { "+prefetch" } else { "" };
        write!(f, "{machine}/{state}{prefetched}/{seed}/{repetition}")
    }
}

/// A boot that is over.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Boot {
    /// The experiment's name.
    pub experiment: String,
    /// A hash of the experiment's inputs.
    pub digest: String,
    /// The version that measured it.
    pub version: String,
    /// The kernel whose file system it was.
    pub kernel: String,
    /// Which boot.
    #[serde(flatten)]
    pub id: BootId,
    /// Nanoseconds from its first event to its last, on the disk's clock.
    pub boot_ns: u64,
    /// Nanoseconds of it in which the recorded boot had pauses.
    pub think_ns: u64,
    /// Nanoseconds for which the disk had something to do.
    pub busy_ns: u64,
    /// Requests.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Requests that do not begin where the one before ended.
    pub seeks: u64,
    /// Bytes between them, in all.
    pub seek_bytes: u64,
    /// Events of the trace that could not be done.
    pub failed: u64,
}

/// All boots of an experiment whose names have every one of the given parts.
#[must_use]
pub fn wanted(experiment: &BootExperiment, only: &[String]) -> Vec<BootId> {
    let mut ids = Vec::new();
    for machine in &experiment.machines {
        let plain = machine.states.iter().map(|state| (*state, false));
        let prefetched = machine.prefetched.iter().map(|state| (*state, true));
        for (state, prefetched) in plain.chain(prefetched) {
            for &seed in &experiment.seeds {
                let ids_of = (0..experiment.repetitions).map(|repetition| BootId {
                    machine: machine.name.clone(),
                    state,
                    prefetched,
                    seed,
                    repetition,
                });
                ids.extend(ids_of);
            }
        }
    }
    ids.retain(|id| only.is_empty() || only.iter().any(|only| id.is(only)));
    ids
}

impl BootId {
    /// Whether it answers to the name of a machine, a state, or both.
    fn is(&self, name: &str) -> bool {
        let whole = self.label();
        name.split('/')
            .all(|part| part == self.machine || part == self.state.name() || part == whole)
    }

    /// The state, as tables name it.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}{}", self.state, if self.prefetched { "+prefetch" } else { "" })
    }
}

/// The boots of one state on one machine.
#[derive(Clone, Debug)]
pub struct BootCell {
    /// The machine.
    pub machine: String,
    /// The state.
    pub state: State,
    /// Whether all that they read was fetched first.
    pub prefetched: bool,
    /// How many.
    pub boots: usize,
    /// The shortest, the median and the longest, in seconds.
    pub boot_s: [f64; 3],
    /// The median of their waits for the disk, in seconds.
    pub io_s: f64,
    /// The same as a share of the aged system's wait on this machine.
    pub io_of_aged: Option<f64>,
    /// Medians of requests, seeks and bytes.
    pub reads: u64,
    /// Those that do not begin where the one before ended.
    pub seeks: u64,
    /// Bytes between them, in all.
    pub seek_bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Published measurement of the state, on the first machine.
    pub published: Option<PublishedBoot>,
    /// Published waits for reads, as a share of the aged system's.
    pub published_io_of_aged: Option<f64>,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

impl Boot {
    fn io_ns(&self) -> u64 {
        debug_assert!(self.boot_ns >= self.think_ns, "pauses are part of the boot");
        self.boot_ns - self.think_ns
    }
}

/// The states with boots, in the experiment's order.
#[must_use]
pub fn cells(experiment: &BootExperiment, boots: &[Boot]) -> Vec<BootCell> {
    let mut cells: Vec<BootCell> = Vec::new();
    for machine in &experiment.machines {
        let plain = machine.states.iter().map(|state| (*state, false));
        let states = plain.chain(machine.prefetched.iter().map(|state| (*state, true)));
        cells.extend(states.filter_map(|state| cell(experiment, machine, state, boots)));
    }
    let aged: Vec<(String, f64)> = cells
        .iter()
        .filter(|cell| cell.state == State::Aged && !cell.prefetched)
        .map(|cell| (cell.machine.clone(), cell.io_s))
        .collect();
    for cell in &mut cells {
        let of = aged.iter().find(|(machine, _)| *machine == cell.machine);
        cell.io_of_aged = of.filter(|(_, io)| *io > 0.0).map(|(_, io)| cell.io_s / io);
    }
    cells
}

fn cell(
    experiment: &BootExperiment,
    machine: &BootMachine,
    (state, prefetched): (State, bool),
    boots: &[Boot],
) -> Option<BootCell> {
    let of_it: Vec<&Boot> = boots
        .iter()
        .filter(|boot| {
            (&boot.id.machine, boot.id.state, boot.id.prefetched)
                == (&machine.name, state, prefetched)
        })
        .collect();
    let all = |get: fn(&Boot) -> u64| of_it.iter().map(|boot| get(boot)).collect::<Vec<u64>>();
    let times = all(|boot| boot.boot_ns);
    let (shortest, longest) = (*times.iter().min()?, *times.iter().max()?);
    let is_first = experiment.machines.first().is_some_and(|first| first.name == machine.name);
    let published = |state| {
        let mut all = experiment.published.iter();
        all.find(|one| is_first && !prefetched && one.state == state).cloned()
    };
    let io = |state| published(state).and_then(|one| one.io_s);
    Some(BootCell {
        machine: machine.name.clone(),
        state,
        prefetched,
        boots: of_it.len(),
        boot_s: [shortest, median(times), longest].map(seconds),
        io_s: seconds(median(all(Boot::io_ns))),
        io_of_aged: None,
        reads: median(all(|boot| boot.reads)),
        seeks: median(all(|boot| boot.seeks)),
        seek_bytes: median(all(|boot| boot.seek_bytes)),
        read_bytes: median(all(|boot| boot.read_bytes)),
        published: published(state),
        published_io_of_aged: io(state).zip(io(State::Aged)).map(|(io, aged)| io / aged),
    })
}

/// The cells for programs.
#[must_use]
pub fn as_json(experiment: &BootExperiment, cells: &[BootCell], boots: &[Boot]) -> Value {
    let cell = |cell: &BootCell| {
        json!({
            "machine": cell.machine,
            "state": cell.state,
            "prefetched": cell.prefetched,
            "boots": cell.boots,
            "boot_s": cell.boot_s[1],
            "boot_range_s": [cell.boot_s[0], cell.boot_s[2]],
            "io_s": cell.io_s,
            "io_of_aged": cell.io_of_aged,
            "reads": cell.reads,
            "seeks": cell.seeks,
            "seek_bytes": cell.seek_bytes,
            "read_bytes": cell.read_bytes,
            "published": cell.published.as_ref().map(|one| {
                json!({
                    "boot_s": one.boot_s,
                    "io_s": one.io_s,
                    "io_of_aged": cell.published_io_of_aged,
                })
            }),
        })
    };
    json!({
        "experiment": experiment.name,
        "kernel": boots.first().map(|boot| &boot.kernel),
        "cells": cells.iter().map(cell).collect::<Vec<_>>(),
    })
}

/// The steps between published states whose boots all differ, and whether ours go the
/// same way: each with the two states, and the ratios of the boots' times, theirs and
/// ours.
#[must_use]
pub fn steps(cells: &[BootCell]) -> Vec<(State, State, f64, f64)> {
    let told: Vec<&BootCell> = cells.iter().filter(|cell| cell.published.is_some()).collect();
    let mut steps = Vec::new();
    for (at, from) in told.iter().enumerate() {
        for to in &told[at + 1..] {
            if let (Some(a), Some(b)) = (&from.published, &to.published)
                && (a.boot_range_s.1 < b.boot_range_s.0 || b.boot_range_s.1 < a.boot_range_s.0)
            {
                let ours = to.boot_s[1] / from.boot_s[1];
                steps.push((from.state, to.state, b.boot_s / a.boot_s, ours));
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;

    fn experiment() -> BootExperiment {
        BootExperiment::parse(builtin::text("boots").unwrap(), "boots.toml").unwrap()
    }

    fn boot(id: BootId, io_s: u64) -> Boot {
        Boot {
            experiment: "boots".into(),
            digest: String::new(),
            version: String::new(),
            kernel: "6".into(),
            id,
            boot_ns: (io_s + 10) * 1_000_000_000,
            think_ns: 10_000_000_000,
            busy_ns: io_s * 1_000_000_000,
            reads: 100 * io_s,
            read_bytes: 4096,
            seeks: 10,
            seek_bytes: 1 << 20,
            failed: 0,
        }
    }

    #[test]
    fn boots_are_named_by_machine_and_state() {
        let experiment = experiment();
        let all = wanted(&experiment, &[]);
        let first = &experiment.machines[0].name;
        let of = |only: &str| wanted(&experiment, &[only.into()]).len() as u64;
        assert_eq!(of("no-such"), 0);
        assert_eq!(of(&format!("{first}/fresh")), experiment.repetitions);
        let prefetched = of(&format!("{first}/aged+prefetch"));
        assert_eq!(prefetched, experiment.repetitions);
        assert!(of("aged") > 2 * prefetched && of("aged") < all.len() as u64);
    }

    #[test]
    fn medians_and_shares_of_the_aged_system() {
        let experiment = experiment();
        let first = &experiment.machines[0].name;
        let boots: Vec<Boot> = wanted(&experiment, std::slice::from_ref(first))
            .into_iter()
            .filter(|id| !id.prefetched)
            .map(|id| {
                let io_s = if id.state == State::Aged { 20 } else { 4 + id.repetition };
                boot(id, io_s)
            })
            .collect();
        let cells = cells(&experiment, &boots);
        let find = |state| cells.iter().find(|cell| cell.state == state).unwrap();
        assert_eq!(find(State::Aged).io_of_aged, Some(1.0));
        let fresh = find(State::Fresh);
        assert_eq!((fresh.boot_s, fresh.io_s), ([14.0, 15.0, 16.0], 5.0));
        assert_eq!(fresh.io_of_aged, Some(0.25));
        assert!(fresh.published.is_some());
        let found = steps(&cells);
        let overlaps = (State::Fresh, State::ReaddirOrder);
        assert!(found.iter().all(|(from, to, ..)| (*from, *to) != overlaps));
        let (.., theirs, ours) =
            found.iter().find(|(from, ..)| *from == State::Fresh).copied().unwrap();
        assert!(theirs > 1.0 && ours == 30.0 / 15.0);
        let json = as_json(&experiment, &cells, &boots);
        assert_eq!(json["cells"].as_array().unwrap().len(), cells.len());
    }
}
