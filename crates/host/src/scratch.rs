//! Mounts that nobody else sees and that vanish with this process.

use crate::HostError;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use std::ffi::CString;
use std::path::{Path, PathBuf};

const RIGHTS: &str = "mounting needs root or CAP_SYS_ADMIN: run it with sudo";

fn namespace_failed(error: rustix::io::Errno) -> HostError {
    HostError::new("making a mount namespace", error).advise_rights(RIGHTS)
}

/// Gives the calling thread, and all threads and programs that it starts from
/// now on, mounts of their own that are the same as before. What is mounted in
/// one place still shows in the other where mounts are shared.
///
/// # Errors
/// Without the right to.
pub fn own_mounts() -> Result<(), HostError> {
    // SAFETY: only the mount namespace and the file-system context (working
    // directory, umask) are unshared; descriptors stay shared.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
        .map_err(namespace_failed)
}

/// Like [`own_mounts`], and nothing mounted since shows elsewhere. However this
/// process ends, it is gone when the last of them is. What others unmount goes
/// away here as well, where it is shared: a file system that is kept here stays
/// in use, whatever they believe.
///
/// # Errors
/// Without the right to.
pub fn private_mounts() -> Result<(), HostError> {
    own_mounts()?;
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", flags).map_err(namespace_failed)
}

/// Gives the calling thread, and what it starts from now on, mounts of their own
/// that are those of another process.
///
/// # Errors
/// Without the right to, or when that process is gone.
pub fn mounts_of(pid: u32) -> Result<(), HostError> {
    // A thread that shares its file-system context cannot move.
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
    // The move leads to the root.
    let stay = dir.and_then(std::env::set_current_dir);
    stay.map_err(|error| HostError::new("the working directory", error))
}

/// A mounted file system, unmounted at the end.
#[derive(Debug)]
pub struct Mounted {
    dir: PathBuf,
}

impl Mounted {
    /// Mounts `source` on `dir`. `options` are those of the file system, separated
    /// by commas.
    ///
    /// # Errors
    /// What the system says.
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

    /// Unmounts, and says when that fails.
    ///
    /// # Errors
    /// When it is in use, or the last writes fail.
    pub fn unmount(self) -> Result<(), HostError> {
        let unmounted = rustix::mount::unmount(&self.dir, UnmountFlags::empty());
        // Otherwise the drop detaches it.
        unmounted
            .map_err(|error| HostError::new(format!("unmounting {}", self.dir.display()), error))?;
        std::mem::forget(self);
        Ok(())
    }

    /// Where it is mounted.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Whoever is still in there keeps it; nobody new comes in.
        let _ = rustix::mount::unmount(&self.dir, UnmountFlags::DETACH);
    }
}
