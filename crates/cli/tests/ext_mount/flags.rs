//! `lsattr` and `chattr` through the mount: flags are kept, obeyed, and the kernel finds them.

use crate::judges::{Mounted as KernelMount, Scratch, check, run, seekless, text};
use crate::mounted::Mounted;
use crate::ready;
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

const VOLUMES: &[(&str, &[&str], &str)] = &[
    ("mke2fs", &["-q", "-F", "-t", "ext4"], "journal=ordered"),
    ("mke2fs", &["-q", "-F", "-t", "ext2", "-I", "128"], "softdep"),
    ("ufs2", &[], "softdep"),
    ("ufs1", &[], "sync"),
];

fn make(image: &str, kind: &str, how: &[&str]) {
    if kind == "mke2fs" {
        run("mke2fs", &[how, &[image, "32M"]].concat());
    } else {
        text(&seekless(&["mkfs", image, "--format", kind, "--size", "32M"]));
    }
}

/// The letters of `lsattr` but for those of formats.
fn letters(path: &Path) -> String {
    let told = run("lsattr", &["-d", path.to_str().expect("path")]);
    let letters = told.split_whitespace().next().expect("letters");
    letters.chars().filter(|letter| !"-eI".contains(*letter)).collect()
}

fn chattr(path: &Path, change: &str) {
    run("chattr", &[change, path.to_str().expect("path")]);
}

/// A change of flags that fails, and says so.
fn refused(command: &[&str], path: &Path, why: &str) {
    let done = Command::new(command[0]).args(&command[1..]).arg(path).output().expect("chattr");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && said.contains(why), "{command:?}: {said}");
}

fn denied<T>(done: std::io::Result<T>, what: &str) {
    let error = done.err().unwrap_or_else(|| panic!("{what} is possible"));
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{what}: {error}");
}

#[test]
fn flags_of_files_are_set_and_obeyed() {
    if !ready() {
        return;
    }
    for (kind, how, discipline) in VOLUMES {
        let scratch = Scratch::new("flags");
        let (image, at) = (scratch.join("image"), scratch.path().join("at"));
        make(&image, kind, how);
        let mounted = Mounted::new(&image, &at, &format!("rw,{discipline},allow_other"));
        let [fixed, log, plain, dir] = ["fixed", "log", "plain", "dir"].map(|name| at.join(name));
        for file in [&fixed, &log, &plain] {
            fs::write(file, "contents").expect("write");
        }
        fs::create_dir(&dir).expect("mkdir");
        fs::write(dir.join("inside"), "").expect("write");
        assert_eq!(letters(&fixed), "", "{kind}");

        chattr(&fixed, "+i");
        chattr(&log, "+a");
        chattr(&plain, "+d");
        chattr(&dir, "+i");
        let judge = || {
            let all = [&fixed, &log, &plain, &dir].map(|path| letters(path));
            assert_eq!(all, ["i", "a", "d", "i"], "{kind}");
            // Root as well.
            denied(
                File::options().write(true).open(&fixed).and_then(|mut f| f.write(b"x")),
                "a write",
            );
            denied(fs::remove_file(&fixed), "a removal");
            denied(fs::rename(&fixed, at.join("other")), "a rename");
            denied(fs::hard_link(&fixed, at.join("other")), "a link");
            denied(fs::write(dir.join("new"), ""), "a new file");
            denied(fs::remove_file(dir.join("inside")), "a removal");
            denied(File::options().write(true).open(&log).and_then(|f| f.set_len(1)), "a cut");
            denied(fs::remove_file(&log), "a removal");
            let mode = Permissions::from_mode(0o600);
            denied(fs::set_permissions(&log, mode), "another mode");
            denied(chown(&log, Some(7), None), "another owner");
            if *kind != "ufs1" {
                let set = ["-n", "user.x", "-v", "1"];
                refused(&[&["setfattr"], &set[..]].concat(), &log, "not permitted");
            }
        };
        judge();
        File::options().append(true).open(&log).expect("open").write_all(b"more").expect("append");
        // Of the owner's flags, those that need no capability.
        run("chown", &["1000", plain.to_str().expect("path")]);
        let user = ["setpriv", "--reuid", "1000", "--clear-groups", "chattr"];
        run(user[0], &[&user[1..], &["-d", plain.to_str().expect("path")]].concat());
        run(user[0], &[&user[1..], &["+d", plain.to_str().expect("path")]].concat());
        refused(&[&user[..], &["+i"]].concat(), &plain, "not permitted");
        refused(&[&user[..], &["+d"]].concat(), &log, "not permitted");
        refused(&["chattr", "+S"], &plain, "not supported");
        mounted.end();

        if *kind == "mke2fs" {
            check(&image);
            let kernel = KernelMount::new(&scratch, &image, "rw");
            let theirs = |name: &str| letters(&kernel.path().join(name));
            assert_eq!(["fixed", "log", "plain", "dir"].map(theirs), ["i", "a", "d", "i"]);
            denied(fs::write(kernel.path().join("fixed"), ""), "a write");
        } else {
            text(&seekless(&["check", &image]));
        }
        let mounted = Mounted::new(&image, &at, &format!("rw,{discipline}"));
        judge();
        chattr(&fixed, "-i");
        chattr(&log, "-a");
        chattr(&dir, "-i");
        fs::write(&fixed, "new").expect("write");
        assert_eq!(fs::read_to_string(&log).expect("read"), "contentsmore");
        fs::remove_file(&log).expect("rm");
        fs::remove_dir_all(&dir).expect("rm");
        mounted.end();
        text(&seekless(&["check", &image]));
    }
    let scratch = Scratch::new("no-flags");
    let (image, at) = (scratch.join("image"), scratch.path().join("at"));
    make(&image, "fat32", &[]);
    let mounted = Mounted::new(&image, &at, "rw");
    fs::write(at.join("file"), "").expect("write");
    refused(&["lsattr"], &at.join("file"), "not supported");
    refused(&["chattr", "+i"], &at.join("file"), "not supported");
    mounted.end();
}
