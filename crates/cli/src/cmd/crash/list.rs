//! `seekless crash list`: lists the built-in workloads.

use crate::args::Global;
use crate::failure::Failure;
use crate::say::say;
use clap::Args;
use seekless_crash::campaign::{CampaignError, Sequences, built_in};
use seekless_crash::workload::Single;
use serde_json::json;
use std::process::ExitCode;

/// List the built-in workloads, or print one as a script
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless crash list
  seekless crash list create,fsync,rename-over
  seekless crash list 'random:8#17' --seed 1

A pair is two workloads, with nothing, an fsync or a sync between them:
`create,rename-over`, `create,fsync,rename-over`, `create,sync,rename-over`.
`random:8#17` is sequence 17 of `random:8`. `singles`, `pairs` and `all` select
many workloads at once. Any other name is the path of a script (see
docs/crash.md).")]
pub(crate) struct ListArgs {
    /// Print this workload as a script
    #[arg(value_name = "W")]
    workload: Option<String>,
    /// Random seed of the sequences
    #[arg(long, value_name = "S", default_value = "1")]
    seed: u64,
}

pub(crate) fn run(args: &ListArgs, global: &Global) -> Result<ExitCode, Failure> {
    if let Some(name) = &args.workload {
        let sequences = Sequences { count: 1, seed: args.seed };
        let scripts = built_in(name, true, sequences).map_err(CampaignError::from)?;
        let unknown = || Failure::usage(format!("{name}: no such workload"));
        let scripts = scripts.ok_or_else(unknown)?;
        if global.json {
            let entry = |script: &seekless_crash::Script| json!({ "name": script.name, "script": script.to_string() });
            say!("{}", json!({ "scripts": scripts.iter().map(entry).collect::<Vec<_>>() }));
        } else {
            for script in scripts {
                say!("# {}\n{}", script.name, script.to_string().trim_end());
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    if global.json {
        let entry = |single: &Single| json!({ "name": single.name(), "about": single.about() });
        let all: Vec<_> = Single::ALL.iter().map(entry).collect();
        say!(
            "{}",
            json!({ "workloads": all, "disciplines": ["sync", "normal", "async", "softdep"], "formats": super::version_names() })
        );
        return Ok(ExitCode::SUCCESS);
    }
    for single in Single::ALL {
        say!("{:<18} {}", single.name(), single.about());
    }
    Ok(ExitCode::SUCCESS)
}
