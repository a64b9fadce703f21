//! Recording of a boot without a real boot: on a running system, and through a switch of the root
//! in a PID namespace.

use crate::judges::{Scratch, command, text};
use crate::record::{events, make_tree, slow_reader};
use crate::{Mounted, can_trace, capable, machine, mke2fs, run, traces_of_us};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Long enough for any machine: only failures depend on it.
const LONG: Duration = Duration::from_secs(60);

fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let since = Instant::now();
    while !happened() {
        assert!(since.elapsed() < LONG, "{what} does not happen");
        sleep(Duration::from_millis(50));
    }
}

fn paths(trace: &Path, op: &str) -> Vec<String> {
    let events = events(trace);
    let of_op = events.iter().filter(|event| event["op"] == op);
    of_op.map(|event| event["path"].as_str().unwrap().to_string()).collect()
}

/// The background process that records to `trace`.
fn recorder_of(trace: &Path) -> Option<u32> {
    let wanted = trace.to_str().unwrap().as_bytes();
    fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let mut words = line.split(|&byte| byte == 0);
        let ours =
            words.clone().any(|word| word == b"--detached") && words.any(|word| word == wanted);
        entry.file_name().to_str()?.parse().ok().filter(|_| ours)
    })
}

#[test]
fn a_recording_in_the_background_ends_in_silence_and_by_a_signal() {
    let _machine = machine();
    if !capable() || !can_trace() {
        return;
    }
    let scratch = Scratch::on_disk("boot-running");
    let (tree, image) = (scratch.path().join("tree"), scratch.path().join("image"));
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("file"), vec![5; 70_000]).unwrap();
    mke2fs(&tree, &image, "16M");
    for by_signal in [false, true] {
        let Some(mounted) = Mounted::new(&image, &scratch.path().join("mnt")) else { return };
        let trace = scratch.path().join(if by_signal { "signal" } else { "silence" });
        let until = if by_signal { ["--until-time", "1h"] } else { ["--until-idle", "2s"] };
        // The command returns once the background process records.
        let begun = command(&["record", "--boot", "--mount"])
            .args([mounted.0.as_os_str(), "-o".as_ref(), trace.as_os_str()])
            .args(until)
            .status();
        assert!(begun.unwrap().success());
        let recorder = recorder_of(&trace).expect("nothing is in the background");
        fs::read(mounted.0.join("file")).unwrap();
        // Its name is not marked with an `@` against the kill at shutdown, since no root is to be
        // switched.
        let name = format!("/proc/{recorder}/cmdline");
        wait_for("its own name", || fs::read(&name).is_ok_and(|line| !line.starts_with(b"@")));
        if by_signal {
            run("kill", &["-TERM", &recorder.to_string()]).unwrap();
        }
        wait_for("the end", || trace.exists() && recorder_of(&trace).is_none());
        let read = paths(&trace, "read");
        assert!(read.iter().any(|path| path == "/file"), "{read:?}");
        drop(mounted);
    }
    assert!(traces_of_us(scratch.path().to_str().unwrap()).is_empty());
}

/// The script that the installation puts before udev in an initramfs.
fn early_script(scratch: &Scratch) -> PathBuf {
    let root = scratch.path().join("system");
    let functions = root.join("usr/share/initramfs-tools/hook-functions");
    fs::create_dir_all(functions.parent().unwrap()).unwrap();
    fs::write(functions, "").unwrap();
    let root = root.to_str().unwrap();
    let installed = command(&[
        "record",
        "--install-boot",
        "--recorder",
        env!("CARGO_BIN_EXE_seekless"),
        "--no-rebuild",
        "--root",
        root,
    ]);
    text(&{ installed }.output().unwrap());
    Path::new(root).join("etc/initramfs-tools/scripts/init-top/seekless")
}

