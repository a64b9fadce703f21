//! Runs compared with each other, and with published figures.

use crate::experiment::{Experiment, Published};
use crate::rank::spearman;
use crate::ranking;
use crate::run::{Counts, Phase, Run, RunId};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The mean of a phase over all seeds and repetitions, under one policy.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// The policy.
    pub policy: String,
    /// Virtual seconds.
    pub seconds: f64,
    /// The shortest and the longest of all runs.
    pub range_s: (f64, f64),
    /// How many seeds.
    pub seeds: usize,
    /// How many runs: seeds, each with its repetitions.
    pub runs: usize,
    /// Counts, rounded to whole ones.
    pub counts: Counts,
}

/// A phase of a workload on a system under a discipline, by policy.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The workload.
    pub workload: String,
    /// The system.
    pub system: String,
    /// The discipline.
    pub discipline: String,
    /// The phase.
    pub phase: String,
    /// In the order of the experiment's policies, as far as there are runs.
    pub sides: Vec<Side>,
    /// Published figures.
    pub published: Option<Published>,
}

/// The cells with runs, in the experiment's order.
#[must_use]
pub fn cells(experiment: &Experiment, runs: &[Run]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for workload in &experiment.workloads {
        for system in workload.systems_of(experiment) {
            for discipline in workload.disciplines_of(experiment) {
                for phase in workload.phases() {
                    let mut cell = Cell {
                        workload: workload.name.clone(),
                        system: system.name.clone(),
                        discipline: discipline.0.name().into(),
                        phase: (*phase).into(),
                        sides: Vec::new(),
                        published: None,
                    };
                    let policies = workload.policies_of(experiment).iter();
                    cell.sides = policies.filter_map(|policy| cell.side(&policy.0, runs)).collect();
                    cell.published = experiment.published.iter().find(|p| cell.is(p)).cloned();
                    if !cell.sides.is_empty() {
                        cells.push(cell);
                    }
                }
            }
        }
    }
    cells
}

fn mean(values: impl Iterator<Item = u64>, count: usize) -> u64 {
    let count = count.max(1) as u64;
    (values.sum::<u64>() + count / 2) / count
}

/// Every count is the mean of that count.
fn mean_counts(of: &[Counts]) -> Counts {
    let mean = |get: fn(&Counts) -> u64| mean(of.iter().map(get), of.len());
    Counts {
        disk: crate::disk::DiskTally {
            reads: mean(|c| c.disk.reads),
            read_bytes: mean(|c| c.disk.read_bytes),
            sync_writes: mean(|c| c.disk.sync_writes),
            async_writes: mean(|c| c.disk.async_writes),
            written_bytes: mean(|c| c.disk.written_bytes),
            seeks: mean(|c| c.disk.seeks),
            seek_bytes: mean(|c| c.disk.seek_bytes),
            busy_ns: mean(|c| c.disk.busy_ns),
        },
        cpu_ns: mean(|c| c.cpu_ns),
        rolled_back_writes: mean(|c| c.rolled_back_writes),
        max_limit_hit: mean(|c| c.max_limit_hit),
        rush_requests: mean(|c| c.rush_requests),
    }
}

impl Cell {
    fn is(&self, published: &Published) -> bool {
        (&*published.system, &*published.workload, &*published.phase)
            == (&*self.system, &*self.workload, &*self.phase)
            && published.discipline.0.name() == self.discipline
    }

    fn side(&self, policy: &str, runs: &[Run]) -> Option<Side> {
        let phases: Vec<_> = self.phases(policy, runs).collect();
        let seconds = || phases.iter().map(|(_, phase)| phase.seconds);
        let counts: Vec<Counts> = phases.iter().map(|(_, phase)| phase.counts).collect();
        let seeds: BTreeSet<u64> = phases.iter().map(|(id, _)| id.seed).collect();
        (!phases.is_empty()).then(|| Side {
            policy: policy.into(),
            seconds: seconds().sum::<f64>() / phases.len() as f64,
            range_s: (seconds().fold(f64::MAX, f64::min), seconds().fold(0.0, f64::max)),
            seeds: seeds.len(),
            runs: phases.len(),
            counts: mean_counts(&counts),
        })
    }

