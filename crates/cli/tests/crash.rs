//! `seekless crash`: exit codes, output, resumption after an interruption, export and import of
//! logs.

mod judges;

use judges::{Scratch, command, seekless, text};
use serde_json::Value;
use std::fs;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

fn crash(args: &[&str]) -> Output {
    seekless(&[&["crash"], args].concat())
}

fn run(workload: &str, discipline: &str, format: &str, more: &[&str]) -> Output {
    let args = ["run", "--workload", workload, "--discipline", discipline, "--format", format];
    crash(&[&args, more].concat())
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_holds_exits_with_0_and_says_what_was_covered() {
    let output = run("rename-over", "softdep", "ufs2", &["--exhaustive", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let value = json(&output);
    assert_eq!((&value["holds"], &value["failing"]), (&true.into(), &0.into()));
    assert!(value["states"].as_u64().unwrap() > 30, "{value}");
    assert_eq!(value["coverage"]["bound"], 4096);
    assert!(value["coverage"]["epochs"]["sectors"].as_u64().unwrap() > 3, "{value}");
    let plain = text(&run("rename-over", "softdep", "ufs2", &["--sample", "40"]));
    assert!(
        plain.contains("all hold") && plain.contains("at most 4096 states per epoch"),
        "{plain}"
    );
}

/// The device is told of freed blocks once no state of the disk leads to them: in all of them, the
/// names that are there have their contents.
#[test]
fn discarded_blocks_are_in_no_file() {
    for (discipline, format) in [
        ("softdep", "ufs2"),
        ("sync", "ufs1"),
        ("softdep", "ext2"),
        ("journal=ordered", "ext4"),
        ("journal=data", "ext4"),
        ("softdep", "fat16"),
    ] {
        let writes = |more: &[&str]| -> u64 {
            let args = ["--sequences", "12", "--sample", "25", "--seed", "3", "--json"];
            let output = run("random:8", discipline, format, &[&args, more].concat());
            let (value, shown) = (json(&output), format!("{discipline} on {format}: {more:?}"));
            assert_eq!((output.status.code(), &value["holds"]), (Some(0), &true.into()), "{shown}");
            let each = value["workloads"].as_array().expect("workloads");
            each.iter().map(|workload| workload["writes"].as_u64().expect("writes")).sum()
        };
        assert!(writes(&["--discard"]) > writes(&[]), "{discipline} on {format}: nothing is freed");
    }
}

/// Files that are removed, cut, written again and moved over, on formats without links.
const PLAIN: &str = "\
mkdir A
open A/one
write 0 90000
open A/two
write 0 50000
close
sync
begin
unlink A/one
open A/three
write 0 120000
truncate A/two 10000
fsync A/three
open A/four
write 0 30000
rename A/four A/three
unlink A/two
mkdir A/sub
open A/sub/five
append 70000
unlink A/three
truncate A/sub/five 0
append A/sub/five 40000
";

/// All free blocks are discarded after each operation: the same holds for their states.
#[test]
fn trimmed_blocks_are_in_no_file() {
    let scratch = Scratch::new("crash-trim");
    for (discipline, format) in [
        ("softdep", "ufs2"),
        ("sync", "ufs1"),
        ("normal", "ext2"),
        ("softdep", "ext2"),
        ("journal=ordered", "ext4"),
        ("journal=data", "ext4"),
        ("softdep", "fat16"),
        ("sync", "fat32"),
    ] {
        for number in 0..6 {
            let listed = match (format.starts_with("fat"), number) {
                (true, 0) => PLAIN.to_string(),
                (true, _) => continue,
                (false, _) => text(&crash(&["list", &format!("random:8#{number}"), "--seed", "3"])),
            };
            let (setup, body) = listed.split_once("begin\n").expect("a script");
            let kept = |lines: &str, more: &str| -> String {
                let lines = lines.lines().filter(|line| !line.contains("xattr "));
                lines.map(|line| format!("{line}\n{more}")).collect()
            };
            let script = scratch.join("script");
            let trimming = format!("{}begin\n{}", kept(setup, ""), kept(body, "trim\n"));
            fs::write(&script, trimming).expect("write");
            let output = run(&script, discipline, format, &["--sample", "25", "--json"]);
            let (value, shown) = (json(&output), format!("{discipline} on {format}: {number}"));
            assert_eq!(
                (output.status.code(), &value["holds"]),
                (Some(0), &true.into()),
                "{shown}: {}",
                errors(&output)
            );
        }
    }
}

#[test]
fn what_does_not_hold_exits_with_1_and_its_reproducer_fails_again() {
    let scratch = Scratch::new("crash");
    let image = scratch.join("state.img");
    let output = run("mkdir", "async", "ufs2", &["--json", "--image-out", &image]);
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    let value = json(&output);
    assert_eq!(value["holds"], false);
    let small = &value["reproducer"];
    let code = small["violations"][0]["code"].as_str().expect("code");
    let script = scratch.join("script.txt");
    fs::write(&script, small["script"].as_str().expect("script")).expect("write");
    let again = run(&script, "async", "ufs2", &["--schedules", "1", "--exhaustive", "--json"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(json(&again)["workloads"][0]["violations"][code].as_u64().unwrap() > 0);
    // The image of the failing state can be checked.
    assert_eq!(seekless(&["check", &image]).status.code(), Some(4));
    let plain = run("mkdir", "async", "ufs2", &[]);
    let shown = String::from_utf8_lossy(&plain.stdout);
    assert!(shown.contains("Smallest failing workload found"), "{shown}");
}

/// The placement policies are those of a mount: they change the locations of writes, but the
/// promises hold. A campaign resumes only under its own policies.
#[test]
fn policies_are_chosen_as_for_a_mount() {
    let scratch = Scratch::new("crash-policies");
    let (log, other, state) = (scratch.join("log"), scratch.join("other"), scratch.join("state"));
    let of = |more: &[&str]| run("grow", "softdep", "ext2", &[&["--sample", "30"], more].concat());
    let ahead = ["--blocks", "ext2-next=8", "--inodes", "dir-reserve=8", "--dirs", "linear"];
    let plain = text(&of(&[&ahead[..], &["--log-out", &log, "-o", &state]].concat()));
    let line =
        "softdep on ext2, dirs=linear, inodes=dir-reserve=8, blocks=ext2-next=8: 1 workloads";
    assert!(plain.contains(line) && plain.contains("all hold"), "{plain}");
    text(&of(&["--log-out", &other]));
    assert_ne!(fs::read(&log).expect("log"), fs::read(&other).expect("log"));
    assert_eq!(json(&of(&["--blocks", "next-free", "--json"]))["blocks"], "next-free");
    for (output, code, word) in [
        (of(&["-o", &state]), 2, "another campaign"),
        (of(&["--blocks", "blkpref"]), 4, "is for UFS only"),
        (of(&["--dirs", "nearest"]), 4, "unknown policy 'nearest'"),
    ] {
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(word), "{said}");
    }
    // A failure is shown with the options that reproduce it.
    let wrong = run("mkdir", "async", "ext2", &["--blocks", "next-free"]);
    let shown = String::from_utf8_lossy(&wrong.stdout).into_owned();
    assert!(shown.contains("--format ext2 --blocks next-free --schedules 1"), "{shown}");
}

#[test]
fn misuse_exits_with_2_and_says_what() {
    let scratch = Scratch::new("crash-misuse");
    let script = scratch.join("script.txt");
    fs::write(&script, "mkdir A\nopen A/f\nfrobnicate A/f\n").expect("write");
    let absent = scratch.join("absent.txt");
    fs::write(&absent, "mkdir A\nunlink A/f\n").expect("write");
    for (output, word) in [
        (run(&script, "softdep", "ufs2", &[]), "line 3"),
        (run(&script, "softdep", "ufs2", &[]), "frobnicate"),
        (run(&absent, "softdep", "ufs2", &[]), "line 2"),
        (run("creat", "softdep", "ufs2", &[]), "creat"),
        (run("xattr", "softdep", "ufs1", &[]), "xattr"),
        (run("create", "journal", "ufs2", &[]), "journal"),
        (run("create", "softdep", "zfs", &[]), "zfs"),
        (run("create", "softdep", "ufs2", &["--shard", "3/2"]), "3/2"),
        (run("create", "softdep", "ufs2", &["--shard", "0/2"]), "0/2"),
        (run("create", "softdep", "ufs2", &["--sample", "0"]), "sample"),
        (run("create", "softdep", "ufs2", &["--sample", "3", "--exhaustive"]), "exhaustive"),
        (run("singles", "softdep", "ufs2", &["--log-out", &absent]), "one workload"),
    ] {
        assert_eq!(output.status.code(), Some(2), "{word}: {}", errors(&output));
        assert!(errors(&output).contains(word), "{word}: {}", errors(&output));
    }
    let output = run("create", "softdep", "ext4", &[]);
    assert_eq!(output.status.code(), Some(4), "{}", errors(&output));
    assert_eq!(run("./no/such/file", "softdep", "ufs2", &[]).status.code(), Some(6));
}

#[test]
fn an_interrupted_campaign_goes_on() {
    let scratch = Scratch::new("crash-resume");
    let state = scratch.join("state");
    let more = ["--sample", "40", "--schedules", "2", "--json", "-o", &state];
    let whole = json(&run("singles", "softdep", "ufs1", &more[..5]));
    let args = ["crash", "run", "--workload", "singles", "--discipline", "softdep"];
    let args = [&args[..], &["--format", "ufs1"], &more[..]].concat();
    let mut child = command(&args).stdout(Stdio::null()).spawn().expect("seekless");
    let began = Instant::now();
    let lines = || fs::read_to_string(&state).unwrap_or_default().lines().count();
    while lines() < 4 && began.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().expect("kill");
    child.wait().expect("wait");
    assert!(lines() >= 4);
    // An incomplete last line is ignored.
    let mut bytes = fs::read(&state).expect("state");
    bytes.extend(b"{\"workload\":\"trunc");
    fs::write(&state, bytes).expect("state");
    let output = run("singles", "softdep", "ufs1", &more);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let mut resumed = json(&output);
    assert!(resumed["resumed"].as_u64().unwrap() >= 2, "{resumed}");
    resumed["resumed"] = 0.into();
    assert_eq!(resumed, whole);
    // Another campaign refuses the state.
    let other = run("singles", "softdep", "ufs2", &more);
    assert_eq!(other.status.code(), Some(2));
    assert!(errors(&other).contains("another campaign"), "{}", errors(&other));
}

#[test]
fn logs_go_out_and_come_in() {
    let scratch = Scratch::new("crash-log");
    let log = scratch.join("log");
    let more = ["--log-out", &log, "--schedules", "1", "--exhaustive", "--json"];
    let inside = json(&run("mkdir", "softdep", "ufs2", &more));
    let output = crash(&["replay", &log, "--exhaustive", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let value = json(&output);
    assert_eq!(value["states"], inside["states"], "{value}");
    assert_eq!(value["coverage"]["epochs"], inside["coverage"]["epochs"]);
    // Without ordering constraints the replay fails as well.
    run("mkdir", "async", "ufs2", &more);
    let output = crash(&["replay", &log]);
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("do not hold"), "{shown}");
    for (format, discipline, code) in [
        ("ext2", "softdep", 0),
        ("ext2", "async", 1),
        ("ext4", "journal=ordered", 0),
        ("fat12", "softdep", 0),
        ("fat12", "async", 1),
        ("fat32", "softdep", 0),
    ] {
        let inside = json(&run("mkdir", discipline, format, &more));
        let output = crash(&["replay", &log, "--exhaustive", "--json"]);
        let place = format!("{format} {discipline}: {}", errors(&output));
        assert_eq!(output.status.code(), Some(code), "{place}");
        assert_eq!(json(&output)["states"], inside["states"], "{place}");
    }
    run("mkdir", "async", "ufs2", &more);
    let bytes = fs::read(&log).expect("log");
    fs::write(&log, &bytes[..bytes.len() - 700]).expect("log");
    let output = crash(&["replay", &log]);
    assert_eq!(output.status.code(), Some(3), "{}", errors(&output));
    assert!(errors(&output).contains("ends within"), "{}", errors(&output));
    let output = crash(&["replay", &log, "--start-mark", "nothing"]);
    assert_ne!(output.status.code(), Some(0));
}

#[test]
fn shards_add_up() {
    let states = |shard: &str| {
        let output =
            run("append", "softdep", "ufs1", &["--sample", "90", "--shard", shard, "--json"]);
        json(&output)["states"].as_u64().expect("states")
    };
    assert_eq!(states("1/2") + states("2/2"), states("1/1"));
}

#[test]
fn fat_holds_under_soft_updates_and_not_without_order() {
    for format in ["fat12", "fat16", "fat32"] {
        for workload in ["create", "rename-over", "rename-directory"] {
            let output = run(workload, "softdep", format, &["--sample", "40"]);
            assert_eq!(output.status.code(), Some(0), "{format}: {}", text(&output));
        }
        let output = run("create", "async", format, &["--sample", "60"]);
        assert_eq!(output.status.code(), Some(1), "{format}: {}", errors(&output));
        // FAT has no such workloads: a file is its directory entry.
        assert_eq!(run("link", "softdep", format, &[]).status.code(), Some(2));
        let output = run("create", "journal=ordered", format, &[]);
        assert_eq!(output.status.code(), Some(4), "{format}: {}", errors(&output));
    }
}

/// A moved file is truncated while its older name is on the disk: that name has the greater length,
/// so that the chain must stay as long until the name is gone.
#[test]
fn a_file_with_an_older_name_on_fat_is_cut_when_that_is_gone() {
    let dir = Scratch::new("moved-and-cut");
    let script = dir.path().join("script.txt");
    let text_of = "mkdir A\nmkdir B\nopen A/foo\nwrite 0 6000\nbegin\n\
                   rename A/foo B/log\ntruncate B/log 3000\n";
    fs::write(&script, text_of).unwrap();
    for format in ["fat12", "fat16", "fat32"] {
        let script = script.to_str().unwrap();
        let output = run(script, "softdep", format, &["--schedules", "1", "--exhaustive"]);
        assert_eq!(output.status.code(), Some(0), "{format}: {}", text(&output));
    }
}

#[test]
fn what_is_forgotten_is_noticed() {
    let output = crash(&["mutate", "--format", "ufs2", "--mutants", "4", "--seed", "2", "--json"]);
    let value = json(&output);
    let counted = |key: &str| value[key].as_u64().expect("count");
    assert_eq!(counted("caught") + counted("missed"), 4, "{value}");
    assert!(counted("caught") >= 3, "{value}");
}

#[test]
fn workloads_are_listed() {
    let plain = text(&crash(&["list"]));
    for name in ["create", "rename-over", "fallocate", "xattr"] {
        assert!(plain.lines().any(|line| line.starts_with(name)), "{plain}");
    }
}

/// Files larger than their blocks: beyond the double indirect tree, and beyond 2 GiB, where ext
/// needs `large_file`.
#[test]
fn files_with_far_offsets_are_searched() {
    let scratch = Scratch::new("crash-far");
    let script = |name: &str, lines: &str| {
        let path = scratch.join(name);
        fs::write(&path, format!("open A\nwrite 0 5000\nbegin\n{lines}")).unwrap();
        path
    };
    let far = script("far", "write A 5G 5000\nfsync A\nwrite A 6G 3000\ntruncate A 5600M\nsync\n");
    let large = script(
        "large",
        "write A 2500M 5000\nfsync A\nappend A 4000\ntruncate A 2499M\nappend A 10\nsync\n",
    );
    let dir = scratch.join("kept");
    let judged = judges::ready("e2fsck") && judges::ready("debugfs");
    for (path, format) in [(&far, "ufs2"), (&far, "ext2"), (&large, "ext2"), (&large, "ufs1")] {
        let more = ["--sample", "150", "--json", "--keep-states", "4", "--keep-dir", &dir];
        let output = run(path, "softdep", format, &more);
        let what = format!("{path} {format}");
        assert_eq!(output.status.code(), Some(0), "{what}: {}", errors(&output));
        let value = json(&output);
        assert_eq!(value["holds"], true, "{what}: {value}");
        assert!(value["states"].as_u64().unwrap() >= 100, "{what}: {value}");
        if format == "ext2" && judged {
            let last = format!("{dir}/state-00004.img");
            accept(&["e2fsck", "-fy", &last]);
            let stat = judges::run("debugfs", &["-R", "stat A", &last]);
            let tree = if *path == far { "TIND" } else { "DIND" };
            assert!(stat.contains(tree), "{what}: {stat}");
            let features = judges::run("debugfs", &["-R", "features", &last]);
            assert!(features.contains("large_file"), "{what}: {features}");
        }
    }
    let beyond = script("beyond", "write A 17T 1\n");
    let output = run(&beyond, "softdep", "ufs2", &[]);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
}

/// Runs a checker, which may repair.
fn accept(command: &[&str]) {
    let output = std::process::Command::new(command[0]).args(&command[1..]).output().unwrap();
    let code = output.status.code().unwrap_or(99);
    assert!(code <= 1, "{command:?}: {code} {}", String::from_utf8_lossy(&output.stdout));
}

/// States that pass are written for other checkers, the same ones in each run.
#[test]
fn kept_states_are_accepted_by_other_programs() {
    let scratch = Scratch::new("crash-keep");
    let dirs = [scratch.join("one"), scratch.join("two")];
    for (format, discipline) in [
        ("ext2", "softdep"),
        ("ext4", "journal=ordered"),
        ("ufs1", "softdep"),
        ("ufs2", "softdep"),
        ("fat16", "softdep"),
    ] {
        for dir in &dirs {
            let more =
                ["--sample", "60", "--sequences", "4", "--keep-states", "9", "--keep-dir", dir];
            text(&run("random:8", discipline, format, &more));
        }
        let list = fs::read_to_string(format!("{}/states.txt", dirs[0])).unwrap();
        assert_eq!(list.lines().count(), 9, "{list}");
        let workloads: std::collections::BTreeSet<&str> =
            list.lines().map(|line| line.split([' ', ':']).nth(2).unwrap()).collect();
        assert!(workloads.len() >= 3, "not from everywhere: {list}");
        let mut different = std::collections::BTreeSet::new();
        for number in 1..=9 {
            let name = |dir: &str| format!("{dir}/state-{number:05}.img");
            let bytes = fs::read(name(&dirs[0])).unwrap();
            assert!(bytes == fs::read(name(&dirs[1])).unwrap(), "{format} {number}");
            let image = name(&dirs[0]);
            different.insert(bytes);
            match format {
                "ext2" | "ext4" if judges::ready("e2fsck") => {
                    accept(&["e2fsck", "-fp", &image]);
                    judges::run("e2fsck", &["-fn", &image]);
                }
                "fat16" if judges::ready("fsck.fat") => {
                    accept(&["fsck.fat", "-p", &image]);
                    judges::run("fsck.fat", &["-n", &image]);
                }
                "ufs1" | "ufs2" => {
                    let code = seekless(&["check", "-p", &image]).status.code().unwrap();
                    assert!(code <= 1, "{format} {number}: {code}");
                    if judges::ready("fsstat") {
                        judges::run("fsstat", &[&image]);
                    }
                }
                _ => {}
            }
        }
        assert!(different.len() >= 8, "{format}: {}", different.len());
    }
    assert_eq!(run("create", "softdep", "ufs2", &["--keep-states", "3"]).status.code(), Some(2));
}

/// The parts of a campaign merged are as the campaign in one run.
#[test]
fn parts_are_merged() {
    let dir = Scratch::new("crash-parts");
    let part = |number: u32| {
        let path = dir.join(&format!("part{number}"));
        let shard = format!("{number}/3");
        let args = ["--exhaustive", "--shard", &shard, "-o", &path];
        let output = run("create,mkdir", "softdep", "ufs2", &args);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        path
    };
    let parts: Vec<String> = (1..=3).map(part).collect();
    let merge = |parts: &[String], more: &[&str]| {
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        crash(&[&["merge"], &parts[..], more].concat())
    };
    let output = merge(&parts, &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let (merged, whole) =
        (json(&output), json(&run("create,mkdir", "softdep", "ufs2", &["--exhaustive", "--json"])));
    for what in ["states", "failing", "holds"] {
        assert_eq!(merged[what], whole[what], "{what}");
    }
    assert_eq!(merged["workloads"][0]["writes"], whole["workloads"][0]["writes"]);
    let output = merge(&parts[1..], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty() && errors(&output).contains("part 1/3 is missing"));
    let output = merge(&parts[1..], &["--partial"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(errors(&output).contains("part 1/3 is missing"));
    let twice = [&parts[..], &parts[..1]].concat();
    assert!(errors(&merge(&twice, &[])).contains("are the same part"));
    let text = fs::read(&parts[2]).unwrap();
    fs::write(&parts[2], &text[..text.len() - 2]).unwrap();
    let output = merge(&parts, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("part3: only 0 of 1 workloads"), "{}", errors(&output));
}
