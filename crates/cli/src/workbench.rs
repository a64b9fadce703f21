//! A file system of the kernel on a modelled disk, for the duration of a script.
//!
//! All mounts are in a namespace of its own, and the loop device is released with its last user, so
//! that nothing is left behind, however the process ends.

mod file_system;
mod programs;

pub(crate) use file_system::{FileSystem, make};

use crate::failure::{Failure, Kind};
use crate::interrupt::interrupted;
use crate::source::temp_dir;
use programs::{command, end, exit_code, run_program};
use rustix::mount::MountFlags;
use seekless_host::HostError;
use seekless_host::caches::{self, Caches};
use seekless_host::loop_device::{LoopDevice, LoopOptions};
use seekless_host::program;
use seekless_host::scratch::{self, Mounted};
use seekless_serve::disk;
use seekless_units::{ByteLen, Nanos};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Prefix of temporary directories; the process's number follows.
const PREFIX: &str = "seekless-disk-";

/// Maximum time for a disk to appear.
const START: Duration = Duration::from_secs(60);

/// Interval between checks of a process.
const POLL: Duration = Duration::from_millis(10);

/// A temporary directory, removed on drop with its mount points and the image.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        for name in ["disk", "mnt"] {
            let _ = std::fs::remove_dir(self.0.join(name));
        }
        let _ = std::fs::remove_file(self.0.join("image"));
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The process that serves the disk. The file system on the disk must not be mounted in its
/// namespace: while the server exits, the kernel could not unmount it without the disk.
struct Server {
    child: Child,
    dir: PathBuf,
}

impl Server {
    /// Starts the server, and waits for the disk to appear.
    fn new(disk: &ModelledDisk<'_>, scratch: &Path, title: &str) -> Result<Self, Failure> {
        let dir = scratch.join("disk");
        let root = format!("/proc/{}/root", std::process::id());
        let settle =
            Path::new(&root).join(scratch.join("mnt").strip_prefix("/").unwrap_or(scratch));
        let program = std::env::current_exe().map_err(|error| Failure::io("seekless", &error))?;
        let mut command = Command::new(program);
        command.arg("disk").arg(scratch.join("image")).arg(&dir);
        command.args(["--model", disk.model, "--title", title, "--settle"]).arg(settle);
        if disk.realtime {
            command.arg("--realtime");
        }
        if let Some(log) = disk.io_log {
            command.arg("--io-log").arg(log);
        }
        command.stdin(Stdio::null()).stdout(io::stderr());
        program::tie(&mut command);
        // A process group of its own: Ctrl-C must not end the disk before the file system is
        // unmounted.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().map_err(|error| Failure::io("seekless", &error))?;
        let mut server = Self { child, dir };
        server.wait()?;
        scratch::mounts_of(server.child.id())?;
        Ok(server)
    }

