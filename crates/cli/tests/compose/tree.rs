//! Additions to the tree of `populate`, for errors that only a writer can make.

use crate::judges::run;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, lsetxattr, utimensat};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

/// More files than may share one attribute block.
const SHARERS: u32 = 1100;

/// Adds the files to a tree.
pub(crate) fn add(root: &Path) {
    shared_attributes(&root.join("shared"));
    capability(root);
    block_multiples(&root.join("multiples"));
    sparse(&root.join("sparse"));
    symlinks(&root.join("symlinks"));
    times(&root.join("years"));
    names(&root.join("names"));
}

fn set(path: &Path, name: &str, value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty()).unwrap_or_else(|error| {
        panic!("{}: {name} of {} bytes: {error}", path.display(), value.len())
    });
}

/// Attributes that need a block, equal on more files than may share one.
fn shared_attributes(dir: &Path) {
    fs::create_dir(dir).expect("mkdir");
    for n in 0..SHARERS {
        let path = dir.join(format!("sharer-{n}"));
        fs::write(&path, n.to_string()).expect("write");
        set(&path, "user.shared", &[b's'; 700]);
    }
    // Inodes other than regular files have attributes too.
    let below = dir.join("directory");
    fs::create_dir(&below).expect("mkdir");
    set(&below, "user.shared", &[b's'; 700]);
    let link = dir.join("link");
    symlink("nowhere", &link).expect("symlink");
    set(&link, "trusted.of-a-link", b"value");
    // An attribute that may need a block of 4096 bytes.
    let large = dir.join("big-3500");
    fs::write(&large, b"x").expect("write");
    set(&large, "user.large", &[b'l'; 3500]);
}

/// A file capability: `cap_net_raw=ep`, revision 2.
fn capability(root: &Path) {
    let path = root.join("capable");
    fs::write(&path, b"#!/bin/true\n").expect("write");
    let words: [u32; 5] = [0x0200_0001, 1 << 13, 0, 0, 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    set(&path, "security.capability", &value);
}

fn block_multiples(dir: &Path) {
    fs::create_dir(dir).expect("mkdir");
    for blocks in [1usize, 2, 12, 13, 268, 1036, 1037] {
        for extra in [-1isize, 0, 1] {
            let size = (blocks * 1024).saturating_add_signed(extra);
            fs::write(dir.join(format!("of-{size}")), vec![size as u8; size]).expect("write");
        }
    }
}

fn sparse(dir: &Path) {
    fs::create_dir(dir).expect("mkdir");
    // Beyond 4 GiB, with a hole at the end; pieces begin and end within blocks.
    let large = File::create(dir.join("large")).expect("create");
    for at in [4096, 70_000, (1 << 30) + 5, (4 << 30) - 10, (65 << 30) + 12_345] {
        large.write_all_at(format!("piece at {at}").as_bytes(), at).expect("write");
    }
    large.set_len(70 << 30).expect("truncate");
    // So many pieces that the map needs blocks of its own, and an index of them.
    let comb = File::create(dir.join("comb")).expect("create");
    for n in 0..1500 {
        comb.write_all_at(&[n as u8; 100], n * 16_384).expect("write");
    }
}

fn symlinks(dir: &Path) {
    fs::create_dir(dir).expect("mkdir");
    for len in [1usize, 59, 60, 61, 1023, 1024, 4000, 4094] {
        // Targets of 1024 bytes and more do not fit in blocks of 1024: see `TOO_LARGE_FOR_1K`.
        symlink("s".repeat(len), dir.join(format!("length-{len}"))).expect("symlink");
    }
}

fn times(dir: &Path) {
    fs::create_dir(dir).expect("mkdir");
    let years = [
        (1901, -2_147_483_648),
        (1969, -1),
        (2026, 1_767_225_600),
        (2040, 2_208_988_800),
        (2400, 13_569_465_600),
    ];
    for (year, secs) in years {
        let file = dir.join(format!("file-{year}"));
        fs::write(&file, year.to_string()).expect("write");
        let link = dir.join(format!("link-{year}"));
        symlink("x", &link).expect("symlink");
        for path in [file, link] {
            let time = Timespec { tv_sec: secs, tv_nsec: 999_999_999 };
            let times = Timestamps { last_access: time, last_modification: time };
            utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("utimens");
        }
    }
}

fn names(dir: &Path) {
    fs::create_dir(dir).expect("mkdir");
    for byte in (1..=255u8).filter(|&byte| byte != b'/' && byte != b'.') {
        File::create(dir.join(OsStr::from_bytes(&[byte]))).expect("create");
        let long = [&[byte; 254][..], b"x"].concat();
        File::create(dir.join(OsStr::from_bytes(&long))).expect("create");
    }
}

/// Makes a directory of many empty files.
pub(crate) fn crowd(dir: &Path, names: u32) {
    fs::create_dir_all(dir).expect("mkdir");
    for n in 0..names {
        File::create(dir.join(format!("one-of-many-{n}"))).expect("create");
    }
}

/// Sets all times below `root` to one value.
pub(crate) fn stop_the_clock(root: &str) {
    run("find", &[root, "-exec", "touch", "-h", "-d", "@1700000000.123456789", "{}", "+"]);
}
