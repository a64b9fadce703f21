//! `score --verify-program`: programs whose reads the test knows, and programs that misbehave.

use crate::judges::{Scratch, command, text};
use crate::record::wait_until;
use crate::verify::{make_tree, write_trace};
use crate::{Mounted, can_trace, capable, machine, mke2fs, run, traces_of_us};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Reads whole files in the order of a list.
const READER: &str = "
import sys
for line in open(sys.argv[2]):
    with open(sys.argv[1] + line.strip(), 'rb', buffering=0) as file: file.read()
";

/// An image, a trace that reads some of its files in shuffled order, and the list of these files.
struct Bench {
    scratch: Scratch,
    list: Vec<String>,
}

impl Bench {
    fn new(name: &str) -> Option<Self> {
        if !(capable() && can_trace()) {
            return None;
        }
        let scratch = Scratch::on_disk(name);
        let tree = scratch.path().join("tree");
        let paths = make_tree(&tree);
        mke2fs(&tree, &scratch.path().join("image"), "128M");
        let list: Vec<String> = (0..500).map(|at| paths[at * 2741 % paths.len()].clone()).collect();
        fs::write(scratch.path().join("list"), list.join("\n")).unwrap();
        trace_of(&list, &scratch.path().join("trace"));
        Some(Self { scratch, list })
    }

    /// `score --verify-program` of a command, with these options.
    fn score(&self, options: &[&str], program: &[&str]) -> Command {
        let [image, trace] = ["image", "trace"].map(|name| self.scratch.join(name));
        let mut score = command(&["score", &image, "--trace", &trace, "--verify-program"]);
        score.args(options).arg("--").args(program);
        score
    }

    fn reader(&self) -> Vec<String> {
        let list = self.scratch.join("list");
        ["python3", "-S", "-E", "-B", "-c", READER, "{}", &list].map(String::from).to_vec()
    }

    /// JSON result of the reader.
    fn read(&self, options: &[&str]) -> (Value, Output) {
        let reader = self.reader();
        let reader: Vec<&str> = reader.iter().map(String::as_str).collect();
        found(&mut self.score(&[&["--json"], options].concat(), &reader))
    }

    /// JSON result of a shell script, in one run.
    fn script(&self, options: &[&str], script: &str) -> (Value, Output) {
        let options = [&["--json", "--runs", "1"], options].concat();
        found(&mut self.score(&options, &["sh", "-c", script]))
    }

    fn hash(&self) -> Vec<u8> {
        Sha256::digest(fs::read(self.scratch.path().join("image")).unwrap()).to_vec()
    }
}

fn trace_of(paths: &[String], to: &Path) {
    let both = |path: &String| ["open", "read"].map(|op| json!({"op": op, "path": path, "pid": 1}));
    write_trace(to, &paths.iter().flat_map(both).collect::<Vec<_>>());
}

fn found(command: &mut Command) -> (Value, Output) {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let found = serde_json::from_slice(&output.stdout);
    (found.unwrap_or_else(|error| panic!("{error}: {errors}")), output)
}

/// The run with the fewest requests: other programs that drop the machine's caches can only add
/// requests.
fn fewest(runs: Vec<Value>) -> Value {
    runs.into_iter().min_by_key(|run| run["requests"].as_u64()).unwrap()
}

