//! Libraries from PyPI, as `.ci/judges` installs them beside what is built.

use super::SCRATCH;
use std::process::Command;

fn python() -> String {
    format!("{SCRATCH}/../judges/bin/python")
}

/// Whether a module is there; says so if not.
pub(crate) fn ready(module: &str) -> bool {
    let probe = Command::new(python()).args(["-c", &format!("import {module}")]).output();
    let there = probe.is_ok_and(|output| output.status.success());
    if !there {
        super::skip(&format!("{module} is not installed (.ci/judges)"));
    }
    there
}

/// What a script that must succeed prints.
pub(crate) fn run(script: &str, args: &[&str]) -> String {
    super::run(&python(), &[&["-c", script], args].concat())
}
