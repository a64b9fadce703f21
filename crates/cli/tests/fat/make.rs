//! Empty file systems: byte for byte those of `mkfs.fat`.

use crate::judges::{Scratch, command, failure, ready, run, seekless, text};
use crate::shapes::{self, Shape};
use crate::{fsck, number_before, sparse};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

/// The time that `mkfs.fat --invariant` uses.
const MOMENT: &str = "1426325213";
/// All data of the images lies in front of this byte; the rest is a hole.
const FRONT: u64 = 8 << 20;

/// The front of an image, without the names of the programs and their boot code, which are not part
/// of the layout.
fn front(path: &str) -> Vec<u8> {
    let mut file = File::open(path).expect(path);
    assert!(
        file.metadata().expect("metadata").blocks() * 512 < FRONT,
        "{path}: more than its front"
    );
    let mut bytes = Vec::new();
    file.by_ref().take(FRONT).read_to_end(&mut bytes).expect("read");
    let le16 = |at: usize| usize::from(bytes[at]) | usize::from(bytes[at + 1]) << 8;
    let (sector, is_fat32) = (le16(11), le16(22) == 0);
    let code = if is_fat32 { 90 } else { 62 };
    let copy = if is_fat32 { le16(50) * sector } else { 0 };
    for boot in [0, copy] {
        bytes[boot + 3..boot + 11].fill(0);
        bytes[boot + code..boot + 510].fill(0);
    }
    bytes
}

/// Makes the same volume with both programs, and compares them; false if both refused.
fn same(scratch: &Scratch, bytes: u64, options: &[String], align: bool) -> bool {
    let (theirs, ours) = (scratch.join("theirs"), scratch.join("ours"));
    let what = format!("{bytes} bytes, {options:?}, aligned: {align}");
    sparse(&theirs, bytes);
    let mut args: Vec<&str> = vec!["--invariant"];
    args.extend(options.iter().map(String::as_str));
    args.extend(if align { None } else { Some("-a") });
    args.push(&theirs);
    let made = std::process::Command::new("mkfs.fat").args(&args).output().expect("mkfs.fat");
    let size = bytes.to_string();
    let mut args = vec!["mkfs", "--format", "fat", "--force", "--size", &size];
    args.extend(options.iter().map(String::as_str));
    args.extend(if align { None } else { Some("--no-align") });
    args.push(&ours);
    let output = command(&args).env("SOURCE_DATE_EPOCH", MOMENT).output().expect("seekless");
    assert_eq!(output.status.success(), made.status.success(), "{what}: {output:?} {made:?}");
    if !made.status.success() {
        return false;
    }
    let (mut theirs, ours) = (front(&theirs), front(&ours));
    let le16 = |at: usize| usize::from(theirs[at]) | usize::from(theirs[at + 1]) << 8;
    let (sector, entries) = (le16(11), le16(17));
    if !(entries * 32).is_multiple_of(sector) {
        // mkfs.fat ends the root directory within a sector, which fsck.fat refuses: here it is
        // rounded up.
        let whole = (entries * 32).next_multiple_of(sector) / 32;
        theirs[17..19].copy_from_slice(&(whole as u16).to_le_bytes());
    }
    assert_eq!(theirs.len(), ours.len(), "{what}");
    let differs = theirs.iter().zip(&ours).position(|(theirs, ours)| theirs != ours);
    assert_eq!(differs, None, "{what}: the first byte that differs");
    true
}

/// The options that `seekless mkfs --format fat` and `mkfs.fat` share.
fn options(shape: Shape) -> Vec<String> {
    let mut options = vec!["-F".to_string(), shape.bits.to_string()];
    options.extend(shape.options().into_iter().filter(|option| option != "-a"));
    options.extend(["-n", "JUDGED", "-i", "2e24ec82"].map(String::from));
    options
}

#[test]
fn new_file_systems_are_those_of_mkfs_fat() {
    if !ready("mkfs.fat") || !ready("fsck.fat") {
        return;
    }
    let scratch = Scratch::new("fat-make");
    for shape in shapes::all() {
        assert!(same(&scratch, shape.bytes(), &options(shape), shape.aligned), "{shape:?}");
        let ours = scratch.join("ours");
        let report = fsck(&ours);
        let info: serde_json::Value =
            serde_json::from_str(&text(&seekless(&["info", "--json", &ours]))).expect("JSON");
        assert_eq!(info["format"], format!("fat{}", shape.bits), "{shape:?}");
        let clusters = number_before(&report, " data clusters");
        let feature = format!("clusters={clusters}");
        let features = info["features"].as_array().expect("features");
        assert!(features.iter().any(|known| known == feature.as_str()), "{shape:?} {info}");
    }
}

