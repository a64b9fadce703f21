//! A read-write mount for the duration of a test.

use crate::judges::unmount;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A mount that ends with the test, even if the test fails.
pub(crate) struct Mounted {
    pub(crate) server: Child,
    at: PathBuf,
}

impl Mounted {
    pub(crate) fn new(image: &str, at: &Path, options: &str) -> Self {
        fs::create_dir_all(at).expect("mount point");
        let outside = fs::metadata(at).expect("mount point").dev();
        let server = Command::new(env!("CARGO_BIN_EXE_seekless"))
            .args(["mount", "-f", image])
            .arg(at)
            .args(["-o", options])
            .spawn()
            .expect("seekless mount");
        let mounted = Self { server, at: at.to_path_buf() };
        let start = Instant::now();
        while fs::metadata(at).is_ok_and(|seen| seen.dev() == outside) {
            assert!(start.elapsed() < Duration::from_secs(60), "not mounted");
            std::thread::sleep(Duration::from_millis(10));
        }
        mounted
    }

    /// Unmounts, and waits until all changes are written.
    pub(crate) fn end(mut self) {
        unmount(&self.at).expect("umount");
        assert!(self.server.wait().expect("server").success(), "the mount ended with an error");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.server.try_wait().is_ok_and(|ended| ended.is_none()) {
            // A failed test may still have open files.
            let _ = Command::new("umount").arg("-l").arg(&self.at).status();
            let _ = self.server.kill();
            let _ = self.server.wait();
        }
    }
}
