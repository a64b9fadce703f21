//! Images for systems and boot loaders: their features as dumpe2fs prints them, and files as GRUB
//! reads them. The other systems have no programs here; their sets of features are tested against
//! the published ones.

use crate::judges::{
    Mounted, Scratch, can_mount, check, failure, header, ready, run, seekless, text,
};
use std::fs;
use std::process::Command;

/// The features that differ between the mke2fs of the systems, or the readers of the boot loaders.
const DIFFERENT: [&str; 7] = [
    "orphan_file",
    "metadata_csum_seed",
    "metadata_csum",
    "uninit_bg",
    "64bit",
    "flex_bg",
    "resize_inode",
];

const EXPECTED: &[(&str, &[&str])] = &[
    ("debian11", &["metadata_csum", "64bit", "flex_bg", "resize_inode"]),
    ("debian12", &["metadata_csum", "64bit", "flex_bg", "resize_inode"]),
    (
        "debian13",
        &["orphan_file", "metadata_csum_seed", "metadata_csum", "64bit", "flex_bg", "resize_inode"],
    ),
    ("ubuntu20.04", &["metadata_csum", "64bit", "flex_bg", "resize_inode"]),
    ("rhel7", &["uninit_bg", "64bit", "flex_bg", "resize_inode"]),
    ("rhel8", &["metadata_csum", "64bit", "flex_bg", "resize_inode"]),
    ("grub2.06", &["orphan_file", "metadata_csum", "64bit", "flex_bg", "resize_inode"]),
    ("android", &["uninit_bg"]),
    ("debian13,rhel7", &["64bit", "flex_bg", "resize_inode"]),
];

fn features(image: &str) -> Vec<String> {
    let head = header(image);
    let found = head.iter().find(|(name, _)| name == "Filesystem features").expect("features");
    found.1.split_whitespace().map(String::from).collect()
}

#[test]
fn images_have_the_features_that_a_system_knows() {
    let scratch = Scratch::new("compat");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir_all(format!("{tree}/boot")).expect("mkdir");
    let kernel = format!("{tree}/boot/vmlinuz");
    fs::write(&kernel, (0..900_000u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>())
        .expect("write");
    for n in 0..2000 {
        fs::write(format!("{tree}/boot/{n:04}"), "x").expect("write");
    }
    for (systems, expected) in EXPECTED {
        let args = ["build", &tree, "-o", &image, "--force", "--compat", systems];
        text(&seekless(&args));
        check(&image);
        let has = features(&image);
        for feature in DIFFERENT {
            let wanted = expected.contains(&feature);
            assert_eq!(has.iter().any(|name| name == feature), wanted, "{systems}: {has:?}");
        }
        if ready("grub-fstest") {
            run("grub-fstest", &[&image, "cmp", "(loop0)/boot/vmlinuz", &kernel]);
        }
        if can_mount() {
            let mounted = Mounted::new(&scratch, &image, "rw");
            fs::write(mounted.path().join("new"), "written").expect("write");
        }
    }
    // Same as Debian's mke2fs, if that is installed.
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if release.contains("VERSION_CODENAME=bookworm") {
        let made = scratch.join("made");
        run("mke2fs", &["-q", "-F", "-t", "ext4", "-b", "4096", &made, "200M"]);
        text(&seekless(&["build", &tree, "-o", &image, "--force", "--compat", "debian12"]));
        assert_eq!(features(&image), features(&made));
    }
}

#[test]
fn grub_refuses_what_its_set_leaves_out() {
    if !ready("grub-fstest") {
        return;
    }
    let scratch = Scratch::new("compat-grub");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir(&tree).expect("mkdir");
    fs::write(format!("{tree}/file"), "text").expect("write");
    text(&seekless(&["build", &tree, "-o", &image, "-O", "inline_data"]));
    let listed = Command::new("grub-fstest").args([&image, "ls", "(loop0)/"]).output();
    let listed = listed.expect("grub-fstest");
    assert!(!String::from_utf8_lossy(&listed.stdout).contains("file"), "GRUB reads inline_data");
    let args = ["build", &tree, "-o", &image, "--force", "-O", "inline_data", "--compat"];
    let (code, message) = failure(&seekless(&[&args[..], &["grub2.12"]].concat()));
    assert!(code == 2 && message.contains("--compat excludes inline_data"), "{message}");
}

#[test]
fn sets_are_changed_by_features_that_are_known() {
    let scratch = Scratch::new("compat-features");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir(&tree).expect("mkdir");
    let base = ["build", &tree, "-o", &image, "--force", "--compat"];
    let build = |options: &[&str]| seekless(&[&base[..], options].concat());
    text(&build(&["debian12", "-O", "orphan_file"]));
    assert!(features(&image).iter().any(|name| name == "orphan_file"));
    text(&build(&["debian11", "-O", "^has_journal"]));
    assert!(!features(&image).iter().any(|name| name == "has_journal"));
    text(&build(&["rhel8", "--format", "ext3"]));
    assert!(!features(&image).iter().any(|name| name == "extent"));
    for (options, code) in [
        (&["debian11", "-O", "orphan_file"][..], 2),
        (&["slackware"], 2),
        (&["debian11", "--format", "ufs2"], 2),
        (&["debian11", "--format", "fat"], 2),
    ] {
        assert_eq!(build(options).status.code(), Some(code), "{options:?}");
    }
}
