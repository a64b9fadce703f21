//! Android sparse images, judged by simg2img and img2simg.

use crate::judges::{Scratch, check, failure, manifest, ready, run, same, seekless, text};
use std::fs;

#[test]
fn sparse_images_are_those_of_android() {
    if !ready("simg2img") || !ready("img2simg") {
        return;
    }
    let scratch = Scratch::new("simg");
    let tree = scratch.join("tree");
    fs::create_dir_all(format!("{tree}/dir")).expect("mkdir");
    fs::write(format!("{tree}/dir/file"), vec![7; 300_000]).expect("write");
    fs::write(format!("{tree}/text"), "text").expect("write");
    let (raw, sparse, back) = (scratch.join("raw"), scratch.join("a.simg"), scratch.join("back"));
    let build = |to: &str, options: &[&str]| {
        let args = ["build", &tree, "-o", to, "--size", "64M", "-q"];
        seekless(&[&args[..], options].concat())
    };
    text(&build(&raw, &[]));
    text(&build(&sparse, &[]));
    let len = fs::metadata(&sparse).expect("metadata").len();
    assert!(len < 8 << 20, "{len} bytes");
    run("simg2img", &[&sparse, &back]);
    assert!(fs::read(&back).expect("read") == fs::read(&raw).expect("read"));
    check(&back);
    // The name does not matter if the format is given.
    let other = scratch.join("other.img");
    text(&build(&other, &["--output-format", "simg"]));
    assert!(fs::read(&other).expect("read") == fs::read(&sparse).expect("read"));
    // Read by all commands, those of Android too.
    let wanted = manifest(&raw, &[]);
    same("ours", &wanted, &manifest(&sparse, &[]));
    let theirs = scratch.join("theirs");
    run("img2simg", &[&raw, &theirs]);
    same("theirs", &wanted, &manifest(&theirs, &[]));
    assert_eq!(text(&seekless(&["cat", &theirs, "/text"])), "text");
    let again = scratch.join("again");
    text(&seekless(&["build", &theirs, "-o", &again, "--size", "64M", "-q"]));
    same("again", &wanted, &manifest(&again, &[]));
    text(&seekless(&["check", &theirs]));
    let disk = scratch.join("disk.simg");
    text(&build(&disk, &["--disk"]));
    assert!(text(&seekless(&["ls", &disk, "--partition", "root"])).contains("text"));
    // Changed by none.
    let before = fs::read(&theirs).expect("read");
    let refused = seekless(&["check", "-y", &theirs]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is an Android sparse image"));
    assert_eq!(fs::read(&theirs).expect("read"), before);
    let (code, message) = failure(&build("-", &["--output-format", "simg"]));
    assert!(code == 2 && message.contains("raw images"), "{message}");
    // Damage is named with its place.
    let mut damaged = before;
    damaged[28] = 0;
    fs::write(&theirs, damaged).expect("write");
    let (code, message) = failure(&seekless(&["info", &theirs]));
    assert!(code == 4 && message.contains("byte 28: a chunk of type 0xca00"), "{message}");
    fs::write(&theirs, &fs::read(&sparse).expect("read")[..5000]).expect("write");
    let (code, message) = failure(&seekless(&["info", &theirs]));
    assert!(code == 3 && message.contains("Android sparse image, byte"), "{message}");
}
