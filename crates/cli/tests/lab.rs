//! `seekless lab` from outside: runs, shards, saved results.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn seekless(args: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seekless"));
    command.args(args).current_dir(dir).output().expect("runs")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&text(output)).expect("JSON")
}

/// Writes the experiment dirpref with a small tree to a file.
fn small(dir: &Path) {
    let shown = text(&seekless(&["lab", "show", "dirpref"], dir));
    let small =
        shown.replace("directories = 6596, files = 13868", "directories = 130, files = 260");
    assert_ne!(small, shown);
    fs::write(dir.join("small.toml"), small.replace("categories = 50", "categories = 5")).unwrap();
}

#[test]
fn shards_merge_to_what_one_run_gives() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    small(dir);
    let run = ["lab", "run", "small.toml", "--only", "first", "--json"];
    let whole = json(&seekless(&run, dir));
    let cells = whole["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 8, "four disciplines, two phases");
    for cell in cells {
        assert_eq!(cell["system"], "first");
        let (old, new) = (cell["old_s"].as_f64().unwrap(), cell["new_s"].as_f64().unwrap());
        assert!((cell["speedup"].as_f64().unwrap() - old / new).abs() < 1e-9);
        assert!(cell["published_speedup"].is_f64());
        for key in
            ["reads", "sync_writes", "async_writes", "seeks", "seek_bytes", "busy_s", "cpu_s"]
        {
            assert!(cell["old"][key].is_number() && cell["new"][key].is_number(), "{key}");
        }
    }
    for (shard, out) in [("1/2", "a"), ("2/2", "b")] {
        text(&seekless(&[&run[..], &["--shard", shard, "-o", out]].concat(), dir));
    }
    let merged = json(&seekless(&["lab", "merge", "a", "b", "-o", "all", "--json"], dir));
    assert_eq!(merged["cells"], whole["cells"]);
    // All runs are saved: none is repeated, and the results are the same.
    let before = fs::read(dir.join("all/cells.csv")).unwrap();
    let again = json(&seekless(&[&run[..], &["-o", "all"]].concat(), dir));
    assert_eq!(again["cells"], whole["cells"]);
    assert_eq!(fs::read(dir.join("all/cells.csv")).unwrap(), before);
    assert_eq!(before.iter().filter(|byte| **byte == b'\n').count(), 17);
    let said = json(&seekless(&["lab", "report", "all", "--json"], dir));
    assert_eq!(said["report"], "all/report.html");
    let page = fs::read_to_string(dir.join("all/report.html")).unwrap();
    assert!(page.contains("class=\"published\"") && page.contains("ports/first/normal/untar"));
    assert_eq!(page.matches("class=\"seekplots\"").count(), 8, "a picture for each cell");
    assert!(page.matches("<figure>").count() >= 16, "old beside new");
    for policy in ["old-dirpref", "orlov"] {
        assert!(page.contains(&format!("aria-label=\"{policy}: ")), "{policy}");
    }
    assert!(!page.contains("http://") && !page.contains("https://"), "self-contained");
    // The summary at the top counts the cells of a phase: two workloads on one system.
    let summary = page.split("<section").nth(1).unwrap();
    assert!(summary.contains("<h2>Summary</h2>") && summary.contains("median"), "{summary}");
    assert!(summary.contains("untar, normal"), "{summary}");
}

#[test]
fn parts_that_are_missing_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    small(dir);
    let run = ["lab", "run", "small.toml", "--only", "first/async", "--seeds", "2", "--shard"];
    for (shard, out) in [("1/2", "a"), ("2/2", "b")] {
        text(&seekless(&[&run[..], &[shard, "-o", out]].concat(), dir));
    }
    let merge = |parts: &[&str]| {
        let output = seekless(&[&["lab", "merge"], parts].concat(), dir);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let is_refused = |parts: &[&str], why: &str| {
        let (code, told) = merge(&[parts, &["-o", "all"]].concat());
        assert!(code == Some(1) && told.contains(why), "{parts:?}: {told}");
        assert!(!dir.join("all").exists());
        let (code, told) = merge(&[&["--partial"], parts].concat());
        assert!(code == Some(0) && told.contains(why), "{parts:?}: {told}");
    };
    is_refused(&["a"], "part 2/2 of first/async, 2 seeds is missing");
    is_refused(&["b", "a", "b"], "part 2/2 of first/async, 2 seeds is there twice");
    // The selections stay with merged results.
    assert_eq!(merge(&["--partial", "a", "-o", "half"]).0, Some(0));
    is_refused(&["half"], "part 2/2 of first/async, 2 seeds is missing");
    assert_eq!(merge(&["half", "b", "-o", "whole"]).0, Some(0));
    let of_run = |path: &std::path::PathBuf| path.to_str().unwrap().contains("run-");
    let mut runs = fs::read_dir(dir.join("b")).unwrap().map(|entry| entry.unwrap().path());
    let cut = runs.find(of_run).unwrap();
    fs::write(&cut, "{").unwrap();
    is_refused(&["a", "b"], "part 2/2 of first/async, 2 seeds is not complete");
    is_refused(&["a", "b"], cut.file_name().unwrap().to_str().unwrap());
}

