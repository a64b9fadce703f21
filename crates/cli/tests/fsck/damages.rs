//! Random damage of volumes of twelve kinds, beside e2fsck: a slice of `bench/damages.py`.

use crate::judges;
use std::process::Command;

#[test]
fn a_slice_of_random_damage() {
    let programs = ["python3", "setfattr", "mke2fs", "debugfs", "dumpe2fs", "e2fsck"];
    if !programs.into_iter().all(judges::ready) {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/damages.py");
    let mut command = Command::new("python3");
    command.args([script, "--count", "48", "--from", "4800", "--strict"]);
    command.env("SEEKLESS", judges::command::<&str>(&[]).get_program());
    let output = command.output().expect("python3");
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{failed}");
    assert!(said.contains("48 damaged volumes of 12 kinds"), "{said}");
}
