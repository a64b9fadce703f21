//! Parts of a whole that cannot be merged.

use crate::args::Global;
use crate::say::{say, tell};
use serde_json::json;
use std::process::ExitCode;

/// Lists the reasons against a merge, and returns its exit code.
pub(crate) fn refuse(gaps: &[String], global: &Global) -> ExitCode {
    if global.json {
        say!("{}", json!({ "merged": false, "gaps": gaps }));
    } else {
        gaps.iter().for_each(|gap| tell(gap));
        tell("nothing was merged (--partial merges what is there)");
    }
    ExitCode::from(1)
}
