//! The line about a written file: the same on a terminal and in a pipe, as fields with `--json`,
//! absent with `--quiet`.

use super::{errors, run, said, workshop};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A command that writes a file, the kind of the file, and the counts in the line.
type Writer = (&'static [&'static str], &'static str, &'static [(&'static str, u64)]);

const WRITERS: &[Writer] = &[
    (&["build", "tree", "-o", "OUT", "--force"], "image", &[("files", 5)]),
    (&["build", "tree", "-o", "OUT", "--format", "ufs1", "--force"], "image", &[("files", 5)]),
    (&["mkfs", "--format", "ufs2", "--size", "8M", "OUT", "--force"], "image", &[("files", 1)]),
    (&["trace", "import", "--paths", "list", "-o", "OUT"], "trace", &[("events", 4)]),
    (&["trace", "merge", "job.trace", "job.trace", "-o", "OUT"], "trace", &[("events", 8)]),
    (&["trace", "export", "job.trace", "-o", "OUT"], "list", &[("paths", 2)]),
    (
        &["trace", "export", "--format", "squashfs-sort", "job.trace", "-o", "OUT"],
        "list",
        &[("paths", 2)],
    ),
    (&["manifest", "tree", "-o", "OUT"], "list", &[("names", 6)]),
    (&["map", "disk.img", "--html", "OUT"], "page", &[]),
];

fn counted(what: &str, count: u64) -> String {
    let what = if count == 1 { what.trim_end_matches('s') } else { what };
    format!(", {count} {what}")
}

/// The used part of an image, in bytes and as text.
fn used(dir: &Path, image: &str) -> (u64, String) {
    let info: Value = serde_json::from_str(&said(dir, &["info", image, "--json"])).expect("JSON");
    let number = |key: &str| info[key].as_u64().expect("number");
    let used = number("blocks") - number("free_blocks");
    let share = used as f64 / number("blocks") as f64 * 100.0;
    (used * number("block_size"), format!(", {share:.1}% used"))
}

#[test]
fn what_was_written_is_said_in_one_line() {
    let scratch = workshop("success");
    let dir = scratch.path();
    // The tree's five files: the root, a directory, two regular files, one with two names, and a
    // symlink.
    std::os::unix::fs::symlink("bin", dir.join("tree/link")).expect("link");
    for (args, kind, counts) in WRITERS {
        let name = format!("out.{kind}");
        let args: Vec<&str> =
            args.iter().map(|arg| if *arg == "OUT" { &name } else { *arg }).collect();
        let line = said(dir, &args);
        assert_eq!(line.lines().count(), 1, "{args:?}: {line}");
        assert!(line.starts_with(&format!("{name}: ")), "{args:?}: {line}");
        for (what, count) in *counts {
            assert!(line.contains(&counted(what, *count)), "{args:?}: {line}");
        }
        let json = if *kind == "page" {
            // With --json the map itself is the result.
            assert!(said(dir, &[&args[..], &["--quiet"]].concat()).is_empty(), "{args:?}");
            continue;
        } else {
            said(dir, &[&args[..], &["--json", "--quiet"]].concat())
        };
        let fields: Value = serde_json::from_str(&json).expect("JSON");
        let len = fs::metadata(dir.join(&name)).expect("file").len();
        assert_eq!((&fields["path"], &fields["bytes"]), (&name.clone().into(), &len.into()));
        for (what, count) in *counts {
            assert_eq!(fields[what], *count, "{args:?}");
        }
        if *kind == "image" {
            let (bytes, share) = used(dir, &name);
            assert!(fields["used_bytes"] == bytes && line.contains(&share), "{args:?}: {line}");
        }
        assert!(said(dir, &[&args[..], &["--quiet"]].concat()).is_empty(), "{args:?}");
    }
}

#[test]
fn reports_end_with_what_was_written() {
    let scratch = workshop("success-reports");
    let dir = scratch.path();
    let optimize = ["optimize", "disk.img", "--trace", "job.trace", "-o", "fast.img", "--force"];
    let age = ["age", "ufs.img", "-o", "aged.img", "--ops", "20", "--force"];
    for (args, name) in [(&optimize[..], "fast.img"), (&age[..], "aged.img")] {
        let text = said(dir, args);
        let last = text.lines().last().expect("a line");
        let (bytes, share) = used(dir, name);
        assert!(last.starts_with(&format!("{name}: ")) && last.contains(&share), "{last}");
        let json: Value =
            serde_json::from_str(&said(dir, &[args, &["--json"]].concat())).expect("JSON");
        assert_eq!(json["written"]["used_bytes"], bytes);
        // Files with several names count once; the root counts, `lost+found` of mke2fs does not.
        let manifest = said(dir, &["manifest", name, "--json"]);
        let entries = manifest.lines().filter(|line| !line.contains("\"hardlink\"")).count();
        assert_eq!(json["written"]["files"], entries, "{manifest}");
        assert!(!said(dir, &[args, &["--quiet"]].concat()).contains("% used"), "{args:?}");
    }
}

#[test]
fn copies_and_pages_are_counted() {
    let scratch = workshop("success-copies");
    let dir = scratch.path();
    let line = said(dir, &["cp", "-r", "disk.img", "/bin", "bin"]);
    assert_eq!(line, "bin: 8.7K, 2 files, 1 directory\n");
    let line = said(dir, &["generate", "man", "man"]);
    let pages = fs::read_dir(dir.join("man")).expect("directory").count();
    assert_eq!(line, format!("man: {pages} pages\n"));
    for args in [&["cp", "-r", "disk.img", "/bin", "again"][..], &["generate", "man", "man"]] {
        assert!(said(dir, &[args, &["--quiet"]].concat()).is_empty(), "{args:?}");
    }
    // No line for an output to standard output.
    let trace = run(dir, &["trace", "import", "--paths", "list"]);
    assert!(errors(&trace).is_empty());
    assert_eq!(String::from_utf8_lossy(&trace.stdout).lines().count(), 5);
}
