//! The results of a campaign whose states were divided among several runs.

use crate::campaign::UnitResult;
use crate::resume::{StateError, StatePart};
use std::collections::btree_map::{BTreeMap, Entry};
use std::fmt;
use std::path::PathBuf;

/// Something that parts lack to be a whole campaign, or have twice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Gap {
    /// A part of which no file is: its number, and that of all.
    Missing(u32, u32),
    /// A file without some of the workloads.
    CutShort {
        /// The file.
        path: PathBuf,
        /// Its workloads, and all.
        workloads: (usize, usize),
    },
    /// Two files of one part.
    Twice(PathBuf, PathBuf),
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(part, of) => write!(f, "part {part}/{of} is missing"),
            Self::CutShort { path, workloads: (there, all) } => {
                write!(f, "{}: only {there} of {all} workloads are complete", path.display())
            }
            Self::Twice(one, other) => {
                write!(f, "{} and {} are the same part", one.display(), other.display())
            }
        }
    }
}

/// The parts of a campaign together.
#[derive(Debug)]
pub struct Merged {
    /// The campaign, as one that is not divided.
    pub campaign: String,
    /// The workloads that it has.
    pub workloads: usize,
    /// The results of all parts, by workload.
    pub results: Vec<UnitResult>,
    /// Differences from a campaign that is not divided.
    pub gaps: Vec<Gap>,
}

/// Merges parts. Without gaps, the result is that of the campaign that is not divided.
///
/// # Errors
/// [`StateError::Other`] for parts of different campaigns, or of different versions of the program.
pub fn merge(parts: Vec<StatePart>) -> Result<Merged, StateError> {
    let mut merged =
        Merged { campaign: String::new(), workloads: 0, results: Vec::new(), gaps: Vec::new() };
    let mut known: BTreeMap<u32, StatePart> = BTreeMap::new();
    let mut of = 1;
    for part in parts {
        if known.is_empty() {
            (merged.campaign, merged.workloads) = (part.campaign.clone(), part.workloads);
            of = part.shard.1;
        } else if (&merged.campaign, of) != (&part.campaign, part.shard.1) {
            let found = format!("{}; {} parts", part.campaign, part.shard.1);
            return Err(StateError::Other { path: part.path, found });
        }
        let number = part.shard.0;
        if part.results.len() < part.workloads {
            let workloads = (part.results.len(), part.workloads);
            merged.gaps.push(Gap::CutShort { path: part.path.clone(), workloads });
        }
        match known.entry(number) {
            Entry::Occupied(mut before) => {
                let paths = (before.get().path.clone(), part.path.clone());
                merged.gaps.push(Gap::Twice(paths.0, paths.1));
                if before.get().results.len() < part.results.len() {
                    before.insert(part);
                }
            }
            Entry::Vacant(place) => drop(place.insert(part)),
        }
    }
    let missing = (1..=of).filter(|number| !known.contains_key(number));
    merged.gaps.extend(missing.map(|number| Gap::Missing(number, of)));
    let mut units: BTreeMap<String, Vec<UnitResult>> = BTreeMap::new();
    for result in known.into_values().flat_map(|part| part.results) {
        units.entry(result.workload.clone()).or_default().push(result);
    }
    merged.results = units.into_values().filter_map(together).collect();
    Ok(merged)
}

/// The result of a workload of which each part has some states. All parts draw the same states and
/// leave out those of the others.
fn together(parts: Vec<UnitResult>) -> Option<UnitResult> {
    let mut parts = parts.into_iter();
    let mut whole = parts.next()?;
    for part in parts {
        let all = whole.coverage.states + whole.coverage.left_out;
        debug_assert_eq!(all, part.coverage.states + part.coverage.left_out, "{}", part.workload);
        whole.coverage.states += part.coverage.states;
        whole.coverage.needs_y += part.coverage.needs_y;
        whole.coverage.left_out = all - whole.coverage.states;
        whole.failing += part.failing;
        for (code, count) in part.codes {
            *whole.codes.entry(code).or_default() += count;
        }
        let first = whole.failed_schedule.into_iter().chain(part.failed_schedule).min();
        whole.failed_schedule = first;
    }
    Some(whole)
}
