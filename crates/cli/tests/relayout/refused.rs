//! Refusals before anything is moved.

use super::judges::{Mounted, Scratch, can_mount, failure, ready, run, seekless};
use super::{import, prepare, trace_of};
use std::fs;
use std::process::Command;

/// A file system of another kind, mounted for the duration of the test.
struct Other(String);

impl Other {
    /// `None` if this machine does not support it.
    fn new(scratch: &Scratch, kind: &str, size: &str) -> Option<Self> {
        let at = scratch.join(kind);
        fs::create_dir(&at).expect("mkdir");
        let mounted = if kind == "tmpfs" {
            Command::new("mount").args(["-t", kind, "none", &at]).status()
        } else {
            if !ready(&format!("mkfs.{kind}")) {
                return None;
            }
            let image = scratch.join(&format!("{kind}.image"));
            run("truncate", &["-s", size, &image]);
            run(&format!("mkfs.{kind}"), &["-q", &image]);
            Command::new("mount").args(["-o", "loop", &image, &at]).status()
        };
        mounted.is_ok_and(|status| status.success()).then_some(Self(at))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// The first block of a file.
fn starts_at(path: &str) -> u64 {
    let listed = run("filefrag", &["-e", path]);
    let line = listed.lines().find(|line| line.trim_start().starts_with("0:")).expect("an extent");
    let first = line.split(':').nth(2).and_then(|places| places.split("..").next());
    first.and_then(|first| first.trim().parse().ok()).expect("a number")
}

#[test]
fn other_file_systems() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::on_disk("relayout-others");
    let trace = trace_of(&scratch, &["/a".to_string()], 1);
    let mut refused = 0;
    for (kind, size) in [("tmpfs", ""), ("btrfs", "128M")] {
        let Some(other) = Other::new(&scratch, kind, size) else { continue };
        let (code, message) = failure(&seekless(&["relayout", &other.0, "--trace", &trace]));
        assert!(code == 4 && message.contains(kind), "{kind}: {code}: {message}");
        refused += 1;
    }
    assert!(refused > 0, "not even tmpfs");
}

#[test]
fn ext_that_cannot_be_moved() {
    if !can_mount() {
        return;
    }
    for (options, access, what) in [
        (&["-O", "bigalloc"][..], "rw", "bigalloc"),
        (&["-O", "^extent,^64bit"], "rw", "extents"),
        (&[], "ro", "read-only"),
        (&[], "rw,data=journal", "not supported"),
    ] {
        let scratch = Scratch::on_disk("relayout-refused");
        let image = scratch.join("image");
        run("mke2fs", &[&["-q", "-F", "-t", "ext4"], options, &[&image, "64M"]].concat());
        {
            let mounted = Mounted::new(&scratch, &image, "rw");
            for name in ["a", "b"] {
                fs::write(mounted.path().join(name), vec![1; 30_000]).expect("write");
            }
        }
        let trace = import(&scratch, &["/b".to_string(), "/a".to_string()]);
        let mounted = Mounted::new(&scratch, &image, access);
        let lies = || starts_at(&format!("{}/a", mounted.text()));
        let before = lies();
        let args = ["relayout", mounted.text(), "--trace", &trace];
        let (code, message) = failure(&seekless(&args));
        assert!(code == 4 && message.contains(what), "{what}: {code}: {message}");
        assert_eq!(before, lies(), "{what}");
    }
}

/// The kernel counts the errors it finds in the superblock.
#[test]
fn a_volume_with_errors() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::on_disk("relayout-errors");
    let (image, mounted, paths) = prepare(&scratch, &["-b", "4096"], "64M", 100);
    drop(mounted);
    run("debugfs", &["-w", "-R", "set_super_value error_count 3", &image]);
    let trace = trace_of(&scratch, &paths, 2);
    let mounted = Mounted::new(&scratch, &image, "rw");
    let args = ["relayout", mounted.text(), "--trace", &trace];
    let (code, message) = failure(&seekless(&args));
    assert!(code == 3 && message.contains("errors"), "{code}: {message}");
}

#[test]
fn without_rights_or_traces() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::on_disk("relayout-rights");
    let (_, mounted, paths) = prepare(&scratch, &["-b", "4096"], "64M", 100);
    let trace = trace_of(&scratch, &paths, 2);
    let lies = || starts_at(&format!("{}{}", mounted.text(), paths[0]));
    let before = lies();
    let none = scratch.join("none");
    let (code, message) = failure(&seekless(&["relayout", mounted.text(), "--trace", &none]));
    assert!(code == 6 && message.contains(&none), "{code}: {message}");
    let (code, message) = failure(&seekless(&["relayout", &none, "--trace", &trace]));
    assert!(code == 6 && message.contains(&none), "{code}: {message}");
    let output = seekless(&["relayout", mounted.text()]);
    assert_eq!(output.status.code(), Some(2));

    // Other users have no access to the directories of the program and the trace.
    let program = "/proc/self/fd/9";
    let shell = format!(
        "exec 9<{}; exec setpriv --reuid=65534 --regid=65534 --clear-groups {program} relayout {} --trace /dev/null",
        env!("CARGO_BIN_EXE_seekless"),
        mounted.text(),
    );
    run("chmod", &["755", scratch.path().to_str().expect("path")]);
    let output = Command::new("sh").args(["-c", &shell]).output().expect("sh");
    let (code, message) = failure(&output);
    assert!(code == 6 && message.contains("root"), "{code}: {message}");

    // A trace of other files: a warning, and no moves.
    let other = import(&scratch, &["/not/here".to_string()]);
    let output = seekless(&["relayout", mounted.text(), "--trace", &other]);
    assert!(!output.stderr.is_empty(), "no word about files that are not there");
    assert_eq!(before, lies());

    // Two at the same time.
    let dir = fs::File::open(mounted.path()).expect("open");
    rustix::fs::flock(&dir, rustix::fs::FlockOperation::LockExclusive).expect("lock");
    let (code, message) = failure(&seekless(&["relayout", mounted.text(), "--trace", &trace]));
    assert!(code == 6 && message.contains("another process"), "{code}: {message}");
}
