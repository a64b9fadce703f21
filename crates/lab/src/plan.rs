//! Which runs an experiment consists of, and which of them are wanted.

use crate::LabError;
use crate::experiment::Experiment;
use crate::run::RunId;

/// One of several parts that an experiment is divided into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// Which part, from 1.
    pub number: usize,
    /// Of how many.
    pub of: usize,
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is not a part of a whole (try 1/4)");
        let (number, of) = text.split_once('/').ok_or_else(bad)?;
        let shard =
            Self { number: number.parse().map_err(|_| bad())?, of: of.parse().map_err(|_| bad())? };
        if (1..=shard.of).contains(&shard.number) { Ok(shard) } else { Err(bad()) }
    }
}

/// What is wanted of an experiment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Only cells of which each name is a part: a system, a discipline, a
    /// workload, or several of them as `first/normal`. All where there is none.
    pub only: Vec<String>,
    /// Seeds, from the experiment's first on; as many as it has when not given.
    pub seeds: Option<u64>,
    /// Repetitions of each seed; as many as it says when not given.
    pub repetitions: Option<u64>,
    /// Only a part of the runs.
    pub shard: Option<Shard>,
}

/// The runs of an experiment that are wanted. Runs that are set against each
/// other, of one cell under all policies, are in the same shard.
///
/// # Errors
/// [`LabError::Unknown`] for an `only` that no run answers to.
pub fn runs(experiment: &Experiment, wanted: &Wanted) -> Result<Vec<RunId>, LabError> {
    let cells = cells(experiment, wanted);
    if let Some(stray) = wanted.only.iter().find(|only| !cells.iter().any(|c| answers(c, only))) {
        let mut names: Vec<String> =
            cells.iter().map(|cell| format!("{}/{}", cell.system, cell.discipline)).collect();
        names.dedup();
        return Err(LabError::Unknown(format!(
            "{} has no cell '{stray}' (there are: {})",
            experiment.name,
            names.join(", ")
        )));
    }
    let shard = wanted.shard.unwrap_or(Shard { number: 1, of: 1 });
    Ok(cells
        .into_iter()
        .filter(|cell| wanted.only.is_empty() || wanted.only.iter().any(|o| answers(cell, o)))
        .enumerate()
        .filter(|(at, _)| at % shard.of == shard.number - 1)
        .flat_map(|(_, cell)| {
            let of = |policy: &crate::quantity::PolicyName| RunId {
                policy: policy.0.clone(),
                ..cell.clone()
            };
            experiment.policies.iter().map(of).collect::<Vec<_>>()
        })
        .collect())
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
fn cells(experiment: &Experiment, wanted: &Wanted) -> Vec<RunId> {
    let mut cells = Vec::new();
    for (seed, repetition) in turns(experiment, wanted) {
        for workload in &experiment.workloads {
            for system in &experiment.systems {
                for discipline in workload.disciplines.as_ref().unwrap_or(&experiment.disciplines) {
                    cells.push(RunId {
                        workload: workload.name.clone(),
                        system: system.name.clone(),
                        discipline: discipline.0.name().into(),
                        policy: String::new(),
                        seed,
                        repetition,
                    });
                }
            }
        }
    }
    cells
}

fn answers(cell: &RunId, only: &str) -> bool {
    let is =
        |part: &str| [&cell.workload, &cell.system, &cell.discipline].iter().any(|n| *n == part);
    only.split('/').all(is)
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
