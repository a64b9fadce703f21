//! Block devices as sources and as outputs, judged by e2fsck, blkid, cmp and the kernel's mount.
//! Needs root and loop devices; reports and passes without them.

#[path = "../judges/mod.rs"]
mod judges;

mod disks;
mod output;
mod prefetch;
mod reading;
mod reflink;

use judges::{Scratch, can_mount, run};
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// Of a block device: only if it is not mounted.
const O_EXCL: i32 = 0o200;

/// A file as a block device, until it is dropped.
struct Device {
    path: String,
    backing: PathBuf,
}

impl Device {
    /// A device of `len` bytes without zeros.
    fn new(scratch: &Scratch, name: &str, len: u64) -> Self {
        let backing = scratch.path().join(name);
        let mut bytes = vec![0; len as usize];
        let mut random = 9u64;
        for word in bytes.chunks_mut(8) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            word.copy_from_slice(&(random | 0x0101_0101_0101_0101).to_le_bytes()[..word.len()]);
        }
        fs::write(&backing, bytes).expect("backing file");
        Self::on(backing, &[])
    }

    /// A device on an existing file.
    fn on(backing: PathBuf, options: &[&str]) -> Self {
        // Concurrent calls may get the same free device.
        for _ in 0..40 {
            let output = Command::new("losetup")
                .args(options)
                .args(["--find", "--show"])
                .arg(&backing)
                .output()
                .expect("losetup");
            if output.status.success() {
                let path = String::from_utf8_lossy(&output.stdout).trim().to_string();
                return Self { path, backing };
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("no loop device for {}", backing.display());
    }

    fn path(&self) -> &str {
        &self.path
    }

    /// Contents of the device after a sync.
    fn bytes(&self) -> Vec<u8> {
        File::open(&self.path).expect("device").sync_all().expect("sync");
        fs::read(&self.backing).expect("backing file")
    }

    /// Output of blkid: a line of tags, or nothing.
    fn blkid(&self) -> String {
        let output = Command::new("blkid").args(["-p", &self.path]).output().expect("blkid");
        assert!(matches!(output.status.code(), Some(0 | 2)), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The kinds of signatures that wipefs finds.
    fn signatures(&self) -> Vec<String> {
        let told = run("wipefs", &["--noheadings", "--output", "TYPE", "-n", &self.path]);
        let mut kinds: Vec<String> = told.lines().map(|line| line.trim().to_string()).collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.path]).status();
    }
}

/// A mount of a device, until it is dropped.
struct Mount(String, String);

impl Mount {
    fn new(scratch: &Scratch, device: &str, options: &str) -> Self {
        let at = scratch.join("mounted");
        fs::create_dir_all(&at).expect("mount point");
        run("mount", &["-o", options, device, &at]);
        Self(at, device.to_string())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
        // A mount namespace that another test has just made has a copy of the mount.
        let exclusively = || File::options().read(true).custom_flags(O_EXCL).open(&self.1);
        for _ in 0..600 {
            if exclusively().is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// A scratch directory with a small tree; `None` if devices cannot be made.
fn scene(name: &str) -> Option<(Scratch, String)> {
    if !can_mount() {
        return None;
    }
    let scratch = Scratch::new(name);
    let tree = scratch.join("tree");
    for n in 0..60u32 {
        let dir = format!("{tree}/d{}", n % 7);
        fs::create_dir_all(&dir).expect("mkdir");
        let bytes: Vec<u8> = (0..n * 300).flat_map(u32::to_le_bytes).collect();
        fs::write(format!("{dir}/f{n}"), bytes).expect("write");
    }
    Some((scratch, tree))
}
