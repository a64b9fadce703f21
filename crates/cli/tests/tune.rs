//! `seekless tune` on images of `seekless mkfs` and of makefs, judged by The Sleuth Kit and by the
//! bytes at the offsets in `fs.h`.

mod judges;

use judges::{Scratch, failure, ready, run, seekless, text};
use std::fs;
use std::process::{Command, Stdio};

/// The little-endian word at byte `at` of the superblock that begins at `sb`.
fn word(image: &str, sb: usize, at: usize) -> u32 {
    let bytes = fs::read(image).expect("image");
    u32::from_le_bytes(bytes[sb + at..sb + at + 4].try_into().expect("word"))
}

const CHANGES: [&str; 20] = [
    "-n", "enable", "-a", "enable", "-e", "77", "-f", "5000", "-s", "12", "-m", "3", "-o", "space",
    "-k", "27", "-L", "lab", "-A", "-p",
];

fn tuned(image: &str, superblock: usize, frag: u32) {
    let plain = text(&seekless(&[&["tune", image], &CHANGES[..]].concat()));
    assert!(plain.contains("soft updates: (-n)") && plain.contains("enabled"), "{plain}");
    assert!(plain.contains("changes from time to space"), "{plain}");
    let json = text(&seekless(&["tune", image, "-p", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let metaspace = 27 / frag * frag;
    for (key, at, value) in [
        ("maxbpg", 92, 77),
        ("avgfilesize", 1196, 5000),
        ("avgfpdir", 1200, 12),
        ("minfree", 60, 3),
        ("metaspace", 880, metaspace),
    ] {
        assert_eq!(word(image, superblock, at), value, "{key}");
        assert_eq!(json[key], value, "{json}");
    }
    assert_eq!(word(image, superblock, 128), 1, "fs_optim");
    assert_eq!(json["optimization"], "space");
    assert_eq!((&json["soft_updates"], &json["acls"]), (&true.into(), &true.into()), "{json}");
}

#[test]
fn settings_are_those_that_others_read() {
    let scratch = Scratch::new("tune");
    let image = scratch.join("image");
    for (format, superblock) in [("ufs1", 8192), ("ufs2", 65536)] {
        let make = ["mkfs", "--format", format, "-s", "64M", "-b", "8192", "-f", "1024", "--force"];
        text(&seekless(&[&make[..], &[&image]].concat()));
        tuned(&image, superblock, 8);
        if !ready("fsstat") {
            continue;
        }
        let report = run("fsstat", &[&image]);
        let flags = report.lines().find(|line| line.starts_with("Flags:")).unwrap_or_default();
        assert!(flags.contains("Soft Dependencies") && flags.contains("ACLs"), "{report}");
        assert!(format == "ufs1" || report.contains("Volume Name: lab"), "{report}");
        text(&seekless(&["tune", &image, "-n", "disable", "-a", "disable"]));
        assert!(!run("fsstat", &[&image]).contains("Soft Dependencies"));
    }
}

#[test]
fn images_of_makefs_can_be_tuned() {
    if !ready("makefs") {
        return;
    }
    let scratch = Scratch::new("tune-makefs");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir(&tree).expect("mkdir");
    fs::write(format!("{tree}/file"), "here").expect("write");
    for version in ["1", "2"] {
        let options = format!("version={version},bsize=16384,fsize=2048");
        run("makefs", &["-t", "ffs", "-s", "32m", "-o", &options, &image, &tree]);
        tuned(&image, 8192, 8);
        assert_eq!(text(&seekless(&["cat", &image, "/file"])), "here");
    }
}

#[test]
fn what_is_in_use_or_unclean_is_left_alone() {
    let scratch = Scratch::new("tune-refusals");
    let image = scratch.join("image");
    text(&seekless(&["mkfs", "--format", "ufs1", "-s", "16M", &image]));
    let before = fs::read(&image).expect("image");
    let (code, message) = failure(&seekless(&["tune", &image]));
    assert!(code == 2 && message.contains("nothing to do"), "{code} {message}");
    for wrong in [["-m", "100"], ["-e", "0"], ["-L", "a b"], ["-f", "3G"]] {
        let (code, message) = failure(&seekless(&[&["tune", &image][..], &wrong].concat()));
        assert_eq!(code, 2, "{message}");
    }
    if ready("flock") {
        let mut holder = Command::new("flock")
            .args([&image, "sh", "-c", "echo held; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("flock");
        let mut line = [0; 5];
        let stdout = holder.stdout.as_mut().expect("stdout");
        std::io::Read::read_exact(stdout, &mut line).expect("held");
        let (code, message) = failure(&seekless(&["tune", &image, "-m", "5"]));
        assert!(code == 6 && message.contains("in use"), "{code} {message}");
        text(&seekless(&["tune", &image, "-p"]));
        drop(holder.stdin.take());
        holder.wait().expect("flock");
    }
    assert!(fs::read(&image).expect("image") == before, "changed");
    // Clears `fs_clean`.
    let mut unclean = before;
    unclean[8192 + 209] = 0;
    fs::write(&image, &unclean).expect("image");
    let (code, message) = failure(&seekless(&["tune", &image, "-m", "5"]));
    assert!(code == 4 && message.contains("not cleanly unmounted"), "{code} {message}");
    assert!(fs::read(&image).expect("image") == unclean, "changed");
    text(&seekless(&["tune", &image, "-p"]));
}
