//! Quotas of UFS images, built from trees.

use super::{Draw, Quotas, answer, is_root, reported, tree};
use crate::judges::{Scratch, ready, run, seekless, text};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// Inodes by owner in a tree, without owners from 2^31 on.
fn inodes(at: &Path) -> Quotas {
    let mut counted = Quotas::new();
    let mut left = vec![at.to_path_buf()];
    while let Some(path) = left.pop() {
        let found = fs::symlink_metadata(&path).expect("stat");
        if found.is_dir() {
            left.extend(fs::read_dir(&path).expect("readdir").map(|entry| entry.unwrap().path()));
        }
        if found.uid() >> 31 == 0 && found.gid() >> 31 == 0 {
            for (kind, id) in [("user", found.uid()), ("group", found.gid())] {
                counted.entry((kind.into(), id)).or_default()[3] += 1;
            }
        }
    }
    counted
}

/// Records by id in a quota file of 64 bits, as The Sleuth Kit reads it: the eight numbers.
fn records(image: &str, name: &str) -> BTreeMap<u32, [u64; 8]> {
    let listing = run("fls", &["-F", image]);
    let line = listing.lines().find(|line| line.ends_with(name)).expect(name);
    let ino = line.split([' ', ':']).nth(1).expect("inode");
    let bytes = Command::new("icat").args([image, ino]).output().expect("icat").stdout;
    assert!(bytes.starts_with(b"QUOTA64\0"));
    let records = (0..).zip(bytes[64..].chunks_exact(64)).map(|(id, raw)| {
        let mut words = raw.chunks(8).map(|word| u64::from_be_bytes(word.try_into().unwrap()));
        (id, std::array::from_fn(|_| words.next().unwrap()))
    });
    records.filter(|(_, words)| *words != [0; 8]).collect()
}

#[test]
fn quotas_of_ufs_by_the_sleuth_kit() {
    if !is_root() || !ready("icat") {
        return;
    }
    let scratch = Scratch::new("quota-ufs");
    for (seed, format) in [(1, "ufs1"), (2, "ufs2")] {
        let (image, root) = (scratch.join(format), scratch.path().join(format!("tree{seed}")));
        tree(&root, &mut Draw(seed));
        let from = root.to_str().expect("path");
        text(&seekless(&["build", from, "-q", "-o", &image, "--format", format, "--size", "16M"]));
        assert_eq!(answer(&["quota", "report", "--json", &image]).0, 4);
        assert_eq!(seekless(&["quota", "check", &image]).status.code(), Some(8));
        let (code, found) = answer(&["quota", "check", "-u", "-g", "--json", &image]);
        assert!(
            code == 4 && found["unusable"].as_array().is_some_and(|all| all.len() == 2),
            "{found}"
        );
        assert_eq!(seekless(&["quota", "check", "-y", "-u", "-g", &image]).status.code(), Some(1));
        text(&seekless(&["quota", "check", &image]));
        let mut expected = inodes(&root);
        let quotas = reported(&image);
        let only = |quotas: &Quotas| {
            quotas.iter().map(|(key, numbers)| (key.clone(), numbers[3])).collect::<Vec<_>>()
        };
        assert_eq!(only(&quotas), only(&expected), "{format}");
        text(&seekless(&[
            "quota",
            "set",
            &image,
            "-u",
            "alice",
            "--space-soft",
            "1M",
            "--space-hard",
            "2M",
        ]));
        text(&seekless(&[
            "quota",
            "set",
            &image,
            "-g",
            "staff",
            "--inodes-soft",
            "1",
            "--inodes-hard",
            "900",
        ]));
        text(&seekless(&["quota", "grace", &image, "-g", "--space", "1d"]));
        let [users, groups] = ["quota.user", "quota.group"].map(|name| records(&image, name));
        assert_eq!(users[&7][..2], [4096, 2048]);
        assert_eq!((groups[&7][3], groups[&7][4], groups[&0][6]), (900, 1, 86_400));
        for (kind, all) in [("user", &users), ("group", &groups)] {
            for (&id, words) in all {
                if let Some(numbers) = expected.get_mut(&(kind.into(), id)) {
                    *numbers = [
                        words[2] * 512,
                        words[1] * 512,
                        words[0] * 512,
                        numbers[3],
                        words[4],
                        words[3],
                    ];
                    assert_eq!(words[5], numbers[3], "{format}: {kind} {id}");
                }
            }
        }
        assert_eq!(reported(&image), expected, "{format}");
        text(&seekless(&["quota", "check", &image]));
        text(&seekless(&["check", &image]));
        let report = text(&seekless(&["quota", "report", &image]));
        assert!(report.contains("alice") && report.contains("staff  -+"), "{report}");
    }
}

/// A check of the volume says that quota files are stale, which is no finding.
#[test]
fn a_check_of_the_volume_names_stale_quotas() {
    let scratch = Scratch::new("quota-stale");
    let (image, root) = (scratch.join("image"), scratch.path().join("tree"));
    fs::create_dir(&root).expect("mkdir");
    let mut file = b"QUOTA64\0\x20\x08\x11\x04\0\0\0\x40\0\0\0\x40".to_vec();
    file.resize(64, 0);
    fs::write(root.join("quota.user"), &file).expect("write");
    let from = root.to_str().expect("path");
    text(&seekless(&["build", from, "-q", "-o", &image, "--format", "ufs2", "--size", "16M"]));
    let stale = |image: &str| {
        let (code, report) = answer(&["check", "--json", image]);
        assert_eq!((code, &report["clean"]), (0, &true.into()), "{report}");
        let said = text(&seekless(&["check", image]));
        let stale = report["stale_quotas"].as_bool().expect("a field");
        assert_eq!(said.contains("quota files is not that of the files"), stale, "{said}");
        stale
    };
    assert!(stale(&image));
    assert_eq!(seekless(&["quota", "check", "-y", &image]).status.code(), Some(1));
    assert!(!stale(&image));
}

/// A snapshot that makes `/.snap`, which is charged to root, names the command that corrects the
/// quota files; a later one does not.
#[test]
fn a_snapshot_says_that_usage_is_stale() {
    let scratch = Scratch::new("quota-snapshot");
    let (image, root) = (scratch.join("image"), scratch.path().join("tree"));
    fs::create_dir(&root).expect("mkdir");
    fs::write(root.join("file"), "text").expect("write");
    let from = root.to_str().expect("path");
    text(&seekless(&["build", from, "-q", "-o", &image, "--format", "ufs2", "--size", "32M"]));
    let without = seekless(&["quota", "report", &image]);
    let said = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(said.contains("`seekless quota check -y -u -g` makes them"), "{said}");
    assert_eq!(seekless(&["quota", "check", "-y", "-u", "-g", &image]).status.code(), Some(1));
    let warned = |name: &str| {
        let taken = seekless(&["snapshot", "take", &image, name]);
        assert!(taken.status.success(), "{taken:?}");
        let said = String::from_utf8_lossy(&taken.stderr).into_owned();
        let is_warned = said.contains("`seekless quota check -y` corrects it");
        assert_eq!(is_warned, said.contains("quota.user and quota.group"), "{said}");
        let is_stale = seekless(&["quota", "check", &image]).status.code() == Some(4);
        assert_eq!(is_warned, is_stale, "{said}");
        is_warned
    };
    assert!(warned("first"));
    assert_eq!(seekless(&["quota", "check", "-y", &image]).status.code(), Some(1));
    assert!(!warned("second"));
}
