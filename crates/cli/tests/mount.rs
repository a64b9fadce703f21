//! The recording mount, compared with the reads of programs through it. Needs FUSE and e2fsprogs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A mount that ends with the test, even if the test fails.
struct Mounted {
    server: Child,
}

impl Mounted {
    fn new(image: &Path, dir: &Path, trace: &Path) -> Self {
        let server = Command::new(env!("CARGO_BIN_EXE_seekless"))
            .args(["mount".as_ref(), "-f".as_ref(), image.as_os_str(), dir.as_os_str()])
            .args(["--read-ahead".as_ref(), "4K".as_ref(), "--record".as_ref(), trace.as_os_str()])
            .spawn()
            .unwrap();
        let mounted = Self { server };
        let start = Instant::now();
        while !dir.join("dir").exists() {
            assert!(start.elapsed() < Duration::from_secs(60), "not mounted");
            sleep(Duration::from_millis(20));
        }
        mounted
    }

    fn signal(&self, signal: &str) {
        let pid = self.server.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    fn stop(mut self) -> bool {
        self.signal("-TERM");
        self.server.wait().unwrap().success()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.server.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.signal("-TERM");
            let _ = self.server.wait();
        }
    }
}

fn output(program: &str, args: &[&str], dir: &Path) -> String {
    let done = Command::new(program).args(args).current_dir(dir).output().unwrap();
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Makes an image of ext4.
fn make(tree: &Path, image: &Path, size: &str) {
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-t", "ext4", "-d"]).args([tree, image]).arg(size);
    assert!(command.stdout(Stdio::null()).status().unwrap().success());
}

const MMAP: &str = "import mmap, os
f = open('big', 'rb')
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
assert m[500000] == 97
for name, error in (('x' * 256, 36), ('missing', 2)):
    try: os.stat(name)
    except OSError as e: assert e.errno == error
    else: assert False
";

#[test]
fn what_programs_read_is_served_and_recorded() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    let (tree, image, dir, trace) = (at("tree"), at("image"), at("mnt"), at("trace"));
    fs::create_dir_all(tree.join("dir/sub")).unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(tree.join("dir/small"), "hello").unwrap();
    fs::write(tree.join("dir/sub/more"), vec![b'm'; 9000]).unwrap();
    fs::write(tree.join("big"), vec![b'a'; 1 << 20]).unwrap();
    make(&tree, &image, "32M");

    let mounted = Mounted::new(&image, &dir, &trace);
    output("python3", &["-c", MMAP], &dir);
    let files = ["dir/small", "dir/sub/more"];
    assert_eq!(output("sha256sum", &files, &dir), output("sha256sum", &files, &tree));
    let found: BTreeSet<String> =
        output("find", &["."], &dir).lines().map(str::to_string).collect();
    let mut wanted: BTreeSet<String> =
        output("find", &["."], &tree).lines().map(str::to_string).collect();
    wanted.insert("./lost+found".into());
    assert_eq!(found, wanted);
    assert!(fs::write(dir.join("new"), "").is_err());
    assert!(mounted.stop());
    assert!(!dir.join("dir").exists(), "still mounted");

    let text = fs::read_to_string(&trace).unwrap();
    assert!(text.starts_with("{\"seekless_trace\":1,"));
    let events: Vec<serde_json::Value> =
        text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |op: &str, path: &str| -> Vec<&serde_json::Value> {
        events.iter().filter(|event| event["op"] == op && event["path"] == path).collect()
    };
    assert_eq!(of("read", "/dir/sub/more")[0]["length"], 9000);
    assert_eq!(of("read", "/dir/small")[0]["comm"], "sha256sum");
    assert_eq!(of("lookup", "/missing")[0]["missing"], true);
    assert_eq!(of("readdir", "/dir/sub").len(), 1);
    // One page of the mapping was touched; the rest of the megabyte was not read.
    let mapped: u64 = of("read", "/big").iter().map(|e| e["length"].as_u64().unwrap()).sum();
    let first = of("read", "/big")[0]["offset"].as_u64().unwrap();
    assert!((1..=65536).contains(&mapped) && first <= 500_000 && 500_000 < first + 65536);
}

/// Of a compressed recording, all that was written before the server was killed can be read.
#[test]
fn a_killed_recording_can_be_read() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    let (tree, image, dir, trace) = (at("tree"), at("image"), at("mnt"), at("t.trace.zst"));
    fs::create_dir_all(tree.join("dir")).unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(tree.join("dir/small"), "hello").unwrap();
    make(&tree, &image, "16M");
    let mut mounted = Mounted::new(&image, &dir, &trace);
    output("cat", &["dir/small"], &dir);
    let start = Instant::now();
    // Events after a second write all those before.
    while fs::metadata(&trace).unwrap().len() == 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing is written");
        sleep(Duration::from_millis(200));
        let _ = fs::metadata(dir.join(format!("dir/none{}", start.elapsed().as_millis())));
    }
    mounted.signal("-KILL");
    mounted.server.wait().unwrap();
    output("umount", &["-l", dir.to_str().unwrap()], temp.path());
    let shown = Command::new(env!("CARGO_BIN_EXE_seekless"))
        .args(["trace", "show"])
        .arg(&trace)
        .output()
        .unwrap();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    assert!(String::from_utf8(shown.stdout).unwrap().contains("/dir/small"));
}

/// `mount -o remount` runs the helper of the type in /proc/mounts: of `fuse` alone it would be
/// mount.fuse, which runs the source, the image, as the program.
#[test]
fn a_remount_does_not_run_the_image() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    let (tree, image, dir, ran) = (at("tree"), at("image"), at("mnt"), at("ran"));
    fs::create_dir_all(tree.join("dir")).unwrap();
    fs::create_dir(&dir).unwrap();
    make(&tree, &image, "16M");
    // The boot block is not a part of ext4.
    let mut bytes = fs::read(&image).unwrap();
    let program = format!("#!/bin/sh\ntouch {}\nexit\n", ran.display());
    bytes[..program.len()].copy_from_slice(program.as_bytes());
    fs::write(&image, bytes).unwrap();
    fs::set_permissions(&image, fs::Permissions::from_mode(0o755)).unwrap();
    let mounted = Mounted::new(&image, &dir, &at("trace"));
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(dir.to_str().unwrap())).unwrap();
    assert!(line.contains(" fuse.seekless "), "{line}");
    // Fails where the program is not found.
    let _ = Command::new("mount").args(["-o", "remount,noexec"]).arg(&dir).output().unwrap();
    assert!(!ran.exists(), "the image ran as a program");
    assert!(mounted.stop());
}
