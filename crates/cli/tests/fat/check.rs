//! `seekless check` on FAT images: exit codes, JSON, locks, and the treatment of clusters without a
//! name. The crate `fat` tests each kind of damage.

use crate::judges::{Scratch, ready, run, seekless, text};
use crate::{mtools, populate, sparse};
use std::fs;
use std::path::Path;

/// Makes an image with mkfs.fat and mcopy.
fn made(scratch: &Scratch, bits: &str) -> String {
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    let _ = fs::remove_dir_all(&tree);
    populate(Path::new(&tree));
    sparse(&image, if bits == "32" { 40 << 20 } else { 8 << 20 });
    run("mkfs.fat", &["-F", bits, "-s", "1", "-n", "CHECKED", &image]);
    for top in ["DIR", "many names"] {
        mtools("mcopy", &image, &["-s", "-m", &format!("{tree}/{top}"), "::"]);
    }
    image
}

fn code(output: &std::process::Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn images_are_checked_and_repaired() {
    if !ready("mkfs.fat") || !ready("mcopy") || !ready("fsck.fat") {
        return;
    }
    let scratch = Scratch::new("fat-check");
    for bits in ["16", "32"] {
        let image = made(&scratch, bits);
        text(&seekless(&["check", &image]));
        // Removes the name of a file, but not its chain.
        let bytes = fs::read(&image).expect("read");
        let at = bytes.windows(11).position(|bytes| bytes == b"FILE8   BIN").expect("entry");
        let mut damaged = bytes.clone();
        damaged[at] = 0xE5;
        fs::write(&image, &damaged).expect("write");
        let output = seekless(&["check", "--json", &image]);
        assert_eq!(code(&output), Some(4));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["findings"][0]["code"], "chain.lost", "{report}");
        assert_eq!(report["findings"][0]["phase"], 3, "{report}");
        assert_eq!(report["findings"][0]["class"], "expected", "{report}");
        assert!(fs::read(&image).expect("read") == damaged, "a check wrote something");
        for (lost, is_kept) in [("keep", true), ("free", false)] {
            fs::write(&image, &damaged).expect("write");
            let output = seekless(&["check", "-p", "--lost", lost, &image]);
            assert_eq!(code(&output), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
            run("fsck.fat", &["-n", &image]);
            let listed = text(&seekless(&["ls", &image]));
            assert_eq!(listed.contains("FSCK0000.REC"), is_kept, "{listed}");
            if is_kept {
                // Whole clusters: the bytes between the end of the file and the end of the cluster
                // are included.
                let contents = seekless(&["cat", &image, "/FSCK0000.REC"]).stdout;
                let wanted = fs::read(scratch.join("tree/DIR/FILE8.BIN")).expect("read");
                assert!(contents.starts_with(&wanted) && contents.len() < wanted.len() + 512);
            }
        }
        // Damage that no crash causes: the chain of a file leads into a directory.
        let mut crossed = bytes.clone();
        let many = bytes.windows(11).position(|bytes| bytes == b"MANYNA~1   ").expect("entry");
        crossed.copy_within(many + 26..many + 28, at + 26);
        fs::write(&image, &crossed).expect("write");
        assert_eq!(code(&seekless(&["check", "-p", &image])), Some(4));
        assert!(fs::read(&image).expect("read") == crossed, "a preen wrote something");
        let output = seekless(&["check", "-y", &image]);
        assert_eq!(code(&output), Some(1));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            said.contains("chain.shared (unexpected)") && said.contains(": repaired"),
            "{said}"
        );
        assert_eq!(code(&seekless(&["check", "-y", &image])), Some(0));
        run("fsck.fat", &["-n", &image]);
    }
}

#[test]
fn wrong_arguments_have_a_code_of_their_own() {
    let scratch = Scratch::new("fat-arguments");
    let image = scratch.join("image");
    text(&seekless(&["mkfs", "--format", "ufs2", "--size", "16M", &image]));
    let output = seekless(&["check", "-y", "--lost", "free", &image]);
    assert_eq!(code(&output), Some(16));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--lost is for FAT images"));
    // Commands that do not support FAT name the format.
    text(&seekless(&["mkfs", "--format", "fat16", "--size", "16M", "--force", &image]));
    let (code, message) = crate::judges::failure(&seekless(&["tune", &image, "-p"]));
    assert!(code == 4 && message.contains("is a FAT image"), "{message}");
}

#[test]
fn what_is_no_image_is_not_checked() {
    let scratch = Scratch::new("fat-uncheckable");
    let image = scratch.join("image");
    text(&seekless(&["mkfs", "--format", "fat16", "--size", "16M", &image]));
    let file = fs::OpenOptions::new().write(true).open(&image).expect("open");
    file.set_len(4 << 20).expect("truncate");
    let output = seekless(&["check", &image]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), Some(8), "{said}");
    assert!(said.contains("BPB_TotSec32") || said.contains("boot sector"), "{said}");
}
