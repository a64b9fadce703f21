use crate::judges::{Scratch, command, text};
use crate::{Mounted, can_trace, capable, machine, mke2fs, run, traces_of_us};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Reads, lists, stats and maps files; looks up some names that do not exist.
const PROGRAM: &str = "
import mmap, os, sys
os.chdir(sys.argv[1])
for n in range(0, 300, 3):
    with open(f'd{n % 10}/f{n}', 'rb') as f: f.read()
for n in range(1, 300, 30): os.stat(f'd{n % 10}/f{n}')
assert len(os.listdir('d3')) > 10
with open('large', 'rb', buffering=0) as f:
    for at in (0, 4096, 8192, 1 << 20, (3 << 20) + 77): f.seek(at); f.read(5000)
with open('mapped', 'rb') as f:
    m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
    assert sum(m[at] for at in range(0, len(m), 700_000)) > 0
assert os.readlink('link') == 'd1/f1'
for name in ('absent', 'd1/absent'):
    assert not os.path.exists(name)
";

pub(crate) fn make_tree(dir: &Path) {
    for at in 0..300 {
        let sub = dir.join(format!("d{}", at % 10));
        fs::create_dir_all(&sub).unwrap();
        fs::write(sub.join(format!("f{at}")), vec![at as u8; 200 + at * 97 % 30_000]).unwrap();
    }
    fs::write(dir.join("large"), vec![7; 5 << 20]).unwrap();
    fs::write(dir.join("mapped"), vec![9; 6 << 20]).unwrap();
    std::os::unix::fs::symlink("d1/f1", dir.join("link")).unwrap();
}

pub(crate) fn events(trace: &Path) -> Vec<Value> {
    let text = fs::read_to_string(trace).unwrap();
    text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Files that were opened, read, listed or executed. A read of a symlink target stored in its inode
/// leaves no event.
fn files(events: &[Value]) -> BTreeSet<String> {
    let ops = ["open", "read", "fault", "exec", "readdir"];
    let touched = events.iter().filter(|event| ops.iter().any(|op| event["op"] == *op));
    touched.map(|event| event["path"].as_str().unwrap().to_string()).collect()
}

/// Pages read of each file. Directories have none through FUSE.
fn pages(events: &[Value], of: &BTreeSet<String>) -> BTreeMap<String, BTreeSet<u64>> {
    let mut pages: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["op"] == "read" || event["op"] == "fault") {
        let path = event["path"].as_str().unwrap();
        if !of.contains(path) {
            continue;
        }
        let offset = event["offset"].as_u64().unwrap_or(0);
        let end = offset + event["length"].as_u64().unwrap();
        pages.entry(path.into()).or_default().extend(offset / 4096..end.div_ceil(4096));
    }
    pages
}

/// Pages in both, as a share of the pages in either.
fn agreement(a: &BTreeMap<String, BTreeSet<u64>>, b: &BTreeMap<String, BTreeSet<u64>>) -> f64 {
    let flat = |of: &BTreeMap<String, BTreeSet<u64>>| -> BTreeSet<(String, u64)> {
        of.iter().flat_map(|(path, pages)| pages.iter().map(|page| (path.clone(), *page))).collect()
    };
    let (a, b) = (flat(a), flat(b));
    a.intersection(&b).count() as f64 / a.union(&b).count() as f64
}

fn record(args: &[&str], source: &str, trace: &Path) -> Output {
    let mut all = vec!["record", "--source", source, "-o", trace.to_str().unwrap()];
    all.extend(args);
    command(&all).output().unwrap()
}

/// Runs the program on the recording FUSE mount of the image.
fn through_fuse(image: &Path, dir: &Path, trace: &Path) {
    fs::create_dir_all(dir).unwrap();
    let mut server =
        command(&["mount".as_ref(), "-f".as_ref(), image.as_os_str(), dir.as_os_str()])
            .args(["--record".as_ref(), trace.as_os_str()])
            .spawn()
            .unwrap();
    wait_until("mounted", || dir.join("d1").exists());
    let done = run("python3", &["-c", PROGRAM, dir.to_str().unwrap()]);
    run("kill", &["-TERM", &server.id().to_string()]).unwrap();
    assert!(server.wait().unwrap().success());
    done.unwrap();
}

pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "not {what}");
        sleep(Duration::from_millis(20));
    }
}

/// A tree on a mounted image.
struct MountedTree {
    image: PathBuf,
    dir: PathBuf,
    _mounted: Mounted,
    scratch: Scratch,
}

/// `None` if no loop device can be mounted.
fn mounted_tree(name: &str) -> Option<MountedTree> {
    let scratch = Scratch::on_disk(name);
    let [tree, image, dir] = ["tree", "image", "mnt"].map(|name| scratch.path().join(name));
    make_tree(&tree);
    mke2fs(&tree, &image, "64M");
    let _mounted = Mounted::new(&image, &dir)?;
    Some(MountedTree { image, dir, _mounted, scratch })
}

struct Prepared {
    scratch: Scratch,
    fuse: Vec<Value>,
}

/// An image, and the FUSE mount's recording of the program on it.
fn prepare(name: &str) -> Prepared {
    let scratch = Scratch::on_disk(name);
    let tree = scratch.path().join("tree");
    make_tree(&tree);
    let image = scratch.path().join("image");
    mke2fs(&tree, &image, "64M");
    let trace = scratch.path().join("fuse.trace");
    through_fuse(&image, &scratch.path().join("fuse"), &trace);
    Prepared { fuse: events(&trace), scratch }
}

fn agree_on(source: &str) {
    let Prepared { scratch, fuse } = prepare(&format!("record-{source}"));
    let (image, dir) = (scratch.path().join("image"), scratch.path().join("mnt"));
    let Some(_mounted) = Mounted::new(&image, &dir) else {
        crate::judges::skip("no loop device can be mounted here");
        return;
    };
    let to = dir.to_str().unwrap();
    let trace = scratch.path().join("trace");
    text(&record(&["--mount", to, "--", "python3", "-c", PROGRAM, to], source, &trace));
    let recorded = events(&trace);
    let wanted = files(&fuse);
    let mut found = files(&recorded);
    // A lookup of an absent name reads a block of the directory; the program did not open the
    // directory.
    found.retain(|path| wanted.contains(path) || !dir.join(&path[1..]).is_dir());
    assert_eq!(found, wanted, "{source}");
    let files: BTreeSet<String> =
        wanted.into_iter().filter(|path| dir.join(&path[1..]).is_file()).collect();
    let share = agreement(&pages(&recorded, &files), &pages(&fuse, &files));
    println!("{source}: {:.1}% of pages agree", share * 100.0);
    assert!(share >= 0.95, "{source}: {share}");
    assert!(recorded.iter().any(|event| event["comm"] == "python3"));
}

#[test]
fn trace_events_agree_with_the_fuse_mount() {
    let _machine = machine();
    if capable() && can_trace() {
        agree_on("tracefs");
    }
}

#[test]
fn fanotify_agrees_with_the_fuse_mount() {
    let _machine = machine();
    if capable() {
        agree_on("fanotify");
    }
}

/// A compact recording of a program that does the same 20 times has the files and events of the first
/// time.
#[test]
fn a_compact_recording_has_first_touches() {
    let _machine = machine();
    if !capable() {
        return;
    }
    let sources = if can_trace() { vec!["tracefs", "fanotify"] } else { vec!["fanotify"] };
    let Some(at) = mounted_tree("record-compact") else { return };
    let (scratch, dir) = (&at.scratch, &at.dir);
    let to = dir.to_str().unwrap();
    let again = format!("for n in range(20):\n{}", PROGRAM.replace('\n', "\n  "));
    for source in sources {
        let [once, all] = ["once.trace", "all.trace.zst"].map(|name| scratch.path().join(name));
        text(&record(&["--mount", to, "--", "python3", "-c", PROGRAM, to], source, &once));
        let many = ["--compact", "--mount", to, "--", "python3", "-c", &again, to];
        text(&record(&many, source, &all));
        let shown = command(&["trace", "show", "--json", all.to_str().unwrap()]).output().unwrap();
        let shown = text(&shown);
        assert!(shown.lines().next().unwrap().contains("\"compact\":true"), "{shown}");
        let all: Vec<Value> =
            shown.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
        let once = events(&once);
        println!("{source}: {} events once, {} of all", once.len(), all.len());
        assert_eq!(files(&all), files(&once), "{source}");
        assert!(all.len() <= once.len(), "{source}: {} and {}", once.len(), all.len());
    }
}

