//! A file system of the kernel's on a modelled disk, for the time of a script.
//!
//! Everything is mounted in a namespace of its own and the loop device goes with
//! its last user, so that nothing is left however this ends.

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

/// Directories of ours are called this and the process's number.
const PREFIX: &str = "seekless-disk-";

/// How long a disk may take to be there.
const START: Duration = Duration::from_secs(60);

/// How often it is looked whether the script has ended.
const POLL: Duration = Duration::from_millis(10);

/// A directory that is removed with all that is in it.
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

/// The process that serves the disk. It has mounts of its own, in which the file
/// system on the disk is not mounted: the kernel could not take that down while it
/// ends, for want of the disk.
struct Server {
    child: Child,
    dir: PathBuf,
}

impl Server {
    /// Starts it and waits until the disk is there.
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
        // Ctrl-C is for us: the disk is needed until the file system is unmounted.
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

    /// The figures, as text or JSON.
    fn report(&self, name: &str) -> Result<String, Failure> {
        let path = self.dir.join(name);
        std::fs::read_to_string(&path).map_err(|error| Failure::io(path.display(), &error))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        use rustix::mount::{UnmountFlags, unmount};
        let _ = unmount(&self.dir, UnmountFlags::DETACH);
        // It completes its log, and leaves.
        let _ = end(&mut self.child, signal_hook::consts::SIGTERM);
    }
}

/// What the disk is to be.
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
    /// A new disk, all zeros.
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

    /// A disk that is an image with a file system of that kind.
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

    /// A disk that is the file `image` of a directory; it loses this name.
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
        // Nothing of it is left however this ends: the file has no name any more.
        std::fs::remove_file(&image).map_err(|error| Failure::io(image.display(), &error))?;
        let options = LoopOptions { direct: true, ..LoopOptions::default() };
        let device = LoopDevice::new(&server.dir.join("disk"), options)?;
        Ok(Self { fs, device, server, scratch })
    }

    /// Mounts the file system that is there read-only, the device reading ahead so
    /// many KiB, and works with it: `work` gets the directory and the device. Besides
    /// what that gives, what the disk says as JSON.
    pub(crate) fn visit<T>(
        self,
        read_ahead_kib: u64,
        work: impl FnOnce(&Path, &Path, &Control<'_>) -> Result<T, Failure>,
    ) -> Result<(T, String), Failure> {
        // Dropped from the last to the first.
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

    /// Makes the file system, runs the script and takes all down again. The report
    /// is what the disk says in the file of that name.
    pub(crate) fn run(
        self,
        mkfs_args: &[OsString],
        options: &str,
        script: &[OsString],
        report: &str,
        signals: &mut Signals,
    ) -> Result<(String, ExitCode), Failure> {
        // Dropped from the last to the first.
        let Self { scratch, server, device, fs } = self;
        // What the kernel looks for on a new device is of no interest.
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

/// Whoever works with a mounted file system tells the disk what to count.
pub(crate) struct Control<'a>(&'a Server);

impl Control<'_> {
    /// Begins a phase, with cold caches.
    pub(crate) fn phase(&self, name: &str) -> Result<(), Failure> {
        self.0.control(&format!("phase {name}"))
    }

    /// Lets time pass in which nothing is asked of the disk.
    pub(crate) fn wait(&self, time: Nanos) -> Result<(), Failure> {
        self.0.control(&format!("wait {}ns", time.get()))
    }
}

/// Writes back what is dirty, if a file system is mounted there, and drops the
/// caches.
pub(crate) fn settle(dir: &Path) -> io::Result<()> {
    let device = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev());
    let failed = |error: HostError| io::Error::other(error.to_string());
    if device(dir)? != device(&dir.join(".."))? {
        caches::write_back(dir).map_err(failed)?;
    }
    caches::drop_clean(Caches::All).map_err(failed)
}

/// What killed runs have left among temporary files: their directories are called
/// `prefix` and the number of the process.
pub(crate) fn left_behind(prefix: &str) -> Vec<PathBuf> {
    let is_left = |name: &std::ffi::OsStr| {
        let owner = name.to_str().and_then(|name| name.strip_prefix(prefix)?.split('-').next());
        owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
    };
    let entries = std::fs::read_dir(temp_dir()).into_iter().flatten().flatten();
    entries.filter(|entry| is_left(&entry.file_name())).map(|entry| entry.path()).collect()
}

fn make_dir() -> Result<PathBuf, Failure> {
    // Empty ones: what was mounted there went with them.
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
