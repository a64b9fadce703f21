//! Which runs an experiment consists of, and which of them are wanted.

use crate::LabError;
use crate::experiment::{Experiment, System, Workload};
use crate::run::RunId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One of several parts that an experiment is divided into.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Shard {
    /// Which part, from 1.
    pub number: usize,
    /// Of how many.
    pub of: usize,
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is not a valid shard (try 1/4)");
        let (number, of) = text.split_once('/').ok_or_else(bad)?;
        let shard =
            Self { number: number.parse().map_err(|_| bad())?, of: of.parse().map_err(|_| bad())? };
        if (1..=shard.of).contains(&shard.number) { Ok(shard) } else { Err(bad()) }
    }
}

impl TryFrom<String> for Shard {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> Self {
        shard.to_string()
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// Most runs of an experiment, or of the selection of it.
pub const MOST_RUNS: usize = 100_000;

/// The selection of an experiment's runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wanted {
    /// Only runs to which one of these answers: names of a workload, a system,
    /// a discipline, a phase or a policy, or several of them as `first/normal`.
    /// All where there is none.
    pub only: Vec<String>,
    /// Seeds, from the experiment's first on; as many as it has when not given.
    pub seeds: Option<u64>,
    /// Repetitions of each seed; as many as it says when not given.
    pub repetitions: Option<u64>,
    /// Only a part of the runs.
    pub shard: Option<Shard>,
}

/// As `part 2/4 of first/normal, 5 seeds`.
impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shard {
            Some(shard) => write!(f, "part {shard}")?,
            None => f.write_str("the experiment")?,
        }
        let mut of = Vec::new();
        if !self.only.is_empty() {
            of.push(self.only.join(" "));
        }
        let counts = [(self.seeds, "seed"), (self.repetitions, "repetition")];
        for (count, of_each) in counts {
            let plural = if count == Some(1) { "" } else { "s" };
            of.extend(count.map(|count| format!("{count} {of_each}{plural}")));
        }
        match of.is_empty() {
            true => Ok(()),
            false => write!(f, " of {}", of.join(", ")),
        }
    }
}

/// Runs that are compared under several policies.
struct RunGroup<'a> {
    workload: &'a Workload,
    system: &'a str,
    discipline: &'static str,
    /// Those that are wanted.
    policies: Vec<&'a str>,
}

impl RunGroup<'_> {
    /// Whether each name of `only` is that of something else of the run under a
    /// policy.
    fn answers(&self, policy: &str, only: &str) -> bool {
        let names = [&[&*self.workload.name][..], &[self.system], &[self.discipline], &[policy]];
        let all: Vec<&[&str]> = names.into_iter().chain([self.workload.phases()]).collect();
        fits(&only.split('/').collect::<Vec<_>>(), &all)
    }
}

/// Whether each part is in a list of its own.
fn fits(parts: &[&str], lists: &[&[&str]]) -> bool {
    let Some((part, rest)) = parts.split_first() else { return true };
    (0..lists.len()).any(|at| {
        let others = || [&lists[..at], &lists[at + 1..]].concat();
        lists[at].contains(part) && fits(rest, &others())
    })
}

/// How many runs an experiment has.
pub(crate) fn count(experiment: &Experiment) -> usize {
    let under = |workload: &Workload| {
        let systems = workload.systems_of(experiment).count();
        let disciplines = workload.disciplines_of(experiment).len();
        let policies = workload.policies_of(experiment).len();
        systems * disciplines * policies
    };
    let cells = experiment.workloads.iter().map(under).fold(0, usize::saturating_add);
    let repetitions = usize::try_from(experiment.repetitions).unwrap_or(usize::MAX);
    [experiment.seeds.len(), repetitions].into_iter().fold(cells, usize::saturating_mul)
}

/// The runs of an experiment that are wanted. Runs that are set against each
/// other, of one cell under all policies, are in the same shard.
///
/// # Errors
/// [`LabError::Unknown`] for an `only` that no run answers to, and for more
/// than [`MOST_RUNS`].
pub fn runs(experiment: &Experiment, wanted: &Wanted) -> Result<Vec<RunId>, LabError> {
    let mut cells = cells(experiment);
    check_only(experiment, &cells, &wanted.only)?;
    for cell in &mut cells {
        let answers = |policy: &str| wanted.only.iter().any(|only| cell.answers(policy, only));
        let is = |policy: &&str| wanted.only.is_empty() || answers(policy);
        cell.policies = cell.policies.iter().copied().filter(is).collect();
    }
    cells.retain(|cell| !cell.policies.is_empty());
    let turns = turns(experiment, wanted);
    let policies: usize = cells.iter().map(|cell| cell.policies.len()).sum();
    let runs = policies * turns.len();
    if runs > MOST_RUNS {
        let what = format!("{runs} runs of {} are more than {MOST_RUNS}", experiment.name);
        return Err(LabError::Unknown(what));
    }
    let shard = wanted.shard.unwrap_or(Shard { number: 1, of: 1 });
    let all = turns.iter().flat_map(|turn| cells.iter().map(move |cell| (turn, cell)));
    let ours = all.enumerate().filter(|(at, _)| at % shard.of == shard.number - 1);
    Ok(ours.flat_map(|(_, (turn, cell))| ids(cell, *turn)).collect())
}

