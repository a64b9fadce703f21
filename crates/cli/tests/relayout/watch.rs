//! `seekless watch` on a mounted ext4: learning, moves and refusals.

use super::judges::{
    Mounted, Scratch, can_mount, command, failure, manifest, ready, run, same, seekless, text,
};
use super::{account, number, places, prepare};
use seekless_fs::Mapping;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// A volume with a program that opens the same files in each run.
struct Watched {
    scratch: Scratch,
    image: String,
    mounted: Mounted,
    /// Files that the program opens.
    paths: Vec<String>,
    listing: String,
    held: i64,
}

/// Number of attempts of [`until`]; ample even for a machine that stalls.
const LONGEST: u32 = 100;

/// Waits for an event that must happen.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LONGEST {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(200));
    }
    panic!("{what} has not come");
}

/// A daemon that ends with its test.
struct Daemon(Child);

impl Daemon {
    /// Ends it with a signal; returns its messages.
    fn end(mut self, signal: &str) -> String {
        run("kill", &[signal, &self.0.id().to_string()]);
        let status = self.0.wait().expect("child");
        let said = self.said();
        assert!(signal == "-KILL" || status.success(), "{status}: {said}");
        said
    }

    /// Messages of the daemon, once it has ended.
    fn said(&mut self) -> String {
        let mut said = String::new();
        let stderr = self.0.stderr.as_mut().expect("stderr");
        stderr.read_to_string(&mut said).expect("stderr");
        said
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Never idle.
const BUSY: &str = "[idle]\nquiet = \"900d\"\n";

/// Always idle.
const IDLE: &str = "[idle]\nquiet = \"1s\"\ncheck = \"1s\"\nio_pressure = 100\ncpu_pressure = 100\nopens = 1e9\nbattery = true\nload = 1e9\n";

impl Watched {
    fn new(name: &str) -> Self {
        let scratch = Scratch::on_disk(name);
        let (image, mounted, paths) = prepare(&scratch, &["-b", "4096"], "192M", 1500);
        let paths: Vec<String> = paths.into_iter().step_by(13).collect();
        let listing = manifest(mounted.text(), &[]);
        let held = account(mounted.text());
        Self { scratch, image, mounted, paths, listing, held }
    }

    fn state(&self) -> String {
        self.scratch.join("state")
    }

    /// Writes a configuration with a short gap; returns its path.
    fn config(&self, more: &str) -> String {
        let path = self.scratch.join("watch.toml");
        fs::write(&path, format!("[record]\ngap = \"1s\"\n{more}")).expect("write");
        path
    }

    fn args<'a>(&'a self, what: &'a str, state: &'a str) -> Vec<&'a str> {
        vec!["watch", what, self.mounted.text(), "--state", state]
    }

    /// Starts a daemon, and waits until it listens.
    fn daemon(&self, config: &str, more: &[&str]) -> Daemon {
        let state = self.state();
        let args = [&self.args("run", &state)[..], &["--config", config], more].concat();
        let child = command(&args).stderr(Stdio::piped()).spawn().expect("seekless");
        let mut daemon = Daemon(child);
        until("the daemon", || {
            if daemon.0.try_wait().expect("child").is_some() {
                panic!("the daemon has ended: {}", daemon.said());
            }
            let asked = [&self.args("status", &state)[..], &["--json"]].concat();
            let output = seekless(&asked);
            String::from_utf8_lossy(&output.stdout).contains("\"running\":true")
        });
        daemon
    }

    fn status(&self) -> Value {
        let state = self.state();
        let args = [&self.args("status", &state)[..], &["--json"]].concat();
        serde_json::from_str(&text(&seekless(&args))).expect("JSON")
    }

    fn runs(&self) -> u64 {
        let habits = &self.status()["habits"];
        habits.as_array().map_or(0, |habits| {
            habits.iter().filter_map(|habit| habit["runs"].as_u64()).max().unwrap_or(0)
        })
    }

