//! The mounted volume: what must hold before anything is moved, and how it is read
//! while the kernel uses it.

use rustix::io::Errno;
use seekless_device::{BlockDevice, FileDevice};
use seekless_ext::ExtImage;
use seekless_fs::format::OpenOptions;
use seekless_fs::{FsError, Inspect};
use seekless_host::donor::Donor;
use seekless_host::handle::{self, Access};
use seekless_host::mounts::{self, Mount};
use seekless_host::residency;
use seekless_images::{Error, ErrorKind};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Under the running kernel, what is read is not all of one moment: it is read again
/// so often before an error in it is believed.
pub(crate) const TRIES: u32 = 5;

/// The root directory of ext4.
const ROOT: u32 = 2;

/// Stands for any generation in a file handle (`ext4_nfs_get_inode`, `fs/ext4/super.c`).
const ANY_GENERATION: u32 = 0;

/// A mounted ext4 volume whose files can be moved.
pub struct Target {
    /// The mount that its files are moved on.
    pub mount: Mount,
    /// Its directory: what inode numbers are looked up on.
    pub on: File,
    /// As it was named.
    path: PathBuf,
    node: PathBuf,
    device: File,
}

impl Target {
    /// The volume that `path` lies on.
    ///
    /// # Errors
    /// When it is no ext4, is mounted read-only, is being moved by another process, or
    /// this process is not root's.
    pub fn new(path: &Path) -> Result<Self, Error> {
        let target = Self::open(path)?;
        if !handle::lock(&target.on)? {
            let what = "is being moved by another process";
            return Err(Error::new(ErrorKind::System, what).about(path.display()));
        }
        Ok(target)
    }

    /// The same, which others may move.
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
                "ext3" => failure.hint("unmounted, it can be: seekless optimize --in-place"),
                _ => failure,
            });
        }
        if !rustix::process::geteuid().is_root() {
            let what = "files are opened by number and the device is read: run it with sudo";
            return Err(Error::new(ErrorKind::System, what).about(shown()).hint("needs root"));
        }
        let io = |error: std::io::Error| Error::io(shown(), &error);
        // Not `path`: what files inherit from their directory is none of ours.
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

    /// Refuses where files cannot be opened by number, as root in a container may not.
    fn refuse_handles(&self) -> Result<(), Error> {
        let root = handle::open(&self.on, ROOT, ANY_GENERATION, Access::Read);
        root.map(drop).map_err(|error| {
            let failure = Error::io("files cannot be opened by number", &error);
            failure.about(self.path.display()).hint("needs CAP_DAC_READ_SEARCH")
        })
    }

    /// Refuses a volume in which the kernel has found errors: what a damaged structure
    /// misleads to would be built upon.
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

    /// Whether the kernel moves blocks here: tried with files of its own.
    ///
    /// # Errors
    /// That it does not: another kernel, data in the journal, DAX.
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

    /// A donor on it.
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

    /// The part of the space of ordinary users that is in use, from 0 to 1: the `Use%`
    /// of df.
    ///
    /// # Errors
    /// `ErrorKind::System` where the mount is gone.
    pub fn fullness(&self) -> Result<f64, Error> {
        let stat = rustix::fs::fstatvfs(&self.on)
            .map_err(|error| Error::io(self.path.display(), &error.into()))?;
        let used = stat.f_blocks.saturating_sub(stat.f_bfree);
        Ok(used as f64 / used.saturating_add(stat.f_bavail).max(1) as f64)
    }

    /// Blocks that users other than root could still get.
    pub(crate) fn available(&self) -> Result<u64, Error> {
        let stat = rustix::fs::fstatvfs(&self.on)
            .map_err(|error| Error::io(self.path.display(), &error.into()))?;
        Ok(stat.f_bavail)
    }

    /// Writes back what the file system has in memory.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        rustix::fs::syncfs(&self.on).map_err(|error| Error::io(self.path.display(), &error.into()))
    }

    /// Opens the volume for reading as the kernel has it now. Its metadata are in the
    /// cache of the device, where the kernel changes them: they are read from there, and
    /// the journal, which is older, is left alone. Checksums may be a moment behind.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a volume that is damaged, [`FsError::Io`].
    pub fn look(&self) -> Result<Arc<ExtImage>, FsError> {
        let io = |source| FsError::Io { source, context: self.node.display().to_string() };
        rustix::fs::syncfs(&self.on).map_err(|error| io(error.into()))?;
        // Contents of files are not changed there: what was read of a block before may
        // be another file's.
        residency::let_go(&self.device, 0, 0).map_err(io)?;
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

    /// An error of the volume, with its name.
    pub fn about(&self, error: FsError) -> Error {
        Error::from(error).about(self.path.display())
    }
}
