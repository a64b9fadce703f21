//! Modules from PyPI, installed by `.ci/judges` in the target directory.

use super::ON_DISK;
use std::process::Command;

fn python() -> String {
    format!("{ON_DISK}/../judges/bin/python")
}

/// Whether a module is installed; reports if not.
pub(crate) fn ready(module: &str) -> bool {
    let probe = Command::new(python()).args(["-c", &format!("import {module}")]).output();
    let there = probe.is_ok_and(|output| output.status.success());
    if !there {
        super::skip(&format!("{module} is not installed (.ci/judges)"));
    }
    there
}

/// Standard output of a script that must succeed.
pub(crate) fn run(script: &str, args: &[&str]) -> String {
    super::run(&python(), &[&["-c", script], args].concat())
}