    fn use_once(&self) {
        let files = self.paths.iter().map(|path| format!("{}{path}", self.mounted.text()));
        let status = Command::new("setsid")
            .args(["--wait", "sh", "-c", "cat -- \"$@\"", "reader"])
            .args(files)
            .stdout(Stdio::null())
            .status();
        assert!(status.expect("setsid").success());
    }

    /// Runs the program several times; the daemon counts each run.
    fn use_it(&self, times: u64) {
        let before = self.runs();
        for count in 1..=times {
            self.use_once();
            until("the run", || self.runs() == before + count);
        }
    }

    /// Lets a daemon learn the program well enough.
    fn learn(&self) {
        let daemon = self.daemon(&self.config(BUSY), &[]);
        self.use_it(2);
        // The run in progress at the end counts too.
        self.use_once();
        daemon.end("-TERM");
        assert_eq!(self.runs(), 3);
    }

    fn now(&self, config: &str, more: &[&str]) -> Value {
        let state = self.state();
        let args = [&self.args("now", &state)[..], &["--json", "--config", config], more].concat();
        serde_json::from_str(&text(&seekless(&args))).expect("JSON")
    }

    /// Files are unchanged, no leftover takes up blocks, and e2fsck finds no errors.
    fn judge(self) -> String {
        assert_eq!(self.held, account(self.mounted.text()), "something holds blocks");
        same("contents", &self.listing, &manifest(self.mounted.text(), &[]));
        let Self { scratch, image, mounted, .. } = self;
        drop(mounted);
        let said = run("e2fsck", &["-fn", &image]);
        drop(scratch);
        said
    }

    /// Extents of the files, found without opening them.
    fn places(&self) -> Vec<Vec<Mapping>> {
        run("sync", &["-f", self.mounted.text()]);
        places(&self.image, &self.paths)
    }
}

#[test]
fn what_is_used_together_is_moved_when_asked_for() {
    if !can_mount() {
        return;
    }
    let watched = Watched::new("watch-now");
    let config = watched.config(BUSY);
    let daemon = watched.daemon(&config, &[]);
    watched.use_it(2);
    let before = watched.places();
    let told = watched.now(&config, &[]);
    assert_eq!(told["done"], Value::Array(Vec::new()), "two runs are too few: {told}");
    watched.use_it(1);
    let told = watched.now(&config, &["--dry-run"]);
    assert_eq!(told["done"][0]["verdict"], "would_move", "{told}");
    assert_eq!(before, watched.places(), "a trial has moved something");

    // The daemon moves the files, and does not learn its own reads.
    let told = watched.now(&config, &[]);
    assert_eq!(told["done"][0]["verdict"], "moved", "{told}");
    assert_ne!(before, watched.places());
    let status = watched.status();
    assert_eq!(status["habits"].as_array().map(Vec::len), Some(1), "{status}");
    assert_eq!(number(&status, "/habits/0/runs"), 3, "{status}");
    let seeks = status.pointer("/habits/0/laid/seeks/before").and_then(Value::as_f64);
    let seeks = seeks.expect("a figure") as u64;
    assert!(number(&status, "/habits/0/seeks_now") * 2 < seeks, "{status}");
    assert!(number(&status, "/moved_today_bytes") > 0, "{status}");
    let told = watched.now(&config, &[]);
    assert_eq!(told["done"], Value::Array(Vec::new()), "a second time: {told}");

    // The page and the maps.
    let page = watched.scratch.join("page.html");
    let state = watched.state();
    let shown = [&watched.args("status", &state)[..], &["--html", &page, "--map"]].concat();
    let shown = text(&seekless(&shown));
    assert!(shown.contains("a daemon runs") && shown.contains("now: "), "{shown}");
    let page = fs::read_to_string(page).expect("a page");
    assert!(page.contains("habit 1") && page.contains("<canvas"), "no picture");

    let said = daemon.end("-TERM");
    assert!(said.contains("moved") && said.contains("seeks a run"), "{said}");
    // The habits are saved when the daemon ends.
    assert_eq!(number(&watched.status(), "/habits/0/runs"), 3);
    watched.judge();
}

