//! A file system of the kernel's on a modelled disk, for the time of a script.
//!
//! Everything is mounted in a namespace of its own and the loop device goes with
//! its last user, so that nothing is left however this ends.

use crate::disk;
use crate::failure::{Failure, Kind};
use crate::source::temp_dir;
use rustix::mount::MountFlags;
use seekless_host::HostError;
use seekless_host::caches::{self, Caches};
use seekless_host::loop_device::{LoopDevice, LoopOptions};
use seekless_host::program;
use seekless_host::scratch::{self, Mounted};
use seekless_units::ByteLen;
use signal_hook::iterator::Signals;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Directories of ours are called this and the process's number.
const PREFIX: &str = "seekless-disk-";

/// How long a disk may take to be there.
const START: Duration = Duration::from_secs(60);

/// How often it is looked whether the script has ended.
const POLL: Duration = Duration::from_millis(10);

/// How long a script may take to end after a signal.
const GRACE: Duration = Duration::from_secs(1);

/// A file system of the kernel's.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileSystem {
    /// ext4
    Ext4,
    /// XFS
    Xfs,
    /// Btrfs
    Btrfs,
}

impl FileSystem {
    fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The program that makes one, and the package it comes in.
    fn maker(self) -> (&'static str, &'static str) {
        match self {
            Self::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            Self::Xfs => ("mkfs.xfs", "xfsprogs"),
            Self::Btrfs => ("mkfs.btrfs", "btrfs-progs"),
        }
    }

    /// No questions, no chatter.
    fn maker_args(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &["-q", "-F"],
            Self::Xfs | Self::Btrfs => &["-q", "-f"],
        }
    }

    /// ext4 would go on zeroing inode tables behind the script's back.
    fn mount_options(self) -> &'static str {
        match self {
            Self::Ext4 => "noinit_itable",
            Self::Xfs | Self::Btrfs => "",
        }
    }
}

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
    pub(crate) size: ByteLen,
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
    pub(crate) fn new(fs: FileSystem, disk: &ModelledDisk<'_>) -> Result<Self, Failure> {
        let scratch = Scratch(make_dir()?);
        let image = scratch.0.join("image");
        drop(disk::open_image(&image, Some(disk.size))?);
        for name in ["disk", "mnt"] {
            let dir = scratch.0.join(name);
            std::fs::create_dir(&dir).map_err(|error| Failure::io(dir.display(), &error))?;
        }
        let title = format!("{} of {}", fs.name(), seekless_units::format_size(disk.size));
        let server = Server::new(disk, &scratch.0, &title)?;
        // Nothing of it is left however this ends: the file has no name any more.
        std::fs::remove_file(&image).map_err(|error| Failure::io(image.display(), &error))?;
        let options = LoopOptions { read_only: false, direct: true };
        let device = LoopDevice::new(&server.dir.join("disk"), options)?;
        Ok(Self { fs, device, server, scratch })
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
            Some(signal) => Err(Failure::new(
                Kind::System,
                format!("interrupted by signal {signal}; everything was cleaned up"),
            )),
            None => Ok((report, exit_code(status))),
        }
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

/// Removes the directories that killed runs have left: empty ones, for what was
/// mounted there went with them.
fn clean(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            drop(Scratch(entry.path()));
        }
    }
}

fn make_dir() -> Result<PathBuf, Failure> {
    clean(&temp_dir());
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

fn make(
    fs: FileSystem,
    args: &[OsString],
    device: &Path,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let (program, package) = fs.maker();
    let mut command = Command::new(program);
    command.args(fs.maker_args()).args(args).arg(device).stdin(Stdio::null());
    // Standard output is for the report.
    command.stdout(io::stderr());
    let (status, signal) = run_program(&mut command, signals)
        .map_err(|failure| failure.about(format!("{program} (of the package {package})")))?;
    if let Some(signal) = signal {
        return Err(Failure::new(
            Kind::System,
            format!("interrupted by signal {signal}; everything was cleaned up"),
        ));
    }
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(Kind::System, format!("{program}: {status}")))
}

/// A command with its arguments; a single word that is no program is a line for
/// the shell.
fn command(script: &[OsString], dir: &Path) -> Command {
    match script {
        [line] if !is_program(line, dir) => {
            let mut command = Command::new("sh");
            command.arg("-ec").arg(line);
            command
        }
        [] => Command::new("true"),
        [program, args @ ..] => {
            // What is named by a path is meant from where we were called.
            let whole = Path::new(program).canonicalize().ok().filter(|path| path.is_file());
            let mut command = match whole {
                Some(path) if program.as_encoded_bytes().contains(&b'/') => Command::new(path),
                _ => Command::new(program),
            };
            command.args(args);
            command
        }
    }
}

fn is_program(word: &OsStr, dir: &Path) -> bool {
    if word.as_encoded_bytes().contains(&b'/') {
        return Path::new(word).is_file() || dir.join(word).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(word).is_file())
}

/// Runs a program to its end, or until a signal comes and it has been ended. What
/// it has started ends with it.
fn run_program(
    command: &mut Command,
    signals: &mut Signals,
) -> Result<(ExitStatus, Option<i32>), Failure> {
    program::contained(|| watch_program(command, signals))
}

fn watch_program(
    command: &mut Command,
    signals: &mut Signals,
) -> Result<(ExitStatus, Option<i32>), Failure> {
    program::tie(command);
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error| Failure::io(&name, &error);
    let mut child = command.spawn().map_err(failed)?;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok((status, signals.pending().next()));
        }
        if let Some(signal) = signals.pending().next() {
            return end(&mut child, signal).map(|status| (status, Some(signal))).map_err(failed);
        }
        std::thread::sleep(POLL);
    }
}

/// Hands a signal on, and kills what does not heed it: the first process of a
/// namespace does only if it has a handler.
fn end(child: &mut Child, signal: i32) -> io::Result<ExitStatus> {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, rustix::process::Signal::from_named_raw(signal)) {
        let _ = rustix::process::kill_process(pid, signal);
    }
    let since = Instant::now();
    while since.elapsed() < GRACE {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(POLL);
    }
    child.kill()?;
    child.wait()
}

/// The script's exit code, as a shell has it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