/// A cell's runs with a seed and a repetition.
fn ids<'a>(
    cell: &'a RunGroup<'_>,
    (seed, repetition): (u64, u64),
) -> impl Iterator<Item = RunId> + 'a {
    cell.policies.iter().map(move |policy| RunId {
        workload: cell.workload.name.clone(),
        system: cell.system.into(),
        discipline: cell.discipline.into(),
        policy: (*policy).into(),
        seed,
        repetition,
    })
}

fn check_only(
    experiment: &Experiment,
    cells: &[RunGroup<'_>],
    only: &[String],
) -> Result<(), LabError> {
    let none = |only: &&String| {
        let is =
            |cell: &RunGroup<'_>| cell.policies.iter().any(|policy| cell.answers(policy, only));
        !cells.iter().any(is)
    };
    let Some(stray) = only.iter().find(none) else { return Ok(()) };
    let mut names: Vec<String> =
        cells.iter().map(|cell| format!("{}/{}", cell.system, cell.discipline)).collect();
    names.dedup();
    Err(LabError::Unknown(format!(
        "{} has no cell '{stray}' (available: {})",
        experiment.name,
        names.join(", ")
    )))
}

/// All seeds, each with all repetitions.
fn turns(experiment: &Experiment, wanted: &Wanted) -> Vec<(u64, u64)> {
    let first = experiment.seeds.first().copied().unwrap_or(1);
    let seeds: Vec<u64> = match wanted.seeds {
        Some(count) => (first..first.saturating_add(count)).collect(),
        None => experiment.seeds.clone(),
    };
    let repetitions = wanted.repetitions.unwrap_or(experiment.repetitions);
    seeds.iter().flat_map(|&seed| (0..repetitions).map(move |n| (seed, n))).collect()
}

/// Every combination but the policies.
fn cells(experiment: &Experiment) -> Vec<RunGroup<'_>> {
    let mut cells = Vec::new();
    for workload in &experiment.workloads {
        for System { name: system, .. } in workload.systems_of(experiment) {
            for discipline in workload.disciplines_of(experiment) {
                let discipline = discipline.0.name();
                let policies = workload.policies_of(experiment);
                let policies = policies.iter().map(|policy| &*policy.0).collect();
                cells.push(RunGroup { workload, system, discipline, policies });
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;

    fn wanted(only: &[&str], shard: Option<&str>) -> Wanted {
        Wanted {
            only: only.iter().map(ToString::to_string).collect(),
            shard: shard.map(|shard| shard.parse().unwrap()),
            ..Wanted::default()
        }
    }

    #[test]
    fn shards_divide_the_runs() {
        let dirpref = builtin::experiment("dirpref").unwrap();
        let all = runs(&dirpref, &wanted(&[], None)).unwrap();
        assert_eq!(all.len(), 16, "two systems, four disciplines, two policies");
        let mut parts = Vec::new();
        for shard in ["1/3", "2/3", "3/3"] {
            let part = runs(&dirpref, &wanted(&[], Some(shard))).unwrap();
            assert!(part.len().is_multiple_of(2), "both policies of a cell");
            parts.extend(part);
        }
        parts.sort_by_key(ToString::to_string);
        let mut sorted = all;
        sorted.sort_by_key(ToString::to_string);
        assert_eq!(parts, sorted);
        for wrong in ["0/3", "4/3", "3", "a/b", "1/0"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn cells_are_chosen_by_their_names() {
        let dirpref = builtin::experiment("dirpref").unwrap();
        let count = |only: &[&str]| runs(&dirpref, &wanted(only, None)).unwrap().len();
        assert_eq!(count(&["first/normal"]), 2);
        assert_eq!(count(&["first"]), 8);
        assert_eq!(count(&["first/sync", "softdep"]), 6);
        // As the tables have it: with the phase, and with the policy.
        assert_eq!(count(&["ports/first/normal/untar"]), 2);
        assert_eq!(count(&["ports/first/normal/untar/orlov"]), 1);
        assert_eq!(count(&["rm"]), 16);
        assert_eq!(count(&["orlov"]), 8);
        assert_eq!(count(&["first/orlov", "second/sync"]), 6);
        for stray in ["first/first", "untar/rm", "", "first/", "ports/second/first"] {
            assert!(runs(&dirpref, &wanted(&[stray], None)).is_err(), "{stray}");
        }
        let many = Wanted { seeds: Some(1000), repetitions: Some(1000), ..Wanted::default() };
        let error = runs(&dirpref, &many).unwrap_err().to_string();
        assert!(error.contains("16000000 runs"), "{error}");
        let error = runs(&dirpref, &wanted(&["third"], None)).unwrap_err().to_string();
        assert!(error.contains("no cell 'third'") && error.contains("first/normal"), "{error}");
        let seeds = Wanted { seeds: Some(3), ..Wanted::default() };
        assert_eq!(runs(&dirpref, &seeds).unwrap().len(), 48);
        let twice = runs(&dirpref, &Wanted { repetitions: Some(2), ..seeds }).unwrap();
        assert_eq!(twice.len(), 96);
        let names: std::collections::HashSet<_> = twice.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), 96);
        assert!(
            names.contains("ports/first/sync/orlov/2")
                && names.contains("ports/first/sync/orlov/2/1")
        );
    }
}