#[test]
fn when_the_machine_is_idle_it_moves_by_itself() {
    if !can_mount() {
        return;
    }
    let watched = Watched::new("watch-idle");
    let daemon = watched.daemon(&watched.config(IDLE), &["--dry-run"]);
    watched.use_it(3);
    let before = watched.places();
    // The daemon has examined the habits, and prints the moves that it would make.
    sleep(Duration::from_secs(4));
    assert_eq!(watched.status()["moves"], Value::Array(Vec::new()));
    assert_eq!(before, watched.places(), "a trial has moved something");
    let said = daemon.end("-TERM");
    assert!(said.contains("would be moved"), "{said}");

    let state = watched.state();
    text(&seekless(&[&watched.args("forget", &state)[..], &["--quiet"]].concat()));
    assert_eq!(watched.runs(), 0);
    let daemon = watched.daemon(&watched.config(IDLE), &[]);
    watched.use_it(3);
    until("the move", || {
        watched.status()["moves"].as_array().is_some_and(|moves| !moves.is_empty())
    });
    assert_ne!(before, watched.places());
    daemon.end("-TERM");
    watched.judge();
}

/// A trace and a summary of it are learned alike, in place of runs; the files are moved then.
#[test]
fn habits_are_learned_from_traces_and_summaries() {
    if !can_mount() {
        return;
    }
    let watched = Watched::new("watch-traces");
    let [list, trace, summary] =
        ["list", "job.trace.zst", "job.parquet"].map(|name| watched.scratch.join(name));
    fs::write(&list, watched.paths.join("\n") + "\n/none\n/\n").expect("write");
    text(&seekless(&["trace", "import", "--paths", &list, "-o", &trace]));
    text(&seekless(&["trace", "summarize", &trace, "-o", &summary]));
    let state = watched.state();
    let config = watched.config(BUSY);
    let learn = |more: &[&str]| -> Value {
        let args = [&watched.args("learn", &state)[..], &["--json"], more].concat();
        serde_json::from_str(&text(&seekless(&args))).expect("JSON")
    };
    let told = learn(&[&summary]);
    let (habit, files) = (&told["learned"][0]["habit"], &told["learned"][0]["files"]);
    assert_eq!(told["learned"][0]["new"], true, "{told}");
    assert_eq!(files, watched.paths.len(), "{told}");
    assert_eq!(watched.runs(), 3);
    let again = learn(&[&trace, "--runs", "1"]);
    assert_eq!(&again["learned"][0]["habit"], habit, "{again}");
    assert_eq!(again["learned"][0]["new"], false, "{again}");
    assert_eq!(watched.runs(), 4);
    assert_eq!(watched.status()["habits"][0]["program"], "job");
    // Files that are not there make no habit.
    fs::write(&list, "/none\n").expect("write");
    let none = watched.scratch.join("none.trace");
    text(&seekless(&["trace", "import", "--paths", &list, "-o", &none]));
    assert_eq!(learn(&[&none])["learned"][0]["habit"], Value::Null);
    let before = watched.places();
    watched.now(&config, &[]);
    assert_ne!(before, watched.places());
    let daemon = watched.daemon(&config, &[]);
    let args = [&watched.args("learn", &state)[..], &[&trace]].concat();
    let (_, message) = failure(&seekless(&args));
    assert!(message.contains("a daemon runs for it"), "{message}");
    daemon.end("-TERM");
    watched.judge();
}

/// Whether a child that was not waited for has ended.
fn has_ended(process: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    state.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with('Z'))
}