    /// Its phase in each of its runs under a policy.
    pub fn phases<'a>(
        &'a self,
        policy: &'a str,
        runs: &'a [Run],
    ) -> impl Iterator<Item = (&'a RunId, &'a Phase)> {
        let ours = runs.iter().filter(move |Run { id, .. }| {
            (&*id.workload, &*id.system, &*id.discipline, &*id.policy)
                == (&*self.workload, &*self.system, &*self.discipline, policy)
        });
        let phase = |run: &'a Run| run.phases.iter().find(|phase| phase.phase == self.phase);
        ours.filter_map(move |run| Some((&run.id, phase(run)?)))
    }

    /// The name that `--only` takes, and the phase.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}/{}/{}", self.workload, self.system, self.discipline, self.phase)
    }

    /// The first policy's seconds over the last one's, where there are two.
    #[must_use]
    pub fn speedup(&self) -> Option<f64> {
        let [old, .., new] = self.sides.as_slice() else { return None };
        Some(old.seconds / new.seconds)
    }

    /// The speed-up as published.
    #[must_use]
    pub fn published_speedup(&self) -> Option<f64> {
        self.published.as_ref()?.speedup
    }

    /// As JSON: `old_s`, `new_s` and `speedup` where there are two policies,
    /// `seconds` where there is one.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut cell = Map::new();
        let mut put = |key: &str, value: Value| cell.insert(key.into(), value);
        put("workload", json!(self.workload));
        put("system", json!(self.system));
        put("discipline", json!(self.discipline));
        put("phase", json!(self.phase));
        match self.sides.as_slice() {
            [old, .., new] => {
                put("old_s", json!(old.seconds));
                put("new_s", json!(new.seconds));
                put("speedup", json!(self.speedup()));
                put("old", side_json(old));
                put("new", side_json(new));
            }
            [only] => {
                put("seconds", json!(only.seconds));
                put("counts", side_json(only));
            }
            [] => {}
        }
        if let Some(published) = &self.published {
            for (key, value) in published.figures() {
                put(&format!("published_{key}"), value);
            }
        }
        Value::Object(cell)
    }
}

fn side_json(side: &Side) -> Value {
    let disk = &side.counts.disk;
    json!({
        "policy": side.policy,
        "seconds": side.seconds,
        "range_s": [side.range_s.0, side.range_s.1],
        "seeds": side.seeds,
        "runs": side.runs,
        "reads": disk.reads,
        "read_bytes": disk.read_bytes,
        "sync_writes": disk.sync_writes,
        "async_writes": disk.async_writes,
        "written_bytes": disk.written_bytes,
        "seeks": disk.seeks,
        "seek_bytes": disk.seek_bytes,
        "busy_s": disk.busy_ns as f64 / 1e9,
        "cpu_s": side.counts.cpu_ns as f64 / 1e9,
        "rolled_back_writes": side.counts.rolled_back_writes,
        "max_limit_hit": side.counts.max_limit_hit,
        "rush_requests": side.counts.rush_requests,
    })
}

impl Published {
    /// The figures there are, by key.
    fn figures(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let float = |value: Option<f64>| value.map(|value| json!(value));
        let count = |value: Option<u64>| value.map(|value| json!(value));
        [
            ("old_s", float(self.old_s)),
            ("new_s", float(self.new_s)),
            ("speedup", float(self.speedup)),
            ("sync_writes", count(self.sync_writes)),
            ("async_writes", count(self.async_writes)),
            ("requests", count(self.requests)),
            ("max_limit_hit", count(self.max_limit_hit)),
            ("rush_requests", count(self.rush_requests)),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
    }
}

/// How the speed-ups agree with those published.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Agreement {
    /// Cells with a speed-up, and one published.
    pub cells: usize,
    /// Of them, those where the new policy is faster.
    pub new_is_faster: usize,
    /// Of them, those within a factor of two of the published speed-up.
    pub within_factor_2: usize,
    /// Spearman's rank correlation of the two.
    pub spearman: Option<f64>,
}

