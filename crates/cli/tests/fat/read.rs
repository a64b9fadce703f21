//! Images of other programs, read by seekless.

use crate::judges::{Scratch, manifest, ready, run, same, seekless, text};
use crate::shapes::{self, Shape};
use crate::{fsck, mtools, number_before, populate, sparse};
use seekless_device::FileDevice;
use seekless_fat::FatImage;
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

fn judged() -> bool {
    ["mkfs.fat", "fsck.fat", "mcopy", "mshowfat"].iter().all(|program| ready(program))
}

/// A listing without the root, and without modes, owners and link counts, which FAT does not have.
pub(crate) fn comparable(listing: &str) -> String {
    let line = |line: &str| {
        let words = line.split(' ').filter(|word| {
            !["mode=", "uid=", "gid=", "nlink="].iter().any(|field| word.starts_with(field))
        });
        words.collect::<Vec<_>>().join(" ") + "\n"
    };
    listing.lines().filter(|line| !line.starts_with(". ")).map(line).collect()
}

/// The clusters of a file according to the reader, in the form of mshowfat.
fn clusters(image: &str, path: &str) -> String {
    let device = Arc::new(FileDevice::open(Path::new(image)).expect("open"));
    let image = FatImage::open(device, OpenOptions::default()).expect("image");
    let shape = image.geometry();
    let field = |name: &str| -> u64 {
        let found = shape.features.iter().find_map(|feature| feature.strip_prefix(name));
        found.map_or(0, |value| value.parse().expect("number"))
    };
    let root = (field("root-entries=") * 32).div_ceil(shape.block_size.into());
    let data = field("reserved-sectors=") + field("fats=") * field("fat-sectors=") + root;
    let cluster = u64::from(shape.cluster_blocks);
    let ino = resolve(&image, path.as_bytes()).expect("path");
    let runs = image.block_map(ino).expect("map").runs;
    let shown = runs.iter().map(|run| {
        assert_eq!((run.extent.start.get() - data) % cluster, 0);
        let first = (run.extent.start.get() - data) / cluster + 2;
        let last = first + run.extent.len / cluster - 1;
        if first == last { format!("<{first}>") } else { format!("<{first}-{last}>") }
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// Fills an image with mcopy, and compares it as read by seekless.
fn reads_back(what: &str, image: &str, tree: &str, wanted: &str) {
    for entry in std::fs::read_dir(tree).expect("tree") {
        let path = entry.expect("entry").path();
        mtools("mcopy", image, &["-s", "-m", "-Q", path.to_str().expect("path"), "::"]);
    }
    fsck(image);
    same(what, wanted, &comparable(&manifest(image, &[])));
    for path in ["/DIR/FILE8.BIN", "/DIR/FILE3.BIN", "/DIR/below/a b c"] {
        let shown = mtools("mshowfat", image, &[&format!("::{path}")]);
        let (_, shown) = shown.trim().split_once(" <").expect("clusters");
        assert_eq!(clusters(image, path), format!("<{shown}"), "{what}: {path}");
    }
    // The number of free clusters agrees with the count of fsck.fat.
    let report = fsck(image);
    let used = report.lines().last().expect("summary");
    let (_, used) = used.rsplit_once(", ").expect("clusters");
    let (used, all) = used.trim_end_matches(" clusters").split_once('/').expect("counts");
    let info: serde_json::Value =
        serde_json::from_str(&text(&seekless(&["info", "--json", image]))).expect("JSON");
    let number = |text: &str| -> u64 { text.parse().expect("number") };
    let free = info["free_blocks"].as_u64().expect("number");
    let per = info["cluster_blocks"].as_u64().expect("number");
    assert_eq!(free / per, number(all) - number(used), "{what}");
}

fn facts(info: &serde_json::Value, name: &str) -> u64 {
    let features = info["features"].as_array().expect("features");
    let found = features.iter().find_map(|feature| feature.as_str()?.strip_prefix(name));
    found.unwrap_or_else(|| panic!("no {name} in {info}")).parse().expect("number")
}

#[test]
fn images_of_mkfs_fat_and_mcopy_are_read_whole() {
    if !judged() {
        return;
    }
    let scratch = Scratch::new("fat-read");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    populate(Path::new(&tree));
    let wanted = comparable(&manifest(&tree, &[]));
    assert!(wanted.lines().count() > 60);
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for shape in shapes::all() {
        let Shape { bits, .. } = shape;
        let what = format!("{shape:?}");
        sparse(&image, shape.bytes());
        let mut args = vec!["-F".to_string(), bits.to_string(), "-n".into(), "SHAPE".into()];
        args.extend(shape.options());
        args.push(image.clone());
        run("mkfs.fat", &args);
        let report = fsck(&image);
        let info: serde_json::Value =
            serde_json::from_str(&text(&seekless(&["info", "--json", &image]))).expect("JSON");
        assert_eq!(info["format"], format!("fat{bits}"), "{what}");
        assert_eq!(info["label"], "SHAPE", "{what}");
        for (ours, theirs) in [
            ("clusters=", " data clusters"),
            ("reserved-sectors=", " reserved sector"),
            ("fats=", " FATs"),
        ] {
            assert_eq!(facts(&info, ours), number_before(&report, theirs), "{what}: {ours}");
        }
        assert_eq!(info["block_size"].as_u64(), Some(shape.sector), "{what}");
        *counts.entry(facts(&info, "clusters=")).or_default() += 1;
        // A tiny volume has no room for the tree.
        if shape.clusters < 1000 {
            continue;
        }
        reads_back(&what, &image, &tree, &wanted);
    }
    for limit in [4084, 4087, 65_524, 65_525] {
        assert!(counts.contains_key(&limit), "no volume has {limit} clusters: {counts:?}");
    }
}

#[test]
fn images_of_mformat_are_read_whole() {
    if !judged() || !ready("mformat") {
        return;
    }
    let scratch = Scratch::new("mformat");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    populate(Path::new(&tree));
    let wanted = comparable(&manifest(&tree, &[]));
    for (format, options) in [
        ("fat12", &["-f", "1440"][..]),
        ("fat12", &["-f", "2880", "-c", "4"]),
        ("fat12", &["-T", "8000", "-h", "16", "-s", "32", "-d", "1"]),
        ("fat16", &["-T", "40000", "-h", "16", "-s", "32", "-c", "4"]),
        ("fat16", &["-T", "200000", "-h", "16", "-s", "63", "-d", "1", "-r", "64"]),
        ("fat32", &["-T", "200000", "-h", "16", "-s", "63", "-c", "1", "-F"]),
        ("fat32", &["-T", "700000", "-h", "16", "-s", "63", "-c", "8", "-F", "-d", "1"]),
    ] {
        let _ = std::fs::remove_file(&image);
        mtools("mformat", &image, &[&["-C", "-v", "MADE", "-N", "12345678"], options].concat());
        let what = format!("{options:?}");
        let info: serde_json::Value =
            serde_json::from_str(&text(&seekless(&["info", "--json", &image]))).expect("JSON");
        assert_eq!(info["format"], format, "{what}");
        assert_eq!(info["label"], "MADE", "{what}");
        assert_eq!(info["uuid"], "12345678-0000-0000-0000-000000000000", "{what}");
        reads_back(&what, &image, &tree, &wanted);
    }
}

#[test]
fn the_sleuth_kit_and_grub_read_the_same() {
    if !judged() || !ready("fls") || !ready("icat") || !ready("grub-fstest") {
        return;
    }
    let scratch = Scratch::new("fat-sleuth");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    populate(Path::new(&tree));
    // The Sleuth Kit truncates names of that length.
    std::fs::remove_file(format!("{tree}/DIR/{}", "n".repeat(200))).expect("remove");
    for (bits, size) in [("12", 3 << 20), ("16", 20 << 20), ("32", 40 << 20)] {
        sparse(&image, size);
        run("mkfs.fat", &["-F", bits, "-n", "JUDGED", &image]);
        for top in ["DIR", "many names", "empty"] {
            mtools("mcopy", &image, &["-s", "-m", &format!("{tree}/{top}"), "::"]);
        }
        let mut ours: Vec<String> = Vec::new();
        for line in text(&seekless(&["ls", "-R", "--json", &image])).lines() {
            let entry: serde_json::Value = serde_json::from_str(line).expect("JSON");
            ours.push(entry["path"].as_str().expect("path").trim_start_matches('/').to_string());
        }
        let listed = run("fls", &["-r", "-p", "-u", &image]);
        let mut theirs = Vec::new();
        for line in listed.lines() {
            let (what, name) = line.split_once(":\t").expect("line");
            if name.contains('$') || name.contains("(Volume Label Entry)") {
                continue;
            }
            theirs.push(name.to_string());
            let inode = what.split_whitespace().last().expect("inode");
            if !what.starts_with("r/r") {
                continue;
            }
            let out = std::process::Command::new("icat").args([&image, inode]).output();
            let read = crate::judges::command(&["cat", &image, &format!("/{name}")]).output();
            assert_eq!(out.expect("icat").stdout, read.expect("cat").stdout, "{name}");
        }
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs, "FAT{bits}");
        let file = format!("{tree}/DIR/FILE8.BIN");
        run("grub-fstest", &[&image, "cmp", "(loop0)/DIR/FILE8.BIN", &file]);
    }
}
