//! Traces of several concurrent processes: scored as in another run, and laid out in the order of the
//! recording.

use serde_json::{Value, json};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

const READERS: u64 = 4;
const FILES: u64 = 60;

fn seekless(args: &[&str], dir: &Path) -> Value {
    let output =
        Command::new(env!("CARGO_BIN_EXE_seekless")).args(args).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

fn seeks(value: &Value) -> u64 {
    value["seeks"].as_u64().unwrap()
}

/// All readers read files of their own at the same time, each a file per millisecond. With `known`,
/// the trace has their process ids.
fn trace(path: &Path, readers: Range<u64>, known: bool) {
    let mut lines = vec![json!({ "seekless_trace": 1 }).to_string()];
    for file in 0..FILES {
        for reader in readers.clone() {
            let mut event = json!({
                "time": file * 1_000_000 + reader * 200_000,
                "op": "read",
                "path": format!("/reader{reader}/file{file:02}"),
            });
            if known {
                event["pid"] = json!(100 + reader);
            }
            lines.push(event.to_string());
        }
    }
    fs::write(path, lines.join("\n") + "\n").unwrap();
}

fn prepare(dir: &Path) {
    for reader in 0..READERS {
        let sub = dir.join(format!("tree/reader{reader}"));
        fs::create_dir_all(&sub).unwrap();
        for file in 0..FILES {
            fs::write(sub.join(format!("file{file:02}")), vec![file as u8; 9000]).unwrap();
        }
    }
    seekless(&["build", "tree", "-o", "built.img", "--size", "64M", "-q"], dir);
    trace(&dir.join("all.trace"), 0..READERS, true);
    trace(&dir.join("nameless.trace"), 0..READERS, false);
    for (trace, image) in [("all.trace", "apart.img"), ("nameless.trace", "mixed.img")] {
        seekless(&["optimize", "built.img", "--trace", trace, "-o", image, "-q"], dir);
    }
}

#[test]
fn readers_side_by_side_keep_the_order_of_the_recording() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir);
    let args = [
        "score",
        "apart.img",
        "mixed.img",
        "--trace",
        "all.trace",
        "--order",
        "recorded",
        "--json",
    ];
    let both = seekless(&args, dir);
    assert!(seeks(&both["a"]) < 8, "{both}");
    // Process ids do not matter.
    assert_eq!(seeks(&both["a"]), seeks(&both["b"]));
    // One reader alone seeks over the files of the others.
    trace(&dir.join("one.trace"), 0..1, true);
    let one = seekless(&["score", "apart.img", "--trace", "one.trace", "--json"], dir);
    assert!(seeks(&one) > FILES / 2, "{one}");
}

/// Another run: the readers read one after the other, in opposite order, and each run has files of
/// its own between theirs.
fn another_run(path: &Path, own: &str) {
    let mut lines = vec![json!({ "seekless_trace": 1 }).to_string()];
    for (turn, reader) in (0..READERS).rev().enumerate() {
        for file in 0..FILES {
            let time = (turn as u64 * FILES + file) * 500_000;
            let pid = 900 - reader;
            let read =
                |path: String| json!({ "time": time, "pid": pid, "op": "read", "path": path });
            lines.push(read(format!("/reader{reader}/file{file:02}")).to_string());
            if file % 10 == 5 {
                lines.push(read(format!("/own/{own}{reader}{file:02}")).to_string());
            }
        }
    }
    fs::write(path, lines.join("\n") + "\n").unwrap();
}

#[test]
fn what_runs_have_in_common_is_not_scattered_by_what_differs() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir_all(dir.join("tree/own")).unwrap();
    for run in ["first", "second"] {
        for (reader, file) in (0..READERS).flat_map(|r| (0..FILES).map(move |file| (r, file))) {
            fs::write(dir.join(format!("tree/own/{run}{reader}{file:02}")), vec![1; 9000]).unwrap();
        }
    }
    prepare(dir);
    another_run(&dir.join("first.trace"), "first");
    another_run(&dir.join("second.trace"), "second");
    let traces = ["--trace", "first.trace", "--trace", "all.trace", "--trace", "second.trace"];
    let args = [&["optimize", "built.img", "-o", "merged.img", "-q"], &traces[..]].concat();
    seekless(&args, dir);
    let args = ["score", "merged.img", "--trace", "all.trace", "--chunk", "64K", "--json"];
    let all = seekless(&args, dir);
    let chunks = |of: &str| all[of]["65536"].as_u64().unwrap();
    assert!(chunks("chunks") <= chunks("chunks_floor") + 2, "{all}");
    // The layout has the order of one of the runs, whichever fits the others best: in that order,
    // nothing lies in between.
    let score = |trace: &str| {
        let order = ["--order", "recorded", "--json"];
        seeks(&seekless(&[&["score", "merged.img", "--trace", trace][..], &order].concat(), dir))
    };
    let apart = (0..READERS).map(|reader| {
        trace(&dir.join("one.trace"), reader..reader + 1, true);
        score("one.trace")
    });
    let (together, apart) = (score("all.trace"), apart.max().expect("there are four"));
    assert!(together.min(apart) < 8, "{together} together, {apart} apart");
}

#[test]
fn the_order_between_processes_is_that_of_another_run() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir);
    let score = |more: &[&str]| {
        seekless(&[&["score", "mixed.img", "--trace", "all.trace", "--json"], more].concat(), dir)
    };
    let (drawn, recorded) = (score(&[]), score(&["--order", "recorded"]));
    // Laid out in the order of the trace, which no other run repeats.
    assert!(seeks(&recorded) < 8, "{recorded}");
    assert!(seeks(&drawn) > READERS * FILES / 2, "{drawn}");
    assert_eq!(drawn["recorded_order"]["seeks"], recorded["seeks"]);
    assert_eq!(recorded["recorded_order"]["seeks"], recorded["seeks"]);
    assert_eq!(drawn["bytes"], recorded["bytes"]);
    assert_eq!(drawn, score(&["--seed", "0"]));
    assert_ne!(seeks(&drawn), seeks(&score(&["--seed", "1"])));
    // Without process ids there is one order only.
    let args = ["score", "mixed.img", "--trace", "nameless.trace", "--json"];
    assert_eq!(seekless(&args, dir)["seeks"], recorded["seeks"]);
}
