//! `seekless crash merge`: merges the parts of a campaign.

use super::results::{print_results, sum, unit_json};
use crate::args::Global;
use crate::failure::Failure;
use crate::gaps::refuse;
use crate::say::{say, warning};
use clap::Args;
use seekless_crash::UnitResult;
use seekless_crash::campaign::CampaignError;
use seekless_crash::explore::levels;
use seekless_crash::parts::{Gap, Merged, merge};
use seekless_crash::resume::StatePart;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Merge the results of the parts of a campaign
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless crash merge states1 states2 states3 states4
  seekless crash merge --partial states1 states2

The files are those of `crash run --shard I/N -o FILE`. The result is that of the
campaign without --shard. Missing and incomplete parts and parts that are there twice
are listed; then nothing is merged without --partial.

Exit codes: 0 if all states pass, 1 if any state fails or a part is not as it should
be, otherwise as for all commands.")]
pub(super) struct MergeArgs {
    /// Merge the parts that are there, even if others are missing or incomplete
    #[arg(long)]
    partial: bool,
    /// Files written by `crash run -o`
    #[arg(required = true, value_name = "FILE")]
    parts: Vec<PathBuf>,
}

pub(super) fn run(args: &MergeArgs, global: &Global) -> Result<ExitCode, Failure> {
    let read = args.parts.iter().map(|path| StatePart::read(path));
    let merged = read.collect::<Result<Vec<StatePart>, _>>().and_then(merge);
    let merged = merged.map_err(CampaignError::from)?;
    let gaps: Vec<String> = merged.gaps.iter().map(Gap::to_string).collect();
    if !args.partial && !gaps.is_empty() {
        return Ok(refuse(&gaps, global));
    }
    gaps.iter().for_each(|gap| warning!("{gap}"));
    if global.json {
        print_json(&merged, &gaps)
    } else {
        print(&merged)
    }
    let holds = merged.results.iter().all(|result| result.failing == 0);
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn print(merged: &Merged) {
    print_results(&merged.results);
    let (coverage, failing) = sum(&merged.results);
    let verdict = if failing == 0 { "all hold".into() } else { format!("{failing} do not hold") };
    let (workloads, states) = (merged.results.len(), coverage.states);
    say!("{}: {workloads} workloads, {states} states, {verdict}", merged.campaign);
    say!("epochs by coverage: {}; {} states not examined", levels(&coverage), coverage.left_out);
}

fn print_json(merged: &Merged, gaps: &[String]) {
    let unit = |result: &UnitResult| unit_json(result, json!(result.coverage));
    let (coverage, failing) = sum(&merged.results);
    let value = json!({
        "merged": true,
        "campaign": merged.campaign,
        "holds": failing == 0,
        "states": coverage.states,
        "failing": failing,
        "coverage": coverage,
        "gaps": gaps,
        "workloads": merged.results.iter().map(unit).collect::<Vec<_>>(),
    });
    say!("{value}");
}
