//! `seekless crash mutate`: measures how many dropped ordering constraints the search detects.

use super::policies::PolicyArgs;
use super::target;
use crate::args::Global;
use crate::failure::Failure;
use crate::progress;
use crate::say::say;
use clap::Args;
use seekless_crash::Target;
use seekless_crash::campaign::{CampaignError, Sequences, built_in};
use seekless_crash::mutation::{Fate, Mutant, Mutation};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Share of mutants that must be detected.
const WANTED: f64 = 0.95;

/// Drop one ordering constraint at a time, and check that a crash state reveals it
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless crash mutate --format ufs2 --mutants 200
  seekless crash mutate --format ufs1 --seed 7 --json

Each mutant is a built-in workload under soft updates in which one randomly chosen
ordering constraint between two changes is dropped. It is caught if a crash state
fails its checks. Counted separately are mutants that cannot cause new states on
the disk (equivalent: other constraints imply the same order, both changes are
written together, or the change was made again before it was written), and those
whose new states all pass (harmless: nothing depends on the constraint).

Exit codes: 0 if more than 95% were caught, 1 if fewer, 2 for wrong arguments.")]
pub(crate) struct MutateArgs {
    /// Format: ufs1, ufs2, ext2
    #[arg(long, short, value_name = "F")]
    format: String,
    /// Number of detectable mutants to try
    #[arg(long, short = 'n', value_name = "N", default_value = "100",
          value_parser = clap::value_parser!(u32).range(1..))]
    mutants: u32,
    /// Random seed
    #[arg(long, value_name = "S", default_value = "1")]
    seed: u64,
}

pub(crate) fn run(args: &MutateArgs, global: &Global) -> Result<ExitCode, Failure> {
    let target = target(&args.format, &PolicyArgs::default())?;
    let scripts = built_in("all", target.has(), Sequences { count: 0, seed: 0 })
        .map_err(CampaignError::from)?;
    let scripts = scripts.unwrap_or_default();
    let mut mutation = Mutation::new(&target, scripts, args.seed)?;
    let bar = progress::count(global, u64::from(args.mutants));
    let (mut mutants, mut counted) = (Vec::new(), 0);
    while counted < args.mutants {
        let Some(mutant) = mutation.draw()? else { break };
        if !matches!(mutant.fate, Fate::Equivalent | Fate::Harmless) {
            counted += 1;
            bar.inc(1);
        }
        mutants.push(mutant);
    }
    bar.finish_and_clear();
    let count = |is: fn(&Fate) -> bool| mutants.iter().filter(|mutant| is(&mutant.fate)).count();
    let missed = count(|fate| *fate == Fate::Missed);
    let failed = count(|fate| matches!(fate, Fate::Failed(_)));
    let caught = count(|fate| matches!(fate, Fate::Caught(_))) + failed;
    let equivalent = count(|fate| *fate == Fate::Equivalent);
    let harmless = count(|fate| *fate == Fate::Harmless);
    let share = caught as f64 / (caught + missed).max(1) as f64;
    let of_all = caught as f64 / (caught + missed + harmless).max(1) as f64;
    if global.json {
        say!(
            "{}",
            json!({
                "format": target.name(),
                "seed": args.seed,
                "caught": caught,
                "by_failure": failed,
                "missed": missed,
                "equivalent": equivalent,
                "harmless": harmless,
                "share": share,
                "share_with_harmless": of_all,
                "mutants": mutants.iter().map(as_json).collect::<Vec<_>>(),
            })
        );
    } else {
        for mutant in &mutants {
            let what = match mutant.fate {
                Fate::Missed => "missed",
                Fate::Harmless => "harmless",
                _ => continue,
            };
            say!("{what}: {} in {}", order(mutant), mutant.workload);
        }
        say!(
            "{caught} of {} mutants were caught ({:.1}%), {failed} of them by a failure of the file \
             system; {harmless} more are harmless (with them {:.1}% were caught), {equivalent} equivalent",
            caught + missed,
            share * 100.0,
            of_all * 100.0
        );
    }
    Ok(if share > WANTED { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The ordering constraint that a mutant drops, as text.
fn order(mutant: &Mutant) -> String {
    let number = mutant.order;
    match &mutant.dropped {
        Some(dropped) => {
            let after = dropped.after.map_or("an action".to_string(), |role| format!("{role:?}"));
            format!("order {number} ({after} after {:?})", dropped.before)
        }
        None => format!("order {number}"),
    }
}

fn as_json(mutant: &Mutant) -> Value {
    let (fate, what) = match &mutant.fate {
        Fate::Caught(code) => ("caught", Some(code.clone())),
        Fate::Failed(error) => ("failed", Some(error.clone())),
        Fate::Equivalent => ("equivalent", None),
        Fate::Harmless => ("harmless", None),
        Fate::Missed => ("missed", None),
    };
    json!({
        "workload": mutant.workload,
        "order": mutant.order,
        "what": order(mutant),
        "fate": fate,
        "by": what,
        "states": mutant.states,
    })
}