/// The program and its mounts are gone before the paths of its files are looked up.
#[test]
fn what_a_short_program_opened_is_named() {
    let _machine = machine();
    if !capable() {
        return;
    }
    let Some(at) = mounted_tree("record-short") else { return };
    let (scratch, dir) = (&at.scratch, &at.dir);
    let to = dir.to_str().unwrap();
    let list = format!("cd {to} && exec cat d1/f21 d4/f14 d7/f137 >/dev/null");
    let wanted = ["/d1/f21", "/d4/f14", "/d7/f137"].map(String::from);
    for run in 0..5 {
        let trace = scratch.path().join(format!("trace.{run}"));
        text(&record(&["--mount", to, "--", "sh", "-c", &list], "fanotify", &trace));
        assert_eq!(files(&events(&trace)), BTreeSet::from(wanted.clone()));
    }
}

#[test]
fn what_is_only_looked_at_is_found_by_trace_events() {
    let _machine = machine();
    if !(capable() && can_trace()) {
        return;
    }
    let Some(at) = mounted_tree("record-stat") else { return };
    let (scratch, dir) = (&at.scratch, &at.dir);
    let to = dir.to_str().unwrap();
    let trace = scratch.path().join("trace");
    let list = format!("cd {to} && stat d4/f14 d7/f137 d0/f290 d0/absent >/dev/null 2>&1; true");
    text(&record(&["--mount", to, "--", "sh", "-c", &list], "tracefs", &trace));
    let looked_up: BTreeSet<String> = events(&trace)
        .iter()
        .filter(|event| event["op"] == "lookup")
        .map(|event| event["path"].as_str().unwrap().to_string())
        .collect();
    let wanted = ["/d0", "/d0/f290", "/d4", "/d4/f14", "/d7", "/d7/f137"].map(String::from);
    assert_eq!(looked_up, BTreeSet::from(wanted));
}

#[test]
fn reads_of_the_device_beside_files_are_recorded() {
    let _machine = machine();
    if !(capable() && can_trace()) {
        return;
    }
    let Some(at) = mounted_tree("record-device-reads") else { return };
    let (scratch, image, dir) = (&at.scratch, &at.image, &at.dir);
    let to = dir.to_str().unwrap();
    let device = run("findmnt", &["-n", "-o", "SOURCE", to]).unwrap();
    let trace = scratch.path().join("trace");
    // The superblock; a block of a file, which counts as the file's; the last block.
    let first = run("debugfs", &["-R", "blocks /large", image.to_str().unwrap()]).unwrap();
    let first = first.split_whitespace().next().unwrap();
    let size = run("dumpe2fs", &["-h", image.to_str().unwrap()]).unwrap();
    let size = size.lines().find_map(|line| line.strip_prefix("Block size:")).unwrap();
    let place = first.parse::<u64>().unwrap() * size.trim().parse::<u64>().unwrap();
    let look = format!(
        "for at in 0 {place} 67104768; do dd if={device} of=/dev/null bs=4096 count=1 \
         iflag=direct,skip_bytes skip=$at; done; cat {to}/d1/f1 >/dev/null"
    );
    text(&record(&["--mount", to, "--", "sh", "-ec", &look], "tracefs", &trace));
    let events = events(&trace);
    let asked = events.iter().filter(|event| event["op"] == "device");
    let asked: Vec<(u64, u64)> = asked
        .map(|event| (event["offset"].as_u64().unwrap_or(0), event["length"].as_u64().unwrap()))
        .collect();
    assert_eq!(asked, [(0, 4096), (67_104_768, 4096)]);
    assert!(files(&events).contains("/d1/f1"));

    // Metadata keeps its place in another layout.
    let (image, laid) = (image.to_str().unwrap(), scratch.join("laid"));
    let trace = trace.to_str().unwrap();
    text(&command(&["optimize", image, "--trace", trace, "-o", &laid]).output().unwrap());
    let scored = command(&["score", image, &laid, "--trace", trace, "--json", "--explain"]);
    let scored: Value = serde_json::from_str(&text(&{ scored }.output().unwrap())).unwrap();
    for one in ["a", "b"] {
        assert_eq!(scored[one]["by_purpose"]["device"]["requests"], 2, "{scored}");
    }
}