    fn wait(&mut self) -> Result<(), Failure> {
        let inside = Path::new("/proc").join(self.child.id().to_string()).join("root");
        let disk = inside.join(self.dir.strip_prefix("/").unwrap_or(&self.dir)).join("disk");
        let since = Instant::now();
        while !disk.exists() {
            let ended = self.child.try_wait().map_err(|error| Failure::io("disk", &error))?;
            if ended.is_some() || since.elapsed() > START {
                return Err(Failure::new(Kind::System, "the disk could not be served"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn control(&self, line: &str) -> Result<(), Failure> {
        std::fs::write(self.dir.join("control"), line).map_err(|error| Failure::io(line, &error))
    }

    /// The disk's report, as text or JSON.
    fn report(&self, name: &str) -> Result<String, Failure> {
        let path = self.dir.join(name);
        std::fs::read_to_string(&path).map_err(|error| Failure::io(path.display(), &error))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        use rustix::mount::{UnmountFlags, unmount};
        let _ = unmount(&self.dir, UnmountFlags::DETACH);
        // The server completes its log, and exits.
        let _ = end(&mut self.child, signal_hook::consts::SIGTERM);
    }
}

/// Parameters of the disk.
pub(crate) struct ModelledDisk<'a> {
    pub(crate) model: &'a str,
    pub(crate) realtime: bool,
    pub(crate) io_log: Option<&'a Path>,
}

/// A disk that is ready for a file system.
pub(crate) struct Workbench {
    fs: FileSystem,
    device: LoopDevice,
    server: Server,
    scratch: Scratch,
}

impl Workbench {
    /// A new disk of zeros.
    pub(crate) fn new(
        fs: FileSystem,
        size: ByteLen,
        disk: &ModelledDisk<'_>,
    ) -> Result<Self, Failure> {
        let scratch = Scratch(make_dir()?);
        let image = scratch.0.join("image");
        drop(disk::open_image(&image, Some(size))?);
        let title = format!("{} of {}", fs.name(), seekless_units::format_size(size));
        Self::with(fs, disk, scratch, &title)
    }

    /// A disk with the contents of an image, which has a file system of kind `fs`.
    pub(crate) fn of(
        fs: FileSystem,
        image: &Path,
        disk: &ModelledDisk<'_>,
    ) -> Result<Self, Failure> {
        let scratch = Scratch(make_dir()?);
        let failed = |error| Failure::io(image.display(), &error);
        let whole = image.canonicalize().map_err(failed)?;
        std::os::unix::fs::symlink(whole, scratch.0.join("image")).map_err(failed)?;
        Self::with(fs, disk, scratch, &image.display().to_string())
    }

    /// A disk from the file `image` of the scratch directory, which is unlinked.
    fn with(
        fs: FileSystem,
        disk: &ModelledDisk<'_>,
        scratch: Scratch,
        title: &str,
    ) -> Result<Self, Failure> {
        let image = scratch.0.join("image");
        for name in ["disk", "mnt"] {
            let dir = scratch.0.join(name);
            std::fs::create_dir(&dir).map_err(|error| Failure::io(dir.display(), &error))?;
        }
        let server = Server::new(disk, &scratch.0, title)?;
        // Unlinked now, so that a new image is freed even if this process is killed. For
        // [`Workbench::of`] it is only a symlink.
        std::fs::remove_file(&image).map_err(|error| Failure::io(image.display(), &error))?;
        let options = LoopOptions { direct: true, ..LoopOptions::default() };
        let device = LoopDevice::new(&server.dir.join("disk"), options)?;
        Ok(Self { fs, device, server, scratch })
    }

    /// Mounts the file system read-only, with a device that reads ahead `read_ahead_kib` KiB, and
    /// calls `work` with the directory, the device and the control of the disk. Returns its result,
    /// and the disk's report as JSON.
    pub(crate) fn visit<T>(
        self,
        read_ahead_kib: u64,
        work: impl FnOnce(&Path, &Path, &Control<'_>) -> Result<T, Failure>,
    ) -> Result<(T, String), Failure> {
        // Dropped in reverse order.
        let Self { scratch, server, device, fs } = self;
        let (dir, flags) = (scratch.0.join("mnt"), MountFlags::RDONLY | MountFlags::NOATIME);
        let mounted = Mounted::new(device.path(), &dir, fs.name(), flags, "")?;
        device.set_queue("read_ahead_kb", read_ahead_kib)?;
        let done = work(mounted.dir(), device.path(), &Control(&server));
        let unmounted = mounted.unmount();
        let done = done?;
        unmounted?;
        let report = server.report("stats.json")?;
        drop(device);
        drop(server);
        drop(scratch);
        Ok((done, report))
    }

    /// Makes the file system, runs the script, and unmounts and removes everything. Returns the
    /// disk's file `report`.
    pub(crate) fn run(
        self,
        mkfs_args: &[OsString],
        options: &str,
        script: &[OsString],
        report: &str,
        signals: &mut Signals,
    ) -> Result<(String, ExitCode), Failure> {
        // Dropped in reverse order.
        let Self { scratch, server, device, fs } = self;
        // Excludes the kernel's probes of the new device from the statistics.
        server.control("begin make")?;
        make(fs, mkfs_args, device.path(), signals)?;
        server.control("phase mount")?;
        let dir = scratch.0.join("mnt");
        let options: Vec<&str> =
            [fs.mount_options(), options].into_iter().filter(|text| !text.is_empty()).collect();
        let mounted =
            Mounted::new(device.path(), &dir, fs.name(), MountFlags::empty(), &options.join(","))?;
        server.control("phase run")?;
        let mut command = command(script, mounted.dir());
        command.env("SEEKLESS_MOUNT", mounted.dir()).env("SEEKLESS_DISK", &server.dir);
        command.current_dir(mounted.dir());
        let ended = run_program(&mut command, signals);
        server.control("phase unmount")?;
        let unmounted = mounted.unmount();
        let (status, signal) = ended?;
        unmounted?;
        let report = server.report(report)?;
        drop(device);
        drop(server);
        drop(scratch);
        match signal {
            Some(signal) => Err(interrupted(signal)),
            None => Ok((report, exit_code(status))),
        }
    }
}

/// Controls the disk's statistics during work on the mounted file system.
pub(crate) struct Control<'a>(&'a Server);

impl Control<'_> {
    /// Begins a phase, with cold caches.
    pub(crate) fn phase(&self, name: &str) -> Result<(), Failure> {
        self.0.control(&format!("phase {name}"))
    }

    /// Lets time pass without requests to the disk.
    pub(crate) fn wait(&self, time: Nanos) -> Result<(), Failure> {
        self.0.control(&format!("wait {}ns", time.get()))
    }
}

/// Writes back dirty data if a file system is mounted on `dir`, and drops the caches.
pub(crate) fn settle(dir: &Path) -> io::Result<()> {
    let device = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev());
    let failed = |error: HostError| io::Error::other(error.to_string());
    if device(dir)? != device(&dir.join(".."))? {
        caches::write_back(dir).map_err(failed)?;
    }
    caches::drop_clean(Caches::All).map_err(failed)
}

/// Temporary directories of killed runs: their names are `prefix` and the number of a process that
/// is gone.
pub(crate) fn left_behind(prefix: &str) -> Vec<PathBuf> {
    let is_left = |name: &std::ffi::OsStr| {
        let owner = name.to_str().and_then(|name| name.strip_prefix(prefix)?.split('-').next());
        owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
    };
    let entries = std::fs::read_dir(temp_dir()).into_iter().flatten().flatten();
    entries.filter(|entry| is_left(&entry.file_name())).map(|entry| entry.path()).collect()
}

fn make_dir() -> Result<PathBuf, Failure> {
    // They are empty: their mounts disappeared with the processes.
    left_behind(PREFIX).into_iter().map(Scratch).for_each(drop);
    let mut number = 0;
    loop {
        let dir = temp_dir().join(format!("{PREFIX}{}-{number}", std::process::id()));
        match std::fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(Failure::io(dir.display(), &error)),
        }
    }
}
