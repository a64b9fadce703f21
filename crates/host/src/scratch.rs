//! Mounts private to this process, gone when it ends.

use crate::HostError;
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time limit for unmounting a mount that is still busy.
const UNMOUNT_GRACE: Duration = Duration::from_secs(2);

/// Interval between tries to unmount.
const UNMOUNT_POLL: Duration = Duration::from_millis(10);

const RIGHTS: &str = "mounting needs root or CAP_SYS_ADMIN: run it with sudo";

fn namespace_failed(error: rustix::io::Errno) -> HostError {
    HostError::new("making a mount namespace", error).advise_rights(RIGHTS)
}

/// Gives the calling thread, and all threads and programs that it starts from now on, a copy of the
/// present mounts (a mount namespace). Later mounts still propagate in both directions if they are
/// shared.
///
/// # Errors
/// Without the right to.
pub fn own_mounts() -> Result<(), HostError> {
    // SAFETY: only the mount namespace and the file-system context (working
    // directory, umask) are unshared; descriptors stay shared.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
        .map_err(namespace_failed)
}

/// Keeps private mounts in place after the last of their programs has ended. Once the namespace is
/// gone, paths of descriptors (/proc/self/fd) lead to the mount only, without its mount point.
#[derive(Debug)]
pub struct KeptMounts {
    _namespace: std::fs::File,
}

impl KeptMounts {
    /// The mounts of the calling thread.
    ///
    /// # Errors
    /// Without /proc.
    pub fn of_this_thread() -> Result<Self, HostError> {
        const PATH: &str = "/proc/thread-self/ns/mnt";
        let namespace = std::fs::File::open(PATH).map_err(|error| HostError::new(PATH, error))?;
        Ok(Self { _namespace: namespace })
    }
}

/// Like [`own_mounts`], but later mounts here do not propagate to others. They vanish with the last
/// process of the namespace, however this process ends. Unmounts by others still propagate here if
/// the mount is shared: a file system that is kept here stays in use, whatever they believe.
///
/// # Errors
/// Without the right to.
pub fn private_mounts() -> Result<(), HostError> {
    own_mounts()?;
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", flags).map_err(namespace_failed)
}

/// Gives the calling thread, and the threads and programs it starts from now on, a copy of another
/// process's mounts.
///
/// # Errors
/// Without the right to, or when that process is gone.
pub fn mounts_of(pid: u32) -> Result<(), HostError> {
    // The kernel refuses the move to a thread that shares its file-system context.
    own_mounts()?;
    let path = format!("/proc/{pid}/ns/mnt");
    let failed = |error| HostError::new(&path, error);
    let dir = std::env::current_dir();
    let space = std::fs::File::open(&path).map_err(failed)?;
    rustix::thread::move_into_link_name_space(
        std::os::fd::AsFd::as_fd(&space),
        Some(rustix::thread::LinkNameSpaceType::Mount),
    )
    .map_err(|error| failed(error.into()))?;
    private_mounts()?;
    // The move changes the working directory to the root.
    let stay = dir.and_then(std::env::set_current_dir);
    stay.map_err(|error| HostError::new("the working directory", error))
}

/// A mounted file system, unmounted at the end.
#[derive(Debug)]
pub struct Mounted {
    dir: PathBuf,
}

impl Mounted {
    /// Mounts `source` on `dir`. `options` are those of the file system, separated by commas.
    ///
    /// # Errors
    /// The system call's error.
    pub fn new(
        source: &Path,
        dir: &Path,
        fs_type: &str,
        flags: MountFlags,
        options: &str,
    ) -> Result<Self, HostError> {
        let what = || format!("mounting {} as {fs_type} on {}", source.display(), dir.display());
        let options = CString::new(options)
            .map_err(|error| HostError::new(what(), std::io::Error::other(error)))?;
        rustix::mount::mount(source, dir, fs_type, flags, options.as_c_str())
            .map_err(|error| HostError::new(what(), error).advise_rights(RIGHTS))?;
        Ok(Self { dir: dir.into() })
    }

    /// Mounts `lower` on `dir` with changes redirected to `changes`, an empty directory of a file
    /// system that supports them, such as tmpfs (overlayfs,
    /// `Documentation/filesystems/overlayfs.rst`).
    ///
    /// # Errors
    /// The system call's error; also if this kernel has no overlayfs, or does not support that file
    /// system below it.
    pub fn overlay(lower: &Path, changes: &Path, dir: &Path) -> Result<Self, HostError> {
        let (upper, work) = (changes.join("upper"), changes.join("work"));
        let open = |path: &Path| {
            let failed = |error| HostError::new(path.display().to_string(), error);
            std::fs::File::open(path).map_err(failed)
        };
        for path in [&upper, &work] {
            std::fs::create_dir(path)
                .map_err(|error| HostError::new(path.display().to_string(), error))?;
        }
        // By their descriptors: options reserve commas and colons.
        let dirs = [open(lower)?, open(&upper)?, open(&work)?];
        let [lower, upper, work] =
            dirs.each_ref().map(|dir| format!("/proc/self/fd/{}", dir.as_raw_fd()));
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let flags = MountFlags::NOATIME | MountFlags::NODEV | MountFlags::NOSUID;
        Self::new(Path::new("overlay"), dir, "overlay", flags, &options)
    }

    /// Binds the directory `from`, with all mounts below it, to `dir`.
    ///
    /// # Errors
    /// The system call's error.
    pub fn bind(from: &Path, dir: &Path) -> Result<Self, HostError> {
        rustix::mount::mount_bind_recursive(from, dir).map_err(|error| {
            let what = format!("showing {} on {}", from.display(), dir.display());
            HostError::new(what, error).advise_rights(RIGHTS)
        })?;
        Ok(Self { dir: dir.into() })
    }

    /// Detaches the mount and those below it at once; processes with files open there keep access.
    ///
    /// # Errors
    /// The system call's error.
    pub fn detach(self) -> Result<(), HostError> {
        let gone = rustix::mount::unmount(&self.dir, UnmountFlags::DETACH);
        gone.map_err(|error| HostError::new(format!("unmounting {}", self.dir.display()), error))?;
        std::mem::forget(self);
        Ok(())
    }

    /// Unmounts, and reports failure. A mount in use is retried for a short time: the kernel may
    /// still be closing the files of processes that have ended.
    ///
    /// # Errors
    /// If it stays in use, or the last writes fail.
    pub fn unmount(self) -> Result<(), HostError> {
        let since = Instant::now();
        loop {
            match rustix::mount::unmount(&self.dir, UnmountFlags::empty()) {
                Ok(()) => {
                    std::mem::forget(self);
                    return Ok(());
                }
                Err(Errno::BUSY) if since.elapsed() < UNMOUNT_GRACE => {
                    std::thread::sleep(UNMOUNT_POLL);
                }
                // The drop detaches it.
                Err(error) => {
                    let what = format!("unmounting {}", self.dir.display());
                    return Err(HostError::new(what, error));
                }
            }
        }
    }

    /// The mount point.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Processes in there keep access; no new ones come in.
        let _ = rustix::mount::unmount(&self.dir, UnmountFlags::DETACH);
    }
}
