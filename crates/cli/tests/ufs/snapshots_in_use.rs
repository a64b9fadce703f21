//! Snapshots of mounted volumes, and the check that takes one.

use crate::judges::{Scratch, can_mount, failure, manifest, ready, run, same, seekless, text};
use crate::mounted::Mounted;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The contents of a writer's n-th file.
fn contents_of(writer: usize, n: usize) -> Vec<u8> {
    vec![(writer * 31 + n) as u8; 1000 + n * 37 % 40_000]
}

/// Each of several programs makes durable files while a snapshot is taken: it has all that were
/// durable before, and none that was begun later.
#[test]
fn a_snapshot_is_taken_while_others_write() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("ufs-snapshot-live");
    let image = scratch.join("a.ufs");
    text(&seekless(&["mkfs", "--format", "ufs2", "-s", "512M", &image]));
    let at = scratch.path().join("mnt");
    let mounted = Mounted::new(&image, &at, "rw");
    const WRITERS: usize = 8;
    let (begun, durable) =
        ([const { AtomicUsize::new(0) }; WRITERS], [const { AtomicUsize::new(0) }; WRITERS]);
    let ends = AtomicBool::new(false);
    let seen = |counts: &[AtomicUsize]| -> Vec<usize> {
        counts.iter().map(|count| count.load(Ordering::SeqCst)).collect()
    };
    let (before, after, longest, list) = std::thread::scope(|threads| {
        let (begun, durable, ends, at) = (&begun, &durable, &ends, &at);
        let write = |writer: usize| {
            let dir = at.join(format!("w{writer}"));
            fs::create_dir(&dir).expect("mkdir");
            let mut longest = Duration::ZERO;
            for n in 0.. {
                if ends.load(Ordering::SeqCst) {
                    break;
                }
                let start = Instant::now();
                begun[writer].store(n + 1, Ordering::SeqCst);
                let mut file = fs::File::create(dir.join(n.to_string())).expect("create");
                file.write_all(&contents_of(writer, n)).expect("write");
                file.sync_all().expect("fsync");
                if n % 3 == 2 {
                    fs::remove_file(dir.join((n - 2).to_string())).expect("remove");
                }
                durable[writer].store(n + 1, Ordering::SeqCst);
                longest = longest.max(start.elapsed());
            }
            longest
        };
        let writers: Vec<_> = (0..WRITERS).map(|n| threads.spawn(move || write(n))).collect();
        while seen(durable).iter().any(|&count| count < 4) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let before = seen(durable);
        let start = Instant::now();
        let mnt = at.to_str().expect("path");
        text(&seekless(&["snapshot", "take", "--json", mnt, "daily"]));
        let took = start.elapsed();
        let after = seen(begun);
        println!("taken in {took:?}");
        let list = text(&seekless(&["snapshot", "list", "--json", mnt]));
        std::os::unix::fs::symlink(".snap", at.join("link")).expect("symlink");
        for (name, says) in [
            ("daily", "exists"),
            ("a/b", "slash"),
            ("/..", "name"),
            ("/none/x", "no directory"),
            ("/link/x", "no directory"),
        ] {
            let (code, why) = failure(&seekless(&["snapshot", "take", mnt, name]));
            assert!(code == 2 && why.contains(says), "{name}: {code} {why}");
        }
        std::thread::sleep(Duration::from_millis(200));
        ends.store(true, Ordering::SeqCst);
        let longest = writers.into_iter().map(|writer| writer.join().expect("a writer")).max();
        (before, after, longest, list)
    });
    println!("the longest that a writer waited: {longest:?}");
    assert_eq!(fs::metadata(at.join(".snap/daily")).expect("stat").len() >> 29, 1, "its length");
    mounted.end();
    let [in_use, now] =
        [list, text(&seekless(&["snapshot", "list", "--json", &image]))].map(|list| {
            let mut found: serde_json::Value = serde_json::from_str(list.trim()).expect("one line");
            let held = found["held_bytes"].take().as_u64().expect("a number");
            (found, held)
        });
    assert_eq!(in_use.0, now.0);
    assert!(in_use.1 > 0 && in_use.1 <= now.1, "{in_use:?}, {now:?}");
    let daily = format!("{image}@daily");
    text(&seekless(&["check", &daily]));
    text(&seekless(&["check", &image]));
    let copy = scratch.join("copy");
    text(&seekless(&["cp", "-r", &daily, "/", &copy]));
    // The Sleuth Kit reads the snapshot as an image of its own.
    let alone = scratch.join("daily");
    text(&seekless(&["cp", &image, "/.snap/daily", &alone]));
    let listed = ready("fls").then(|| run("fls", &["-r", "-p", "-u", &alone]));
    let has = |writer: usize, n: usize| {
        let name = format!("\tw{writer}/{n}");
        listed.as_ref().map(|listed| listed.lines().any(|line| line.ends_with(&name)))
    };
    for writer in 0..WRITERS {
        let (low, high) = (before[writer], after[writer]);
        assert!(low > 3, "writer {writer} was durable {low} times before");
        let file = |n: usize| fs::read(format!("{copy}/w{writer}/{n}"));
        for n in (0..low).filter(|n| n % 3 != 0) {
            assert!(file(n).ok() == Some(contents_of(writer, n)), "writer {writer}: file {n}");
            assert_ne!(has(writer, n), Some(false), "writer {writer}: file {n}");
        }
        for n in high..high + 50 {
            assert!(file(n).is_err(), "writer {writer}: file {n} of {low} to {high}");
            assert_ne!(has(writer, n), Some(true), "writer {writer}: file {n} of {low} to {high}");
        }
    }
}

