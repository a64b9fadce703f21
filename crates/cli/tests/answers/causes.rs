//! A cause has the same exit code in every command, and the message names the file.

use super::{errors, run};
use crate::judges::{Scratch, run as judge};
use std::fs;

/// Commands that read an image; `@` stands for its path.
const OF_IMAGES: [&[&str]; 12] = [
    &["info", "@"],
    &["manifest", "@"],
    &["ls", "@", "/"],
    &["cat", "@", "/file"],
    &["cp", "-r", "@", "/", "out"],
    &["map", "@", "--html", "out"],
    &["mount", "@", "at"],
    &["mount", "@", "at", "-o", "rw"],
    &["score", "@", "--trace", "good.trace"],
    &["optimize", "@", "-o", "out", "--trace", "good.trace"],
    &["build", "@", "-o", "out"],
    &["build", "tree", "@", "-o", "out"],
];

/// Commands that read other kinds of files.
const OF_OTHERS: [&[&str]; 3] =
    [&["trace", "show", "@"], &["score", "good.img", "--trace", "@"], &["crash", "replay", "@"]];

#[test]
fn one_cause_has_one_exit_code() {
    let scratch = Scratch::new("causes");
    let dir = scratch.path();
    fs::create_dir(dir.join("tree")).unwrap();
    fs::create_dir(dir.join("at")).unwrap();
    fs::write(dir.join("tree/file"), "contents").unwrap();
    let tree = dir.join("tree").display().to_string();
    let good = dir.join("good.img").display().to_string();
    judge("mke2fs", &["-q", "-F", "-t", "ext4", "-d", &tree, &good, "4M"]);
    let image = fs::read(&good).unwrap();
    fs::write(dir.join("good.trace"), "{\"seekless_trace\":1}\n").unwrap();
    // An `s_blocks_count` larger than the image, and an image cut in half.
    let mut damaged = image.clone();
    damaged[1028..1032].fill(0xff);
    fs::write(dir.join("damaged"), damaged).unwrap();
    fs::write(dir.join("cut"), &image[..image.len() / 2]).unwrap();
    fs::write(dir.join("nothing-known"), vec![0x5a; 1 << 20]).unwrap();
    fs::write(dir.join("empty"), "").unwrap();

    for (cause, code) in [
        ("missing", 6),
        ("nothing-known", 4),
        ("empty", 4),
        ("damaged", 3),
        ("cut", 3),
        ("tree", 2),
    ] {
        for command in OF_IMAGES.iter().chain(&OF_OTHERS) {
            let is_other = OF_OTHERS.contains(command);
            let is_source = ["build", "manifest"].contains(&command[0]);
            // A directory is a valid source. Commands that read other files take an image for
            // another kind of file, damaged or not.
            if cause == "tree" && is_source {
                continue;
            }
            let code = if is_other && code == 3 { 4 } else { code };
            let args: Vec<&str> =
                command.iter().map(|&arg| if arg == "@" { cause } else { arg }).collect();
            let output = run(dir, &args);
            let said = errors(&output);
            assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
            assert!(said.contains(cause), "{args:?} does not name the file: {said}");
            assert!(!dir.join("out").exists(), "{args:?}");
        }
    }
}

#[test]
fn a_copy_does_not_replace_the_image() {
    let scratch = Scratch::new("copy-itself");
    let dir = scratch.path();
    fs::create_dir(dir.join("tree")).unwrap();
    fs::write(dir.join("tree/file"), "contents").unwrap();
    let (tree, image) = (dir.join("tree"), dir.join("image"));
    judge(
        "mke2fs",
        &["-q", "-F", "-t", "ext4", "-d", tree.to_str().unwrap(), image.to_str().unwrap(), "4M"],
    );
    fs::hard_link(&image, dir.join("other")).unwrap();
    let before = fs::read(&image).unwrap();
    for to in ["image", "other"] {
        let output = run(dir, &["cp", "image", "/file", to]);
        assert_eq!(output.status.code(), Some(2), "{to}");
        assert!(errors(&output).contains("is the image itself"), "{}", errors(&output));
        assert!(fs::read(dir.join(to)).unwrap() == before, "{to}");
    }
}
