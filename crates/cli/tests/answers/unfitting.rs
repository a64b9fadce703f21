//! Traces that do not belong to the image, or are no traces: `score`, `map` and `optimize` report
//! that.

use super::{errors, run, workshop};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Writes a trace with reads of these paths.
fn trace(dir: &Path, name: &str, paths: &[&str]) {
    let events = paths.iter().map(|path| format!("{{\"op\":\"read\",\"path\":\"{path}\"}}\n"));
    let text = String::from("{\"seekless_trace\":1}\n") + &events.collect::<String>();
    fs::write(dir.join(name), text).expect("trace");
}

/// Exit code and standard error of each of the commands with this trace.
fn told(dir: &Path, trace: &str) -> Vec<(i32, String)> {
    let commands: [&[&str]; 3] = [
        &["score", "disk.img"],
        &["map", "disk.img"],
        &["optimize", "disk.img", "-o", "o", "--force"],
    ];
    let run = |args: &&[&str]| {
        let output = run(dir, &[*args, &["--trace", trace]].concat());
        (output.status.code().expect("exit code"), errors(&output))
    };
    commands.iter().map(run).collect()
}

#[test]
fn a_trace_of_another_image_is_told_with_its_share() {
    let scratch = workshop("unfitting");
    let dir = scratch.path();
    trace(dir, "other.trace", &["/no", "/such", "/file"]);
    trace(dir, "partly.trace", &["/bin/job", "/such", "/file"]);
    trace(dir, "relative.trace", &["bin/job", "/same"]);
    trace(dir, "none.trace", &[]);
    for (name, wanted) in [
        ("other.trace", "other.trace: none of 3 events is of a file of disk.img"),
        ("partly.trace", "partly.trace: only 1 of 3 events are of files of disk.img"),
        ("relative.trace", "relative.trace: 1 of 2 events have paths without a leading slash"),
        ("none.trace", "none.trace has no events"),
    ] {
        for (code, said) in told(dir, name) {
            assert_eq!(code, 0, "{name}: {said}");
            assert!(said.contains(&format!("seekless: {wanted}")), "{name}: {said}");
        }
    }
    // No message for a trace that fits.
    for (code, said) in told(dir, "job.trace") {
        assert_eq!((code, said.as_str()), (0, ""));
    }
    let score = run(dir, &["score", "disk.img", "--trace", "partly.trace", "--json"]);
    let value: Value = serde_json::from_slice(&score.stdout).expect("JSON");
    assert_eq!((&value["events"]["all"], &value["events"]["fitting"]), (&3.into(), &1.into()));
}

#[test]
fn what_is_no_trace_is_refused_with_what_makes_one() {
    let scratch = workshop("no-trace");
    let dir = scratch.path();
    fs::write(dir.join("empty"), "").expect("file");
    for name in ["list", "empty", "disk.img"] {
        for (code, said) in told(dir, name) {
            assert_eq!(code, 4, "{name}: {said}");
            assert!(said.contains("not the header of a trace") && said.contains("trace import"));
            assert_eq!(said.lines().count(), 1, "{said}");
        }
        assert!(!dir.join("o").exists());
    }
}