/// Blocks of a file that was deleted after it was read are free, but the reads were the file's and
/// not the device's own.
#[test]
fn blocks_of_a_file_that_goes_are_not_the_devices() {
    let _machine = machine();
    if !(capable() && can_trace()) {
        return;
    }
    let scratch = Scratch::on_disk("record-gone");
    let (tree, image, dir) =
        (scratch.path().join("tree"), scratch.path().join("image"), scratch.path().join("mnt"));
    make_tree(&tree);
    mke2fs(&tree, &image, "64M");
    fs::create_dir_all(&dir).unwrap();
    let (from, to) = (image.to_str().unwrap(), dir.to_str().unwrap());
    if run("mount", &["-t", "ext4", "-o", "loop,noatime", from, to]).is_none() {
        return;
    }
    let device = run("findmnt", &["-n", "-o", "SOURCE", to]).unwrap();
    let free = || run("stat", &["-f", "-c", "%f", to]).unwrap().parse::<u64>().unwrap();
    let before = free();
    let trace = scratch.path().join("trace");
    let job = format!(
        "cat {to}/large {to}/d1/f1 >/dev/null; rm {to}/large; sync; \
         dd if={device} of=/dev/null bs=4096 count=1 iflag=direct"
    );
    text(&record(&["--mount", to, "--", "sh", "-ec", &job], "tracefs", &trace));
    let after = free();
    run("umount", &[to]).unwrap();
    assert!(after > before + (4 << 20) / 4096, "the file's blocks are not free: {before}, {after}");
    let events = events(&trace);
    assert!(files(&events).contains("/d1/f1"));
    let asked = events.iter().filter(|event| event["op"] == "device");
    let asked: Vec<u64> = asked.map(|event| event["length"].as_u64().unwrap()).collect();
    // The block read through the device, bitmaps and so on, but not the five mebibytes of the file.
    assert!(!asked.is_empty() && asked.iter().sum::<u64>() < 1 << 20, "{asked:?}");
}

/// A recording that waits for the end of its command, on a mount of its own.
fn endless(scratch: &Scratch, source: &str) -> Option<(Child, Mounted)> {
    let (tree, image, dir) =
        (scratch.path().join("tree"), scratch.path().join("image"), scratch.path().join("mnt"));
    make_tree(&tree);
    mke2fs(&tree, &image, "64M");
    let mounted = Mounted::new(&image, &dir)?;
    let ready = scratch.path().join("ready");
    let script = format!(
        "cat {}/d1/f1 >/dev/null; echo $$ > {}; exec sleep 600",
        dir.display(),
        ready.display()
    );
    let child = command(&["record", "--source", source, "--mount", dir.to_str()?])
        .args(["-o".as_ref(), scratch.path().join("trace").as_os_str()])
        .args(["--", "sh", "-c", &script])
        .spawn()
        .unwrap();
    wait_until("ready", || ready.exists());
    Some((child, mounted))
}

