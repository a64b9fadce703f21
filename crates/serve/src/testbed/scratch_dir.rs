//! Temporary directories of testbeds.

use seekless_images::Error;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// Prefix of temporary directories; the process's number follows.
const PREFIX: &str = "seekless-disk-";

/// Name of the file with the contents of the disk.
pub(super) const IMAGE: &str = "image";

/// Name of the directory that the disk is mounted on.
pub(super) const DISK: &str = "disk";

/// Name of the mount point of the file system on the disk.
pub(super) const MOUNT_POINT: &str = "mnt";

/// A temporary directory, removed on drop with its mount points and the image.
pub(super) struct ScratchDir(PathBuf);

impl ScratchDir {
    /// Makes a directory in `temp_dir`, and removes those of killed processes.
    pub(super) fn new(temp_dir: &Path) -> Result<Self, Error> {
        // They are empty: their mounts disappeared with the processes.
        abandoned_dirs(temp_dir, PREFIX).into_iter().map(Self).for_each(drop);
        let mut number = 0;
        loop {
            let dir = temp_dir.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match std::fs::create_dir(&dir) {
                Ok(()) => return Ok(Self(dir)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(Error::io(dir.display(), &error)),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of one of [`IMAGE`], [`DISK`] and [`MOUNT_POINT`], which drop removes.
    pub(super) fn join(&self, name: &str) -> PathBuf {
        debug_assert!([IMAGE, DISK, MOUNT_POINT].contains(&name), "{name} is removed at the end");
        self.0.join(name)
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        for name in [DISK, MOUNT_POINT] {
            let _ = std::fs::remove_dir(self.join(name));
        }
        let _ = std::fs::remove_file(self.join(IMAGE));
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Temporary directories of killed processes in `temp_dir`: their names are `prefix` and the number
/// of a process that no longer exists. Empty if `temp_dir` cannot be read.
#[must_use]
pub fn abandoned_dirs(temp_dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let is_abandoned = |name: &OsStr| {
        let owner = name.to_str().and_then(|name| name.strip_prefix(prefix)?.split('-').next());
        owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
    };
    let entries = std::fs::read_dir(temp_dir).into_iter().flatten().flatten();
    entries.filter(|entry| is_abandoned(&entry.file_name())).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_ended_processes_are_abandoned() {
        let own = ScratchDir::new(&std::env::temp_dir()).expect("a directory");
        let found = abandoned_dirs(&std::env::temp_dir(), PREFIX);
        assert!(!found.iter().any(|dir| dir == own.path()));
        let parent = own.join(MOUNT_POINT);
        // No process has a number above the kernel's limit of 2^22.
        let gone = parent.join(format!("{PREFIX}4194305-0"));
        std::fs::create_dir_all(&gone).expect("a directory");
        assert_eq!(abandoned_dirs(&parent, PREFIX), [gone.as_path()]);
        std::fs::remove_dir(gone).expect("an empty directory");
    }
}
