//! Arguments and output that the subcommands share: extent and coverage of a search.

use super::policies::PolicyArgs;
use super::shard;
use crate::failure::Failure;
use crate::say::say;
use clap::Args;
use seekless_crash::campaign::lines;
use seekless_crash::explore::{Coverage, levels};
use seekless_crash::shrink::Reproducer;
use seekless_crash::{Extent, Search};
use serde_json::{Value, json};
use std::path::Path;

/// How much is looked at.
#[derive(Args, Debug, Clone)]
pub(super) struct SearchArgs {
    /// Examine all states of each epoch, up to the bound
    #[arg(long, conflicts_with = "sample")]
    exhaustive: bool,
    /// Examine N randomly chosen states of each workload
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    sample: Option<u64>,
    /// Maximum number of states per epoch; in larger epochs this many are chosen
    /// at random
    #[arg(long, value_name = "N", default_value = "4096",
          value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    bound: u64,
    /// Examine one part of the states; 1/4 to 4/4 cover all of them
    #[arg(long, value_name = "I/N", value_parser = shard, default_value = "1/1")]
    shard: (u32, u32),
    /// Random seed
    #[arg(long, value_name = "S", default_value = "1")]
    seed: u64,
}

impl SearchArgs {
    /// The seed of all random choices.
    pub(super) const fn seed(&self) -> u64 {
        self.seed
    }

    /// The search; `otherwise` is its extent by default.
    pub(super) fn search(&self, otherwise: Extent) -> Search {
        let extent = match self.sample {
            Some(count) => Extent::Sample(count),
            None if self.exhaustive => Extent::Exhaustive,
            None => otherwise,
        };
        Search { extent, bound: self.bound, shard: self.shard, ..Search::exhaustive(self.seed) }
    }
}

/// Prints the coverage as text.
pub(super) fn print_coverage(coverage: &Coverage, search: &Search) {
    let Coverage { states, left_out, .. } = coverage;
    say!(
        "coverage: {states} states; epochs by coverage: {}; at most {} states per epoch; \
         {left_out} states not examined (sample, shard)",
        levels(coverage),
        search.bound
    );
    if coverage.needs_y > 0 {
        say!(
            "{} states with a directory between two names need a repair that asks (needs-y); \
             they were judged after a full repair",
            coverage.needs_y
        );
    }
}

pub(super) fn coverage_json(coverage: &Coverage, search: &Search) -> Value {
    json!({
        "states": coverage.states,
        "needs_y": coverage.needs_y,
        "left_out": coverage.left_out,
        "epochs": coverage.epochs,
        "bound": search.bound,
    })
}

pub(super) fn print_reproducer(
    small: &Reproducer,
    discipline: &str,
    format: &str,
    policies: &PolicyArgs,
) {
    say!("\nSmallest failing workload found:\n");
    for line in small.script.to_string().lines() {
        say!("    {line}");
    }
    let crashed = small.crashed_in.as_deref().unwrap_or("before the first operation");
    say!("\nThe crash: {crashed}; steps 0 to {} of the log are on the disk.", small.before);
    say!("Later writes:");
    for line in &small.writes {
        say!("    {line}");
    }
    say!("Findings in this state:");
    for line in lines(&small.violations) {
        say!("    {line}");
    }
    say!(
        "\nTo reproduce it, save the workload above as script.txt and run:\n    seekless crash run --workload script.txt \
         --discipline {discipline} --format {format}{} --schedules 1 --exhaustive",
        policies.as_options()
    );
}

pub(super) fn reproducer_json(small: &Reproducer) -> Value {
    json!({
        "script": small.script.to_string(),
        "crashed": small.crashed_in,
        "steps_on_disk": small.before,
        "writes": small.writes,
        "violations": small.violations.iter().map(|violation| {
            json!({ "code": violation.code, "what": violation.what })
        }).collect::<Vec<_>>(),
    })
}

/// Writes a file, or replaces it if it exists and is not the workload.
pub(super) fn write_new(path: &Path, workload: &str, bytes: &[u8]) -> Result<(), Failure> {
    use std::io::Write;
    let output = seekless_images::output::Output::create(path, true, [workload])?;
    let mut file = output.file()?;
    file.write_all(bytes).map_err(|error| Failure::io(path.display(), &error))?;
    Ok(output.finish()?)
}
