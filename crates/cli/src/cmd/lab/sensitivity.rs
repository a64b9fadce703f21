//! `seekless lab sensitivity`.

use super::go::measure;
use super::keep::Keeper;
use super::show::aligned;
use super::subject::{Subject, text_of};
use crate::args::Global;
use crate::failure::Failure;
use crate::progress;
use crate::say::say;
use clap::Args;
use seekless_lab::boots::BootExperiment;
use seekless_lab::plan::Wanted;
use seekless_lab::run::{Run, RunId};
use seekless_lab::sensitivity::{
    Comparison, Sensitivity, Variation, comparisons, needed, sensitivity, variations,
};
use seekless_lab::store::missing;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args, Debug)]
pub(super) struct SensitivityArgs {
    /// Built-in experiment, or path of a file
    experiment: String,
    /// Examine only claims about these cells, selected by system, discipline,
    /// workload, phase or policy, or by several of them, as in first/normal
    #[arg(long, value_name = "CELL", num_args = 1..)]
    only: Vec<String>,
    /// Vary only these assumptions, selected by their names in the file
    #[arg(long, value_name = "NAME", num_args = 1..)]
    vary: Vec<String>,
    /// Number of seeds, starting with the first one of the experiment
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// Number of parallel runs [default: number of processors]
    #[arg(short, long, value_name = "J", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Save each completed run below DIR, in a directory for each variation;
    /// runs already saved there are not repeated
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &SensitivityArgs, global: &Global) -> Result<ExitCode, Failure> {
    let text = text_of(&args.experiment)?;
    if BootExperiment::is_one(&text) {
        let why = "experiments with boots have no assumptions to vary";
        return Err(Failure::usage(format!("{}: {why}", args.experiment)));
    }
    let all = selected(variations(&text, &args.experiment)?, args)?;
    let claims = claims(&all[0], args)?;
    let mut work = Vec::new();
    for variation in all {
        let ids = needed(&variation.experiment, &claims, args.seeds)?;
        work.push((variation, ids));
    }
    let measured = measured(args, global, work)?;
    let found = sensitivity(&claims, &measured);
    if global.json {
        say!("{}", serde_json::json!(found));
    } else {
        say!("{}", in_words(&found).trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

/// The file as it is, and the variations of the assumptions that `--vary` names.
fn selected(all: Vec<Variation>, args: &SensitivityArgs) -> Result<Vec<Variation>, Failure> {
    let assumptions = &all[0].experiment.assumptions;
    if assumptions.is_empty() {
        let why = "the file has no [[assumption]] to vary";
        return Err(Failure::usage(format!("{}: {why}", args.experiment)));
    }
    let names: Vec<&str> = assumptions.iter().map(|one| &*one.name).collect();
    if let Some(other) = args.vary.iter().find(|name| !names.contains(&&***name)) {
        let known = names.join(", ");
        return Err(Failure::usage(format!("unknown assumption '{other}' (available: {known})")));
    }
    let wanted = |variation: &Variation| {
        let of = |name: &String| variation.assumption.as_ref() == Some(name);
        args.vary.is_empty() || variation.assumption.is_none() || args.vary.iter().any(of)
    };
    Ok(all.into_iter().filter(wanted).collect())
}

/// The claims about the cells that `--only` names.
fn claims(variation: &Variation, args: &SensitivityArgs) -> Result<Vec<Comparison>, Failure> {
    let mut claims = comparisons(&variation.experiment);
    let name = &args.experiment;
    if claims.is_empty() {
        let why = "the file has no claims: no published speed-ups, ranking or [[claim]]";
        return Err(Failure::usage(format!("{name}: {why}")));
    }
    if let Some(other) =
        args.only.iter().find(|only| !claims.iter().any(|claim| claim.answers(only)))
    {
        return Err(Failure::usage(format!("{name} has no claim about '{other}'")));
    }
    let wanted = |claim: &Comparison| args.only.iter().any(|only| claim.answers(only));
    claims.retain(|claim| args.only.is_empty() || wanted(claim));
    Ok(claims)
}

/// Performs the runs of all variations.
fn measured(
    args: &SensitivityArgs,
    global: &Global,
    work: Vec<(Variation, Vec<RunId>)>,
) -> Result<Vec<(Variation, Vec<Run>)>, Failure> {
    let mut open = Vec::new();
    for (variation, ids) in work {
        let subject = Subject::new(variation.text.clone(), &args.experiment)?;
        let wanted = Wanted { only: args.only.clone(), seeds: args.seeds, ..Wanted::default() };
        let keep =
            |dir: &Path| Keeper::open(&dir.join(directory(&variation.name)), &subject, &wanted);
        let keeper = args.output.as_deref().map(keep).transpose()?;
        open.push((variation, subject, ids, keeper));
    }
    let have = |keeper: &Option<Keeper>| keeper.as_ref().map_or(&[][..], |one| one.have()).to_vec();
    let runs = open.iter().map(|(.., ids, keeper)| missing(ids, &have(keeper)).len() as u64).sum();
    let bar = progress::count(global, runs);
    let mut all = Vec::new();
    for (variation, subject, ids, keeper) in open {
        let (runs, failure) = measure(args.jobs, &subject, &ids, keeper, &bar)?;
        if let Some(failure) = failure {
            bar.finish_and_clear();
            return Err(failure.about(variation.name));
        }
        all.push((variation, runs));
    }
    bar.finish_and_clear();
    Ok(all)
}

/// The directory of a variation's results: its name with characters that names of experiments may
/// have.
fn directory(variation: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() || "._".contains(c) { c } else { '-' };
    variation.chars().map(fit).collect()
}

fn number(value: f64) -> String {
    if value.is_finite() { format!("{value:.2}") } else { "-".into() }
}

fn in_words(found: &Sensitivity) -> String {
    let header = ["changed in the file", "claims hold", "within 2x", "Spearman", "times"];
    let mut lines = vec![header.map(String::from)];
    for row in &found.variations {
        let agreement = row.agreement.as_ref();
        let within = agreement.map(|a| format!("{} of {}", a.within_factor_2, a.cells));
        let rank = agreement.and_then(|a| a.spearman).map(|rank| format!("{rank:.3}"));
        lines.push([
            row.variation.clone(),
            format!("{} of {}", row.holds, row.of),
            within.unwrap_or("-".into()),
            rank.unwrap_or("-".into()),
            row.times.map_or("-".into(), number),
        ]);
    }
    let mut text = aligned(&lines);
    text.push_str("\nTimes: geometric mean of measured over published seconds.\n\n");
    let header = ["claim", "published", "ratio", "least", "greatest", "holds in"];
    let mut lines = vec![header.map(String::from)];
    let all = found.variations.len();
    for row in &found.claims {
        lines.push([
            row.claim.clone(),
            row.published.map_or("-".into(), number),
            number(row.ratio),
            number(row.least),
            number(row.greatest),
            format!("{} of {all}", all - row.fails.len()),
        ]);
    }
    text.push_str(&aligned(&lines));
    for row in found.claims.iter().filter(|row| !row.fails.is_empty()) {
        text.push_str(&format!("\n{} does not hold with: {}", row.claim, row.fails.join("; ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_have_plain_names() {
        assert_eq!(directory("first drive, raptor-74"), "first-drive--raptor-74");
        assert_eq!(directory("../x"), "..-x");
    }
}
