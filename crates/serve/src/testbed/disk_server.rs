//! The process that serves the modelled disk of a testbed.

use super::process::{POLL, end};
use super::scratch_dir::{DISK, IMAGE, MOUNT_POINT, ScratchDir};
use seekless_host::{program, scratch};
use seekless_images::{Error, ErrorKind};
use seekless_units::Nanos;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum time for a disk to appear.
const START: Duration = Duration::from_secs(60);

/// A disk that a process is to serve.
#[derive(Clone, Copy, Debug)]
pub struct ServedDisk<'a> {
    /// The file with the contents of the disk.
    pub image: &'a Path,
    /// The directory to mount the served disk on.
    pub dir: &'a Path,
    /// Name of the disk in reports.
    pub title: &'a str,
    /// Mount point to [`settle`](super::settle) before each phase, as a path that the process can
    /// resolve in mounts of its own.
    pub settle: &'a Path,
}

/// Makes the command of a process that serves a disk: it gets mounts of its own, mounts a
/// [`DiskMount`](crate::disk::DiskMount) and serves it until it is unmounted or a signal arrives.
pub type StartServer<'a> = &'a dyn Fn(&ServedDisk<'_>) -> Result<Command, Error>;

/// The process that serves the disk. The file system on the disk must not be mounted in its
/// namespace: while the server exits, the kernel could not unmount it without the disk.
pub(super) struct DiskServer {
    child: Child,
    dir: PathBuf,
}

impl DiskServer {
    /// Starts the server, waits for the disk to appear, and joins the server's mounts.
    pub(super) fn new(
        scratch: &ScratchDir,
        title: &str,
        start: StartServer<'_>,
    ) -> Result<Self, Error> {
        let (image, dir, mount_point) =
            (scratch.join(IMAGE), scratch.join(DISK), scratch.join(MOUNT_POINT));
        let root = format!("/proc/{}/root", std::process::id());
        let settle = Path::new(&root).join(mount_point.strip_prefix("/").unwrap_or(scratch.path()));
        let disk = ServedDisk { image: &image, dir: &dir, title, settle: &settle };
        let mut command = start(&disk)?;
        command.stdin(Stdio::null()).stdout(io::stderr());
        program::tie(&mut command);
        // A process group of its own: Ctrl-C must not end the disk before the file system is
        // unmounted.
        command.process_group(0);
        let child = command.spawn().map_err(|error| Error::io("seekless", &error))?;
        let mut server = Self { child, dir };
        server.wait()?;
        scratch::mounts_of(server.child.id())?;
        Ok(server)
    }

    /// Waits until the disk appears in the mounts of the server.
    fn wait(&mut self) -> Result<(), Error> {
        let inside = Path::new("/proc").join(self.child.id().to_string()).join("root");
        let disk = inside.join(self.dir.strip_prefix("/").unwrap_or(&self.dir)).join("disk");
        let since = Instant::now();
        while !disk.exists() {
            let ended = self.child.try_wait().map_err(|error| Error::io("disk", &error))?;
            if ended.is_some() || since.elapsed() > START {
                return Err(Error::new(ErrorKind::System, "the disk could not be served"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// The directory that the disk is mounted on.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file that is the disk.
    pub(super) fn disk(&self) -> PathBuf {
        self.dir.join("disk")
    }

    /// Writes a line to the disk's control file.
    pub(super) fn control(&self, line: &str) -> Result<(), Error> {
        std::fs::write(self.dir.join("control"), line).map_err(|error| Error::io(line, &error))
    }

    /// The disk's report, as text or JSON.
    pub(super) fn report(&self, name: &str) -> Result<String, Error> {
        let path = self.dir.join(name);
        std::fs::read_to_string(&path).map_err(|error| Error::io(path.display(), &error))
    }
}

impl Drop for DiskServer {
    fn drop(&mut self) {
        use rustix::mount::{UnmountFlags, unmount};
        let _ = unmount(&self.dir, UnmountFlags::DETACH);
        // The server completes its log, and exits.
        let _ = end(&mut self.child, signal_hook::consts::SIGTERM);
    }
}

/// Controls the disk's statistics during work on the mounted file system.
pub struct DiskControl<'a>(&'a DiskServer);

impl<'a> DiskControl<'a> {
    pub(super) fn new(server: &'a DiskServer) -> Self {
        Self(server)
    }

    /// Begins a phase with statistics of its own and cold caches.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if the disk is no longer served, or the caches cannot be dropped.
    pub fn phase(&self, name: &str) -> Result<(), Error> {
        self.0.control(&format!("phase {name}"))
    }

    /// Lets time pass on the disk's clock without requests to the disk.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if the disk is no longer served.
    pub fn wait(&self, time: Nanos) -> Result<(), Error> {
        self.0.control(&format!("wait {}ns", time.get()))
    }
}
