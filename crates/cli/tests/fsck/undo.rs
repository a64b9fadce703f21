//! Undo files of `-z`, which e2undo applies.

use crate::judges::{self, Scratch, run, seekless};
use crate::{answer, changed, image, linked};
use std::fs;
use std::process::Command;

#[test]
fn e2undo_takes_a_repair_back() {
    if !judges::ready("e2undo") || !judges::ready("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-undo");
    let sound = image(&scratch);
    let damage = ["ssv state 0", "sif /file links_count 7", "rm /many/a-name-of-some-length-3"];
    let damaged = changed(&scratch, &sound, "damaged", &damage);
    let wiped = scratch.join("wiped");
    fs::copy(&damaged, &wiped).expect("copy");
    run("dd", &["if=/dev/zero", &format!("of={wiped}"), "bs=1024", "count=4", "conv=notrunc"]);
    let program = linked(&scratch, "fsck.ext4");
    let (copy, undo) = (scratch.join("copy"), scratch.join("undo"));
    let cases: [(&str, &[&str], i32); 4] = [
        (&damaged, &["-y"], 1),
        (&damaged, &["-fyD"], 1),
        (&wiped, &["-fy", "-b", "8193"], 1),
        (&wiped, &["-y"], 1),
    ];
    for (from, options, code) in cases {
        fs::copy(from, &copy).expect("copy");
        let _ = fs::remove_file(&undo);
        let mut ours = Command::new(&program);
        let (ended, said) = answer(ours.args(options).args(["-z", &undo, &copy]));
        assert_eq!(ended, code, "{options:?}: {said}");
        judges::check(&copy);
        run("e2undo", &[&undo, &copy]);
        let is_same = fs::read(&copy).expect("copy") == fs::read(from).expect("image");
        assert!(is_same, "{options:?}: e2undo did not bring all back");
    }
    // An undo file is not overwritten, and nothing is repaired without one.
    let repair = seekless(&["check", "-y", "-z", &undo, &copy]);
    assert_eq!(repair.status.code(), Some(8), "{repair:?}");
    assert!(fs::read(&copy).expect("copy") == fs::read(&wiped).expect("image"), "written");
    // An empty name stands for one in a folder of the environment.
    let mut ours = Command::new(&program);
    let ours = ours.env("E2FSPROGS_UNDO_DIR", scratch.path()).args(["-y", "-z", "", &copy]);
    assert_eq!(answer(ours).0, 1);
    run("e2undo", &[&scratch.join("e2fsck-copy.e2undo"), &copy]);
    assert!(fs::read(&copy).expect("copy") == fs::read(&wiped).expect("image"), "not undone");
}
