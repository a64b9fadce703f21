//! `seekless model` and `score --device` from outside.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn seekless(args: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_seekless"))
        .args(args)
        .current_dir(dir)
        .output()
        .expect("seekless runs")
}

fn json(args: &[&str], dir: &Path) -> Value {
    let output = seekless(args, dir);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Exit code and standard error of a command that must fail.
fn refusal(args: &[&str], dir: &Path) -> (i32, String) {
    let output = seekless(args, dir);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("exit code"), said)
}

const DISKSIM: &[(&str, &str)] = &[
    ("small.parv", include_str!("../../model/tests/disksim/small.parv")),
    ("small.diskspecs", include_str!("../../model/tests/disksim/small.diskspecs")),
    ("small.model", include_str!("../../model/tests/disksim/small.model")),
    ("small.seek", "Seek distances measured: 3\n1, 1.5\n10, 3.0\n199, 9.0\n"),
];

/// A directory with the parameter files of a drive in `specs`.
fn specs() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("directory");
    std::fs::create_dir(dir.path().join("specs")).expect("specs");
    for (name, text) in DISKSIM {
        std::fs::write(dir.path().join("specs").join(name), text).expect(name);
    }
    dir
}

#[test]
fn presets_are_listed_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    let list = json(&["model", "list", "--json"], dir.path());
    let presets = list["presets"].as_array().unwrap();
    for kind in ["hdd", "ssd", "volume", "lazy", "null"] {
        assert!(presets.iter().any(|preset| preset["kind"] == kind), "{kind}");
    }
    for preset in presets {
        let name = preset["name"].as_str().unwrap();
        let shown = seekless(&["model", "show", name], dir.path());
        // The output is a valid parameter file.
        let file = dir.path().join(format!("{name}.toml"));
        std::fs::write(&file, &shown.stdout).unwrap();
        let again = json(&["model", "show", file.to_str().unwrap(), "--json"], dir.path());
        assert_eq!(again["name"], name);
    }
    let (code, said) = refusal(&["model", "show", "cheeta-9lp"], dir.path());
    assert_eq!(code, 2);
    assert!(said.contains("did you mean cheetah-9lp"), "{said}");
}

#[test]
fn a_drive_is_imported_and_a_broken_file_is_told() {
    let dir = specs();
    let import = ["model", "import", "specs/small.parv", "-o", "small.toml"];
    assert!(seekless(&import, dir.path()).status.success());
    let spec = json(&["model", "show", "./small.toml", "--json"], dir.path());
    assert_eq!(spec["hdd"]["heads"], 2);
    assert_eq!(refusal(&import, dir.path()).0, 6, "it exists already");

    let text = std::fs::read_to_string(dir.path().join("small.toml")).unwrap();
    std::fs::write(dir.path().join("bad.toml"), text.replace("heads = 2", "heads = 0")).unwrap();
    let line = text.lines().position(|line| line == "heads = 2").unwrap() + 1;
    let (code, said) = refusal(&["model", "show", "./bad.toml"], dir.path());
    assert_eq!(code, 3);
    assert!(said.contains(&format!("./bad.toml:{line}: heads: ")), "{said}");
    let (code, said) = refusal(&["model", "import", "specs/none.parv"], dir.path());
    assert_eq!(code, 6, "{said}");
}

