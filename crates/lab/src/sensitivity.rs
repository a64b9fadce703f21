//! How far the results of an experiment depend on its assumptions: each of these is varied, and each
//! claim is looked at again.
//!
//! A claim compares two cells. There is one for each published speed-up, one for each pair of cells
//! that the experiment's [`Ranking`](crate::experiment::Ranking) compares, and each
//! [`Claim`](crate::experiment::Claim) of the file.
//!
//! # Example
//!
//! ```
//! use seekless_lab::{builtin, sensitivity};
//!
//! let text = builtin::text("dirpref").unwrap();
//! let all = sensitivity::variations(text, "dirpref.toml")?;
//! assert_eq!(all[0].name, "as in the file");
//! assert!(all.iter().any(|variation| variation.name == "calls, halved"));
//! # Ok::<(), seekless_lab::LabError>(())
//! ```

mod comparison;
mod vary;

pub use comparison::{ComparedPhase, Comparison, comparisons};
pub use vary::{Variation, variations};

use crate::LabError;
use crate::cells::{Agreement, Cell, agreement, cells};
use crate::experiment::Experiment;
use crate::plan::{Wanted, runs};
use crate::run::{Run, RunId};
use serde::Serialize;

/// The runs that claims need, with as many seeds as are wanted or the experiment has.
///
/// # Errors
/// [`LabError::Unknown`] for more than [`crate::plan::MOST_RUNS`].
pub fn needed(
    experiment: &Experiment,
    claims: &[Comparison],
    seeds: Option<u64>,
) -> Result<Vec<RunId>, LabError> {
    let mut ids = runs(experiment, &Wanted { seeds, ..Wanted::default() })?;
    ids.retain(|id| claims.iter().any(|claim| claim.less.is_of(id) || claim.more.is_of(id)));
    Ok(ids)
}

/// A variation, and how many claims hold under it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct VariationRow {
    /// Its name.
    pub variation: String,
    /// Claims that hold.
    pub holds: usize,
    /// All claims.
    pub of: usize,
    /// How the speed-ups agree with those published; of experiments that have published ones.
    pub agreement: Option<Agreement>,
    /// The geometric mean of measured over published seconds.
    pub times: Option<f64>,
}

/// A claim, and how it fares under all variations.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClaimRow {
    /// The sentence.
    pub claim: String,
    /// The quotient as published.
    pub published: Option<f64>,
    /// The quotient of the cell with more over the one with less, as the file has it.
    pub ratio: f64,
    /// Its least value under all variations.
    pub least: f64,
    /// Its greatest value.
    pub greatest: f64,
    /// Variations under which the claim does not hold.
    pub fails: Vec<String>,
}

/// The results of all variations.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sensitivity {
    /// The experiment's name.
    pub experiment: String,
    /// The version of the engine that measured.
    pub version: &'static str,
    /// A row for each claim.
    pub claims: Vec<ClaimRow>,
    /// A row for each variation, the first of which is the file as it is.
    pub variations: Vec<VariationRow>,
}

/// Sets the runs of all variations against each other. `measured` has the variations in order, the
/// file as it is first.
///
/// # Panics
/// When there is none, or a run that a claim needs is missing.
#[must_use]
pub fn sensitivity(claims: &[Comparison], measured: &[(Variation, Vec<Run>)]) -> Sensitivity {
    let all: Vec<Vec<Cell>> =
        measured.iter().map(|(variation, runs)| cells(&variation.experiment, runs)).collect();
    let rows = claims.iter().map(|claim| {
        let ratios: Vec<f64> = all.iter().map(|cells| claim.ratio(cells)).collect();
        let fails = measured.iter().zip(&ratios).filter(|(_, ratio)| !claim.holds(**ratio));
        ClaimRow {
            claim: claim.says.clone(),
            published: claim.published,
            ratio: ratios[0],
            least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            greatest: ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            fails: fails.map(|((variation, _), _)| variation.name.clone()).collect(),
        }
    });
    let variations = measured.iter().zip(&all).map(|((variation, _), cells)| VariationRow {
        variation: variation.name.clone(),
        holds: claims.iter().filter(|claim| claim.holds(claim.ratio(cells))).count(),
        of: claims.len(),
        agreement: agreement(cells),
        times: times(cells),
    });
    Sensitivity {
        experiment: measured[0].0.experiment.name.clone(),
        version: crate::run::VERSION,
        claims: rows.collect(),
        variations: variations.collect(),
    }
}

/// The geometric mean of measured over published seconds.
fn times(cells: &[Cell]) -> Option<f64> {
    let quotients = cells.iter().flat_map(|cell| {
        let published = cell.published.as_ref();
        let old = published.and_then(|p| p.old_s).filter(|_| cell.sides.len() > 1);
        let new = published.and_then(|p| p.new_s);
        let of = |side: Option<&crate::cells::Side>, theirs: Option<f64>| {
            Some(side?.seconds / theirs.filter(|theirs| *theirs > 0.0)?)
        };
        [of(cell.sides.first(), old), of(cell.sides.last(), new)]
    });
    let logarithms: Vec<f64> = quotients.flatten().map(f64::ln).collect();
    let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
    (!logarithms.is_empty()).then(|| mean.exp())
}
