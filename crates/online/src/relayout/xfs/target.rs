//! The mounted volume: conditions for moving files.

use super::tree::MountedTree;
use rustix::fs::OFlags;
use rustix::io::Errno;
use seekless_host::mounts::{self, Mount};
use seekless_host::xfs::{Geometry, XfsDonor, open_keeping_times, start_commit};
use seekless_host::{HostError, handle, kernel_release, running};
use seekless_images::{Error, ErrorKind};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A mounted XFS whose files can be moved.
pub struct XfsTarget {
    mount: Mount,
    /// The path given by the user.
    path: PathBuf,
    /// The directory on which it is mounted.
    pub(crate) on: File,
    pub(crate) geometry: Geometry,
}

impl XfsTarget {
    /// The volume, on the mount that contains `path`.
    ///
    /// # Errors
    /// If it is mounted read-only, is being moved by another process, cannot be moved, or this
    /// process lacks root's rights.
    pub fn new(path: &Path, mount: Mount) -> Result<Self, Error> {
        let refused = |kind, what: &str| Error::new(kind, what).about(path.display());
        if !rustix::process::geteuid().is_root() {
            let what = "files are opened so that their times stay: run it with sudo";
            return Err(refused(ErrorKind::System, what).hint("needs root"));
        }
        // Paths of traces begin at the root of the file system.
        let is_whole = |mount: &Mount| mount.root == Path::new("/");
        let mount = if is_whole(&mount) { mount } else { mounts::of_device(mount.device)? };
        if !is_whole(&mount) {
            let what = "only a part of the file system is mounted here";
            return Err(refused(ErrorKind::Unsupported, what));
        }
        let on = File::open(&mount.dir).map_err(|error| Error::io(mount.dir.display(), &error))?;
        let stat =
            rustix::fs::fstatvfs(&on).map_err(|error| Error::io(path.display(), &error.into()))?;
        if stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
            return Err(refused(ErrorKind::Unsupported, "is mounted read-only"));
        }
        let geometry = Geometry::of(&on).map_err(|error| Error::io(path.display(), &error))?;
        if geometry.sick {
            let what = "the kernel has found errors in it";
            let hint = "unmount it and run xfs_repair first";
            return Err(refused(ErrorKind::Corrupt, what).hint(hint));
        }
        if !geometry.exchange_range {
            let what = "is an XFS without the feature by which ranges of files are exchanged";
            let hint = "new file systems have it by mkfs.xfs -i exchange=1 of xfsprogs 6.10, old \
                        ones that are unmounted by xfs_admin -O exchange=1 where its manual \
                        names that";
            return Err(refused(ErrorKind::Unsupported, what).hint(hint));
        }
        let target = Self { mount, path: path.into(), on, geometry };
        target.refuse_handles()?;
        // On a directory, this call changes nothing.
        if let Err(error) = start_commit(&target.on) {
            return Err(target.refused(HostError::new("XFS_IOC_START_COMMIT", error)));
        }
        if !handle::lock(&target.on)? {
            return Err(refused(ErrorKind::System, "is being moved by another process"));
        }
        Ok(target)
    }

    /// Refuses a volume on which files cannot be opened so that their times stay, as for root in a
    /// container.
    fn refuse_handles(&self) -> Result<(), Error> {
        // No directory can be opened for writing, but the kernel checks the rights first.
        match open_keeping_times(&self.on, &self.on) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let failure = Error::io("files cannot be opened so that their times stay", &error);
                Err(failure.about(self.path.display()).hint("needs CAP_SYS_ADMIN"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the kernel exchanges ranges here, with files of its own.
    pub(crate) fn probe(&self) -> Result<(), Error> {
        XfsDonor::probe(&self.on, self.block_size()).map_err(|error| self.refused(error))
    }

    /// The error if the kernel does not exchange ranges.
    fn refused(&self, error: HostError) -> Error {
        let failure = match Errno::from_io_error(&error.source) {
            Some(Errno::NOTTY) => {
                let what = format!(
                    "the kernel ({}) does not exchange ranges of files that others may write \
                     to (XFS_IOC_COMMIT_RANGE)",
                    kernel_release()
                );
                Error::new(ErrorKind::Unsupported, what).hint("Linux 6.12 and later do")
            }
            Some(Errno::OPNOTSUPP | Errno::INVAL) => {
                Error::new(ErrorKind::Unsupported, error.to_string())
            }
            _ => Error::from(error),
        };
        failure.about(self.path.display())
    }

    /// Bytes in a block.
    pub(crate) fn block_size(&self) -> u64 {
        u64::from(self.geometry.block_size)
    }

    /// Number of blocks available to users.
    pub(crate) fn available(&self) -> Result<u64, Error> {
        let stat = rustix::fs::fstatvfs(&self.on)
            .map_err(|error| Error::io(self.path.display(), &error.into()))?;
        Ok(stat.f_bavail * stat.f_frsize / self.block_size())
    }

    /// Writes back the file system's dirty data (syncfs(2)).
    pub(crate) fn settle(&self) -> Result<(), Error> {
        rustix::fs::syncfs(&self.on).map_err(|error| Error::io(self.path.display(), &error.into()))
    }

    /// The present tree.
    pub(crate) fn look(&self) -> Result<MountedTree, Error> {
        let running = running::programs_of(self.mount.device);
        MountedTree::new(&self.on, self.geometry, running).map_err(|error| self.failed(&error))
    }

    /// Creates a donor in a directory, or in the root directory if that one is gone.
    pub(crate) fn donor(&self, tree: &MountedTree, dir: &Path) -> Result<XfsDonor, Error> {
        let dir = tree.open_path(dir, OFlags::RDONLY | OFlags::DIRECTORY);
        let dir = dir.as_ref().unwrap_or(&self.on);
        XfsDonor::new(dir, self.block_size())
            .map_err(|error| Error::from(error).about(self.path.display()))
    }

    /// Adds the volume's name to a system error.
    pub(crate) fn failed(&self, error: &io::Error) -> Error {
        Error::io(self.path.display(), error)
    }

    /// Adds the volume's name to an error of a replay.
    pub(crate) fn about(&self, failure: impl Into<Error>) -> Error {
        failure.into().about(self.path.display())
    }
}