/// A trace of the model's own response times, which must fit exactly.
#[test]
fn validation_compares_distributions() {
    let dir = specs();
    let traces = dir.path().join("traces");
    std::fs::create_dir(&traces).unwrap();
    let write = |name: &str, text: &str| std::fs::write(traces.join(name), text).unwrap();
    // Two slipped sectors make block 50 sector 52 of 100, which at 6,000 revolutions a minute has
    // passed at 5.3 ms; 0.1 ms over the bus.
    write("small.trace", "R Miss 50 1 5400 0\n");
    let args = ["model", "validate", "--traces", "traces", "--specs", "specs", "--json"];
    let validated = json(&args, dir.path());
    let drives = validated["drives"].as_array().unwrap();
    assert_eq!(drives.len(), 1);
    let drive = drives[0].as_object().unwrap();
    let keys: Vec<&str> = drive.keys().map(String::as_str).collect();
    assert_eq!(keys, ["demerit_ms", "demerit_percent", "drive", "mean_ms"]);
    assert_eq!(drive["drive"], "small");
    assert!((drive["mean_ms"].as_f64().unwrap() - 5.4).abs() < 1e-3, "{drive:?}");
    assert!(drive["demerit_ms"].as_f64().unwrap() < 1e-3, "{drive:?}");

    write("small.trace", "R Miss 50 1 10800 0\n");
    let plot = [args.as_slice(), &["--plot", "fit.svg"]].concat();
    let validated = json(&plot, dir.path());
    let percent = validated["drives"][0]["demerit_percent"].as_f64().unwrap();
    assert!((percent - 50.0).abs() < 0.1, "{percent}");
    let svg = std::fs::read_to_string(dir.path().join("fit.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.matches("<polyline").count() == 2);

    write("small.trace", "R Miss 50 one 10400 0\n");
    let (code, said) = refusal(&args, dir.path());
    assert_eq!(code, 3);
    assert!(said.contains("small.trace:1: 'one'"), "{said}");
    write("other.trace", "R Miss 50 1 10400 0\n");
    let (code, said) = refusal(&args, dir.path());
    assert_eq!(code, 2);
    assert!(said.contains("other.parv"), "{said}");
}

#[test]
fn jobs_run_with_fios_options() {
    let dir = tempfile::tempdir().unwrap();
    let bench = ["model", "bench", "gp3", "--rw", "randread,write", "--iodepth", "1,64"];
    let args = [&bench[..], &["--bs", "8K", "--number-ios", "5000", "--json"]].concat();
    let found = json(&args, dir.path());
    assert_eq!(found["device"], "gp3");
    let jobs = found["jobs"].as_array().unwrap();
    let order: Vec<_> =
        jobs.iter().map(|job| (job["rw"].as_str().unwrap(), &job["iodepth"])).collect();
    let (one, many) = (Value::from(1), Value::from(64));
    assert_eq!(order, [("randread", &one), ("randread", &many), ("write", &one), ("write", &many)]);
    let figure = |job: usize, key: &str| jobs[job][key].as_f64().unwrap();
    // The volume's limit, and the latency that follows from it.
    assert!((figure(1, "iops") / 3000.0 - 1.0).abs() < 0.02, "{}", jobs[1]);
    assert!((figure(1, "bytes_per_second") / figure(1, "iops") - 8192.0).abs() < 0.01);
    assert_eq!(jobs[1]["requests"], 5000);
    let mean = |job: usize| jobs[job]["lat_us"]["mean"].as_f64().unwrap();
    assert!((mean(1) / (64e6 / 3000.0) - 1.0).abs() < 0.02, "{}", jobs[1]);
    assert!((figure(0, "iops") * mean(0) / 1e6 - 1.0).abs() < 1e-3, "{}", jobs[0]);
    // The same on every run; a thread's time counts.
    assert_eq!(json(&args, dir.path()), found);
    let slow = json(&[&args[..], &["--thinktime", "1ms"]].concat(), dir.path());
    assert!(slow["jobs"][1]["iops"].as_f64().unwrap() <= 1000.0, "{slow}");
    let text = seekless(&bench, dir.path());
    assert_eq!(String::from_utf8_lossy(&text.stdout).lines().count(), 5);
    for wrong in [["--bs", "1000"], ["--iodepth", "0"], ["--number-ios", "0"], ["--size", "1K"]] {
        let (code, said) = refusal(&[&bench[..], &wrong[..]].concat(), dir.path());
        assert!(code == 2 && said.contains(wrong[0]), "{wrong:?}: {code} {said}");
    }
}

#[test]
fn published_results_are_compared_with_the_models() {
    let dir = tempfile::tempdir().unwrap();
    let table = "[[run]]\ndevice = \"gp3\"\nhost = \"m5\"\nsource = \"s\"\nthinktime_us = 3.0\n\
                 results = [{ rw = \"randread\", iodepth = 64, iops = 1500, lat_us = 42667 }]\n";
    let write = |text: &str| std::fs::write(dir.path().join("results.toml"), text).unwrap();
    write(table);
    let args = ["model", "validate", "--fio", "results.toml"];
    let found = json(&[&args[..], &["--json"]].concat(), dir.path());
    let one = &found["runs"][0]["results"][0];
    assert!((one["iops"].as_f64().unwrap() / 3000.0 - 1.0).abs() < 0.01, "{one}");
    assert_eq!((&one["measured_iops"], &one["parameter"]), (&1500.0.into(), &false.into()));
    assert_eq!(one["measured_p99_us"], Value::Null);
    let text = String::from_utf8(seekless(&args, dir.path()).stdout).unwrap();
    let row: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
    assert_eq!((row[2], row[4], row[7]), ("1500", "2.00", "0.50"), "{text}");

    write(&table.replace("iodepth = 64", "iodepth = 0"));
    let (code, said) = refusal(&args, dir.path());
    assert_eq!(code, 3);
    assert!(said.contains("results.toml:6: iodepth: 0 is not"), "{said}");
    write(&table.replace("gp3", "gp33"));
    let (code, said) = refusal(&args, dir.path());
    assert_eq!(code, 2);
    assert!(said.contains("results.toml: no device preset 'gp33'"), "{said}");
    assert_eq!(refusal(&["model", "validate"], dir.path()).0, 2);
    let both = [&args[..], &["--traces", "t", "--specs", "s"]].concat();
    assert_eq!(refusal(&both, dir.path()).0, 2);
}

#[test]
fn a_score_is_timed_on_devices() {
    let dir = specs();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for n in 0..20 {
        std::fs::write(tree.join(format!("f{n}")), vec![n; 9000]).unwrap();
    }
    assert!(seekless(&["build", "tree", "-o", "a.img"], dir.path()).status.success());
    std::fs::write(dir.path().join("paths"), "/f3\n/f17\n/f5\n").unwrap();
    let import = ["trace", "import", "--paths", "paths", "-o", "t.trace"];
    assert!(seekless(&import, dir.path()).status.success());
    assert!(
        seekless(&["model", "import", "specs/small.parv", "-o", "small.toml"], dir.path())
            .status
            .success()
    );
    let score = ["score", "a.img", "--trace", "t.trace"];
    let devices = ["--device", "null", "--device", "gp3", "--device", "./small.toml"];
    let timed = json(&[&score, devices.as_slice(), &["--json"]].concat(), dir.path());
    let list = timed["devices"].as_array().unwrap();
    let names: Vec<&str> = list.iter().map(|d| d["device"].as_str().unwrap()).collect();
    assert_eq!(names, ["null", "gp3", "./small.toml"]);
    assert_eq!(list[0]["seconds"], 0.0);
    let requests = timed["requests"].as_f64().unwrap();
    for device in &list[1..] {
        let (seconds, busy) =
            (device["seconds"].as_f64().unwrap(), device["busy"].as_f64().unwrap());
        // One request after the other, each of 0.3 to 20 ms.
        assert!(seconds > requests * 2e-4 && seconds < requests * 0.02, "{device}");
        assert!(busy > 0.0 && busy <= seconds, "{device}");
    }
    assert!(json(&[&score[..], &["--json"]].concat(), dir.path()).get("devices").is_none());
    let text = seekless(&[&score, &devices[..]].concat(), dir.path());
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("time on gp3") && text.contains("device busy"), "{text}");
    let (code, said) = refusal(&[&score[..], &["--device", "gp33"]].concat(), dir.path());
    assert_eq!(code, 2);
    assert!(said.contains("gp3"), "{said}");
}
