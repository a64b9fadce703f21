//! Empty parts, failing runs, files that must not be replaced.

use crate::judges::{command, failure, seekless, text};
use crate::{EXPERIMENT, Lab, runs_of, same_as_whole};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[test]
fn an_empty_part_is_a_part() {
    let lab = Lab::new("empty");
    let whole = lab.whole();
    let only = ["--only", "few"];
    let dirs = [1, 2, 3].map(|part| lab.scratch.join(&format!("part{part}")));
    for (dir, shard) in dirs.iter().zip(["1/3", "2/3", "3/3"]) {
        text(&lab.run(dir, &[&only[..], &["--shard", shard]].concat()));
    }
    assert!(runs_of(&dirs[2]).is_empty(), "there are two cells");
    let all = lab.scratch.join("all");
    let [one, two, none] = &dirs;
    for order in [[one, two, none], [none, two, one]] {
        text(&seekless(&["lab", "merge", order[0], order[1], order[2], "-o", &all]));
        let few: BTreeMap<_, _> =
            runs_of(&whole).into_iter().filter(|(name, _)| name.contains("+few+")).collect();
        assert!(runs_of(&all) == few && few.len() == 4);
        fs::remove_dir_all(&all).unwrap();
    }
    let merge = |dir: &str| failure(&seekless(&["lab", "merge", one, dir, "-o", &all]));
    let other = EXPERIMENT.replace("two small trees", "another");
    fs::write(Path::new(none).join("experiment.toml"), other).unwrap();
    let (code, why) = merge(none);
    assert!(code == 4 && why.contains("part3: its results are not part of this tiny"), "{why}");
    fs::remove_file(Path::new(none).join("experiment.toml")).unwrap();
    let (code, why) = merge(none);
    assert!(code == 2 && why.contains("part3: no results found"), "{why}");
    assert!(!Path::new(&all).exists());
}

#[test]
fn a_run_whose_results_were_cut_short_is_performed_again() {
    let lab = Lab::new("short");
    let whole = lab.whole();
    let dir = lab.scratch.join("short");
    text(&lab.run(&dir, &["--only", "few"]));
    let (name, bytes) = runs_of(&dir).pop_first().expect("a run");
    let path = format!("{dir}/{name}");
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let merged = seekless(&["lab", "merge", &dir]);
    let why = String::from_utf8_lossy(&merged.stderr).into_owned();
    assert!(merged.status.code() == Some(1) && why.contains(&name), "{why}");
    let done = lab.run(&dir, &[]);
    let why = String::from_utf8_lossy(&done.stderr).into_owned();
    text(&done);
    assert!(why.contains(&name) && why.contains("performed again"), "{why}");
    let aside = format!("{path}.damaged");
    assert!(fs::read(&aside).unwrap() == bytes[..bytes.len() / 2]);
    fs::remove_file(aside).unwrap();
    same_as_whole(&dir, &whole);
}

#[test]
fn what_is_over_is_shown_when_a_run_fails() {
    let lab = Lab::new("fails");
    let large = "kind = \"flat\", directories = 2, files = 3, len = 30000000";
    let tree = "kind = \"ports\", directories = 400, files = 900, categories = 20";
    let full = EXPERIMENT.replace(tree, large).replace("size = \"2G\"", "size = \"64M\"");
    fs::write(&lab.file, full).unwrap();
    let (dir, log) = (lab.scratch.join("out"), lab.scratch.join("log"));
    let run = |more: &[&str]| {
        let output = command(&[&["lab", "run", &lab.file, "-j", "1"], more].concat()).output();
        let output = output.unwrap();
        let (code, why) = failure(&output);
        assert!(code == 5 && why.contains("many/s/"), "{why}");
        String::from_utf8(output.stdout).unwrap()
    };
    for more in [&[][..], &["-o", &dir]] {
        let shown = run(more);
        assert!(shown.contains("few/s/async/rm") && !shown.contains("many"), "{shown}");
    }
    assert_eq!(run(&["--only", "many/async", "--io-log", &log]), "", "nothing is over");
}

#[test]
fn what_is_kept_is_not_written_over() {
    let lab = Lab::new("over");
    let whole = lab.whole();
    let dir = whole.to_str().unwrap();
    let before: Vec<_> = ["experiment.toml", "cells.csv", "runs.parquet"]
        .map(String::from)
        .into_iter()
        .chain(runs_of(&whole).into_keys())
        .map(|name| (fs::read(whole.join(&name)).unwrap(), name))
        .collect();
    for (_, name) in &before {
        let path = format!("{dir}/{name}");
        let (code, why) = failure(&seekless(&["lab", "report", dir, "-o", &path]));
        assert!(code == 2 && why.contains("only .html and .svg"), "{why}");
        let log = ["lab", "run", &lab.file, "--only", "few/async", "--io-log", &path];
        let (code, why) = failure(&seekless(&log));
        assert!(code == 2 && why.contains("is a file of results"), "{why}");
    }
    for (bytes, name) in &before {
        assert!(fs::read(whole.join(name)).unwrap() == *bytes, "{name}");
    }
    text(&seekless(&["lab", "report", dir, "-o", &format!("{dir}/page.html")]));
    let link = lab.scratch.join("link");
    std::os::unix::fs::symlink(&lab.file, &link).unwrap();
    for path in [&lab.file, &link] {
        let log = ["lab", "run", &lab.file, "--only", "few/async", "--io-log", path];
        let (code, why) = failure(&seekless(&log));
        assert!(code == 2 && why.contains("is the experiment's own file"), "{why}");
    }
    assert_eq!(fs::read_to_string(&lab.file).unwrap(), EXPERIMENT);
}

#[test]
fn a_log_without_room_is_told_with_its_name() {
    let lab = Lab::new("log");
    let log = ["lab", "run", &lab.file, "--only", "few/async", "--io-log", "/dev/full"];
    let (code, why) = failure(&seekless(&log));
    assert!(code == 5 && why.contains("/dev/full: No space left"), "{why}");
}