fn nothing_is_left(scratch: &Scratch) {
    let mut left = traces_of_us("seekless-verify-");
    left.extend(traces_of_us(scratch.path().to_str().unwrap()));
    assert!(left.is_empty(), "{left:?}");
    let dirs = fs::read_dir(crate::judges::scratch()).unwrap().flatten();
    let names = dirs.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let left: Vec<String> = names.filter(|name| name.starts_with("seekless-verify-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

fn is_alive(pid: &str) -> bool {
    // A zombie whose parent is gone is reaped by the first process.
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

#[test]
fn a_program_makes_the_requests_of_its_own_trace() {
    let _machine = machine();
    let Some(bench) = Bench::new("program") else { return };
    let (program, output) = bench.read(&["--runs", "3", "--device", "sata-7200"]);
    assert!(output.status.success(), "{program}");
    // The same requests in the same order take the same time. The time on a disk does not depend on
    // their number alone.
    let time = &program["program"]["ms_on_sata-7200"]["min"];
    let predicted = program["predicted"]["ms_on_sata-7200"].as_f64().unwrap();
    assert!((predicted / time.as_f64().unwrap() - 1.0).abs() < 0.02, "{program}");
    assert!(predicted > 500.0, "{program}");
    assert_eq!(program["within"], true, "{program}");
    let runs = program["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for run in runs {
        assert_eq!((&run["exit_code"], &run["left_running"]), (&json!(0), &json!([])));
    }
    let run = fewest(runs.clone());
    let [image, trace] = ["image", "trace"].map(|name| bench.scratch.join(name));
    let replay = || {
        let args = ["score", &image, "--trace", &trace, "--verify-kernel", "--json"];
        found(&mut command(&args)).0["kernel"].clone()
    };
    let replay = fewest((0..3).map(|_| replay()).collect());
    for key in ["requests", "metadata_requests", "seeks", "bytes", "chunks"] {
        assert_eq!(run[key], replay[key], "{key}: {run}\n{replay}");
    }
    let requests = &program["program"]["requests"];
    assert_eq!(requests["min"].as_f64(), run["requests"].as_f64());
    assert!(requests["median"].as_f64() >= requests["min"].as_f64());
    assert!(requests["max"].as_f64() >= requests["median"].as_f64());
    assert!(requests["min"].as_f64().unwrap() > 500.0, "{requests}");
    // An overlay adds no reads.
    let (plain, output) = bench.read(&["--runs", "3", "--read-only"]);
    assert!(output.status.success());
    assert_eq!(fewest(plain["runs"].as_array().unwrap().clone()), run);
    assert_eq!((&plain["writes"], &program["writes"]), (&json!("refused"), &json!("discarded")));
    nothing_is_left(&bench.scratch);
}

#[test]
fn a_program_that_reads_something_else_is_told_with_the_places() {
    let _machine = machine();
    let Some(bench) = Bench::new("program-other") else { return };
    // The trace contains only half of the files, and one file that the program does not read.
    let mut half = bench.list[..250].to_vec();
    half.push("/d20/e1/f2500".into());
    assert!(!bench.list.contains(&half[250]));
    trace_of(&half, &bench.scratch.path().join("trace"));
    let (found, output) = bench.read(&["--runs", "1", "--explain"]);
    assert_eq!(output.status.code(), Some(1), "{found}");
    assert_eq!(found["within"], false);
    let median = |name: &str| found["program"][name]["median"].as_f64().unwrap();
    assert!(median("requests") > found["predicted"]["requests"].as_f64().unwrap() * 1.3);
    assert!(found["difference_percent"]["requests"].as_f64().unwrap() < -20.0, "{found}");
    let parting = &found["parting"];
    let alike = parting["alike"].as_u64().unwrap();
    assert!(alike >= 250 && alike < found["predicted"]["requests"].as_u64().unwrap(), "{parting}");
    assert!(parting["bytes_counted_only"].as_u64().unwrap() > 1 << 20, "{parting}");
    let files = parting["files"].as_array().unwrap();
    let named = |place: &Value| place["name"].as_str().unwrap().to_string();
    let unknown = files.iter().map(named).filter(|name| bench.list[250..].contains(name));
    assert!(unknown.count() > 5, "{parting}");
    let place = files.iter().find(|place| bench.list[250..].contains(&named(place))).unwrap();
    assert_eq!(place["predicted"]["requests"], 0, "{place}");
    // The same as text, with the log of both sides.
    let reader = bench.reader();
    let reader: Vec<&str> = reader.iter().map(String::as_str).collect();
    let log = bench.scratch.join("log");
    let options = ["--runs", "2", "--explain", "--io-log", &log];
    let output = bench.score(&options, &reader).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("medians of 2 cold runs, read_ahead_kb 128,"), "{shown}");
    assert!(shown.contains(" requests are the same; then\n  predicted: "), "{shown}");
    let log = fs::read_to_string(log).unwrap();
    let of = |side: &str| log.lines().filter(|line| line.contains(side)).count() as u64;
    assert_eq!(of("\"image\":\"predicted\""), found["predicted"]["requests"].as_u64().unwrap());
    let second = of("\"image\":\"program 2\"") as f64;
    assert!((second - median("requests")).abs() < median("requests") * 0.05, "{second}");
}

#[test]
fn two_images_are_set_side_by_side() {
    let _machine = machine();
    let Some(bench) = Bench::new("program-two") else { return };
    let [image, trace, new] = ["image", "trace", "new"].map(|name| bench.scratch.join(name));
    text(&command(&["optimize", &image, "--trace", &trace, "-o", &new]).output().unwrap());
    let args = ["score", &image, &new, "--trace", &trace, "--verify-program", "--runs", "3"];
    let reader = bench.reader();
    let (both, output) = found(command(&args).args(["--json", "--"]).args(&reader));
    assert!(output.status.success(), "{both}");
    let seeks = |of: &str| both[of]["program"]["seeks"]["median"].as_f64().unwrap();
    assert!(seeks("b") * 5.0 < seeks("a"), "{both}");
    let change = &both["change"]["seeks"];
    assert_eq!(change["program"].as_f64(), Some(seeks("b") / seeks("a")));
    assert!(change["predicted"].as_f64().unwrap() < 0.2, "{change}");
    let shown = text(&command(&args).arg("--").args(&reader).output().unwrap());
    assert!(shown.contains(&format!("program, {new}")), "{shown}");
}

#[test]
fn what_a_program_writes_is_discarded() {
    let _machine = machine();
    let Some(bench) = Bench::new("program-writes") else { return };
    let before = bench.hash();
    let script = "cd {} && echo more >> d0/e0/f0 && rm -r d1 && mkdir new && echo x > new/x \
                  && sync && ! [ -e d1 ] && [ -e new/x ]";
    // Each run starts from the unchanged image.
    let (found, _) = found(&mut bench.score(&["--json", "--runs", "2"], &["sh", "-c", script]));
    for run in found["runs"].as_array().unwrap() {
        assert_eq!(run["exit_code"], 0, "{found}");
    }
    let (found, _) = bench.script(&["--read-only"], script);
    assert_eq!(found["runs"][0]["exit_code"], 2, "{found}");
    assert!(bench.hash() == before, "the image was changed");
    nothing_is_left(&bench.scratch);
}

#[test]
fn a_program_in_the_image_is_read_from_it() {
    let _machine = machine();
    let Some(bench) = Bench::new("program-chroot") else { return };
    let tree = bench.scratch.path().join("tree");
    let shell = fs::canonicalize("/bin/sh").unwrap();
    let needs = run("ldd", &[shell.to_str().unwrap()]).unwrap_or_default();
    let libraries = needs.split_whitespace().filter(|word| word.starts_with('/'));
    for file in libraries.map(Path::new) {
        let to = tree.join(file.strip_prefix("/").unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(file, to).unwrap();
    }
    fs::create_dir_all(tree.join("bin")).unwrap();
    fs::copy(&shell, tree.join("bin/sh")).unwrap();
    for dir in ["proc", "dev"] {
        fs::create_dir(tree.join(dir)).unwrap();
    }
    fs::write(tree.join("braces"), "{}").unwrap();
    mke2fs(&tree, &bench.scratch.path().join("image"), "128M");
    let script = "cd / && read x < braces; [ \"$x\" = {} ] && [ -d /proc/$$ ] && [ -c /dev/null ] \
                  && [ \"$PWD\" = / ] && ! [ -e /etc ]";
    let options = ["--json", "--explain", "--runs", "1", "--chroot"];
    let (found, output) = found(&mut bench.score(&options, &["/bin/sh", "-c", script]));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(found["runs"][0]["exit_code"], 0, "{errors}");
    let files = found["parting"]["files"].as_array().unwrap();
    let shell = files.iter().find(|place| place["name"] == "/bin/sh");
    assert!(shell.unwrap()["counted"]["bytes"].as_u64().unwrap() >= 4096, "{files:?}");
    let output = bench.score(&options, &["/bin/none"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{errors}");
    assert!(errors.contains("cannot be started: /bin/none: No such file"), "{errors}");
    nothing_is_left(&bench.scratch);
}

#[test]
fn a_program_that_fails_is_counted_and_told() {
    let _machine = machine();
    let Some(bench) = Bench::new("program-fails") else { return };
    let (found, output) = bench.script(&[], "cat {}/d0/e0/f0 {}/d2/e2/f2 && exit 3");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(found["runs"][0]["exit_code"], 3);
    assert!(found["runs"][0]["requests"].as_u64().unwrap() > 5, "{found}");
    assert!(errors.contains("exit status: 3 in 1 of 1 runs"), "{errors}");
    let (found, output) = bench.script(&[], "cat {}/d0/e0/f0; kill -KILL $$");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (&found["runs"][0]["exit_code"], &found["runs"][0]["signal"]),
        (&Value::Null, &json!(9))
    );
    assert!(errors.contains("signal: 9"), "{errors}");
    nothing_is_left(&bench.scratch);
}

#[test]
fn what_a_program_leaves_running_is_killed() {
    let _machine = machine();
    let Some(bench) = Bench::new("program-leaves") else { return };
    let pid = bench.scratch.join("pid");
    // In a session of its own, with an open file of the mount.
    let inner = format!("echo $$ > {pid}; exec sleep 1000");
    let script = format!(
        "setsid sh -c '{inner}' < {{}}/d0/e0/f0 & while ! [ -s {pid} ]; do :; done; sleep 0.2"
    );
    let (found, output) = bench.script(&[], &script);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(found["runs"][0]["left_running"].as_array().unwrap().len(), 1, "{errors}");
    assert!(errors.contains("run 1 left processes running (1: s"), "{errors}");
    assert!(!is_alive(fs::read_to_string(pid).unwrap().trim()));
    nothing_is_left(&bench.scratch);
}

#[test]
fn a_program_that_never_ends_is_killed() {
    let _machine = machine();
    let Some(bench) = Bench::new("program-forever") else { return };
    let pid = bench.scratch.join("pid");
    let script = format!("trap '' TERM; echo $$ > {pid}; cat {{}}/d0/e0/f0; while :; do :; done");
    let output = bench.score(&["--timeout", "300ms"], &["sh", "-c", &script]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{errors}");
    assert!(errors.contains("has not ended after 0.3 s and was killed (--timeout"), "{errors}");
    assert!(output.stdout.is_empty());
    assert!(!is_alive(fs::read_to_string(&pid).unwrap().trim()));
    nothing_is_left(&bench.scratch);

    // The same with a signal.
    fs::remove_file(&pid).unwrap();
    for signal in ["-INT", "-TERM"] {
        let mut score = bench.score(&[], &["sh", "-c", &script]);
        score.stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let child = score.spawn().unwrap();
        wait_until("started", || fs::metadata(&pid).is_ok_and(|meta| meta.len() > 0));
        run("kill", &[signal, &child.id().to_string()]).unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{errors}");
        assert!(errors.contains("interrupted by signal"), "{errors}");
        assert!(!is_alive(fs::read_to_string(&pid).unwrap().trim()));
        fs::remove_file(&pid).unwrap();
        nothing_is_left(&bench.scratch);
    }
}

#[test]
fn what_cannot_be_run_is_told_before_anything_is_mounted() {
    let dir = Scratch::on_disk("program-usage");
    let image = dir.path().join("image");
    fs::create_dir(dir.path().join("tree")).unwrap();
    mke2fs(&dir.path().join("tree"), &image, "8M");
    write_trace(&dir.path().join("trace"), &[]);
    let [image, trace] = ["image", "trace"].map(|name| dir.join(name));
    let refused: [(&[&str], &str); 8] = [
        (&["--verify-program", "--", "true"], "must contain {}"),
        (&["--verify-program"], "<COMMAND>..."),
        (&["--", "true", "{}"], "--verify-program"),
        (&["--runs", "3"], "--verify-program"),
        (&["--verify-program", "--verify-kernel", "--", "true", "{}"], "cannot be used with"),
        (&["--verify-program", "--runs", "0", "--", "true", "{}"], "0 is not in 1..=1000"),
        (&["--verify-program", "--timeout", "0s", "--", "true", "{}"], "longer than 0"),
        (
            &["--verify-program", "--device", "gp3", "--think", "trace", "--", "true", "{}"],
            "cannot be used with",
        ),
    ];
    for (args, word) in refused {
        let output = command(&["score", &image, "--trace", &trace]).args(args).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.contains(word), "{args:?}: {errors}");
    }
}

#[test]
fn without_rights_or_a_program_it_is_said() {
    let _machine = machine();
    let Some(bench) = Bench::new("program-rights") else { return };
    let [image, trace] = ["image", "trace"].map(|name| bench.scratch.join(name));
    let log = ["--io-log", "/no/such/log"];
    let output = bench.score(&log, &["/no/such/program", "{}"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("/no/such/log") && !errors.contains("program"), "{errors}");
    let output = bench.score(&[], &["/no/such/program", "{}"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{errors}");
    assert!(errors.contains("cannot be started: /no/such/program: No such file"), "{errors}");
    nothing_is_left(&bench.scratch);
    for verify in [&["--verify-kernel"][..], &["--verify-program", "--", "true", "{}"]] {
        let output = Command::new("setpriv")
            .args(["--reuid=65534", "--clear-groups", "--inh-caps=-all"])
            .arg(env!("CARGO_BIN_EXE_seekless"))
            .args(["score", &image, "--trace", &trace])
            .args(verify)
            .output();
        let Ok(output) = output else { return crate::skip("setpriv is not installed") };
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains("setpriv") {
            return crate::skip(&errors);
        }
        assert_eq!(output.status.code(), Some(6), "{errors}");
        assert!(errors.contains("run it with sudo"), "{errors}");
        assert!(!errors.contains("fanotify"), "{errors}");
    }
}

/// Reads a file in small pieces, and touches pages of another.
const STREAMS: &str = "
import mmap, sys
with open(sys.argv[1] + '/stream', 'rb', buffering=0) as file:
    while file.read(20000): pass
with open(sys.argv[1] + '/mapped', 'rb') as file:
    pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    for at in range(0, len(pages), 4096): pages[at]
with open(sys.argv[1] + '/whole', 'rb', buffering=0) as file: file.read()
";

#[test]
fn a_recorded_stream_has_the_requests_in_which_it_was_read() {
    let _machine = machine();
    if !(capable() && can_trace()) {
        return;
    }
    let scratch = Scratch::on_disk("program-streams");
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for name in ["stream", "mapped", "whole"] {
        fs::write(tree.join(name), vec![7; 3 << 20]).unwrap();
    }
    let [image, trace, dir] = ["image", "trace", "mnt"].map(|name| scratch.join(name));
    mke2fs(&tree, Path::new(&image), "64M");
    let program = |root: &str| ["python3", "-S", "-E", "-B", "-c", STREAMS, root].map(String::from);
    // The shortest of three: if other programs drop the caches meanwhile, a trace gets longer.
    let recorded = |_| {
        let _mounted = Mounted::new(Path::new(&image), Path::new(&dir))?;
        let args = ["record", "--mount", &dir, "--source", "tracefs", "-o", &trace, "--"];
        text(&command(&args).args(program(&dir)).output().unwrap());
        Some(fs::read(&trace).unwrap())
    };
    let Some(traces) = (0..3).map(recorded).collect::<Option<Vec<_>>>() else {
        return crate::skip("no loop device can be mounted here");
    };
    fs::write(&trace, traces.iter().min_by_key(|trace| trace.len()).unwrap()).unwrap();
    let args = ["score", &image, "--trace", &trace, "--verify-program", "--runs", "3", "--json"];
    let (found, _) = found(command(&args).arg("--").args(program("{}")));
    let run = fewest(found["runs"].as_array().unwrap().clone());
    let both = |name: &str| {
        let predicted = found["predicted"][name].as_f64().unwrap();
        (predicted, run[name].as_f64().unwrap())
    };
    let (predicted, counted) = both("requests");
    assert!(counted > 50.0, "{found}");
    assert!((predicted - counted).abs() <= counted * 0.05, "{found}");
    assert_eq!(both("bytes").0, both("bytes").1, "{found}");
}
