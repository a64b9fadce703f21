//! `-o discard`, on every format: freed blocks become holes of the image file, all others stay.

use crate::judges::{Scratch, check, run, seekless, text};
use crate::mounted::Mounted;
use crate::ready;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// The arguments of `seekless mkfs`, or of `mke2fs`, and the disciplines.
const VOLUMES: &[(&str, &[&str], &[&str])] = &[
    ("mke2fs", &["-q", "-F", "-t", "ext2", "-b", "1024"], &["softdep", "normal"]),
    ("mke2fs", &["-q", "-F", "-t", "ext4"], &["journal=ordered"]),
    ("ufs2", &[], &["softdep"]),
    ("ufs1", &["-b", "4K", "-f", "512"], &["normal"]),
    ("fat32", &[], &["softdep"]),
];

fn make(image: &str, kind: &str, how: &[&str]) {
    let _ = fs::remove_file(image);
    if kind == "mke2fs" {
        run("mke2fs", &[how, &[image, "64M"]].concat());
    } else {
        let args = ["mkfs", image, "--format", kind, "--size", "64M"];
        text(&seekless(&[&args[..], how].concat()));
    }
}

fn is_sound(image: &str, kind: &str) {
    if kind == "mke2fs" {
        check(image);
    }
    text(&seekless(&["check", image]));
}

/// Bytes that the host keeps for the image.
fn kept(image: &str) -> u64 {
    File::open(image).and_then(|file| file.sync_all()).expect("fsync");
    fs::metadata(image).expect("image").blocks() * 512
}

fn noise(len: u64, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed | 1).collect()
}

/// Writes a file that is on the disk then.
fn put(path: &Path, contents: &[u8]) {
    fs::write(path, contents).expect("write");
    File::open(path).and_then(|file| file.sync_all()).expect("fsync");
}

fn fill(dir: &Path) {
    put(&dir.join("stays"), &noise(MIB, 1));
    put(&dir.join("goes"), &noise(7 * MIB, 2));
    put(&dir.join("cut"), &noise(4 * MIB, 3));
    for n in 0..12 {
        put(&dir.join(format!("small{n}")), &noise(30_000, n));
    }
}

fn judge(at: &Path) {
    assert!(fs::read(at.join("stays")).expect("read") == noise(MIB, 1), "a file that stays");
    assert!(fs::read(at.join("cut")).expect("read") == noise(4 * MIB, 3)[..100_000], "a cut file");
    for n in (1..12).step_by(2) {
        let held = fs::read(at.join(format!("small{n}"))).expect("read");
        assert!(held == noise(30_000, n), "a small file that stays");
    }
}

fn remove(at: &Path) {
    fs::remove_file(at.join("goes")).expect("rm");
    fs::File::options()
        .write(true)
        .open(at.join("cut"))
        .expect("open")
        .set_len(100_000)
        .expect("cut");
    for n in (0..12).step_by(2) {
        fs::remove_file(at.join(format!("small{n}"))).expect("rm");
    }
    File::open(at).and_then(|dir| dir.sync_all()).expect("fsync");
}

#[test]
fn freed_blocks_become_holes() {
    if !ready() {
        return;
    }
    for (kind, how, disciplines) in VOLUMES {
        for discipline in *disciplines {
            let scratch = Scratch::new("discard");
            let (image, at) = (scratch.join("image"), scratch.path().join("at"));
            let begin =
                |option: &str| Mounted::new(&image, &at, &format!("rw,{discipline},{option}"));
            let shown = format!("{kind} {how:?} {discipline}");
            // By default nothing goes.
            make(&image, kind, how);
            let mounted = begin("nodiscard");
            fill(&at);
            let full = kept(&image);
            remove(&at);
            mounted.end();
            assert!(kept(&image) > full - MIB, "{shown}: kept without the option");
            is_sound(&image, kind);

            make(&image, kind, how);
            let mounted = begin("discard");
            fill(&at);
            let full = kept(&image);
            assert!(full > 11 * MIB, "{shown}: {full}");
            remove(&at);
            // While it is in use; soft updates take their time.
            let since = Instant::now();
            while *discipline != "softdep" && kept(&image) > full - 10 * MIB {
                assert!(since.elapsed() < Duration::from_secs(60), "{shown}: {}", kept(&image));
                sleep(Duration::from_millis(200));
            }
            judge(&at);
            // Blocks that are taken again are not lost.
            put(&at.join("again"), &noise(5 * MIB, 9));
            sleep(Duration::from_millis(1500));
            fs::write("/proc/sys/vm/drop_caches", "3").expect("caches");
            assert!(fs::read(at.join("again")).expect("read") == noise(5 * MIB, 9), "{shown}");
            // Blocks that are freed last become holes at the unmount.
            fs::remove_file(at.join("again")).expect("rm");
            mounted.end();
            assert!(kept(&image) < full - 10 * MIB, "{shown}: {} of {full}", kept(&image));
            is_sound(&image, kind);
            let mounted = Mounted::new(&image, &at, "ro");
            judge(&at);
            mounted.end();
        }
    }
}

/// `tune2fs -o discard`, `tunefs -t enable`.
#[test]
fn a_volume_may_ask_for_it() {
    if !ready() {
        return;
    }
    for (option, goes) in [("discard", true), ("^discard", false)] {
        let scratch = Scratch::new("discard-default");
        let (image, at) = (scratch.join("image"), scratch.path().join("at"));
        make(&image, "mke2fs", &["-q", "-F", "-t", "ext4"]);
        run("tune2fs", &["-o", option, &image]);
        let mounted = Mounted::new(&image, &at, "rw");
        fill(&at);
        let full = kept(&image);
        remove(&at);
        mounted.end();
        assert_eq!(kept(&image) < full - 10 * MIB, goes, "{option}");
        check(&image);
    }
    for trim in [0, 4] {
        let scratch = Scratch::new("discard-flag");
        let (image, at) = (scratch.join("image"), scratch.path().join("at"));
        make(&image, "ufs2", &["--check-hashes", "none"]);
        // The second byte of `fs_flags`.
        let file = File::options().write(true).open(&image).expect("open");
        file.write_all_at(&[trim], 65536 + 1313).expect("write");
        let mounted = Mounted::new(&image, &at, "rw");
        fill(&at);
        let full = kept(&image);
        remove(&at);
        mounted.end();
        assert_eq!(kept(&image) < full - 10 * MIB, trim != 0, "fs_flags {trim:#x}00");
        text(&seekless(&["check", &image]));
    }
}
