use crate::judges::{Scratch, command, text};
use crate::{capable, machine, run, traces_of_us};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A served disk that ends with the test, even if the test fails.
pub(crate) struct Served {
    server: Child,
    pub(crate) dir: PathBuf,
}

impl Served {
    pub(crate) fn new(scratch: &Scratch, args: &[&str]) -> Self {
        let dir = scratch.path().join("served");
        fs::create_dir_all(&dir).unwrap();
        let image = scratch.join("image");
        let server = command(&["disk", &image, dir.to_str().unwrap()]).args(args).spawn().unwrap();
        let served = Self { server, dir };
        wait_until("served", || served.dir.join("disk").exists());
        served
    }

    fn stats(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.dir.join("stats.json")).unwrap()).unwrap()
    }

    fn control(&self, line: &str) {
        fs::write(self.dir.join("control"), line).unwrap();
    }

    fn stop(mut self) -> bool {
        run("kill", &["-TERM", &self.server.id().to_string()]).unwrap();
        self.server.wait().unwrap().success()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.server.try_wait().is_ok_and(|ended| ended.is_none()) {
            run("kill", &["-TERM", &self.server.id().to_string()]);
            let _ = self.server.wait();
        }
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "not {what}");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn accesses_are_counted_by_phase_and_logged() {
    let _machine = machine();
    if !capable() {
        return;
    }
    let scratch = Scratch::on_disk("disk-counts");
    let log = scratch.join("log");
    let args = ["--model", "gp3", "--create", "--size", "64M", "--io-log", &log];
    let served = Served::new(&scratch, &args);
    let disk = served.dir.join("disk");
    let to = disk.to_str().unwrap().to_string();
    let dd = |args: &[&str]| run("dd", &[args, &["status=none"]].concat()).unwrap();
    let out = format!("of={to}");
    served.control("phase write");
    dd(&["if=/dev/urandom", &out, "bs=64K", "count=4", "conv=notrunc,fsync"]);
    served.control("phase read");
    let input = format!("if={to}");
    dd(&[&input, "of=/dev/null", "bs=4K", "count=3"]);
    dd(&[&input, "of=/dev/null", "bs=4K", "count=1", "skip=8000"]);
    let stats = served.stats();
    let phase = |name: &str| {
        let phases = stats["phases"].as_array().unwrap();
        phases.iter().find(|phase| phase["name"] == name).unwrap().clone()
    };
    let (write, read) = (phase("write"), phase("read"));
    assert_eq!((&write["writes"], &write["written_bytes"]), (&4.into(), &(256 << 10).into()));
    assert_eq!(
        (&write["flushes"], &write["reads"], &write["seeks"]),
        (&1.into(), &0.into(), &0.into())
    );
    assert_eq!((&read["reads"], &read["read_bytes"]), (&4.into(), &16384.into()));
    // Back to the start, then far away.
    assert_eq!(read["seeks"], 2);
    assert!(read["busy_ns"].as_u64().unwrap() > 0 && write["busy_ns"].as_u64().unwrap() > 0);
    assert_eq!(stats["requests"], 8);
    let busy: u64 = [&write, &read].iter().map(|phase| phase["busy_ns"].as_u64().unwrap()).sum();
    assert_eq!(stats["busy_ns"], busy);
    assert!(fs::read_to_string(served.dir.join("stats")).unwrap().contains("requests"));
    served.control("reset");
    assert_eq!(served.stats()["requests"], 0);
    assert!(fs::write(served.dir.join("control"), "nonsense").is_err());
    served.control("iodepth 32\niodepth 0");
    assert!(fs::write(served.dir.join("control"), "iodepth 33").is_err());
    // The disk has a fixed size.
    assert!(run("truncate", &["-s", "128M", &to]).is_none());
    assert!(served.stop());
    let lines: Vec<Value> = fs::read_to_string(&log)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 9);
    let read: u64 =
        lines.iter().filter(|l| l["op"] == "read").map(|l| l["bytes"].as_u64().unwrap()).sum();
    assert_eq!(read, 16384);
    assert!(lines.iter().all(|l| l["completed_ns"].as_u64() >= l["submitted_ns"].as_u64()));
    assert!(traces_of_us("disk-counts").is_empty());
}

#[test]
fn a_kernel_file_system_lives_on_it_with_many_requests_in_flight() {
    let _machine = machine();
    if !capable() {
        return;
    }
    let scratch = Scratch::on_disk("disk-ext4");
    let served =
        Served::new(&scratch, &["--model", "gp3", "--realtime", "--create", "--size", "128M"]);
    let disk = served.dir.join("disk");
    let mount = scratch.path().join("mnt");
    fs::create_dir(&mount).unwrap();
    let device =
        run("losetup", &["--find", "--show", "--direct-io=on", disk.to_str().unwrap()]).unwrap();
    let done = run("mkfs.ext4", &["-q", &device]).is_some()
        && run("mount", &[&device, mount.to_str().unwrap()]).is_some();
    if done {
        let contents: Vec<u8> = (0..8u32 << 20).map(|at| ((at * 31) >> 7) as u8).collect();
        fs::write(mount.join("file"), &contents).unwrap();
        run("sync", &["-f", mount.to_str().unwrap()]).unwrap();
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        assert_eq!(fs::read(mount.join("file")).unwrap(), contents);
        run("umount", &[mount.to_str().unwrap()]).unwrap();
    }
    run("losetup", &["-d", &device]).unwrap();
    assert!(done);
    let stats = served.stats();
    assert!(stats["flushes"].as_u64().unwrap() > 0, "{stats}");
    assert!(stats["most_in_flight"].as_u64().unwrap() > 4, "{stats}");
    assert!(stats["read_bytes"].as_u64().unwrap() >= 8 << 20);
    assert_eq!(stats["errors"], 0);
    wait_until("detached", || traces_of_us("disk-ext4").len() == 1);
    assert!(served.stop());
    let image = scratch.join("image");
    run("e2fsck", &["-fn", &image]).expect("a clean file system");
}

