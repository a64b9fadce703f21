//! The temporary directory of an attached image.

use seekless_images::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Mount point of the image.
pub(super) const IMAGE: &str = "image";

/// Mount point of the changes of a program.
pub(super) const CHANGES: &str = "changes";

/// Mount point of the overlay of both.
pub(super) const ROOT: &str = "root";

/// All mount points.
const DIRS: [&str; 3] = [IMAGE, CHANGES, ROOT];

/// Name of the copy of an image whose journal the kernel replays.
const COPY: &str = "copy";

/// A temporary directory, removed on drop with [`COPY`] and [`DIRS`].
pub(super) struct ScratchDir(PathBuf);

impl ScratchDir {
    /// Makes a directory in `temp_dir`, with the mount points.
    pub(super) fn new(temp_dir: &Path) -> Result<Self, Error> {
        let failed = |dir: &Path, error| Error::io(dir.display(), &error);
        let mut number = 0;
        let dir = loop {
            let name = format!("seekless-verify-{}-{number}", std::process::id());
            let dir = temp_dir.join(name);
            match std::fs::create_dir(&dir) {
                Ok(()) => break dir,
                // Left by a process that was killed, or used for another image.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(failed(&dir, error)),
            }
        };
        let scratch = Self(dir);
        for name in DIRS {
            let dir = scratch.dir(name);
            std::fs::create_dir(&dir).map_err(|error| failed(&dir, error))?;
        }
        Ok(scratch)
    }

    /// The path of a mount point.
    pub(super) fn dir(&self, name: &str) -> PathBuf {
        debug_assert!(DIRS.contains(&name), "{name} is removed at the end");
        self.0.join(name)
    }

    /// Makes a sparse copy of an image.
    pub(super) fn copy(&self, path: &Path) -> Result<PathBuf, Error> {
        let copy = self.0.join(COPY);
        let mut command = Command::new("cp");
        command.args(["--sparse=always", "--reflink=auto", "--"]).arg(path).arg(&copy);
        let status = command.status().map_err(|error| Error::io("cp", &error))?;
        match status.success() {
            true => Ok(copy),
            false => Err(Error::new(ErrorKind::System, format!("cp {}: {status}", path.display()))),
        }
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.join(COPY));
        for name in DIRS {
            let _ = std::fs::remove_dir(self.dir(name));
        }
        let _ = std::fs::remove_dir(&self.0);
    }
}
