//! `seekless crash list`: the workloads there are.

use crate::args::Global;
use crate::failure::Failure;
use crate::say::say;
use clap::Args;
use seekless_crash::workload::Single;
use serde_json::json;
use std::process::ExitCode;

/// List the built-in workloads
#[derive(Args, Debug)]
#[command(after_help = "\
A pair is two of them, with nothing, an fsync or a sync between: `create,rename-over`,
`create,fsync,rename-over`, `create,sync,rename-over`. `singles`, `pairs` and `all`
are many at once. Anything else is taken for a script's path (see docs/crash.md).")]
pub(crate) struct ListArgs {}

pub(crate) fn run(_: &ListArgs, global: &Global) -> Result<ExitCode, Failure> {
    if global.json {
        let entry = |single: &Single| json!({ "name": single.name(), "about": single.about() });
        let all: Vec<_> = Single::ALL.iter().map(entry).collect();
        say!(
            "{}",
            json!({ "workloads": all, "disciplines": ["sync", "normal", "async", "softdep"], "formats": ["ufs1", "ufs2"] })
        );
        return Ok(ExitCode::SUCCESS);
    }
    for single in Single::ALL {
        say!("{:<18} {}", single.name(), single.about());
    }
    Ok(ExitCode::SUCCESS)
}