/// The snapshots of a mounted volume are listed with their paths, and removed.
#[test]
fn snapshots_of_a_mounted_volume_are_listed_and_removed() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("ufs-snapshot-list");
    for format in ["ufs1", "ufs2"] {
        let image = scratch.join(format);
        text(&seekless(&["mkfs", "--format", format, "--size", "64M", &image]));
        let at = scratch.path().join("mnt");
        let mounted = Mounted::new(&image, &at, "rw");
        let mnt = at.to_str().expect("path");
        let list = |of: &str| text(&seekless(&["snapshot", "list", of]));
        assert_eq!(list(mnt), "");
        fs::create_dir_all(at.join("a/b")).expect("mkdir");
        for name in ["daily", "/a/b/weekly", "/last"] {
            fs::write(at.join("file"), name).expect("write");
            text(&seekless(&["snapshot", "take", mnt, name]));
        }
        let listed = list(mnt);
        let paths: Vec<&str> =
            listed.lines().filter_map(|line| line.split_whitespace().last()).collect();
        assert_eq!(paths, ["/.snap/daily", "/a/b/weekly", "/last"], "{listed}");
        fs::rename(at.join("a"), at.join("c")).expect("rename");
        assert!(list(mnt).contains(" /c/b/weekly"), "{}", list(mnt));
        let (code, why) = failure(&seekless(&["snapshot", "rm", mnt, "--all", "--keep-files"]));
        assert!(code == 4 && why.contains("unmount it"), "{code} {why}");
        for (name, says) in [
            ("none", "no snapshot none"),
            ("/file", "/file is not a snapshot"),
            ("/none/daily", "no directory"),
            ("a/b", "slash"),
        ] {
            let (code, why) = failure(&seekless(&["snapshot", "rm", mnt, name]));
            assert!(code == 2 && why.contains(says), "{name}: {code} {why}");
        }
        let reader = fs::File::open(at.join(".snap/daily")).expect("open");
        let (code, why) = failure(&seekless(&["snapshot", "rm", mnt, "/.snap/daily"]));
        assert!(code == 6 && why.contains("busy"), "{code} {why}");
        drop(reader);
        // Of several names, one that cannot be removed keeps all.
        for names in [["daily", "none"], ["/last", "/file"]] {
            let rm = [&["snapshot", "rm", mnt][..], &names].concat();
            assert_eq!(failure(&seekless(&rm)).0, 2, "{names:?}");
        }
        let in_use = list(mnt);
        assert_eq!(in_use.lines().count(), 3, "{in_use}");
        mounted.end();
        let without_sizes = |list: &str| -> Vec<String> {
            let words = list.lines().map(str::split_whitespace);
            words.map(|words| words.rev().take(2).collect()).collect()
        };
        assert_eq!(without_sizes(&in_use), without_sizes(&list(&image)));
        let manifest_of = |name: &str| manifest(&format!("{image}@{name}"), &[]);
        let last = manifest_of("/last");
        text(&seekless(&["snapshot", "rm", &image, "/c/b/weekly"]));
        assert_eq!(list(&image).lines().count(), 2);
        text(&seekless(&["check", &image]));
        let mounted = Mounted::new(&image, &at, "rw");
        fs::write(at.join("file"), [1; 9000]).expect("write");
        let told = text(&seekless(&["snapshot", "rm", "--json", mnt, "daily", "/.snap/daily"]));
        assert!(told.contains(r#""removed":1"#), "{told}");
        assert!(!at.join(".snap/daily").exists());
        fs::write(at.join("file"), [2; 9000]).expect("write");
        assert_eq!(list(mnt).lines().count(), 1);
        text(&seekless(&["snapshot", "take", mnt, "/next"]));
        mounted.end();
        text(&seekless(&["check", &image]));
        same("the other snapshot", &last, &manifest_of("/last"));
        if ready("fls") {
            let listed = run("fls", &["-r", "-p", "-u", &image]);
            let has = |name: &str| listed.lines().any(|line| line.ends_with(name));
            assert!(has("\tlast") && has("\tnext") && has("\tfile"), "{listed}");
            assert!(!has(".snap/daily") && !has("c/b/weekly"), "{listed}");
        }
        let mounted = Mounted::new(&image, &at, "rw");
        let told = text(&seekless(&["snapshot", "rm", "--json", mnt, "--all"]));
        assert!(told.contains(r#""removed":2"#), "{told}");
        assert_eq!(list(mnt), "");
        mounted.end();
        assert_eq!(list(&image), "");
        text(&seekless(&["check", &image]));
    }
    let plain = scratch.path().join("dir");
    fs::create_dir(&plain).expect("mkdir");
    let (code, why) = failure(&seekless(&["snapshot", "list", plain.to_str().expect("path")]));
    assert!(code == 2 && why.contains("mounted"), "{code} {why}");
    let (code, why) = failure(&seekless(&["snapshot", "list", "/proc"]));
    assert!(code == 4 && why.contains("mounted with rw"), "{code} {why}");
}

/// A volume is checked while a program changes it; nothing of that is left.
#[test]
fn a_mounted_volume_is_checked() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("ufs-check-mounted");
    let image = scratch.join("a.ufs");
    text(&seekless(&["mkfs", "--format", "ufs2", "--size", "128M", &image]));
    let at = scratch.path().join("mnt");
    let mnt = at.to_str().expect("path");
    let check = ["check", "--background", mnt];
    let mounted = Mounted::new(&image, &at, "rw");
    let left = AtomicUsize::new(4);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // A failure of the other thread must not be waited for.
            for n in (0..20_000).take_while(|_| left.load(Ordering::SeqCst) > 0) {
                let dir = at.join(format!("dir-{n}"));
                fs::create_dir(&dir).expect("mkdir");
                fs::write(dir.join("name-of-a-file"), contents_of(1, n % 50)).expect("write");
                if n >= 3 {
                    fs::remove_dir_all(at.join(format!("dir-{}", n - 3))).expect("remove");
                }
            }
        });
        for _ in 0..3 {
            let said = text(&seekless(&[&["--json"], &check[..]].concat()));
            let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
            assert_eq!((&said["outcome"], &said["image"]), (&"clean".into(), &mnt.into()));
            assert!(said["directories"].as_u64() >= Some(2), "{said}");
            assert!(!at.join(".snap/fsck_snapshot").exists());
            left.fetch_sub(1, Ordering::SeqCst);
        }
        // As another check has it, and as one that was killed leaves it.
        text(&seekless(&["snapshot", "take", mnt, "fsck_snapshot"]));
        let open = fs::File::open(at.join(".snap/fsck_snapshot")).expect("open");
        let (code, why) = failure(&seekless(&check));
        assert!(code == 8 && why.contains("busy"), "{code} {why}");
        drop(open);
        assert!(text(&seekless(&check)).contains("in order"));
        fs::write(at.join(".snap/fsck_snapshot"), "").expect("write");
        assert!(text(&seekless(&check)).contains("in order"));
        assert_eq!(text(&seekless(&["snapshot", "list", mnt])), "");
        left.fetch_sub(1, Ordering::SeqCst);
    });
    fs::write(at.join("only-once"), "text").expect("write");
    mounted.end();
    text(&seekless(&["check", &image]));
    let mut bytes = fs::read(&image).expect("read");
    let name = b"only-once";
    let found = bytes.windows(name.len()).position(|part| part == name).expect("a name");
    // The kind of the file in its directory's entry: a symlink instead of a regular file.
    bytes[found - 2] = 10;
    fs::write(&image, bytes).expect("write");
    let mounted = Mounted::new(&image, &at, "rw");
    let found = seekless(&check);
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    assert_eq!(found.status.code(), Some(4), "{said}");
    assert!(said.contains("unmount it"), "{said}");
    mounted.end();
    let (code, why) = failure(&seekless(&["check", "--background", &image]));
    assert!(code == 8 && why.contains("Not a directory"), "{code} {why}");
    assert_eq!(seekless(&["check", "--background", "-y", &image]).status.code(), Some(16));
}

