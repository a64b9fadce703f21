//! A mount that is served in the background: the directory is usable when the command returns,
//! failures have their messages and exit codes, and the lock of the image is released when the
//! unmount is complete. Needs root and FUSE; reports and passes without.

#[path = "judges/mod.rs"]
mod judges;

use judges::{Scratch, failure, run, seekless, text, unmount};
use std::fs;
use std::process::{Command, Stdio};

fn ready() -> bool {
    let fuse = fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if fuse && judges::can_mount() {
        return true;
    }
    judges::skip("needs root, /dev/fuse and loop devices");
    false
}

/// Runs a script, in which `seekless` is the command under test. Returns after all processes that
/// have its output open have ended.
fn shell(scratch: &Scratch, script: &str) -> String {
    let program = env!("CARGO_BIN_EXE_seekless");
    let whole = format!(
        "set -e; cd {}; seekless() {{ {program} \"$@\"; }}\n{script}",
        scratch.path().display()
    );
    let output = Command::new("bash").args(["-c", &whole]).output().expect("bash");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {said}{errors}", output.status);
    said + &errors
}

/// Process id of the server of a mount in the background.
fn server(image: &str) -> String {
    run("pgrep", &["-f", &format!("mount.*{image}.*--background-server")]).trim().to_string()
}

#[test]
fn the_directory_can_be_used_when_the_command_returns() {
    if !ready() {
        return;
    }
    let scratch = Scratch::on_disk("background");
    let said = shell(
        &scratch,
        "mke2fs -q -t ext4 img 32M > /dev/null; mkdir mnt; head -c 300000 /dev/urandom > file
         for n in $(seq 20); do
             seekless mount img mnt -o rw
             cp file mnt/$n
             fusermount3 -u mnt
             flock img true
             e2fsck -fn img > /dev/null 2>&1
         done
         seekless mount img mnt
         for n in $(seq 20); do cmp file mnt/$n; done
         umount mnt
         rmdir mnt",
    );
    // No process prints anything or keeps the output open.
    assert_eq!(said, "");
}

#[test]
fn the_server_has_left_its_terminal_and_directory() {
    if !ready() {
        return;
    }
    let scratch = Scratch::on_disk("background-server");
    let (image, at) = (scratch.join("image"), scratch.join("at"));
    fs::create_dir(&at).expect("mkdir");
    run("mke2fs", &["-q", "-t", "ext4", &image, "32M"]);
    text(&seekless(&["mount", &image, &at, "-o", "rw"]));
    let pid = server(&image);
    let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).expect("link");
    assert_eq!(link("cwd").to_str(), Some("/"));
    for stream in ["0", "1", "2"] {
        assert_eq!(link(&format!("fd/{stream}")).to_str(), Some("/dev/null"));
    }
    let session = run("ps", &["-o", "sid=", "-p", &pid]);
    assert_eq!(session.trim(), pid);
    // A second mount is refused while the first one exists.
    let (code, said) = failure(&seekless(&["mount", &image, &at, "-o", "rw"]));
    assert!(code == 6 && said.contains("in use"), "{code} {said}");
    // A signal unmounts, and all changes are written.
    fs::write(format!("{at}/file"), vec![7; 1 << 20]).expect("write");
    run("kill", &["-TERM", &pid]);
    run("flock", &[&image, "true"]);
    assert!(!fs::exists(format!("{at}/file")).expect("stat"), "it is unmounted");
    judges::check(&image);
    assert!(run("debugfs", &["-R", "stat file", &image]).contains("Size: 1048576"));
}

