//! seekless with a running kernel: recordings, modelled disks, and the score compared with the
//! kernel's requests to a device. Needs root, loop devices, FUSE and e2fsprogs; reports if they are
//! missing.

mod age;
mod boot;
mod disk;
#[path = "../judges/mod.rs"]
mod judges;
mod order;
mod program;
mod record;
mod verify;

use judges::skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Dropping caches and tracing affect the whole machine: one test at a time.
static MACHINE: Mutex<()> = Mutex::new(());

fn machine() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        println!("{program} {args:?}: {errors}");
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Whether this machine permits mounting, tracing and dropping caches.
fn capable() -> bool {
    let root = run("id", &["-u"]).is_some_and(|id| id == "0");
    let able = root
        && Path::new("/dev/loop-control").exists()
        && Path::new("/dev/fuse").exists()
        // Opened, but not written: other tests may be counting the kernel's reads.
        && fs::OpenOptions::new().write(true).open("/proc/sys/vm/drop_caches").is_ok();
    if !able {
        skip("needs root, loop devices and FUSE");
    }
    able
}

/// Whether the kernel's trace events are available.
fn can_trace() -> bool {
    let known = fs::read_to_string("/proc/filesystems").is_ok_and(|text| text.contains("tracefs"));
    if !known {
        skip("this kernel has no tracefs");
    }
    known
}

/// Mounts, loop devices and tracing instances of seekless.
fn traces_of_us(of: &str) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mut found: Vec<String> =
        mounts.lines().filter(|line| line.contains(of)).map(String::from).collect();
    let loops = run("losetup", &["--list", "--noheadings", "--output", "NAME,BACK-FILE"]);
    found.extend(
        loops.unwrap_or_default().lines().filter(|line| line.contains(of)).map(String::from),
    );
    for instances in ["/sys/kernel/tracing/instances", "/sys/kernel/debug/tracing/instances"] {
        let entries = fs::read_dir(instances).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        found.extend(names.filter(|name| is_orphan(name)));
    }
    found
}

/// Whether the process of a tracing instance is gone.
fn is_orphan(name: &str) -> bool {
    let pid = name.strip_prefix("seekless-").and_then(|rest| rest.split('-').next());
    pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
}

/// Makes an image of a directory with mke2fs.
fn mke2fs(tree: &Path, image: &Path, size: &str) {
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0", "-d"])
        .args([tree, image])
        .arg(size)
        .stdout(Stdio::null())
        .status();
    assert!(made.unwrap().success());
}

/// An image mounted through a loop device; both are released on drop.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Path, dir: &Path) -> Option<Self> {
        fs::create_dir_all(dir).ok()?;
        let (image, to) = (image.to_str()?, dir.to_str()?);
        run("mount", &["-t", "ext4", "-o", "loop,ro,noload,noatime", image, to])?;
        // 128 KiB, as with FUSE.
        let device = run("findmnt", &["-n", "-o", "SOURCE", to])?;
        run("blockdev", &["--setra", "256", &device])?;
        Some(Self(dir.into()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &[self.0.to_str().unwrap_or_default()]);
    }
}
