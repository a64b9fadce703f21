//! The binary by the names of e2fsck and fsck.fat, beside these on the same images. Needs e2fsprogs
//! and dosfstools; reports and passes without.

#[path = "../judges/mod.rs"]
mod judges;

mod codes;
mod damages;
mod in_place;
mod options;
mod undo;

use judges::{Scratch, command, run};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

/// The binary under another name, in a folder of its own.
fn linked(scratch: &Scratch, name: &str) -> PathBuf {
    let folder = scratch.path().join(format!("as-{name}"));
    fs::create_dir_all(&folder).expect("folder");
    let link = folder.join(name);
    if !link.exists() {
        symlink(command::<&str>(&[]).get_program(), &link).expect("link");
    }
    link
}

/// The exit code of a program and its standard output.
fn answer(program: &mut Command) -> (i32, String) {
    let output = program.output().unwrap_or_else(|error| panic!("{program:?}: {error}"));
    let code = output.status.code().unwrap_or_else(|| panic!("{program:?}: {}", output.status));
    (code, String::from_utf8_lossy(&output.stdout).into_owned())
}

/// An ext4 image with two groups, a label, and a directory of several blocks.
fn image(scratch: &Scratch) -> String {
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir_all(format!("{tree}/many")).expect("mkdir");
    for number in 0..120 {
        fs::write(format!("{tree}/many/a-name-of-some-length-{number}"), [7; 30]).expect("write");
    }
    fs::write(format!("{tree}/file"), vec![3; 50_000]).expect("write");
    let args = ["-q", "-F", "-t", "ext4", "-b", "1024", "-L", "lab", "-d", &tree, &image, "16M"];
    run("mke2fs", &args);
    // Directories get the indexes that e2fsck gives them when it first sees them.
    let (code, said) = answer(Command::new("e2fsck").args(["-fyD", &image]));
    assert!(code < 2, "{said}");
    image
}

/// A copy of an image after commands of debugfs.
fn changed(scratch: &Scratch, image: &str, name: &str, commands: &[&str]) -> String {
    let (copy, script) = (scratch.join(name), scratch.join("commands"));
    fs::copy(image, &copy).expect("copy");
    fs::write(&script, commands.join("\n") + "\n").expect("commands");
    run("debugfs", &["-w", "-f", &script, &copy]);
    copy
}