#[test]
fn an_interrupted_recording_is_whole_and_leaves_nothing() {
    let _machine = machine();
    if !capable() {
        return;
    }
    let sources = if can_trace() { vec!["tracefs", "fanotify"] } else { vec!["fanotify"] };
    for source in sources {
        for signal in ["-INT", "-TERM"] {
            let scratch = Scratch::on_disk("record-interrupted");
            let Some((mut child, mounted)) = endless(&scratch, source) else { return };
            run("kill", &[signal, &child.id().to_string()]).unwrap();
            assert!(child.wait().unwrap().success(), "{source} {signal}");
            let files = files(&events(&scratch.path().join("trace")));
            assert!(files.contains("/d1/f1"), "{source} {signal}: {files:?}");
            drop(mounted);
            let left = traces_of_us("record-interrupted");
            assert!(left.is_empty(), "{left:?}");
        }
    }
}

#[test]
fn the_next_run_clears_up_after_a_killed_one() {
    let _machine = machine();
    if !(capable() && can_trace()) {
        return;
    }
    let scratch = Scratch::on_disk("record-killed");
    let Some((mut child, mounted)) = endless(&scratch, "tracefs") else { return };
    child.kill().unwrap();
    child.wait().unwrap();
    let trace = scratch.path().join("next");
    let to = mounted.0.to_str().unwrap().to_string();
    text(&record(&["--mount", &to, "--", "true"], "tracefs", &trace));
    drop(mounted);
    let left: Vec<String> = traces_of_us("record-killed")
        .into_iter()
        .filter(|line| line.starts_with("seekless-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    // Only the recorder was killed; its program still runs.
    let program = fs::read_to_string(scratch.path().join("ready")).unwrap();
    run("kill", &[program.trim()]).unwrap();
}

#[test]
fn the_programs_exit_code_is_ours() {
    let _machine = machine();
    if !capable() {
        return;
    }
    let scratch = Scratch::on_disk("record-code");
    let trace = scratch.path().join("trace");
    let to = scratch.path().to_str().unwrap();
    let output = record(&["--mount", to, "--", "sh", "-c", "exit 7"], "auto", &trace);
    assert_eq!(output.status.code(), Some(7));
    assert!(trace.exists());
    let output = record(&["--mount", to, "--", "/no/such/program"], "auto", &trace);
    assert_eq!(output.status.code(), Some(6));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/program"));
}

#[test]
fn without_rights_it_is_said_what_to_do() {
    let _machine = machine();
    if !capable() {
        return;
    }
    let scratch = Scratch::on_disk("record-rights");
    let trace = scratch.path().join("trace");
    for (source, word) in [("tracefs", "--source fanotify"), ("fanotify", "sudo")] {
        let output = Command::new("setpriv")
            .args([
                "--reuid=65534",
                "--clear-groups",
                "--inh-caps=-all",
                env!("CARGO_BIN_EXE_seekless"),
            ])
            .args(["record", "--keep-caches", "--source", source, "-o"])
            .args([trace.as_os_str(), "--".as_ref(), "true".as_ref()])
            .output();
        let Ok(output) = output else {
            crate::judges::skip("setpriv is not installed");
            return;
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains("setpriv") {
            crate::judges::skip(&errors);
            return;
        }
        assert_eq!(output.status.code(), Some(6), "{errors}");
        assert!(errors.contains(word), "{source}: {errors}");
    }
}

/// Reads every other file slowly, and creates a file at the end.
const SLOW_READER: &str = "
import os, sys, time
root, first, done = sys.argv[1], int(sys.argv[2]), sys.argv[3]
for n in range(first, 300, 2):
    with open(f'{root}/d{n % 10}/f{n}', 'rb') as f: f.read()
    time.sleep(0.02)
open(done, 'w').close()
";

pub(crate) fn slow_reader(scratch: &Scratch, dir: &str, first: usize) -> Child {
    let done = scratch.path().join(format!("done-{first}"));
    Command::new("python3")
        .args(["-c", SLOW_READER, dir, &first.to_string(), done.to_str().unwrap()])
        .spawn()
        .unwrap()
}

#[test]
fn of_a_running_process_its_own_reads_are_recorded_until_it_ends() {
    let _machine = machine();
    if !capable() {
        return;
    }
    let sources = if can_trace() { vec!["tracefs", "fanotify"] } else { vec!["fanotify"] };
    for source in sources {
        let scratch = Scratch::on_disk("record-pid");
        let (tree, image) = (scratch.path().join("tree"), scratch.path().join("image"));
        make_tree(&tree);
        mke2fs(&tree, &image, "64M");
        let Some(mounted) = Mounted::new(&image, &scratch.path().join("mnt")) else { return };
        let to = mounted.0.to_str().unwrap().to_string();
        let mut ours = slow_reader(&scratch, &to, 0);
        let mut other = slow_reader(&scratch, &to, 1);
        let trace = scratch.path().join("trace");
        let (pid, to) = (ours.id().to_string(), to.as_str());
        let recorder = command(&["record", "--source", source, "--mount", to, "--pid", &pid])
            .args(["-o".as_ref(), trace.as_os_str()])
            .spawn();
        // A process that has ended is visible until it is waited for.
        assert!(ours.wait().unwrap().success());
        assert!(recorder.unwrap().wait().unwrap().success(), "{source}");
        assert!(other.wait().unwrap().success());
        let files = files(&events(&trace));
        let last = (250..300).step_by(2).map(|n| format!("/d{}/f{n}", n % 10));
        let missing: Vec<String> = last.filter(|path| !files.contains(path)).collect();
        assert!(missing.is_empty(), "{source}: {missing:?} of {files:?}");
        let odd = |path: &&String| path.ends_with(['1', '3', '5', '7', '9']) && path.contains("/f");
        let strangers: Vec<&String> = files.iter().filter(odd).collect();
        assert!(strangers.is_empty(), "{source}: {strangers:?}");
    }
}

/// A `systemctl` that prints the contents of a file, for machines without systemd.
fn stand_in_for_systemctl(scratch: &Scratch) -> String {
    let bin = scratch.path().join("bin");
    fs::create_dir_all(&bin).unwrap();
    let script = format!(
        "#!/bin/sh\n[ \"$*\" = 'is-active -- some.target' ] || exit 9\ncat {}\n",
        scratch.path().join("state").display()
    );
    let program = bin.join("systemctl");
    fs::write(&program, script).unwrap();
    run("chmod", &["+x", program.to_str().unwrap()]).unwrap();
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

#[test]
fn a_boot_is_recorded_until_its_unit_is_active() {
    let _machine = machine();
    if !capable() {
        return;
    }
    let scratch = Scratch::on_disk("record-boot");
    let (tree, image) = (scratch.path().join("tree"), scratch.path().join("image"));
    make_tree(&tree);
    mke2fs(&tree, &image, "64M");
    let Some(mounted) = Mounted::new(&image, &scratch.path().join("mnt")) else { return };
    let to = mounted.0.to_str().unwrap().to_string();
    let path = stand_in_for_systemctl(&scratch);
    let state = scratch.path().join("state");
    let trace = scratch.path().join("trace");
    let boot = |state_now: &str| {
        fs::write(&state, state_now).unwrap();
        command(&["record", "--mount", &to, "--boot-unit", "some.target"])
            .args(["-o".as_ref(), trace.as_os_str()])
            .env("PATH", &path)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };

    let mut recorder = boot("activating\n");
    // Two programs that the recording does not name.
    for first in [0, 1] {
        assert!(slow_reader(&scratch, &to, first).wait().unwrap().success());
    }
    assert!(recorder.try_wait().unwrap().is_none(), "ended before the unit was active");
    fs::write(&state, "active\n").unwrap();
    assert!(recorder.wait().unwrap().success());
    let files = files(&events(&trace));
    assert!(files.contains("/d8/f298") && files.contains("/d9/f299"), "{files:?}");

    let output = boot("failed\n").wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(6));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("some.target has failed"), "{errors}");

    let output = boot("").wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(6), "nobody could be asked");
}
