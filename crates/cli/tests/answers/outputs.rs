//! Outputs that exist already: the same message and exit code in all commands.

use super::{errors, run, said, workshop};
use std::fs;
use std::os::unix::fs::symlink;

/// Exit codes of system errors and of wrong arguments.
const SYSTEM: i32 = 6;
const USAGE: i32 = 2;

#[test]
fn what_exists_already_is_refused_alike() {
    let scratch = workshop("outputs");
    let dir = scratch.path();
    fs::write(dir.join("there"), "kept").expect("file");
    let parameters = said(dir, &["model", "show", "gp3"]);
    fs::write(dir.join("gp3.toml"), parameters).expect("file");
    let writers: [&[&str]; 4] = [
        &["build", "tree", "-o", "there"],
        &["mkfs", "--format", "ufs2", "--size", "8M", "there"],
        &["optimize", "disk.img", "--trace", "job.trace", "-o", "there"],
        &["age", "ufs.img", "-o", "there", "--ops", "5"],
    ];
    for args in writers {
        let output = run(dir, args);
        assert_eq!(output.status.code(), Some(SYSTEM), "{args:?}");
        let wanted = "seekless: there: already exists (use --force to replace it)\n";
        assert_eq!(errors(&output), wanted, "{args:?}");
        assert_eq!(fs::read(dir.join("there")).expect("file"), b"kept");
        said(dir, &[args, &["--force"]].concat());
        fs::write(dir.join("there"), "kept").expect("file");
    }
    // `disk --create` has no --force: an existing disk must never be lost.
    let disk = ["disk", "there", "tree", "--model", "gp3", "--create", "--size", "1M"];
    let output = run(dir, &disk);
    assert_eq!(output.status.code(), Some(SYSTEM));
    let wanted = "seekless: there: already exists (without --create it is served as it is)\n";
    assert_eq!(errors(&output), wanted);
}

/// An output that --force cannot replace is refused at once, without a useless hint.
#[test]
fn what_is_no_file_is_never_replaced() {
    let scratch = workshop("outputs-kinds");
    let dir = scratch.path();
    symlink("nowhere", dir.join("dangling")).expect("link");
    for name in ["tree", "dangling"] {
        for force in [&[][..], &["--force"]] {
            let output = run(dir, &[&["build", "disk.img", "-o", name], force].concat());
            assert_eq!(output.status.code(), Some(USAGE), "{name} {force:?}");
            assert_eq!(
                errors(&output),
                format!("seekless: {name}: not a regular file\n"),
                "{force:?}"
            );
        }
    }
    for args in [
        &["trace", "import", "--paths", "list", "-o", "tree"][..],
        &["manifest", "disk.img", "-o", "tree"],
    ] {
        let output = run(dir, args);
        assert_eq!(output.status.code(), Some(USAGE), "{args:?}");
        assert_eq!(errors(&output), "seekless: tree: not a regular file\n", "{args:?}");
    }
}

/// A failed write leaves the old trace unchanged, and a symlink remains one.
#[test]
fn lists_and_traces_appear_whole_or_not_at_all() {
    let scratch = workshop("outputs-whole");
    let dir = scratch.path();
    let old = fs::metadata(dir.join("job.trace")).expect("trace");
    symlink("job.trace", dir.join("link.trace")).expect("link");
    said(dir, &["trace", "merge", "job.trace", "job.trace", "-o", "link.trace"]);
    assert!(dir.join("link.trace").is_symlink());
    symlink("disk.img", dir.join("link.img")).expect("link");
    said(dir, &["build", "tree", "-o", "link.img", "--format", "ufs2", "--force"]);
    assert!(dir.join("link.img").is_symlink());
    assert!(said(dir, &["info", "disk.img"]).contains("ufs2"));
    let new = fs::metadata(dir.join("job.trace")).expect("trace");
    assert!(new.len() > old.len());
    // The new trace is another file: readers of the old one still see all of it.
    use std::os::unix::fs::MetadataExt;
    assert_ne!(new.ino(), old.ino());
    let text = said(dir, &["trace", "import", "--paths", "list", "-o", "/dev/stdout"]);
    assert!(text.starts_with("{\"seekless_trace\":1"), "{text}");
}