#[test]
fn an_image_that_shrinks_or_goes_is_told() {
    let _machine = machine();
    if !capable() {
        return;
    }
    let scratch = Scratch::on_disk("disk-gone");
    let served = Served::new(&scratch, &["--model", "null", "--create", "--size", "8M"]);
    let disk = served.dir.join("disk").to_str().unwrap().to_string();
    let image = scratch.path().join("image");
    fs::File::options().write(true).open(&image).unwrap().set_len(1 << 20).unwrap();
    let input = format!("if={disk}");
    assert!(run("dd", &[&input, "of=/dev/null", "bs=4K", "count=1", "skip=1000"]).is_none());
    assert!(run("dd", &[&input, "of=/dev/null", "bs=4K", "count=1"]).is_some());
    assert_eq!(served.stats()["errors"], 1);
    fs::remove_file(&image).unwrap();
    assert!(
        run("dd", &[&input, "of=/dev/null", "bs=4K", "count=1"]).is_some(),
        "still there while served"
    );
    assert!(served.stop());
}

fn disk_run(args: &[&str]) -> std::process::Output {
    command(&["disk", "run"]).args(args).output().unwrap()
}

const SCRIPT: &str = "mkdir d; for i in $(seq 200); do head -c 9000 /dev/urandom > d/$i; done; \
    echo phase read > $SEEKLESS_DISK/control; cat d/* | wc -c; test $(pwd) = $SEEKLESS_MOUNT";

#[test]
fn a_script_is_run_and_measured_on_every_file_system() {
    let _machine = machine();
    if !capable() {
        return;
    }
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    for fs in ["ext4", "xfs", "btrfs"] {
        if !known.contains(fs) || run("which", &[&format!("mkfs.{fs}")]).is_none() {
            crate::judges::skip(&format!("no {fs} here"));
            continue;
        }
        let output = disk_run(&["--fs", fs, "--model", "gp3", "--json", "--", SCRIPT]);
        let printed = text(&output);
        let (script, json) = printed.trim().split_once('\n').unwrap();
        assert_eq!(script, "1800000", "{fs}");
        let report: Value = serde_json::from_str(json).unwrap();
        let names: Vec<&str> = report["phases"]
            .as_array()
            .unwrap()
            .iter()
            .map(|phase| phase["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["make", "mount", "run", "read", "unmount"], "{fs}");
        let phases = report["phases"].as_array().unwrap();
        assert!(phases[2]["written_bytes"].as_u64().unwrap() >= 1_800_000, "{fs}: {}", phases[2]);
        assert!(phases[3]["read_bytes"].as_u64().unwrap() >= 1_800_000, "{fs}: {}", phases[3]);
        assert!(phases[3]["busy_ns"].as_u64().unwrap() > 0);
        assert!(report["flushes"].as_u64().unwrap() > 0, "{fs}");
        let left = traces_of_us("seekless-disk-");
        assert!(left.is_empty(), "{fs}: {left:?}");
    }
}

#[test]
fn a_failing_script_and_a_wrong_model_are_told() {
    let _machine = machine();
    if !capable() {
        return;
    }
    let output = disk_run(&["--fs", "ext4", "--model", "gp3", "--size", "64M", "--", "exit 9"]);
    assert_eq!(output.status.code(), Some(9));
    let output = disk_run(&["--fs", "ext4", "--model", "gp4", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("gp3"));
    assert!(traces_of_us("seekless-disk-").is_empty());
}

/// Exit code of a run that a signal ends while its script works.
fn interrupted(signal: &str) -> Option<i32> {
    let scratch = Scratch::on_disk("disk-signal");
    let ready = scratch.path().join("ready");
    let script =
        format!("touch {}; dd if=/dev/zero of=f bs=1M count=20; sleep 600", ready.display());
    let mut child =
        command(&["disk", "run", "--fs", "ext4", "--model", "gp3", "--size", "64M", "--"])
            .arg(&script)
            .spawn()
            .unwrap();
    wait_until("ready", || ready.exists());
    run("kill", &[signal, &child.id().to_string()]).unwrap();
    child.wait().unwrap().code()
}

#[test]
fn an_interrupted_run_leaves_no_mount_and_no_loop_device() {
    let _machine = machine();
    if !capable() {
        return;
    }
    for (signal, code) in [("-INT", Some(6)), ("-TERM", Some(6)), ("-KILL", None)] {
        assert_eq!(interrupted(signal), code, "{signal}");
        // The kernel unmounts and detaches asynchronously after a process is killed.
        wait_until(signal, || traces_of_us("seekless-disk-").is_empty());
    }
    // The killed run left empty directories, which the next run removes.
    text(&disk_run(&["--fs", "ext4", "--model", "null", "--size", "64M", "--", "true"]));
    let entries = fs::read_dir(crate::judges::scratch()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let left: Vec<String> = names.filter(|name| name.starts_with("seekless-disk-")).collect();
    assert!(left.is_empty(), "{left:?}");
}
