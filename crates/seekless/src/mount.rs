//! Mounting an image.

use crate::{Error, Image};
use seekless_images::ErrorKind;
use seekless_serve::{ImageMount, KernelCache, MountOptions, Recorder};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The read-ahead of a mount, in bytes: the kernel's own for a disk.
const READ_AHEAD: u32 = 128 << 10;

/// An image that is mounted to be read, through FUSE.
///
/// ```no_run
/// # fn main() -> Result<(), seekless::Error> {
/// use seekless::Mount;
///
/// let image = seekless::open("disk.img")?;
/// // Until it is unmounted: umount mnt, or fusermount3 -u mnt.
/// Mount::of(&image).record("job.trace").serve("mnt")?;
/// let trace = seekless::Trace::load("job.trace")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Mount<'a> {
    image: &'a Image,
    trace: Option<PathBuf>,
    threads: usize,
    allows_others: bool,
}

impl<'a> Mount<'a> {
    /// A mount of an image that is open.
    #[must_use]
    pub fn of(image: &'a Image) -> Self {
        Self { image, trace: None, threads: 4, allows_others: false }
    }

    /// Records reads in a trace.
    #[must_use]
    pub fn record(mut self, trace: impl AsRef<Path>) -> Self {
        self.trace = Some(trace.as_ref().to_path_buf());
        self
    }

    /// Threads that serve requests: 4 without it, 1 at least.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Lets other users read; they always may where root mounts.
    #[must_use]
    pub fn allow_other(mut self) -> Self {
        self.allows_others = true;
        self
    }

    /// Mounts the image on a directory and serves until it is unmounted, or until SIGINT,
    /// SIGTERM or SIGHUP comes, which unmount it. The trace is complete then.
    ///
    /// # Errors
    /// [`ErrorKind::System`] where the directory or `/dev/fuse` cannot be used, the trace cannot be
    /// written, or parts of the image could not be read while it was mounted.
    pub fn serve(&self, dir: impl AsRef<Path>) -> Result<(), Error> {
        let dir = dir.as_ref();
        if !dir.is_dir() {
            let error = Error::new(ErrorKind::System, "not a directory");
            return Err(error.about(dir.display()));
        }
        let path = self.image.path();
        let recorder = self.trace.as_ref().map(|trace| {
            let created = Recorder::create(trace, path, READ_AHEAD.into());
            created.map(Arc::new).map_err(|error| Error::io(trace.display(), &error))
        });
        let recorder = recorder.transpose()?;
        // A signal between the mount and its handler would leave the mount behind.
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(|error| Error::io("signals", &error))?;
        let options = MountOptions {
            name: path,
            threads: self.threads,
            everyone: self.allows_others || rustix::process::geteuid().is_root(),
            writable: false,
            flags: &[],
            cached: KernelCache::default(),
        };
        let mount = ImageMount::new(self.image.shared(), recorder.clone(), READ_AHEAD);
        let faults = mount.faults();
        let served = seekless_serve::serve(mount, dir, &options, signals, || Ok(()));
        if let (Some(recorder), Some(trace)) = (recorder, &self.trace) {
            recorder.finish().map_err(|error| Error::io(trace.display(), &error))?;
        }
        served.map_err(|error| Error::io(format!("mount on {}", dir.display()), &error))?;
        if faults.any() {
            let error = Error::new(ErrorKind::System, "parts of it could not be read");
            return Err(error.about(path.display()));
        }
        Ok(())
    }
}
