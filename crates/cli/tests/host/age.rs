//! Ageing of a mounted ext4: the requested fullness, real data, the same names with the same seed,
//! and no errors in e2fsck.

use crate::judges::{Mounted, Scratch, failure, seekless, text};
use crate::{capable, machine, run};
use rustix::fs::SeekFrom;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Collects the lengths of all files below a directory, by path.
fn walk(dir: &Path, base: &Path, found: &mut BTreeMap<String, u64>) {
    for entry in fs::read_dir(dir).expect("directory") {
        let path = entry.expect("entry").path();
        let meta = path.symlink_metadata().expect("file");
        if meta.is_dir() {
            walk(&path, base, found);
        } else {
            let name = path.strip_prefix(base).expect("below").to_string_lossy().into_owned();
            found.insert(name, meta.len());
        }
    }
}

/// Fails if a part of a file is a hole or zeros.
fn is_real(path: &Path) {
    let file = File::open(path).expect("file");
    let meta = file.metadata().expect("file");
    let hole = rustix::fs::seek(&file, SeekFrom::Hole(0)).expect("SEEK_HOLE");
    assert_eq!(hole, meta.len(), "{}: a hole", path.display());
    assert!(meta.blocks() * 512 >= meta.len(), "{}: too few blocks", path.display());
    let bytes = fs::read(path).expect("file");
    // A short part may well be zero.
    let real = |part: &[u8]| part.len() < 8 || part.iter().any(|byte| *byte != 0);
    assert!(bytes.chunks(512).all(real), "{}: zeros", path.display());
}

/// Ages a new ext4; returns the JSON output and the files.
fn aged(scratch: &Scratch, name: &str, seed: &str) -> (Value, BTreeMap<String, u64>) {
    let image = scratch.join(name);
    let size = "192M";
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0", &image, size]).unwrap();
    let mounted = Mounted::new(scratch, &image, "rw");
    let args = ["age", "--json", "--mounted", mounted.text(), "--profile", "build"];
    let more = ["--ops", "12000", "--seed", seed, "--samples", "5"];
    let said: Value = serde_json::from_str(&text(&seekless(&[&args[..], &more].concat()))).unwrap();
    let top = mounted.path().join("aged");
    let mut files = BTreeMap::new();
    walk(&top, &top, &mut files);
    assert!(files.keys().all(|name| !name.is_empty()));
    for name in files.keys() {
        is_real(&top.join(name));
    }
    // Fullness as df computes it.
    let told = rustix::fs::statvfs(mounted.path()).unwrap();
    let used = (told.f_blocks - told.f_bfree) as f64;
    let fullness = used / (used + told.f_bavail as f64);
    assert!((0.785..0.81).contains(&fullness), "{fullness}");
    let again = ["age", "--mounted", mounted.text(), "--ops", "9"];
    let (code, message) = failure(&seekless(&again));
    assert!(code == 6 && message.contains("not empty"), "{code} {message}");
    drop(mounted);
    // e2fsck may propose to narrow the extent trees of truncated files, which the kernel leaves as
    // they are.
    run("e2fsck", &["-fn", &image]).unwrap();
    (said, files)
}

#[test]
fn a_mounted_ext4_is_aged_with_real_data() {
    if !capable() {
        return;
    }
    let _machine = machine();
    let scratch = Scratch::on_disk("age-mounted");
    let (said, files) = aged(&scratch, "first", "1");
    assert_eq!(said["end"], "done");
    let (low, high) =
        (said["held"]["low"].as_f64().unwrap(), said["held"]["high"].as_f64().unwrap());
    assert!(low > 0.78 && high < 0.81, "{low}..{high}");
    let samples = said["samples"].as_array().unwrap();
    assert_eq!(samples.last().unwrap()["files"], files.len());
    let score = samples.last().unwrap()["layout_score"].as_f64().unwrap();
    assert!((0.5..1.0).contains(&score), "{score}");
    assert_eq!(files, aged(&scratch, "second", "1").1, "the same seed");
    assert_ne!(files, aged(&scratch, "third", "2").1, "another seed");
}

#[test]
fn where_layouts_cannot_be_told_there_is_no_score() {
    if !capable() {
        return;
    }
    let scratch = Scratch::on_disk("age-tmpfs");
    let at = scratch.join("at");
    fs::create_dir(&at).unwrap();
    if run("mount", &["-t", "tmpfs", "-o", "size=32M", "tmpfs", &at]).is_none() {
        return;
    }
    let output = seekless(&["age", "--json", "--mounted", &at, "--ops", "500", "--profile", "git"]);
    let below = scratch.join("at/below");
    fs::create_dir(&below).unwrap();
    let args = ["age", "--mounted", &below, "--ops", "50", "--profile", "git"];
    let (code, message) = failure(&seekless(&args));
    let any = seekless(&[&args[..], &["--any-directory"]].concat());
    let aged = Path::new(&below).join("aged").is_dir();
    run("umount", &[&at]);
    assert!(code == 2 && message.contains("the file system mounted at"), "{code} {message}");
    assert!(any.status.success() && aged);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("FIEMAP") && told.lines().count() == 1, "{told}");
    let said: Value = serde_json::from_str(&text(&output)).unwrap();
    assert!(said["samples"][100]["layout_score"].is_null() && said["samples"][100]["files"] != 0);
}