#[test]
fn killed_while_it_moves() {
    if !can_mount() {
        return;
    }
    let watched = Watched::new("watch-killed");
    watched.learn();
    let config = watched.config(BUSY);
    let state = watched.state();
    let kept = watched.scratch.join("kept");
    run("cp", &["-r", &state, &kept]);
    let fresh = watched.scratch.join("fresh");
    run("sync", &["-f", watched.mounted.text()]);
    let Watched { scratch, image, mounted, paths, listing, held } = watched;
    drop(mounted);
    run("cp", &["--sparse=always", &image, &fresh]);
    let (mut killed, mut moved) = (0, 0);
    for part in 0..8u64 {
        run("cp", &["--sparse=always", &fresh, &image]);
        run("rm", &["-r", &state]);
        run("cp", &["-r", &kept, &state]);
        let mounted = Mounted::new(&scratch, &image, "rw");
        let args = ["watch", "now", mounted.text(), "--state", &state, "--config", &config];
        let mut child =
            command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("seekless");
        // From the first exchange on, as far as that is visible from outside. The process runs for
        // short times only, with a check after each, so that it does not end unnoticed on a busy
        // machine.
        let send = |signal: &str| {
            let _ = Command::new("kill")
                .args([signal, &child.id().to_string()])
                .stderr(Stdio::null())
                .status();
        };
        let first = |path: &String| starts_at(&mounted.path().join(&path[1..]));
        let start = first(&paths[0]);
        let mut bursts_left = None;
        for _ in 0..3000 {
            send("-STOP");
            if bursts_left.is_none() && first(&paths[0]) != start {
                bursts_left = Some(part);
            }
            if bursts_left == Some(0) || has_ended(child.id()) {
                break;
            }
            bursts_left = bursts_left.map(|left| left - 1);
            send("-CONT");
            sleep(Duration::from_millis(2));
        }
        send(if part % 4 == 3 { "-TERM" } else { "-KILL" });
        send("-CONT");
        let status = child.wait().expect("child");
        killed += u32::from(!status.success());
        assert_eq!(held, account(mounted.text()), "{part}: something holds blocks");
        same("contents", &listing, &manifest(mounted.text(), &[]));
        let asked = ["watch", "status", mounted.text(), "--state", &state, "--json"];
        let told: Value = serde_json::from_str(&text(&seekless(&asked))).expect("JSON");
        drop(mounted);
        run("e2fsck", &["-fn", &image]);
        let has_moved = places(&image, &paths) != places(&fresh, &paths);
        let counted = number(&told, "/moved_today_bytes");
        assert!(counted > 0 || !has_moved, "{part}: moved beside the budget");
        moved += u32::from(!status.success() && has_moved);
    }
    println!("{killed} of 8 were ended, {moved} of them when something had been moved");
    assert!(killed >= 2 && moved >= 1, "{killed} ended, {moved} in the middle");
}

