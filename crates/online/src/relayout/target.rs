//! The mounted volume: conditions for moving files, and access to it while the kernel uses it.

use rustix::io::Errno;
use seekless_device::{BlockDevice, FileDevice};
use seekless_ext::ExtImage;
use seekless_fs::format::OpenOptions;
use seekless_fs::term::{Term, Text};
use seekless_fs::{FsError, Inspect};
use seekless_host::donor::Donor;
use seekless_host::handle::{self, Access};
use seekless_host::mounts::{self, Mount};
use seekless_host::residency;
use seekless_images::{Error, ErrorKind};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of tries of a read: under the running kernel, reads are not all of one moment, so an
/// error is accepted only after this many.
pub(crate) const TRIES: u32 = 5;

/// The root directory of ext4.
const ROOT: u32 = 2;

/// Matches any generation in a file handle (`ext4_nfs_get_inode`, `fs/ext4/super.c`).
const ANY_GENERATION: u32 = 0;

/// A mounted ext4 volume whose files can be moved.
pub struct Target {
    /// The mount on which its files are moved.
    pub mount: Mount,
    /// Its directory, on which files are opened by inode number.
    pub on: File,
    /// The path given by the user.
    path: PathBuf,
    node: PathBuf,
    device: File,
}

impl Target {
    /// The volume that contains `path`.
    ///
    /// # Errors
    /// If it is no ext4, is mounted read-only, is being moved by another process, or this process
    /// lacks root's rights.
    pub fn new(path: &Path) -> Result<Self, Error> {
        let target = Self::open(path)?;
        if !handle::lock(&target.on)? {
            let what = "is being moved by another process";
            return Err(Error::new(ErrorKind::System, what).about(path.display()));
        }
        Ok(target)
    }

