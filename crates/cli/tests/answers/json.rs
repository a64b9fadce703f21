//! `--json`: only JSON on standard output, and errors and warnings as JSON on standard error.

use super::{errors, run, said, workshop};
use serde_json::{Value, json};
use std::fs;

/// Commands that print a result, with their arguments.
pub(crate) const ANSWERS: &[&[&str]] = &[
    &["info", "disk.img"],
    &["ls", "-R", "disk.img"],
    &["check", "disk.img"],
    &["check", "ufs.img"],
    &["manifest", "tree"],
    &["manifest", "--compare", "tree", "ufs.img"],
    &["trace", "show", "job.trace"],
    &["trace", "import", "--paths", "list"],
    &["trace", "merge", "job.trace", "job.trace"],
    &["trace", "export", "job.trace"],
    &["trace", "export", "--format", "squashfs-sort", "job.trace"],
    &["score", "disk.img", "--trace", "job.trace"],
    &["map", "disk.img", "--trace", "job.trace"],
    &["model", "list"],
    &["model", "show", "gp3"],
    &["model", "bench", "gp3", "--number-ios", "100"],
    &["lab", "list"],
    &["lab", "show", "dirpref"],
    &["lab", "show", "boots"],
    &["age", "--show-profile", "mail"],
    &["crash", "list"],
    &["crash", "list", "create"],
    &["tune", "ufs.img", "-p"],
    &["generate", "completions", "bash"],
    &["cp", "-r", "disk.img", "/", "copied"],
    &["build", "tree", "-o", "built.img"],
    &["mkfs", "--format", "ufs1", "--size", "8M", "made.img"],
    &["optimize", "disk.img", "--trace", "job.trace", "-o", "fast.img"],
    &["age", "ufs.img", "-o", "aged.img", "--ops", "20"],
];

/// The JSON objects of a text: one, or one per line.
fn objects(text: &str) -> Option<Vec<Value>> {
    match serde_json::from_str(text) {
        Ok(value) => Some(vec![value]),
        Err(_) => text.lines().map(|line| serde_json::from_str(line).ok()).collect(),
    }
}

#[test]
fn standard_output_is_json_and_nothing_else() {
    let scratch = workshop("json");
    let dir = scratch.path();
    fs::create_dir(dir.join("copied")).expect("directory");
    for args in ANSWERS {
        let output = run(dir, &[*args, &["--json"]].concat());
        let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
        // A comparison that finds differences ends with 1.
        let known = [Some(0), Some(1)].contains(&output.status.code());
        assert!(known, "{args:?}: {}", errors(&output));
        assert!(!text.trim().is_empty(), "{args:?} says nothing");
        assert!(objects(&text).is_some(), "{args:?}: {text}");
    }
}

#[test]
fn listings_hold_what_the_text_says() {
    let scratch = workshop("json-listings");
    let dir = scratch.path();
    let list = objects(&said(dir, &["manifest", "tree", "--json"])).expect("JSON");
    let text = said(dir, &["manifest", "tree"]);
    assert_eq!(list.len(), text.lines().filter(|line| !line.starts_with('#')).count());
    let of = |path: &str| list.iter().find(|entry| entry["path"] == path).expect("entry");
    assert_eq!(of("./bin/a b")["size"], 6);
    assert_eq!(of("./bin/a b")["type"], "file");
    assert_eq!(of("./same")["hardlink"], "./bin/job");
    let digest = of("./bin/job")["sha256digest"].as_str().expect("digest");
    assert!(text.contains(&format!("sha256digest={digest}")) && digest.len() == 64);

    let export = ["trace", "export", "job.trace", "--json"];
    let paths: Value = serde_json::from_str(&said(dir, &export)).expect("JSON");
    assert_eq!(paths, json!({ "paths": ["/bin/job", "/bin/a b"] }));
    let sorted = said(dir, &[&export[..], &["--format", "squashfs-sort"]].concat());
    let sorted: Value = serde_json::from_str(&sorted).expect("JSON");
    assert_eq!(
        sorted["priorities"],
        json!([{ "path": "bin/job", "priority": 32767 }, { "path": "bin/a b", "priority": 32766 }])
    );

    let shown = said(dir, &["lab", "show", "dirpref", "--json"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["name"], "dirpref");
    // A file written with -o keeps its own format.
    said(dir, &["manifest", "tree", "-o", "tree.mtree", "--json"]);
    assert_eq!(fs::read_to_string(dir.join("tree.mtree")).expect("manifest"), text);
}

#[test]
fn warnings_and_errors_are_objects_on_standard_error() {
    let scratch = workshop("json-warnings");
    let dir = scratch.path();
    fs::write(dir.join("odd"), "\"/x\\012y\"\n/bin/job\n").expect("list");
    said(dir, &["trace", "import", "--paths", "odd", "-o", "odd.trace"]);
    let warned: [&[&str]; 2] = [
        &["build", "tree", "-o", "plain.img", "-O", "^metadata_csum"],
        &["trace", "export", "--format", "squashfs-sort", "odd.trace", "-o", "odd.sort"],
    ];
    for args in warned {
        let plain = errors(&run(dir, args));
        let message = plain.lines().next().and_then(|line| line.strip_prefix("seekless: "));
        let _ = fs::remove_file(dir.join("plain.img"));
        let told = errors(&run(dir, &[args, &["--json"]].concat()));
        let first = told.lines().next().unwrap_or_default();
        let value: Value = serde_json::from_str(first).expect("JSON");
        assert_eq!(value, json!({ "warning": message.expect("a warning") }), "{args:?}");
    }
    let refused: [&[&str]; 3] =
        [&["info", "--no-such-option"], &["cat", "disk.img", "/bin/job"], &["info", "missing"]];
    for args in refused {
        let output = run(dir, &[args, &["--json"]].concat());
        assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}");
        let value: Value = serde_json::from_str(&errors(&output)).expect("JSON");
        assert!(value["error"]["message"].as_str().is_some_and(|why| !why.is_empty()), "{args:?}");
    }
}
