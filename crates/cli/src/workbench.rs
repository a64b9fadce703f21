//! A file system of the kernel's on a modelled disk, for the time of a script.
//!
//! Everything is mounted in a namespace of its own and the loop device goes with
//! its last user, so that nothing is left however this ends.

use crate::disk::{self, Clock, Disk, DiskMount, Report};
use crate::failure::{Failure, Kind};
use crate::source::temp_dir;
use fuser::BackgroundSession;
use rustix::mount::MountFlags;
use seekless_host::HostError;
use seekless_host::caches::{self, Caches};
use seekless_host::loop_device::{LoopDevice, LoopOptions};
use seekless_host::mounts;
use seekless_host::program;
use seekless_host::scratch::{self, Mounted};
use seekless_model::DeviceModel;
use seekless_units::ByteLen;
use signal_hook::iterator::Signals;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Directories of ours are called this and the process's number.
const PREFIX: &str = "seekless-disk-";

/// How often it is looked whether the script has ended.
const POLL: Duration = Duration::from_millis(10);

/// How long a script may take to end after a signal.
const GRACE: Duration = Duration::from_secs(1);

/// A file system of the kernel's.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileSystem {
    /// fs/ext4
    Ext4,
    /// fs/xfs
    Xfs,
    /// fs/btrfs
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

/// A disk that is ready for a file system. Fields are dropped in this order.
pub(crate) struct Workbench {
    fs: FileSystem,
    device: LoopDevice,
    session: BackgroundSession,
    disk: Arc<Disk>,
    scratch: Scratch,
}

impl Workbench {
    pub(crate) fn new(
        fs: FileSystem,
        size: ByteLen,
        (name, model): (String, Box<dyn DeviceModel>),
        clock: Clock,
        log: Option<Box<dyn Write + Send>>,
    ) -> Result<Self, Failure> {
        scratch::private_mounts()?;
        let scratch = Scratch(make_dir()?);
        let (image, dir) = (scratch.0.join("image"), scratch.0.join("disk"));
        let file = disk::open_image(&image, Some(size))?;
        // Nothing of it is left however this ends: the file has no name any more.
        std::fs::remove_file(&image).map_err(|error| Failure::io(image.display(), &error))?;
        for name in ["disk", "mnt"] {
            let dir = scratch.0.join(name);
            std::fs::create_dir(&dir).map_err(|error| Failure::io(dir.display(), &error))?;
        }
        let mounted = scratch.0.join("mnt");
        let before = Box::new(move |_: &str| {
            let settled = settle(&mounted);
            settled.map_err(|error| io::Error::other(error.to_string()))
        });
        let failed = |error| Failure::io("disk", &error);
        let title = format!("{} of {}", fs.name(), seekless_units::format_size(size));
        let disk =
            Disk::new(file, (title, name), model, clock, log, Some(before)).map_err(failed)?;
        let disk = Arc::new(disk);
        let session = disk::spawn(DiskMount::new(disk.clone()), &dir, Path::new("seekless"))
            .map_err(failed)?;
        let options = LoopOptions { read_only: false, direct: true };
        let device = LoopDevice::new(&dir.join("disk"), options)?;
        Ok(Self { fs, device, session, disk, scratch })
    }

    /// Makes the file system, runs the script and takes all down again.
    pub(crate) fn run(
        self,
        mkfs_args: &[OsString],
        options: &str,
        script: &[OsString],
        signals: &mut Signals,
    ) -> Result<(Report, ExitCode), Failure> {
        // Dropped from the last to the first.
        let Self { scratch, disk, session, device, fs } = self;
        let phase = |name: &str| disk.phase(name).map_err(|error| Failure::io(name, &error));
        // What the kernel looks for on a new device is of no interest.
        disk.first_phase("make").map_err(|error| Failure::io("make", &error))?;
        make(fs, mkfs_args, device.path(), signals)?;
        phase("mount")?;
        let dir = scratch.0.join("mnt");
        let options: Vec<&str> =
            [fs.mount_options(), options].into_iter().filter(|text| !text.is_empty()).collect();
        let mounted =
            Mounted::new(device.path(), &dir, fs.name(), MountFlags::empty(), &options.join(","))?;
        phase("run")?;
        let mut command = command(script, mounted.dir());
        command.env("SEEKLESS_MOUNT", mounted.dir()).env("SEEKLESS_DISK", scratch.0.join("disk"));
        command.current_dir(mounted.dir());
        let ended = run_program(&mut command, signals);
        phase("unmount")?;
        let unmounted = mounted.unmount();
        let (status, signal) = ended?;
        unmounted?;
        let report = disk.report();
        drop(device);
        disk.finish().map_err(|error| Failure::io("--io-log", &error))?;
        drop(session);
        drop(scratch);
        match signal {
            Some(signal) => Err(Failure::new(
                Kind::System,
                format!("interrupted by signal {signal}; all is taken down"),
            )),
            None => Ok((report, exit_code(status))),
        }
    }
}

/// Writes back what is dirty, if the file system is mounted there, and drops the
/// caches.
fn settle(dir: &Path) -> Result<(), HostError> {
    if mounts::holding(dir)?.dir == dir {
        caches::write_back(dir)?;
    }
    caches::drop_clean(Caches::All)
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
            format!("interrupted by signal {signal}; all is taken down"),
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