#[test]
fn asked_from_several_sides() {
    if !can_mount() {
        return;
    }
    let watched = Watched::new("watch-asked");
    watched.learn();
    let config = watched.config(BUSY);
    let asks = |what: &str, more: &[&str]| {
        let state = watched.state();
        let told = text(&seekless(&[&watched.args(what, &state)[..], &["--json"], more].concat()));
        serde_json::from_str::<Value>(&told).expect("JSON")
    };
    // Read-only commands never take the lock, not even for a moment: a daemon that starts would be
    // refused.
    if ready("strace") {
        let mut traced = Command::new("strace");
        traced.args(["-f", "-e", "trace=flock", env!("CARGO_BIN_EXE_seekless")]);
        let state = watched.state();
        let output = traced.args(watched.args("status", &state)).output().expect("strace");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !told.contains("flock"), "{told}");
    }
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let state = watched.state();
                    let output = seekless(&watched.args("status", &state));
                    let said = String::from_utf8_lossy(&output.stderr);
                    let is_end = said.contains("has ended before it answered");
                    assert!(output.status.success() || is_end, "{said}");
                }
            });
        }
        for _ in 0..5 {
            watched.daemon(&config, &[]).end("-TERM");
        }
        ended.store(true, Ordering::Relaxed);
    });

    // Each question gets its own answer.
    let daemon = watched.daemon(&config, &[]);
    std::thread::scope(|scope| {
        for count in 0..8 {
            let asks = &asks;
            let config = &config;
            scope.spawn(move || {
                if count % 2 == 0 {
                    assert_eq!(asks("status", &[])["running"], true);
                } else {
                    let told = asks("now", &["--dry-run", "--config", config]);
                    assert_eq!(told["done"][0]["verdict"], "would_move", "{told}");
                }
            });
        }
    });
    // Other users may not ask, and an incomplete or empty question is refused.
    let dir = fs::read_dir(watched.state()).expect("state").next().expect("one").expect("entry");
    let socket = dir.path().join("socket");
    assert_eq!(fs::metadata(&socket).expect("socket").permissions().mode() & 0o777, 0o600);
    for question in ["", "{\"what\":", "{}{}"] {
        let mut stream = UnixStream::connect(&socket).expect("socket");
        stream.write_all(question.as_bytes()).expect("write");
        stream.shutdown(Shutdown::Write).expect("shutdown");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the end");
        assert!(answer.is_empty(), "{question}: {answer:?}");
    }
    let ask = |question: &str| {
        let mut stream = UnixStream::connect(&socket).expect("socket");
        stream.write_all(question.as_bytes()).expect("write");
        stream.shutdown(Shutdown::Write).expect("shutdown");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    assert!(ask("{\"what\":\"zap\"}").contains("does not know"));
    // A volume mounted over its own is not touched.
    let (over, at) = (watched.scratch.join("over"), watched.mounted.text());
    run("mke2fs", &["-q", "-F", "-t", "ext4", &over, "32M"]);
    run("mount", &["-o", "loop", &over, at]);
    assert!(ask("{\"what\":\"now\"}").contains("is another volume now"));
    super::judges::unmount(at).expect("unmounted");
    // A state that cannot be saved does not end the daemon.
    let (kept, aside) = (dir.path().join("state"), dir.path().join("aside"));
    fs::rename(&kept, &aside).expect("rename");
    fs::create_dir(&kept).expect("mkdir");
    assert_eq!(ask("{\"what\":\"save\"}"), "{}");
    fs::remove_dir(&kept).expect("rmdir");
    assert_eq!(asks("status", &[])["running"], true);
    // Another state directory does not allow a second daemon for the volume.
    let elsewhere = watched.scratch.join("elsewhere");
    let again = ["watch", "run", at, "--state", &elsewhere, "--config", &config];
    let (code, message) = failure(&seekless(&again));
    assert!(code == 6 && message.contains("watched already"), "{code}: {message}");
    let mute = UnixStream::connect(&socket).expect("socket");
    assert_eq!(asks("status", &[])["running"], true);
    drop(mute);
    // The socket of a killed daemon is no daemon.
    daemon.end("-KILL");
    assert!(socket.exists());
    assert_eq!(asks("status", &[])["running"], false);
    watched.daemon(&config, &[]).end("-TERM");
    assert!(!socket.exists());
    watched.judge();
}

fn starts_at(path: &Path) -> u64 {
    seekless_host::fiemap::extents(path).expect("fiemap")[0].physical
}

