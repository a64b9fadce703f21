//! `seekless check` on ext images: output and exit codes. Needs e2fsprogs; reports and passes
//! without.

mod judges;

use judges::{Scratch, run, seekless};
use std::fs;

#[test]
fn ext_images_are_checked_and_repaired() {
    if !judges::ready("mke2fs") || !judges::ready("debugfs") {
        return;
    }
    let scratch = Scratch::new("ext-check");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir_all(format!("{tree}/dir")).expect("mkdir");
    fs::write(format!("{tree}/dir/file"), vec![3; 50_000]).expect("write");
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-d", &tree, &image, "32M"]);
    let sound = seekless(&["check", &image]);
    let said = String::from_utf8_lossy(&sound.stdout).into_owned();
    assert!(sound.status.success() && said.contains("in order"), "{said}");
    assert!(said.contains("blocks in files"), "{said}");

    run("debugfs", &["-w", "-R", "sif /dir/file links_count 7", &image]);
    let before = fs::read(&image).expect("image");
    let report = seekless(&["--json", "check", &image]);
    assert_eq!(report.status.code(), Some(4));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).expect("JSON");
    assert_eq!((&report["outcome"], &report["unexpected"]), (&"left".into(), &0.into()));
    let finding = &report["findings"][0];
    assert_eq!((&finding["code"], &finding["phase"]), (&"inode.links-high".into(), &4.into()));
    assert!(finding["location"]["inode"].as_u64().is_some_and(|ino| ino > 10), "{finding}");
    assert!(before == fs::read(&image).expect("image"), "the image was changed");
    let preened = seekless(&["check", "-p", &image]);
    assert_eq!(preened.status.code(), Some(1), "{preened:?}");
    run("e2fsck", &["-fn", &image]);

    // An error that stops -p is repaired by -y.
    run("debugfs", &["-w", "-R", "unlink /dir/file", &image]);
    let damaged = fs::read(&image).expect("image");
    assert_eq!(seekless(&["check", "-p", &image]).status.code(), Some(4));
    assert!(damaged == fs::read(&image).expect("image"), "-p changed it, and stopped");
    assert_eq!(seekless(&["check", "-y", &image]).status.code(), Some(1));
    run("e2fsck", &["-fn", &image]);
    assert_eq!(seekless(&["check", &image]).status.code(), Some(0));
}

#[test]
fn a_copy_stands_in_for_a_damaged_superblock() {
    if !judges::ready("mke2fs") {
        return;
    }
    let scratch = Scratch::new("ext-copy");
    let image = scratch.join("image");
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-b", "1024", &image, "16M"]);
    let mut bytes = fs::read(&image).expect("image");
    bytes[1080..1082].fill(0);
    fs::write(&image, bytes).expect("write");
    let report = seekless(&["--json", "check", &image]);
    assert_eq!(report.status.code(), Some(4));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let codes: Vec<&str> = report["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .filter_map(|finding| finding["code"].as_str())
        .collect();
    assert_eq!(codes, ["superblock.corrupt"]);
    // Other commands do not use the backup superblock, but their message names it.
    let listed = seekless(&["ls", &image]);
    let why = String::from_utf8_lossy(&listed.stderr).into_owned();
    assert!(!listed.status.success() && why.contains("copy of it in block 8193"), "{why}");
}
