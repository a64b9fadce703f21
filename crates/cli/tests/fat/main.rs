//! FAT images: those of mkfs.fat, mformat and mcopy are read completely, in every shape. Judges are
//! fsck.fat, mtools, The Sleuth Kit and GRUB.

mod build;
mod check;
#[path = "../judges/mod.rs"]
mod judges;
mod live;
mod make;
mod mount;
#[path = "../judges/mounted.rs"]
mod mounted;
mod one_byte;
mod optimize;
mod read;
mod shapes;
#[path = "../compose/workshop.rs"]
#[allow(dead_code, reason = "the tests of builds use more of it")]
mod workshop;

use judges::run;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// Makes a file of `bytes` bytes, one hole.
fn sparse(path: &str, bytes: u64) {
    let _ = fs::remove_file(path);
    File::create(path).and_then(|file| file.set_len(bytes)).expect(path);
}

/// Runs one of mtools on an image; returns its output.
fn mtools(program: &str, image: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(["-i", image])
        .args(args)
        .envs([("MTOOLS_SKIP_CHECK", "1"), ("MTOOLSRC", "/dev/null"), ("TZ", "UTC")])
        .envs([("MTOOLS_NO_VFAT", "0"), ("LC_ALL", "C.UTF-8")])
        .output()
        .expect(program);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Output of fsck.fat on an image, in which it must find no errors.
fn fsck(image: &str) -> String {
    run("fsck.fat", &["-nv", image])
}

/// The number in front of words in a report.
fn number_before(report: &str, words: &str) -> u64 {
    let line = report.lines().find(|line| line.contains(words));
    let line = line.unwrap_or_else(|| panic!("no {words:?} in {report}"));
    let (before, _) = line.split_once(words).expect("words");
    before.split_whitespace().last().and_then(|word| word.parse().ok()).expect("number")
}

/// Makes names of every kind, and files of lengths around that of a cluster.
fn populate(root: &Path) {
    for dir in ["DIR/below/deeper", "many names", "empty"] {
        fs::create_dir_all(root.join(dir)).expect("mkdir");
    }
    let noise = |len: usize, seed: u32| -> Vec<u8> {
        let mut state = seed;
        (0..len)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect()
    };
    for (n, len) in [0, 1, 511, 512, 513, 4095, 4096, 4097, 20_000].into_iter().enumerate() {
        fs::write(root.join(format!("DIR/FILE{n}.BIN")), noise(len, n as u32)).expect("write");
    }
    for name in ["lower.txt", "Mixed.Case", "a b c", "three.dots.here", "noextension", "plus+sign"]
    {
        fs::write(root.join("DIR/below").join(name), name).expect("write");
    }
    for name in ["Ünïcode ☃.txt", "日本語.text"] {
        fs::write(root.join("DIR/below/deeper").join(name), name).expect("write");
    }
    fs::write(root.join("DIR").join("n".repeat(200)), b"long").expect("write");
    for n in 0..40 {
        fs::write(root.join(format!("many names/a name of some length {n}")), b"x").expect("write");
    }
    run("find", &[root.to_str().expect("path"), "-exec", "touch", "-d", "@1700000000", "{}", "+"]);
}