/// `None` where nothing can be compared.
#[must_use]
pub fn agreement(cells: &[Cell]) -> Option<Agreement> {
    let pair = |cell: &Cell| Some((cell.speedup()?, cell.published_speedup()?));
    let pairs: Vec<(f64, f64)> = cells.iter().filter_map(pair).collect();
    let near = |(ours, theirs): &&(f64, f64)| (0.5..=2.0).contains(&(ours / theirs));
    (!pairs.is_empty()).then(|| Agreement {
        cells: pairs.len(),
        new_is_faster: pairs.iter().filter(|pair| pair.0 > 1.0).count(),
        within_factor_2: pairs.iter().filter(near).count(),
        spearman: spearman(&pairs),
    })
}

/// All cells and how they agree, as `--json` gives them.
#[must_use]
pub fn json(experiment: &Experiment, cells: &[Cell]) -> Value {
    json!({
        "experiment": experiment.name,
        "version": crate::run::VERSION,
        "cells": cells.iter().map(Cell::json).collect::<Vec<_>>(),
        "agreement": agreement(cells),
        "ranking": ranking::orders(experiment, cells),
    })
}

/// The columns of [`csv`] behind those that name a line.
const COLUMNS: [&str; 18] = [
    "seconds",
    "min_s",
    "max_s",
    "seeds",
    "runs",
    "reads",
    "read_bytes",
    "sync_writes",
    "async_writes",
    "written_bytes",
    "seeks",
    "seek_bytes",
    "busy_s",
    "cpu_s",
    "rolled_back_writes",
    "max_limit_hit",
    "rush_requests",
    "published_s",
];

/// A line for each cell and policy. Names are of letters, digits and dashes,
/// or are quoted.
#[must_use]
pub fn csv(cells: &[Cell]) -> String {
    let mut text = format!("workload,system,discipline,phase,policy,{}\n", COLUMNS.join(","));
    for cell in cells {
        for (at, side) in cell.sides.iter().enumerate() {
            let names = [&cell.workload, &cell.system, &cell.discipline, &cell.phase, &side.policy];
            let names: Vec<String> = names.into_iter().map(|name| quoted(name)).collect();
            let values: Vec<String> =
                values(cell, at, side).into_iter().map(|v| v.to_string()).collect();
            text.push_str(&format!("{},{}\n", names.join(","), values.join(",")));
        }
    }
    text
}

fn values(cell: &Cell, at: usize, side: &Side) -> Vec<String> {
    let (disk, counts) = (&side.counts.disk, &side.counts);
    let published = cell.published.as_ref();
    let published = match (cell.sides.len(), at) {
        (2.., 0) => published.and_then(|published| published.old_s),
        (many @ 2.., at) if at + 1 == many => published.and_then(|published| published.new_s),
        _ => None,
    };
    let seconds = [side.seconds, side.range_s.0, side.range_s.1].map(|s| format!("{s:.6}"));
    let numbers = [
        side.seeds as u64,
        side.runs as u64,
        disk.reads,
        disk.read_bytes,
        disk.sync_writes,
        disk.async_writes,
        disk.written_bytes,
        disk.seeks,
        disk.seek_bytes,
    ];
    let times = [disk.busy_ns, counts.cpu_ns].map(|ns| format!("{:.6}", ns as f64 / 1e9));
    let last = [counts.rolled_back_writes, counts.max_limit_hit, counts.rush_requests];
    let mut values = seconds.to_vec();
    values.extend(numbers.iter().map(u64::to_string));
    values.extend(times);
    values.extend(last.iter().map(u64::to_string));
    values.push(published.map(|s| s.to_string()).unwrap_or_default());
    values
}

/// A name as CSV has it.
pub(crate) fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    if name.chars().all(plain) { name.into() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