#[test]
fn what_was_asked_of_the_device_before_there_was_a_root_is_recorded() {
    let _machine = machine();
    if !capable() || !can_trace() {
        return;
    }
    let scratch = Scratch::on_disk("boot-early");
    let (tree, image) = (scratch.path().join("tree"), scratch.path().join("image"));
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("file"), vec![5; 70_000]).unwrap();
    mke2fs(&tree, &image, "16M");
    let script = early_script(&scratch);
    run("sh", &[script.to_str().unwrap(), "prereqs"]).unwrap();
    let early = Path::new("/sys/kernel/tracing/instances/seekless-early");
    assert!(!early.exists(), "a question for what comes before starts something");
    run("sh", &[script.to_str().unwrap()]).unwrap();
    assert!(early.exists());

    // Reads as of a search for labels: both ends of the device, and another disk.
    let losetup = |image: &Path| run("losetup", &["-f", "--show", image.to_str().unwrap()]);
    let (Some(device), Some(other)) = (losetup(&image), losetup(&image)) else { return };
    let look = |device: &str, block: u32| {
        let from = format!("if={device}");
        let skip = format!("skip={block}");
        run("dd", &[&from, "of=/dev/null", "bs=4096", "count=1", "iflag=direct", &skip]).unwrap();
    };
    look(&device, 0);
    look(&other, 1);
    look(&device, 4095);
    let dir = scratch.path().join("mnt");
    fs::create_dir_all(&dir).unwrap();
    let to = dir.to_str().unwrap();
    run("mount", &["-t", "ext4", "-o", "ro,noload,noatime", &device, to]).unwrap();
    let trace = scratch.path().join("trace");
    let begun = command(&["record", "--boot", "--until-idle", "3s", "--mount", to, "-o"])
        .arg(&trace)
        .status();
    assert!(begun.unwrap().success());
    fs::read(dir.join("file")).unwrap();
    wait_for("the end", || trace.exists() && recorder_of(&trace).is_none());
    let left = early.exists();
    run("umount", &[to]).unwrap();
    run("losetup", &["-d", &device, &other]).unwrap();
    assert!(!left, "the instance is still there");

    let events = events(&trace);
    let asked = events.iter().enumerate().filter(|(_, event)| event["op"] == "device");
    let asked: Vec<(usize, u64)> =
        asked.map(|(at, event)| (at, event["offset"].as_u64().unwrap_or(0))).collect();
    let place = |offset: u64| asked.iter().find(|(_, at)| *at == offset).map(|(place, _)| *place);
    let read = events.iter().position(|event| event["path"] == "/file");
    assert!(place(0) < place(4095 * 4096) && place(0).is_some(), "{asked:?}");
    assert!(place(4095 * 4096) < read, "{asked:?}, the file at {read:?}");
    assert_eq!(place(4096), None, "that was another disk: {asked:?}");
}

/// Runs a program with a terminal's name as its last argument, and prints the terminal's output.
const TERMINAL: &str = "
import os, pty, select, subprocess, sys
ours, theirs = pty.openpty()
child = subprocess.Popen(sys.argv[1:] + [os.ttyname(theirs)], stdout=subprocess.DEVNULL)
while True:
    over = child.poll() is not None
    while select.select([ours], [], [], 0.1)[0]:
        sys.stdout.buffer.write(os.read(ours, 65536))
    if over: sys.exit(child.returncode)
";

#[test]
fn a_trace_goes_to_a_device_and_to_standard_output_as_it_is() {
    let _machine = machine();
    if !capable() || !can_trace() {
        return;
    }
    let scratch = Scratch::on_disk("record-device");
    let (tree, image) = (scratch.path().join("tree"), scratch.path().join("image"));
    make_tree(&tree);
    mke2fs(&tree, &image, "64M");
    for terminal in [false, true] {
        let Some(mounted) = Mounted::new(&image, &scratch.path().join("mnt")) else { return };
        let to = mounted.0.to_str().unwrap();
        let mut reader = slow_reader(&scratch, to, 0);
        let pid = reader.id().to_string();
        let args = ["record", "--source", "tracefs", "--mount", to, "--pid", &pid, "-o"];
        let mut recorder = if terminal {
            let mut python = Command::new("python3");
            python.args(["-c", TERMINAL, env!("CARGO_BIN_EXE_seekless")]).args(args);
            python
        } else {
            command(&[&args[..], &["-"]].concat())
        };
        let recorder = recorder.stdout(Stdio::piped()).spawn().unwrap();
        assert!(reader.wait().unwrap().success());
        let output = recorder.wait_with_output().unwrap();
        assert!(output.status.success());
        assert!(!output.stdout.contains(&b'\r'), "terminal: {terminal}: a line was changed");
        let trace = scratch.path().join("trace");
        fs::write(&trace, output.stdout).unwrap();
        let read = paths(&trace, "read");
        assert!(read.iter().any(|path| path == "/d8/f298"), "terminal: {terminal}: {read:?}");
    }
}