/// Only root and the user of the server may take a snapshot of a mounted volume.
#[test]
fn a_snapshot_is_refused_to_other_users() {
    if !can_mount() || !ready("setpriv") {
        return;
    }
    let scratch = Scratch::new("ufs-snapshot-eperm");
    let image = scratch.join("a.ufs");
    text(&seekless(&["mkfs", "--format", "ufs2", "--size", "64M", &image]));
    let at = scratch.path().join("mnt");
    let mounted = Mounted::new(&image, &at, "rw,allow_other");
    let open = at.join("open");
    fs::create_dir(&open).expect("mkdir");
    for dir in [&at, &open] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).expect("chmod");
    }
    let mnt = at.to_str().expect("path");
    for name in ["/open/mine", "mine"] {
        let user = ["--reuid", "1000", "--regid", "1000", "--clear-groups"];
        let taken = Command::new("setpriv")
            .args(user)
            .arg(env!("CARGO_BIN_EXE_seekless"))
            .args(["snapshot", "take", mnt, name])
            .output()
            .expect("setpriv");
        let (code, why) = failure(&taken);
        assert!(code == 6 && why.contains("not permitted"), "{name}: {code} {why}");
        assert!(!open.join("mine").exists() && !at.join(".snap").exists(), "{name}");
    }
    text(&seekless(&["snapshot", "take", mnt, "/open/mine"]));
    let user = ["--reuid", "1000", "--regid", "1000", "--clear-groups"];
    let removed = Command::new("setpriv")
        .args(user)
        .arg(env!("CARGO_BIN_EXE_seekless"))
        .args(["snapshot", "rm", mnt, "/open/mine"])
        .output()
        .expect("setpriv");
    let (code, why) = failure(&removed);
    assert!(code == 6 && why.contains("denied"), "{code} {why}");
    // Nor is the request granted of a file that is open already.
    let ask = "ioctl(STDIN, 0x7355, 0) or die \"$!\\n\"";
    let asked = Command::new("setpriv")
        .args(user)
        .args(["perl", "-e", ask])
        .stdin(fs::File::open(open.join("mine")).expect("open"))
        .output()
        .expect("setpriv");
    let why = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(!asked.status.success() && why.contains("not permitted"), "{why}");
    assert!(text(&seekless(&["snapshot", "list", mnt])).contains("/open/mine"));
    text(&seekless(&["snapshot", "rm", mnt, "/open/mine"]));
    assert!(!open.join("mine").exists());
    mounted.end();
    text(&seekless(&["check", &image]));
}

/// Only a UFS volume with soft updates takes snapshots while it is mounted; nothing is left behind.
#[test]
fn snapshots_of_other_mounts_are_refused() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("ufs-snapshot-other");
    let dir = scratch.path().join("dir");
    fs::create_dir(&dir).expect("mkdir");
    let take = |at: &Path, name: &str| {
        failure(&seekless(&["snapshot", "take", at.to_str().expect("path"), name]))
    };
    let refused = |at: &Path| {
        for name in ["/daily", "daily"] {
            let (code, why) = take(at, name);
            assert!(code == 4 && why.contains("takes no snapshots"), "{code} {why}");
            assert!(!at.join("daily").exists() && !at.join(".snap").exists(), "{name}");
        }
    };
    let (code, why) = take(&dir, "daily");
    assert!(code == 2 && why.contains("mounted"), "{code} {why}");
    for (format, options) in [("fat32", "rw"), ("ufs2", "rw,normal")] {
        let image = scratch.join(format);
        text(&seekless(&["mkfs", "--format", format, "--size", "64M", &image]));
        let at = scratch.path().join("mnt");
        let mounted = Mounted::new(&image, &at, options);
        refused(&at);
        mounted.end();
        text(&seekless(&["check", &image]));
    }
}