/// Options from a small generator, the same in every run.
#[test]
fn whatever_is_asked_for_the_layout_is_that_of_mkfs_fat() {
    if !ready("mkfs.fat") {
        return;
    }
    let scratch = Scratch::on_disk("fat-options");
    let mut state = 7u64;
    let mut below = |limit: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut made = 0;
    for _ in 0..150 {
        let bytes = match below(6) {
            0 => [360, 720, 1200, 1440, 2880][below(5) as usize] << 10,
            1 | 2 => (64 << 10) + below(8 << 20),
            3 => (4 << 20) + below(300 << 20),
            4 => ((4 << 20) + below(500 << 20)) & !4095,
            _ => below(40 << 30) & !4095,
        };
        let mut options = Vec::new();
        let mut maybe = |wanted: bool, option: &str, value: String| {
            if wanted {
                options.extend([option.to_string(), value]);
            }
        };
        // A volume of many small clusters has large FATs, which are written twice.
        let bits = below(4);
        maybe(bits > 0, "-F", [12, 12, 16, 32][bits as usize].to_string());
        maybe(below(2) == 0, "-S", (512 << below(4)).to_string());
        maybe(below(3) == 0 && bytes < 2 << 30, "-s", (1 << below(8)).to_string());
        maybe(below(3) == 0, "-f", (1 + below(4)).to_string());
        maybe(below(3) == 0, "-R", (1 + below(40)).to_string());
        // In whole sectors.
        maybe(below(3) == 0, "-r", (128 * (1 + below(16))).to_string());
        maybe(below(2) == 0, "-n", "A LABEL".into());
        maybe(true, "-i", format!("{:08x}", below(1 << 31)));
        made += u32::from(same(&scratch, bytes, &options, below(3) > 0));
    }
    assert!(made > 80, "only {made} were made");
}

#[test]
fn new_file_systems_are_the_same_twice() {
    let scratch = Scratch::new("fat-twice");
    let images = [scratch.join("a"), scratch.join("b")];
    for image in &images {
        let args = ["mkfs", "--format", "fat32", "--size", "64M", "-n", "TWICE", image];
        let output = command(&args).env("SOURCE_DATE_EPOCH", "1700000000").output();
        text(&output.expect("seekless"));
    }
    run("cmp", &[&images[0], &images[1]]);
    let ids: Vec<serde_json::Value> = (0..2)
        .map(|_| {
            let args =
                ["mkfs", "--format", "fat16", "--size", "20M", "--uuid", "random", "--force"];
            let args = [&args[..], &["--json", &images[0]]].concat();
            serde_json::from_str(&text(&seekless(&args))).expect("JSON")
        })
        .collect();
    assert_ne!(ids[0]["uuid"], ids[1]["uuid"]);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let scratch = Scratch::new("fat-refused");
    let image = scratch.join("image");
    for (args, says) in [
        (&["--format", "fat32", "--size", "64M", "-b", "4096"][..], "--block-size is for UFS"),
        (&["--format", "ufs2", "--size", "64M", "-n", "X"], "-n is for FAT"),
        (&["--format", "fat12", "--size", "64M", "-s", "3"], "power of two"),
        (&["--format", "fat12", "--size", "64M", "-s", "1"], "FAT12 volume"),
        (&["--format", "fat16", "--size", "1M"], "FAT16 volume"),
        (&["--format", "fat32", "--size", "64M", "-R", "1"], "2 reserved sectors"),
        (&["--format", "fat32", "--size", "64M", "-n", "A*B"], "not allowed"),
        (&["--format", "fat32", "--size", "64M", "-n", "TWELVE CHARS"], "longer than 11"),
        (&["--format", "fat32", "--size", "64M", "-n", "☃"], "code page 850"),
        (&["--format", "fat32", "--size", "64M", "-i", "xyz"], "volume ID"),
        (&["--format", "fat16", "--size", "64M", "-F", "32"], "contradicts"),
        (&["--format", "fat12", "--size", "33K"], "too few"),
        (&["--format", "fat16", "-s", "4"], "--size"),
    ] {
        let (code, message) = failure(&seekless(&[&["mkfs"], args, &[&image]].concat()));
        assert!(message.contains(says), "{args:?}: {message}");
        assert!(code == 2 || code == 4 || code == 5 || code == 6, "{args:?}: {code} {message}");
        assert!(!std::path::Path::new(&image).exists(), "{args:?}: something was written");
    }
}