#[test]
fn what_does_not_go_together_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    small(dir);
    let only = ["--only", "first/async", "--json"];
    text(&seekless(&[&["lab", "run", "small.toml", "-o", "a"], &only[..]].concat(), dir));
    fs::create_dir(dir.join("b")).unwrap();
    for entry in fs::read_dir(dir.join("a")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|is| is == "parquet") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let version = format!("\"version\": \"{}\"", seekless_lab::run::VERSION);
        let other = text.replace(&version, "\"version\": \"0.0.0\"");
        fs::write(dir.join("b").join(path.file_name().unwrap()), other).unwrap();
    }
    let refused = seekless(&["lab", "merge", "a", "b", "-o", "all"], dir);
    assert_eq!(refused.status.code(), Some(4));
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(why.contains("different versions of seekless"), "{why}");
    assert!(!dir.join("all").exists());
    // Results of another version are not resumed either.
    let refused = seekless(&[&["lab", "run", "small.toml", "-o", "b"], &only[..]].concat(), dir);
    assert_eq!(refused.status.code(), Some(4));
}

#[test]
fn requests_are_written_down() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    small(dir);
    let run = ["lab", "run", "small.toml", "--only", "first/normal", "--json", "--io-log", "log"];
    let cells = json(&seekless(&run, dir));
    let log = fs::read_to_string(dir.join("log")).unwrap();
    let lines = log.lines().filter(|line| !line.starts_with('#'));
    let reads = lines.clone().filter(|line| line.split('\t').nth(2) == Some("read")).count() as u64;
    let counted: u64 = cells["cells"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|cell| [&cell["old"]["reads"], &cell["new"]["reads"]])
        .map(|reads| reads.as_u64().unwrap())
        .sum();
    // Mount and unmount read the superblock and a little more.
    assert!(reads >= counted && reads < counted + 40, "{reads} {counted}");
    let wrong = seekless(&["lab", "run", "small.toml", "--only", "first", "--io-log", "log"], dir);
    assert_eq!(wrong.status.code(), Some(2));
    // As in the table: a phase selects its run.
    let row = ["lab", "run", "small.toml", "--only", "ports/first/normal/untar", "--json"];
    assert_eq!(json(&seekless(&row, dir))["cells"], cells["cells"]);
    let text = fs::read_to_string(dir.join("small.toml")).unwrap();
    let evil = text.replace("\"second\"", "\"../../evil\"");
    fs::write(dir.join("evil.toml"), evil).unwrap();
    let wrong = seekless(&["lab", "run", "evil.toml", "-o", "out"], dir);
    assert_eq!(wrong.status.code(), Some(2));
    let why = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(why.contains("evil.toml:") && why.contains(": name: invalid name"), "{why}");
    assert!(!dir.join("out").exists());
    let wrong = seekless(&["lab", "run", "dirperf"], dir);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("dirpref"));
}

/// Each variation is another run of the experiment, and its claims are those of the file.
#[test]
fn claims_are_examined_under_changed_assumptions() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    small(dir);
    let run =
        ["lab", "sensitivity", "small.toml", "--only", "first/async", "--vary", "queue", "cache"];
    let run = [&run[..], &["-o", "out", "--json"]].concat();
    let found = json(&seekless(&run, dir));
    let names: Vec<&str> = found["variations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["variation"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["as in the file", "cache, halved", "cache, doubled", "queue, 64", "queue, 1024"]
    );
    let claims = found["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 2, "untar and rm");
    // The first variation is the experiment itself.
    let cells =
        json(&seekless(&["lab", "run", "small.toml", "--only", "first/async", "--json"], dir));
    for (claim, cell) in claims.iter().zip(cells["cells"].as_array().unwrap()) {
        assert_eq!(claim["ratio"], cell["speedup"]);
        assert_eq!(claim["published"], cell["published_speedup"]);
        let value = |key: &str| claim[key].as_f64().unwrap();
        assert!(value("least") <= value("ratio") && value("ratio") <= value("greatest"));
        let fails = claim["fails"].as_array().unwrap().len();
        assert_eq!(fails == 0, value("least") > 1.0, "{claim}");
    }
    let holds = |row: &serde_json::Value| row["holds"].as_u64().unwrap();
    let failed: usize = claims.iter().map(|claim| claim["fails"].as_array().unwrap().len()).sum();
    let held: u64 = found["variations"].as_array().unwrap().iter().map(holds).sum();
    assert_eq!(held as usize + failed, names.len() * claims.len());
    // The runs of a variation are those of its file.
    let file = dir.join("out/cache--doubled/experiment.toml");
    let same = ["lab", "run", file.to_str().unwrap(), "--only", "first/async", "--json"];
    let doubled = json(&seekless(&same, dir));
    let ratio = doubled["cells"][0]["speedup"].as_f64().unwrap();
    let (least, most) = (&claims[0]["least"], &claims[0]["greatest"]);
    assert!(least.as_f64().unwrap() <= ratio && ratio <= most.as_f64().unwrap());
    // Saved runs are not repeated: one of another content is noticed.
    let kept = dir.join("out/queue--64");
    let a_run = fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().path());
    let a_run =
        a_run.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("run-"));
    let a_run = a_run.max().unwrap();
    let changed = fs::read_to_string(&a_run).unwrap().replace("\"seconds\": ", "\"seconds\": 1");
    fs::write(&a_run, changed).unwrap();
    assert_ne!(json(&seekless(&run, dir)), found);
    fs::remove_file(&a_run).unwrap();
    assert_eq!(json(&seekless(&run, dir)), found);
    let shown = text(&seekless(&run[..run.len() - 1], dir));
    assert!(shown.contains("cache, halved") && shown.contains("of 5"), "{shown}");
    for (args, why) in [
        (&["small.toml", "--vary", "moon"][..], "unknown assumption 'moon'"),
        (&["small.toml", "--only", "third"], "no claim about 'third'"),
        (&["boots"], "no assumptions to vary"),
    ] {
        let output = seekless(&[&["lab", "sensitivity"], args].concat(), dir);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{args:?}");
    }
}
