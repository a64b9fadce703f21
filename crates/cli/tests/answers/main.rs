//! Output of every command: JSON with `--json`, a line about each file written, closed pipes, and
//! the same message for the same error.

#[path = "../judges/mod.rs"]
mod judges;

mod causes;
mod contradictions;
mod exports;
mod json;
mod manual;
mod outputs;
mod pipes;
mod reproducible;
mod success;
mod unfitting;

use judges::{Scratch, scratch};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// The command under test, with `dir` as working directory.
fn at(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seekless"));
    command.args(args).current_dir(dir);
    command.env_remove("SOURCE_DATE_EPOCH").env("TMPDIR", scratch());
    command
}

fn run(dir: &Path, args: &[&str]) -> Output {
    at(dir, args).output().expect("seekless")
}

/// Standard output of a command that must succeed.
fn said(dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {}: {errors}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A directory with a tree, images of it and a trace.
fn workshop(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    let dir = scratch.path();
    fs::create_dir_all(dir.join("tree/bin")).expect("directory");
    fs::write(dir.join("tree/bin/job"), vec![b'x'; 9000]).expect("file");
    fs::write(dir.join("tree/bin/a b"), "spaced").expect("file");
    fs::hard_link(dir.join("tree/bin/job"), dir.join("tree/same")).expect("link");
    fs::write(dir.join("list"), "/bin/job\n/bin/a b\n").expect("list");
    said(dir, &["build", "tree", "-o", "disk.img"]);
    said(dir, &["mkfs", "--format", "ufs2", "--size", "8M", "ufs.img"]);
    said(dir, &["trace", "import", "--paths", "list", "-o", "job.trace"]);
    scratch
}
