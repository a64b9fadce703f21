//! Shared by tests of written images: the command under test, scratch space, and independent
//! judges: e2fsck, dumpe2fs and the kernel.
#![allow(dead_code, reason = "no test uses every judge")]

pub(crate) mod dissect;
pub(crate) mod python;
#[path = "../../../fs/tests/shared/skip.rs"]
mod skip;
#[path = "../../../fs/tests/shared/slice.rs"]
pub(crate) mod slice;

pub(crate) use skip::skip;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Directory on a disk.
pub(crate) const ON_DISK: &str = env!("CARGO_TARGET_TMPDIR");

/// Directory for files of tests: $TMPDIR, which is in memory where `.ci/tests` has set it, so that
/// no test waits for a disk; else on a disk.
pub(crate) fn scratch() -> &'static Path {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    SCRATCH.get_or_init(|| std::env::var_os("TMPDIR").map_or_else(|| ON_DISK.into(), PathBuf::from))
}

/// A directory of a test, removed at its end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        Self::below(scratch(), name)
    }

    /// For files of which blocks are counted, or on which programs act that need a disk: in memory
    /// a file may have more blocks than were written.
    pub(crate) fn on_disk(name: &str) -> Self {
        Self::below(Path::new(ON_DISK), name)
    }

    fn below(parent: &Path, name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).expect("scratch directory");
        Self(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("path").to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The command under test.
pub(crate) fn command<S: AsRef<OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seekless"));
    command.args(args).env_remove("SOURCE_DATE_EPOCH").env("TMPDIR", scratch());
    command
}

/// Seconds after which a command is killed, with status 124: one that stays in the foreground
/// although a refusal is expected would block all tests.
const LONGEST: &str = "900";

pub(crate) fn seekless<S: AsRef<OsStr>>(args: &[S]) -> Output {
    let plain = command(args);
    let mut limited = Command::new("timeout");
    limited.args(["--kill-after=10", LONGEST]).arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.output().expect("timeout of GNU coreutils")
}

/// Standard output of a command that must succeed.
pub(crate) fn text(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {errors}\n{shown}", output.status);
    shown.into_owned()
}

/// Whether a judge is installed; reports if not.
pub(crate) fn ready(program: &str) -> bool {
    let look = format!("command -v {program}");
    let found = Command::new("sh").args(["-c", &look]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return true;
    }
    skip(&format!("{program} is not installed"));
    false
}

/// Runs a judge that must succeed, and returns its standard output.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, args: &[S]) -> String {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Copies a mounted image, and repeats that until no write came in between.
pub(crate) fn copy_live(image: &str, copy: &str) {
    for _ in 0..20 {
        run("cp", &["--sparse=always", image, copy]);
        if Command::new("cmp").args(["-s", image, copy]).status().expect("cmp").success() {
            return;
        }
    }
    panic!("{image}: written to without end");
}

/// Exit code and message of a command that must fail with one line of error.
pub(crate) fn failure(output: &Output) -> (i32, String) {
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "succeeded");
    assert!(message.starts_with("seekless: ") && message.lines().count() == 1, "{message}");
    (output.status.code().expect("exit code"), message)
}

/// Whether the kernel can mount images here; reports the reason if not.
pub(crate) fn can_mount() -> bool {
    static ANSWER: OnceLock<Result<(), String>> = OnceLock::new();
    match ANSWER.get_or_init(try_mount) {
        Ok(()) => true,
        Err(why) => {
            skip(&format!("images cannot be mounted here: {why}"));
            false
        }
    }
}

