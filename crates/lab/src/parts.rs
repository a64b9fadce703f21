//! Runs that directories with parts of an experiment lack, by the selections that filled them.

use crate::LabError;
use crate::experiment::Experiment;
use crate::plan::{Shard, Wanted, runs};
use crate::run::{Run, RunId};
use std::collections::HashSet;
use std::fmt;

/// A directory of results.
pub struct Part {
    /// Its name in messages.
    pub place: String,
    /// The selections of runs that were requested there.
    pub selections: Vec<Wanted>,
    /// Why some of its files cannot be read.
    pub damaged: Vec<LabError>,
}

/// A difference between the runs that were requested and those in some directories.
#[derive(Debug)]
pub enum Gap {
    /// A shard of which no directory is.
    Missing(Wanted),
    /// Runs of a selection that are not there.
    CutShort {
        /// The selection.
        of: Wanted,
        /// The first of them.
        first: RunId,
        /// Their number, and that of all its runs.
        runs: (usize, usize),
    },
    /// A selection that two directories have.
    Twice {
        /// The selection.
        of: Wanted,
        /// The directories.
        places: (String, String),
    },
    /// A file that is not a run.
    Damaged(LabError),
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(of) => write!(f, "{of} is missing"),
            Self::CutShort { of, first, runs: (missing, all) } => {
                write!(
                    f,
                    "{of} is not complete: {missing} of {all} runs are missing, {first} first"
                )
            }
            Self::Twice { of, places: (one, other) } => {
                write!(f, "{of} is there twice: in {one} and in {other}")
            }
            Self::Damaged(error) => write!(f, "{error}"),
        }
    }
}

/// The gaps of several directories. `have` are the runs of all of them.
///
/// # Errors
/// As [`runs`].
pub fn gaps(experiment: &Experiment, parts: Vec<Part>, have: &[Run]) -> Result<Vec<Gap>, LabError> {
    let have: HashSet<String> = have.iter().map(|run| run.id.to_string()).collect();
    let absent = |of: &Wanted| -> Result<(Vec<RunId>, usize), LabError> {
        let wanted = runs(experiment, of)?;
        let all = wanted.len();
        Ok((wanted.into_iter().filter(|id| !have.contains(&id.to_string())).collect(), all))
    };
    let (mut found, mut damaged) = (Vec::new(), Vec::new());
    let mut known: Vec<(Wanted, String)> = Vec::new();
    for part in parts {
        damaged.extend(part.damaged.into_iter().map(Gap::Damaged));
        for of in part.selections {
            if let Some((_, place)) = known.iter().find(|(before, _)| *before == of) {
                found.push(Gap::Twice { of, places: (place.clone(), part.place.clone()) });
                continue;
            }
            let (missing, all) = absent(&of)?;
            if let Some(first) = missing.first() {
                let (first, runs) = (first.clone(), (missing.len(), all));
                found.push(Gap::CutShort { of: of.clone(), first, runs });
            }
            known.push((of, part.place.clone()));
        }
    }
    let mut expected: Vec<Wanted> = Vec::new();
    for (of, _) in &known {
        let Some(Shard { of: count, .. }) = of.shard else { continue };
        let shards = (1..=count).map(|number| Some(Shard { number, of: count }));
        for other in shards.map(|shard| Wanted { shard, ..of.clone() }) {
            if known.iter().all(|(known, _)| *known != other) && !expected.contains(&other) {
                expected.push(other);
            }
        }
    }
    for of in expected {
        if !absent(&of)?.0.is_empty() {
            found.push(Gap::Missing(of));
        }
    }
    found.extend(damaged);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;
    use crate::store::missing;

    fn experiment() -> Experiment {
        Experiment::parse(builtin::text("dirpref").unwrap(), "dirpref").unwrap()
    }

    fn of(shard: &str, seeds: Option<u64>) -> Wanted {
        Wanted { seeds, shard: Some(shard.parse().unwrap()), ..Wanted::default() }
    }

    fn part(place: &str, selections: &[Wanted]) -> Part {
        Part { place: place.into(), selections: selections.to_vec(), damaged: Vec::new() }
    }

    fn performed(experiment: &Experiment, selections: &[Wanted]) -> Vec<Run> {
        let mut all: Vec<Run> = Vec::new();
        for of in selections {
            let ids = missing(&runs(experiment, of).unwrap(), &all);
            all.extend(ids.into_iter().map(|id| Run {
                experiment: "e".into(),
                digest: "d".into(),
                version: "1".into(),
                id,
                phases: Vec::new(),
            }));
        }
        all
    }

    fn told(parts: Vec<Part>, have: &[Run]) -> Vec<String> {
        let found = gaps(&experiment(), parts, have).unwrap();
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn parts_that_are_whole_lack_nothing() {
        let experiment = experiment();
        let shards = ["1/3", "2/3", "3/3"].map(|shard| of(shard, None));
        let have = performed(&experiment, &shards);
        let parts = shards.iter().map(|of| part(&of.to_string(), std::slice::from_ref(of)));
        assert_eq!(told(parts.collect(), &have), [""; 0]);
        // Merged ones are parts like others.
        assert_eq!(told(vec![part("a", &shards[..2]), part("b", &shards[2..])], &have), [""; 0]);
        // All of it, and a part of it.
        let whole = [part("all", &[Wanted::default()]), part("b", &shards[..1])];
        assert_eq!(told(whole.into(), &have), [""; 0]);
    }

    #[test]
    fn what_is_lacking_is_named() {
        let experiment = experiment();
        let two = [of("1/3", None), of("3/3", None)];
        let mut have = performed(&experiment, &two);
        let parts = || vec![part("a", &two[..1]), part("b", &two[1..])];
        assert_eq!(told(parts(), &have), ["part 2/3 is missing"]);
        let lost = have.pop().unwrap();
        let last = runs(&experiment, &two[1]).unwrap().len();
        let cut =
            format!("part 3/3 is not complete: 1 of {last} runs are missing, {} first", lost.id);
        assert_eq!(told(parts(), &have), [cut.as_str(), "part 2/3 is missing"]);
        let all = performed(&experiment, &[Wanted::default()]);
        let twice = vec![part("a", &two[..1]), part("b", &two[..1])];
        assert_eq!(told(twice, &all), ["part 1/3 is there twice: in a and in b"]);
        // Parts with other seeds are parts of something else.
        let other = [of("1/2", Some(1)), of("2/2", Some(2))];
        let have = performed(&experiment, &other);
        let told = told(vec![part("a", &other[..1]), part("b", &other[1..])], &have);
        let wanted = "part 1/2 of 2 seeds is missing";
        assert!(told.contains(&wanted.to_string()), "{told:?}");
    }
}
