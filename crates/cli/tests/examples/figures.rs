//! Compares tables of docs/ with the output of this version. `make figures` updates them.

use crate::judges::{SCRATCH, ready};
use std::path::Path;
use std::process::Command;

#[test]
fn first_rows_are_what_their_pages_have() {
    if !ready("mke2fs") || !ready("python3") {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("python3")
        .arg(root.join("bench/figures.py"))
        .args(["--check", "--quick"])
        .env("SEEKLESS", env!("CARGO_BIN_EXE_seekless"))
        .env("TMPDIR", SCRATCH)
        .output()
        .expect("python3");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
}