/// Copies a program and its libraries to a tree.
fn put_program(tree: &Path, program: &str, to: &str) {
    let listed = run("ldd", &[program]).unwrap_or_default();
    let libraries = listed.split_whitespace().filter(|word| word.starts_with('/'));
    let copies = libraries.map(|file| (file, file.trim_start_matches('/')));
    for (from, to) in copies.chain([(program, to)]) {
        let to = tree.join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    }
}

/// Script of the first process in the initramfs: a recorder that comes too early is refused; then
/// it mounts the root, starts the recorder and switches the root, as `run-init` does. On a busy
/// machine the switch takes longer than a second, in which nothing may be read.
const EARLY: &str = "
set -e
if /bin/seekless record --boot --mount /root -o /boot.trace; then exit 9; fi
mount -n -o loop,noatime /image /root
/bin/seekless record --boot --mount /root --until-idle 5s -o /boot.trace
mount -n --move /proc /root/proc
mount -n --move /sys /root/sys
mount -n --move /dev /root/dev
cd /root
mount -n --move . /
exec chroot . /bin/sh /late
";

/// Script of the first process after the switch of the root.
const LATE: &str = "
cat /file >/dev/null
until [ -e /boot.trace ] || [ -e /gone ]; do
    sleep 0.2
    grep -q seekless /proc/[0-9]*/comm || : >/gone
done
[ -e /boot.trace ]
cat /boot.trace >/dev/shm/result
";

#[test]
fn a_recording_lives_through_the_switch_of_the_root() {
    let _machine = machine();
    if !capable() || !can_trace() {
        return;
    }
    let scratch = Scratch::on_disk("boot-switch");
    let (tree, early) = (scratch.path().join("tree"), scratch.path().join("early"));
    for program in ["sh", "cat", "sleep", "grep"] {
        let from = run("sh", &["-c", &format!("command -v {program}")]).unwrap();
        put_program(&tree, &from, &format!("bin/{program}"));
    }
    for program in ["sh", "mount", "chroot"] {
        let from = run("sh", &["-c", &format!("command -v {program}")]).unwrap();
        put_program(&early, &from, &format!("bin/{program}"));
    }
    put_program(&early, env!("CARGO_BIN_EXE_seekless"), "bin/seekless");
    for dir in ["proc", "sys", "dev"] {
        fs::create_dir(tree.join(dir)).unwrap();
        fs::create_dir(early.join(dir)).unwrap();
    }
    fs::create_dir(early.join("root")).unwrap();
    fs::write(tree.join("file"), vec![5; 70_000]).unwrap();
    fs::write(tree.join("late"), LATE).unwrap();
    fs::write(early.join("early"), EARLY).unwrap();
    mke2fs(&tree, &early.join("image"), "32M");
    let memory = scratch.path().join("memory");
    let shared = scratch.path().join("shared");
    fs::create_dir_all(&memory).unwrap();
    fs::create_dir_all(&shared).unwrap();
    let start = "
        set -e
        mount --make-rprivate /
        mount -t tmpfs none \"$2\"
        cp -a \"$1\"/. \"$2\"
        mount -t proc none \"$2/proc\"
        mount --rbind /sys \"$2/sys\"
        mount --rbind /dev \"$2/dev\"
        mount --bind \"$3\" \"$2/dev/shm\"
        cd \"$2\"
        mount --move . /
        exec chroot . /bin/sh /early";
    let done = Command::new("unshare")
        .args(["--pid", "--fork", "--mount", "--kill-child", "sh", "-c", start, "sh"])
        .args([&early, &memory, &shared])
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {errors}", done.status);
    let trace = shared.join("result");
    let read = paths(&trace, "read");
    for wanted in ["/file", "/bin/cat", "/late"] {
        assert!(read.iter().any(|path| path == wanted), "{wanted}: {read:?}");
    }
    assert!(!read.iter().any(|path| path.starts_with("/root")), "not of the new root: {read:?}");
}
