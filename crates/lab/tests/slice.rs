//! A slice of the experiments, small enough to run every time.

use seekless_lab::builtin;
use seekless_lab::cells::{agreement, cells};
use seekless_lab::experiment::Experiment;
use seekless_lab::plan::{Wanted, runs};
use seekless_lab::pool::perform_all;
use seekless_lab::run::{Run, digest, perform};

/// The experiment with a tree and caches a tenth as large.
fn small() -> (String, Experiment) {
    let text = builtin::text("dirpref")
        .unwrap()
        .replace("directories = 6596, files = 13868", "directories = 660, files = 1400")
        .replace("size = \"45M\"", "size = \"4500K\"")
        .replace("size = \"64M\"", "size = \"6400K\"");
    let experiment = Experiment::parse(&text, "small.toml").unwrap();
    (digest(&text, &experiment), experiment)
}

fn measure(jobs: usize, only: &[&str]) -> Vec<Run> {
    let (digest, experiment) = small();
    let only = only.iter().map(ToString::to_string).collect();
    let ids = runs(&experiment, &Wanted { only, ..Wanted::default() }).unwrap();
    let mut found = Vec::new();
    perform_all(&experiment, &digest, &ids, jobs, |run| found.push(run)).unwrap();
    found.sort_by_key(|run| run.id.to_string());
    found
}

#[test]
fn the_new_policy_wins_and_says_by_what() {
    let runs = measure(2, &["second/async", "second/softdep"]);
    let (_, experiment) = small();
    let cells = cells(&experiment, &runs);
    assert_eq!(cells.len(), 4, "two disciplines, two phases");
    for cell in &cells {
        let speedup = cell.speedup().unwrap();
        assert!(speedup > 1.0, "{}: {speedup}", cell.name());
        let [old, new] = cell.sides.as_slice() else { panic!("two policies") };
        assert!(new.counts.disk.seeks < old.counts.disk.seeks, "{}", cell.name());
        assert!(new.counts.disk.reads <= old.counts.disk.reads);
        assert_eq!(old.counts.disk.sync_writes, 0, "nobody waits for writes");
        assert!(old.counts.cpu_ns > 0 && old.counts.disk.busy_ns > 0);
        assert!(cell.json()["published_speedup"].as_f64().unwrap() > 1.0);
    }
    let found = agreement(&cells).unwrap();
    assert_eq!((found.cells, found.new_is_faster), (4, 4));
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let [once, again] = [1, 2].map(|jobs| measure(jobs, &["first/softdep"]));
    assert_eq!(once, again);
    let (digest, experiment) = small();
    let mut other = once[0].id.clone();
    other.seed = 7;
    let other = perform(&experiment, &digest, &other, None).unwrap();
    assert_ne!(other.phases[0].seconds, once[0].phases[0].seconds);
}

#[test]
fn what_a_file_says_wrong_is_told_with_line_and_key() {
    let good = builtin::text("dirpref").unwrap();
    let line_of = |start: &str| good.lines().position(|line| line.starts_with(start)).unwrap() + 1;
    for (from, to, start, key) in [
        ("queue = ", "queues = ", "queue = ", "queues"),
        ("look = \"27us\"", "look = \"27\"", "look = ", "look"),
        ("look = \"27us\"", "look = \"27min\"", "look = ", "look"),
        ("size = \"7928M\"", "size = \"7928Q\"", "size = ", "size"),
        ("\"orlov\"]", "\"orlof\"]", "policies", "policies"),
        ("\"softdep\"]", "\"softdeps\"]", "disciplines", "disciplines"),
        ("drive = \"ide-8gb\"", "drive = \"ide-9gb\"", "drive = ", "drive"),
        ("seeds = [1]", "seeds = []", "seeds = ", "seeds"),
    ] {
        assert!(good.contains(from), "{from}");
        let error = Experiment::parse(&good.replacen(from, to, 1), "mine.toml").unwrap_err();
        let expected = format!("mine.toml:{}: {key}: ", line_of(start));
        assert!(error.to_string().starts_with(&expected), "{error} / {expected}");
    }
    let stray = good.replacen("system = \"first\"", "system = \"third\"", 1);
    let error = Experiment::parse(&stray, "mine.toml").unwrap_err().to_string();
    assert!(error.contains("there is no 'third'"), "{error}");
}

/// Counts do not hang on the drive: they are the engine's.
#[test]
fn soft_updates_spare_the_writes_they_are_known_for() {
    let text = builtin::text("softdep").unwrap();
    let experiment = builtin::experiment("softdep").unwrap();
    let digest = digest(text, &experiment);
    let wanted = Wanted { only: vec!["small-tree".into(), "makedev".into()], ..Wanted::default() };
    let mut found = Vec::new();
    for id in runs(&experiment, &wanted).unwrap() {
        found.push(perform(&experiment, &digest, &id, None).unwrap());
    }
    let writes = |workload: &str, discipline: &str, phase: usize| {
        let is = |run: &&Run| run.id.workload == workload && run.id.discipline == discipline;
        let disk = found.iter().find(is).unwrap().phases[phase].counts.disk;
        (disk.sync_writes, disk.async_writes)
    };
    let (sync, _) = writes("small-tree", "normal", 0);
    assert!((445..=601).contains(&sync), "published 523, measured {sync}");
    for (workload, phase) in [("small-tree", 0), ("small-tree", 1), ("makedev", 0)] {
        let (normal_sync, normal_async) = writes(workload, "normal", phase);
        let (sync, delayed) = writes(workload, "softdep", phase);
        assert_eq!(sync, 0, "nobody waits for a write");
        assert!(delayed * 3 < normal_sync + normal_async, "{workload} {phase}: {delayed}");
    }
}