#[test]
fn failures_are_those_of_the_command() {
    if !ready() {
        return;
    }
    let scratch = Scratch::on_disk("background-failure");
    let (image, at) = (scratch.join("image"), scratch.join("at"));
    fs::create_dir(&at).expect("mkdir");
    fs::write(&image, vec![0; 1 << 20]).expect("write");
    for options in ["ro", "rw"] {
        let by = |how: &[&str]| {
            failure(&seekless(&[&["mount", &image, &at, "-o", options], how].concat()))
        };
        let (code, said) = by(&[]);
        assert_eq!(by(&["-f"]), (code, said.clone()));
        assert!(code != 0 && said.contains(&image), "{code} {said}");
    }
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-O", "bigalloc", &image, "32M"]);
    assert_eq!(failure(&seekless(&["mount", &image, &at, "-o", "rw"])).0, 4);
    assert_eq!(failure(&seekless(&["mount", &image, &at, "-o", "rw,no-such"])).0, 2);
    assert_eq!(failure(&seekless(&["mount", &image, "/no/such", "-o", "rw"])).0, 6);
    let missing = scratch.join("missing");
    assert_eq!(failure(&seekless(&["mount", &missing, &at])).0, 6);
    let json = seekless(&["mount", &missing, &at, "--json"]);
    assert!(String::from_utf8_lossy(&json.stderr).contains("\"kind\":\"system\""), "{json:?}");
    assert_eq!(json.status.code(), Some(6));
}

#[test]
fn a_killed_server_leaves_what_a_crash_leaves() {
    if !ready() {
        return;
    }
    let scratch = Scratch::on_disk("background-killed");
    let (image, at) = (scratch.join("image"), scratch.join("at"));
    fs::create_dir(&at).expect("mkdir");
    run("mke2fs", &["-q", "-t", "ext4", &image, "32M"]);
    text(&seekless(&["mount", &image, &at, "-o", "rw"]));
    let file = fs::File::create(format!("{at}/durable")).expect("create");
    file.sync_all().expect("fsync");
    drop(file);
    run("kill", &["-KILL", &server(&image)]);
    run("flock", &[&image, "true"]);
    assert!(fs::metadata(&at).is_err(), "nobody serves it any more");
    unmount(&at).expect("umount");
    // The next mount replays the journal.
    text(&seekless(&["mount", &image, &at, "-o", "rw"]));
    assert!(fs::exists(format!("{at}/durable")).expect("stat"));
    unmount(&at).expect("umount");
    run("flock", &[&image, "true"]);
    judges::check(&image);
}

#[test]
fn statistics_and_traces_come_from_the_background() {
    if !ready() {
        return;
    }
    let scratch = Scratch::on_disk("background-told");
    let said = shell(
        &scratch,
        "mke2fs -q -t ext4 img 32M > /dev/null; mkdir mnt
         seekless mount img mnt -o rw -v > counted; cp /bin/sh mnt/; umount mnt; flock img true
         grep -q 'journal: commits' counted
         seekless mount img mnt --record trace; mnt/sh -c true; umount mnt; flock trace true
         seekless trace show trace | grep -c ' /sh'",
    );
    assert!(said.trim().parse::<u32>().expect("a number") > 1, "{said}");
}

/// The starting command is gone before the server reports to it: the directory does not stay
/// mounted.
#[test]
fn nobody_who_waits_means_no_mount() {
    if !ready() {
        return;
    }
    let scratch = Scratch::on_disk("background-nobody");
    let (image, at) = (scratch.join("image"), scratch.join("at"));
    fs::create_dir(&at).expect("mkdir");
    run("mke2fs", &["-q", "-t", "ext4", &image, "32M"]);
    // The reading end of the pipe is closed before the server writes to it.
    let (reader, writer) = std::io::pipe().expect("pipe");
    drop(reader);
    let server = judges::command(&["mount", &image, &at, "-o", "rw", "--background-server"])
        .stdin(writer)
        .stderr(Stdio::piped())
        .output()
        .expect("seekless");
    assert_eq!(server.status.code(), Some(6), "{server:?}");
    assert!(fs::read_dir(&at).expect("list").next().is_none(), "nothing is mounted");
    judges::check(&image);
}