    /// As [`Self::new`], without locking it.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let mount = mounts::holding(path)?;
        let shown = || path.display();
        if mount.fs_type != "ext4" {
            let kind = &mount.fs_type;
            let what = format!("is on {kind}; only files of a mounted ext4 can be moved");
            let failure = Error::new(ErrorKind::Unsupported, what).about(shown());
            return Err(match kind.as_str() {
                "ext3" => failure.hint(Text::from("unmounted, it can be: ").then(Term::InPlace)),
                _ => failure,
            });
        }
        if !rustix::process::geteuid().is_root() {
            let what = "files are opened by number and the device is read: run it with sudo";
            return Err(Error::new(ErrorKind::System, what).about(shown()).hint("needs root"));
        }
        let io = |error: std::io::Error| Error::io(shown(), &error);
        // Not `path`: this process's own files must not inherit the settings of that directory.
        let on = File::open(&mount.dir).map_err(|error| Error::io(mount.dir.display(), &error))?;
        let stat = rustix::fs::fstatvfs(&on).map_err(|error| io(error.into()))?;
        if stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
            let what = "is mounted read-only";
            return Err(Error::new(ErrorKind::Unsupported, what).about(shown()));
        }
        let node = mounts::block_device(&mount)?;
        let device = File::open(&node).map_err(|error| Error::io(node.display(), &error))?;
        let target = Self { on, path: path.into(), node, device, mount };
        target.refuse_handles()?;
        target.refuse_errors()?;
        target.refuse_features()?;
        Ok(target)
    }

    /// Refuses a volume on which files cannot be opened by inode number, as for root in a
    /// container.
    fn refuse_handles(&self) -> Result<(), Error> {
        let root = handle::open(&self.on, ROOT, ANY_GENERATION, Access::Read);
        root.map(drop).map_err(|error| {
            let failure = Error::io("files cannot be opened by number", &error);
            failure.about(self.path.display()).hint("needs CAP_DAC_READ_SEARCH")
        })
    }

    /// Refuses a volume in which the kernel has found errors: moves would rely on damaged
    /// structures.
    fn refuse_errors(&self) -> Result<(), Error> {
        let link = std::fs::read_link(self.mount.device.in_sysfs()).ok();
        let Some(name) = link.as_deref().and_then(Path::file_name) else { return Ok(()) };
        // Linux 4.4 and later.
        let path = Path::new("/sys/fs/ext4").join(name).join("errors_count");
        let Ok(count) = std::fs::read_to_string(path) else { return Ok(()) };
        match count.trim() {
            "0" => Ok(()),
            count => {
                let what = format!("the kernel has found errors in it ({count})");
                let failure = Error::new(ErrorKind::Corrupt, what).about(self.path.display());
                Err(failure.hint("unmount it and run e2fsck first"))
            }
        }
    }

    fn refuse_features(&self) -> Result<(), Error> {
        let image = self.look().map_err(|error| self.about(error))?;
        let features = &image.geometry().features;
        let has = |name: &str| features.iter().any(|feature| feature == name);
        let what = if has("bigalloc") {
            "volumes with bigalloc cannot be rearranged while they are mounted"
        } else if !(has("extent") || has("extents")) {
            "its files are not mapped by extents, and the kernel moves no others"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Unsupported, what).about(self.path.display()))
    }

    /// Checks that the kernel moves blocks here, with files of its own.
    ///
    /// # Errors
    /// If it does not: another kernel, data in the journal, DAX.
    pub fn probe(&self, block_size: u64) -> Result<(), Error> {
        Donor::probe(&self.mount.dir, block_size).map_err(|error| {
            match Errno::from_io_error(&error.source) {
                Some(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL) => {
                    let what = error.to_string();
                    Error::new(ErrorKind::Unsupported, what).about(self.path.display())
                }
                _ => Error::from(error).about(self.path.display()),
            }
        })
    }

    /// Creates a donor on it.
    pub(crate) fn donor(&self, block_size: u64) -> Result<Donor, Error> {
        Ok(Donor::new(&self.mount.dir, block_size)?)
    }

    /// Bytes in a block.
    ///
    /// # Errors
    /// As [`Target::look`].
    pub fn block_size(&self) -> Result<u64, Error> {
        let image = self.look().map_err(|error| self.about(error))?;
        Ok(u64::from(image.geometry().block_size))
    }

    /// The fraction of the space of ordinary users that is in use, from 0 to 1: the `Use%` of df.
    ///
    /// # Errors
    /// `ErrorKind::System` if the mount is gone.
    pub fn fullness(&self) -> Result<f64, Error> {
        let stat = rustix::fs::fstatvfs(&self.on)
            .map_err(|error| Error::io(self.path.display(), &error.into()))?;
        let used = stat.f_blocks.saturating_sub(stat.f_bfree);
        Ok(used as f64 / (used + stat.f_bavail).max(1) as f64)
    }

    /// Number of blocks available to users other than root.
    pub(crate) fn available(&self) -> Result<u64, Error> {
        let stat = rustix::fs::fstatvfs(&self.on)
            .map_err(|error| Error::io(self.path.display(), &error.into()))?;
        Ok(stat.f_bavail)
    }

    /// Writes back the file system's dirty data (syncfs(2)).
    pub(crate) fn settle(&self) -> Result<(), Error> {
        rustix::fs::syncfs(&self.on).map_err(|error| Error::io(self.path.display(), &error.into()))
    }

    /// Opens the volume for reading in its present state. Its metadata are read from the device's
    /// page cache, where the kernel changes them; the journal, which is older, is ignored.
    /// Checksums may be a moment behind.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a damaged volume, [`FsError::Io`].
    pub fn look(&self) -> Result<Arc<ExtImage>, FsError> {
        let io = |source| FsError::Io { source, context: self.node.display().to_string() };
        rustix::fs::syncfs(&self.on).map_err(|error| io(error.into()))?;
        // That cache does not reflect contents of files: a block read before may belong to another
        // file now.
        residency::evict(&self.device, 0, 0).map_err(io)?;
        let file = self.device.try_clone().map_err(io)?;
        let device: Arc<dyn BlockDevice> =
            Arc::new(FileDevice::from_file(file, false).map_err(io)?);
        let options = OpenOptions { ignore_checksums: true, skip_journal: true };
        let mut last = None;
        for _ in 0..TRIES {
            match ExtImage::open(device.clone(), options) {
                Ok(image) => return Ok(Arc::new(image)),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| FsError::Invalid("not opened".into())))
    }

    /// Adds the volume's name to an error.
    pub fn about(&self, error: FsError) -> Error {
        Error::from(error).about(self.path.display())
    }
}
