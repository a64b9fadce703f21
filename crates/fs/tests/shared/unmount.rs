//! Mounts of the kernel that are undone.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Attempts, one each `INTERVAL`, before a mount or its image counts as in use.
const TRIES: u32 = 15_000;

const INTERVAL: Duration = Duration::from_millis(20);

/// Unmounts, and waits until the image is no loop device's any more: then the file system is
/// written back. A program that another test starts has all open files of this one until its exec;
/// and one with a mount namespace of its own has a copy of this mount until it ends, where
/// unmounts do not propagate to it.
///
/// # Panics
/// When the mount, or its image, stays in use.
pub(crate) fn unmount(at: &Path, image: &Path) {
    let image = fs::canonicalize(image).expect("image");
    let unmounts = || Command::new("umount").arg(at).status().expect("umount").success();
    assert!(succeeds(unmounts), "{} stays in use", at.display());
    assert!(succeeds(|| !is_attached(&image)), "{} stays in use", image.display());
}

fn succeeds(step: impl Fn() -> bool) -> bool {
    (0..TRIES).any(|_| {
        let done = step();
        if !done {
            std::thread::sleep(INTERVAL);
        }
        done
    })
}

/// Whether a loop device has this file.
fn is_attached(image: &Path) -> bool {
    let devices = fs::read_dir("/sys/block").expect("/sys/block");
    let mut names = devices.map(|device| device.expect("device").path().join("loop/backing_file"));
    // Devices without a file have no such entry.
    names.any(|name| fs::read(name).is_ok_and(|file| Path::new(trimmed(&file)) == image))
}

fn trimmed(name: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name.trim_ascii_end())
}