fn try_mount() -> Result<(), String> {
    let scratch = Scratch::new("probe");
    let (image, at) = (scratch.join("image"), scratch.join("at"));
    fs::create_dir(&at).map_err(|error| error.to_string())?;
    let steps: [(&str, &[&str]); 3] = [
        ("mke2fs", &["-q", "-t", "ext2", &image, "1M"]),
        ("mount", &["-t", "ext4", "-o", "loop,ro", &image, &at]),
        ("umount", &[&at]),
    ];
    for (program, args) in steps {
        let output = Command::new(program).args(args).output();
        let output = output.map_err(|error| format!("{program}: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_string());
        }
    }
    Ok(())
}

/// Unmounts. A program that another test starts at this moment has all our open files until its
/// exec, so that a mount may be busy for a moment.
pub(crate) fn unmount(at: impl AsRef<Path>) -> Result<(), String> {
    const TRIES: u32 = 1200;
    let mut said = String::new();
    for _ in 0..TRIES {
        let output = Command::new("umount").arg(at.as_ref()).output();
        let output = output.map_err(|error| format!("umount: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        said = String::from_utf8_lossy(&output.stderr).trim().to_string();
        if !said.contains("busy") {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(said)
}

/// A mount through a loop device of its own, released on drop. (`mount -o loop` would reuse a
/// device that a previous mount has not released yet, with its read-only state.)
pub(crate) struct Mounted {
    at: PathBuf,
    device: String,
}

/// Attaches an image to a loop device. Concurrent calls may get the same free device; then one of
/// them must try again.
pub(crate) fn attach(image: &str, read_only: bool) -> String {
    let flags: &[&str] = if read_only { &["-r"] } else { &[] };
    for _ in 0..20 {
        let args = [flags, &["--find", "--show", image]].concat();
        let output = Command::new("losetup").args(args).output().expect("losetup");
        if output.status.success() {
            return String::from_utf8_lossy(&output.stdout).trim().to_string();
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("no loop device for {image}");
}

impl Mounted {
    /// Mounts an image of ext4; `access` is `ro` or `rw`.
    pub(crate) fn new(scratch: &Scratch, image: &str, access: &str) -> Self {
        Self::of_kind(scratch, image, "ext4", access)
    }

    /// Mounts an image of a kind that the kernel supports.
    pub(crate) fn of_kind(scratch: &Scratch, image: &str, kind: &str, access: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let at = scratch.path().join(format!("mount-{number}"));
        fs::create_dir(&at).expect("mount point");
        let device = attach(image, access == "ro");
        let mounted = Self { at, device };
        let options = format!("noatime,{access}");
        run("mount", &["-t", kind, "-o", &options, &mounted.device, mounted.text()]);
        mounted
    }

    pub(crate) fn path(&self) -> &Path {
        &self.at
    }

    pub(crate) fn text(&self) -> &str {
        self.at.to_str().expect("path")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if unmount(&self.at).is_err() {
            let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        }
        detach(&self.device);
    }
}

/// Detaches a loop device, and waits until its image is free: a process with mounts of its own, started
/// by another test meanwhile, may keep the file system mounted for a while. Until then not all that was
/// written is in the image.
pub(crate) fn detach(device: &str) {
    let backing = device.replace("/dev/", "/sys/block/") + "/loop/backing_file";
    let image = fs::read(&backing);
    let _ = Command::new("losetup").args(["--detach", device]).status();
    let is_attached =
        || image.as_ref().is_ok_and(|image| fs::read(&backing).is_ok_and(|it| it == *image));
    for _ in 0..6000 {
        if !is_attached() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(std::thread::panicking(), "{device}: still mounted elsewhere");
}

/// e2fsck finds no errors, and proposes no optimizations.
pub(crate) fn check(image: &str) {
    let said = run("e2fsck", &["-fn", image]);
    assert!(!said.contains("could be"), "{said}");
    assert!(!said.contains("Optimize"), "{said}");
}

/// The listing of an image or a directory.
pub(crate) fn manifest(path: &str, excludes: &[&str]) -> String {
    let mut args = vec!["manifest", path];
    for exclude in excludes {
        args.extend(["--exclude", exclude]);
    }
    text(&seekless(&args))
}

/// A listing without times.
pub(crate) fn timeless(manifest: &str) -> String {
    let line = |line: &str| {
        let words = line.split(' ').filter(|word| !word.starts_with("time="));
        words.collect::<Vec<_>>().join(" ")
    };
    manifest.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Fails with the first lines in which two listings differ.
pub(crate) fn same(what: &str, left: &str, right: &str) {
    assert!(left.lines().count() > 1, "{what}: nothing to compare");
    if left == right {
        return;
    }
    let pairs = left.lines().zip(right.lines()).filter(|(left, right)| left != right);
    let shown: Vec<String> =
        pairs.take(3).map(|(left, right)| format!("- {left}\n+ {right}")).collect();
    let (left, right) = (left.lines().count(), right.lines().count());
    panic!("{what}: {left} and {right} lines\n{}", shown.join("\n"));
}

/// The lines of `dumpe2fs -h` as pairs.
pub(crate) fn header(image: &str) -> Vec<(String, String)> {
    let text = run("dumpe2fs", &["-h", image]);
    let pair = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_string(), value.trim().to_string()))
    };
    text.lines().filter_map(pair).collect()
}
