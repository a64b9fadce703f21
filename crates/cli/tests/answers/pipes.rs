//! Closed pipes: a command whose output is no longer read ends quietly, as `cat` does.

use super::json::ANSWERS;
use super::{at, workshop};
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;

/// Exit code and standard error of a command whose standard output is a closed pipe.
fn unread(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().expect("pipe");
    drop(reader);
    let output = at(dir, args).stdout(writer).stderr(Stdio::piped()).output().expect("seekless");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_reader_that_has_gone_ends_every_command_quietly() {
    let scratch = workshop("pipes");
    let dir = scratch.path();
    fs::create_dir(dir.join("copied")).expect("directory");
    let others: [&[&str]; 7] = [
        &["cat", "disk.img", "/bin/job"],
        &["--help"],
        &["help", "build"],
        &["--version"],
        &["generate", "man", "man"],
        &["generate", "completions", "zsh"],
        &["trace", "import", "--paths", "list", "-o", "/dev/stdout"],
    ];
    for args in ANSWERS.iter().chain(&others) {
        let (code, told) = unread(dir, args);
        let found_differences = args.contains(&"--compare") && code == Some(1);
        assert!(code == Some(0) || found_differences, "{args:?}: {code:?} {told}");
        assert!(told.is_empty(), "{args:?}: {told}");
    }
}

#[test]
fn what_was_to_be_written_is_written_all_the_same() {
    let scratch = workshop("pipes-written");
    let dir = scratch.path();
    assert_eq!(unread(dir, &["build", "tree", "-o", "new.img"]), (Some(0), String::new()));
    assert!(fs::metadata(dir.join("new.img")).is_ok_and(|meta| meta.len() > 0));
}

/// A warning that cannot be printed does not stop the command.
#[test]
fn nobody_has_to_listen_to_warnings() {
    let scratch = workshop("pipes-warnings");
    let dir = scratch.path();
    let (reader, writer) = std::io::pipe().expect("pipe");
    drop(reader);
    let args = ["build", "tree", "-o", "new.img", "-O", "^metadata_csum", "--quiet"];
    let status = at(dir, &args).stderr(writer).status().expect("seekless");
    assert_eq!(status.code(), Some(0));
    assert!(dir.join("new.img").exists());
}

/// A full output device is an error, which is reported.
#[test]
fn a_full_output_is_a_failure() {
    let scratch = workshop("pipes-full");
    let dir = scratch.path();
    for args in
        [&["generate", "completions", "bash"][..], &["manifest", "tree"], &["info", "disk.img"]]
    {
        let full = fs::File::options().write(true).open("/dev/full").expect("/dev/full");
        let mut child =
            at(dir, args).stdout(full).stderr(Stdio::piped()).spawn().expect("seekless");
        let mut told = String::new();
        child.stderr.take().expect("stderr").read_to_string(&mut told).expect("message");
        // A full device counts as lack of space.
        assert_eq!(child.wait().expect("wait").code(), Some(5), "{args:?}: {told}");
        assert!(told.starts_with("seekless: standard output: "), "{told}");
    }
}

/// A check whose output cannot be written completes its repair, and has the exit code of its result.
#[test]
fn a_check_keeps_its_exit_code() {
    let scratch = workshop("pipes-check");
    let dir = scratch.path();
    let damage = |dir: &Path| {
        // Free blocks of the first group's descriptor and of the superblock.
        let image = fs::File::options().write(true).open(dir.join("disk.img")).expect("image");
        image.write_all_at(&[0xab; 2], 4096 + 12).expect("write");
        image.write_all_at(&[0xab; 2], 1024 + 12).expect("write");
    };
    damage(dir);
    let full = || fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let checked = |args: &[&str]| {
        let closed = unread(dir, args);
        assert!(closed.1.is_empty(), "{args:?}: {}", closed.1);
        closed.0
    };
    let into_full = |args: &[&str]| {
        let output = at(dir, args).stdout(full()).stderr(Stdio::piped()).output();
        let output = output.expect("seekless");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(told.matches("standard output: ").count(), 1, "{args:?}: {told}");
        output.status.code()
    };
    for more in [&[][..], &["--json"]] {
        let args = [&["check", "disk.img"], more].concat();
        assert_eq!(checked(&args), Some(4), "{args:?}");
        assert_eq!(into_full(&args), Some(4), "{args:?}");
    }
    assert_eq!(checked(&["check", "-y", "disk.img"]), Some(1));
    assert_eq!(checked(&["check", "disk.img"]), Some(0));
    damage(dir);
    assert_eq!(into_full(&["check", "-y", "disk.img"]), Some(1));
    assert_eq!(checked(&["check", "disk.img"]), Some(0));
}
