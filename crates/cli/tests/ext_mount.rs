//! ext2 images changed through the read-write mount, and by the kernel, in turn:
//! each finds what the other has left, and e2fsck finds nothing. Needs root, FUSE
//! and loop devices; says so and passes without.

#[path = "judges/mod.rs"]
mod judges;
#[path = "judges/mounted.rs"]
mod mounted;

use judges::{Mounted as KernelMount, Scratch, check, failure, manifest, run, same, seekless};
use mounted::Mounted;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

const DISCIPLINES: [&str; 4] = ["sync", "normal", "async", "softdep"];

fn ready() -> bool {
    let fuse = fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if fuse && judges::can_mount() {
        return true;
    }
    judges::skip("needs root, /dev/fuse and loop devices");
    false
}

fn make(image: &str, how: &[&str]) {
    run("mke2fs", &[&["-q", "-F", "-t", "ext2"], how, &[image, "48M"]].concat());
}

fn populate(root: &Path, names: usize, large: usize) {
    for dir in ["dir/below/deep", "many", "empty"] {
        fs::create_dir_all(root.join(dir)).expect("mkdir");
    }
    let noise = |len: usize, seed: u64| -> Vec<u8> {
        (0..len as u64).map(|n| (seed.wrapping_mul(n | 1).wrapping_add(n) >> 7) as u8).collect()
    };
    for n in 0..15 {
        fs::write(root.join(format!("dir/{n}")), noise(n * 1531, n as u64)).expect("write");
    }
    fs::write(root.join("double"), noise(large, 78)).expect("write");
    for n in 0..names {
        fs::write(root.join(format!("many/a name of some length {n}")), b"x").expect("write");
    }
    fs::hard_link(root.join("dir/7"), root.join("dir/hard")).expect("link");
    symlink("short", root.join("dir/fast")).expect("symlink");
    symlink("l".repeat(600), root.join("dir/slow")).expect("symlink");
    run("mkfifo", &[root.join("fifo").to_str().expect("path")]);
    run("mknod", &[root.join("disk").to_str().expect("path"), "b", "259", "70000"]);
    let labelled = root.join("dir/9");
    run("setfattr", &["-n", "user.label", "-v", "some value", labelled.to_str().expect("path")]);
}

fn listing(path: &str) -> String {
    manifest(path, &["lost+found"])
}

#[test]
fn the_kernel_and_the_mount_change_an_image_in_turn() {
    if !ready() {
        return;
    }
    for (n, discipline) in DISCIPLINES.into_iter().enumerate() {
        let how: &[&str] = [&["-b", "4096"], &["-b", "1024", "-I", "128"][..]][n % 2];
        let scratch = Scratch::new("ext-mount");
        let image = scratch.join("image");
        let at = scratch.path().join("at");
        make(&image, how);
        let options = format!("rw,{discipline}");
        let mounted = Mounted::new(&image, &at, &options);
        populate(&at, 300, 5 << 20);
        let ours = listing(at.to_str().expect("path"));
        mounted.end();
        check(&image);
        {
            let kernel = KernelMount::new(&scratch, &image, "rw");
            same(&format!("{discipline}: the kernel"), &ours, &listing(kernel.text()));
            fs::remove_dir_all(kernel.path().join("many")).expect("rm");
            // Enough for an index.
            fs::create_dir(kernel.path().join("theirs")).expect("mkdir");
            for n in 0..400 {
                let name = format!("theirs/one more name {n}");
                fs::write(kernel.path().join(name), b"y").expect("write");
            }
        }
        let mounted = Mounted::new(&image, &at, &options);
        for n in (0..400).step_by(3) {
            fs::remove_file(at.join(format!("theirs/one more name {n}"))).expect("rm");
            fs::write(at.join(format!("theirs/ours {n}")), vec![7; n * 9]).expect("write");
        }
        fs::rename(at.join("theirs"), at.join("dir/moved")).expect("mv");
        fs::rename(at.join("dir/3"), at.join("dir/4")).expect("mv");
        fs::rename(at.join("dir/5"), at.join("dir/moved/ours 0")).expect("mv");
        let ours = listing(at.to_str().expect("path"));
        mounted.end();
        check(&image);
        let kernel = KernelMount::new(&scratch, &image, "ro");
        same(&format!("{discipline}: the kernel"), &ours, &listing(kernel.text()));
    }
}

#[test]
fn a_server_that_is_killed_leaves_what_e2fsck_repairs_unasked() {
    if !ready() {
        return;
    }
    for discipline in ["sync", "normal", "softdep"] {
        let scratch = Scratch::new("ext-killed");
        let image = scratch.join("image");
        let at = scratch.path().join("at");
        make(&image, &["-b", "1024"]);
        let mut mounted = Mounted::new(&image, &at, &format!("rw,{discipline},ages=classic"));
        populate(&at, 60, 400_000);
        // One that is made durable is so with its name, and a directory with those
        // in it.
        for entry in fs::read_dir(at.join("dir")).expect("list") {
            let entry = entry.expect("entry");
            if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                fs::File::open(entry.path()).and_then(|file| file.sync_all()).expect("fsync");
            }
        }
        for dir in ["dir/below/deep", "dir"] {
            fs::File::open(at.join(dir)).and_then(|file| file.sync_all()).expect("fsync");
        }
        let durable = listing(at.join("dir").to_str().expect("path"));
        fs::remove_dir_all(at.join("many")).expect("rm");
        for n in 0..60 {
            fs::write(at.join(format!("empty/{n}")), vec![n as u8; n * 50]).expect("write");
        }
        mounted.server.kill().expect("kill");
        mounted.server.wait().expect("wait");
        run("umount", &["-l", at.to_str().expect("path")]);
        let done = std::process::Command::new("e2fsck").args(["-p", &image]).output().expect("run");
        let code = done.status.code();
        assert!(code == Some(0) || code == Some(1), "{discipline}: {code:?} {done:?}");
        check(&image);
        let kernel = KernelMount::new(&scratch, &image, "ro");
        let found = listing(kernel.path().join("dir").to_str().expect("path"));
        same(&format!("{discipline}: what was durable"), &durable, &found);
    }
}

#[test]
fn what_is_not_kept_up_is_refused_by_name() {
    let scratch = Scratch::new("ext-refused");
    let image = scratch.join("image");
    let at = scratch.join("at");
    fs::create_dir_all(&at).expect("mkdir");
    let refused = |options: &str| {
        let (code, said) = failure(&seekless(&["mount", &image, &at, "-o", options]));
        assert_eq!(code, 4, "{said}");
        said
    };
    run("mke2fs", &["-q", "-F", "-t", "ext4", &image, "32M"]);
    let said = refused("rw");
    for feature in ["has_journal", "extent", "64bit", "metadata_csum", "read-only"] {
        assert!(said.contains(feature), "{said}");
    }
    make(&image, &[]);
    let (code, said) = failure(&seekless(&["mount", &image, &at, "-o", "rw,policy=orlov"]));
    assert!(code != 0 && said.contains("ext2-orlov, find-group-dir, linear"), "{said}");
    run("debugfs", &["-w", "-R", "ssv state 0", &image]);
    let (code, said) = failure(&seekless(&["mount", &image, &at, "-o", "rw"]));
    assert!(code != 0 && said.contains("not clean"), "{said}");
    let repaired = seekless(&["check", "-p", &image]);
    assert_eq!(repaired.status.code(), Some(1), "{repaired:?}");
    check(&image);
}
