//! e2fsck, and bytes.

use crate::holes;
use crate::skip;
use seekless_device::BlockDevice;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// All bytes of a device.
pub(crate) fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    holes::of(device)
}

/// Writes an image over one that may be there: to free and take the pages of the file again would
/// take longer than to write them.
pub(crate) fn put(path: &Path, bytes: &[u8]) {
    let file = fs::File::options().write(true).create(true).truncate(false).open(path);
    let file = file.expect("image");
    file.set_len(bytes.len() as u64).expect("image");
    file.write_all_at(bytes, 0).expect("image");
}

/// A small generator, so that every run meets the same damage.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}

/// A place for an image that is given to a program.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        // Tests run side by side, and some judge under one name.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("seekless-repair-{name}-{}-{next}", std::process::id());
        // e2fsck waits for the disk: in memory there is none.
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { memory } else { Path::new(env!("CARGO_TARGET_TMPDIR")) };
        Self(dir.join(name))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0).or_else(|_| fs::remove_dir_all(&self.0));
    }
}

/// Whether e2fsck is there; says so where it is not.
pub(crate) fn is_there() -> bool {
    let there = Command::new("e2fsck").arg("-V").output().is_ok();
    if !there {
        skip::skip("e2fsprogs are not installed");
    }
    there
}

/// Runs e2fsck on an image: the exit code and what it says.
pub(crate) fn e2fsck(option: &str, path: &Path) -> (i32, String) {
    // Some damage keeps e2fsck busy for ever: then it has no answer.
    let bounded = ["60", "e2fsck", option];
    let said = Command::new("timeout").args(bounded).arg(path).env("LC_ALL", "C").output();
    let said = said.expect("e2fsck");
    let text = [said.stdout, said.stderr].concat();
    (said.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

/// What e2fsck finds in an image, if anything.
pub(crate) fn findings(path: &Path) -> Option<String> {
    let (code, said) = e2fsck("-fn", path);
    (code != 0 || said.contains("? no")).then_some(said)
}