#[test]
fn budget_and_fullness_hold() {
    if !can_mount() {
        return;
    }
    let watched = Watched::new("watch-budget");
    watched.learn();
    let before = watched.places();
    let told = watched.now(&watched.config("[move]\nfullest = 1\n"), &[]);
    assert!(told["then"].as_str().expect("text").contains("in use"), "{told}");
    assert_eq!(before, watched.places());

    let config = watched.config("[move]\nbudget = \"1200K\"\n");
    let told = watched.now(&config, &[]);
    assert_eq!(told["done"][0]["verdict"], "moved_in_part", "{told}");
    for _ in 0..3 {
        watched.now(&config, &[]);
    }
    let moved = number(&watched.status(), "/moved_today_bytes");
    assert!((600 << 10..=1200 << 10).contains(&moved), "{moved} bytes moved");
    let told = watched.now(&config, &[]);
    assert!(told["then"].as_str().expect("text").contains("spent"), "{told}");
    watched.judge();
}

#[test]
fn what_is_wrong_is_said_before_anything_is_moved() {
    if !can_mount() {
        return;
    }
    let watched = Watched::new("watch-refused");
    let (mount, state) = (watched.mounted.text(), watched.state());
    let config = watched.config("[move]\nbugdet = \"1G\"\n");
    for what in ["run", "now", "status", "forget"] {
        let args = ["watch", what, mount, "--state", &state, "--config", &config];
        let (code, message) = failure(&seekless(&args));
        assert!(code == 2 && message.contains("line 4, column 1"), "{what}: {message}");
        assert!(message.contains("bugdet"), "{what}: {message}");
        // Another kind of file system.
        let args = ["watch", what, "/proc", "--state", &state];
        let (code, message) = failure(&seekless(&args));
        assert!(code == 4 && message.contains("proc"), "{what}: {code}: {message}");
        let args = ["watch", what, mount, "--state", &state, "--config", "/not/here.toml"];
        let (code, message) = failure(&seekless(&args));
        assert!(code == 6 && message.contains("/not/here.toml"), "{what}: {message}");
        // Without root.
        let shell = format!(
            "exec 9<{}; exec setpriv --reuid=65534 --regid=65534 --clear-groups \
             /proc/self/fd/9 watch {what} {mount} --state {state}",
            env!("CARGO_BIN_EXE_seekless"),
        );
        run("chmod", &["755", watched.scratch.path().to_str().expect("path")]);
        let output = Command::new("sh").args(["-c", &shell]).output().expect("sh");
        let (code, message) = failure(&output);
        assert!(code == 6 && message.contains("root"), "{what}: {code}: {message}");
    }
    assert!(!Path::new(&state).exists(), "something was written");

    // A second daemon, and `forget` beside a daemon.
    let good = watched.config(BUSY);
    let daemon = watched.daemon(&good, &[]);
    let again = ["watch", "run", mount, "--state", &state, "--config", &good];
    let (code, message) = failure(&seekless(&again));
    assert!(code == 6 && message.contains("watched already"), "{code}: {message}");
    let (code, message) = failure(&seekless(&watched.args("forget", &state)));
    assert!(code == 6 && message.contains("stop it first"), "{code}: {message}");
    watched.use_it(1);
    daemon.end("-KILL");

    // A damaged state: the message names its line; a new daemon keeps it under another name, and
    // starts without habits.
    let dir = fs::read_dir(&state).expect("state").next().expect("a volume").expect("entry").path();
    let path = dir.join("state");
    let bytes = fs::read_to_string(&path).expect("state");
    fs::write(&path, bytes.replacen("\"runs\"", "\"ruins\"", 1)).expect("write");
    let (code, message) = failure(&seekless(&watched.args("status", &state)));
    assert!(code == 3 && message.contains("line 2"), "{code}: {message}");
    let daemon = watched.daemon(&good, &[]);
    assert_eq!(watched.runs(), 0);
    let said = daemon.end("-TERM");
    assert!(said.contains("line 2") && said.contains("begins anew"), "{said}");
    let aside = fs::read_dir(&dir).expect("state").flatten();
    let aside = aside.filter(|entry| entry.file_name().to_string_lossy().contains("damaged"));
    assert_eq!(aside.count(), 1);
    // The lock is released.
    drop(File::open(&dir).expect("open"));
    watched.judge();
}
