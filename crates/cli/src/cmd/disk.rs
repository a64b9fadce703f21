//! `seekless disk`: serves a file as a disk with the timing of a modelled device.

use crate::args::Global;
use crate::device;
use crate::failure::{Failure, Kind};
use crate::modelled_disk::ModelledDisk;
use crate::say::say;
use crate::source::temp_dir;
use clap::{Args, Subcommand, ValueEnum};
use seekless_images::output::refuse_inputs;
use seekless_serve::disk::{self, Clock, Disk, DiskMount};
use seekless_serve::testbed::{self, FileSystem, Testbed};
use seekless_units::{ByteLen, parse_size};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;

/// Serve an image as a disk that counts requests and simulates the timing of a
/// device
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
DIR/disk is the disk; DIR/stats and DIR/stats.json hold its statistics so far.
Writing 'phase NAME' to DIR/control begins a phase with statistics of its own;
'reset' clears all statistics; 'iodepth N' makes virtual time wait for N requests
in flight. Runs until DIR is unmounted or a signal is received.

Examples:
  seekless disk disk.img /mnt/d --model gp3 --io-log io.jsonl &
  dev=$(losetup --find --show --direct-io=on /mnt/d/disk)
  mount $dev /mnt/fs; echo phase read > /mnt/d/control; cat /mnt/fs/file
  cat /mnt/d/stats
  seekless disk new.img /mnt/d --create --size 1G --model gp3 --realtime
  seekless disk run --fs ext4 --model gp3 -- 'cp -r /usr/include .; sync'")]
pub(crate) struct DiskArgs {
    /// Image file
    #[arg(required = true)]
    image: Option<PathBuf>,
    /// Directory to mount the served disk on
    #[arg(required = true)]
    dir: Option<PathBuf>,
    /// The device: a preset or a parameter file (.toml)
    #[arg(long, value_name = "PRESET", required = true)]
    model: Option<String>,
    /// Take as long as the real device would
    #[arg(long)]
    realtime: bool,
    /// Log every request to FILE, one JSON object per line
    #[arg(long, value_name = "FILE")]
    io_log: Option<PathBuf>,
    /// Create the image, which must not exist yet
    #[arg(long, requires = "size")]
    create: bool,
    /// Size of the image to create
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "create")]
    size: Option<ByteLen>,
    /// Serve in mounts of its own, and write back that directory before a phase
    #[arg(long, hide = true)]
    settle: Option<PathBuf>,
    /// DiskSubcommand the disk is called in reports
    #[arg(long, hide = true)]
    title: Option<String>,
    #[command(subcommand)]
    what: Option<DiskSubcommand>,
}

#[derive(Subcommand, Debug)]
enum DiskSubcommand {
    Run(DiskRunArgs),
}

/// Make a file system on a modelled disk, run a script in it, and report the disk's requests
#[derive(Args, Debug)]
#[command(after_help = "\
SCRIPT is a command with its arguments, or a line for sh. It runs in the new
file system; SEEKLESS_MOUNT is set to its mount point and SEEKLESS_DISK to the
directory of the disk. 'echo phase NAME > $SEEKLESS_DISK/control' writes back
dirty data, drops the caches and begins a phase. The phases 'make', 'mount',
'run' and 'unmount' are always present. Mounts and loop devices are removed at
the end, even after a failure. Needs root.

Examples:
  seekless disk run --fs ext4 --model gp3 -- 'tar xf /tmp/t.tar; sync'
  seekless disk run --fs xfs --model gp3 --json -- ./workload.sh
  seekless disk run --fs btrfs --model gp3 --size 4G -- sh -c '
    cp -r /usr/share/doc .; echo phase read > $SEEKLESS_DISK/control
    tar cf - . | wc -c'")]
struct DiskRunArgs {
    /// File system to make
    #[arg(long, value_enum)]
    fs: FileSystemArg,
    /// The device: a preset or a parameter file (.toml)
    #[arg(long, value_name = "PRESET")]
    model: String,
    /// Size of the disk
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G")]
    size: ByteLen,
    /// Take as long as the real device would
    #[arg(long)]
    realtime: bool,
    /// Log every request to FILE, one JSON object per line
    #[arg(long, value_name = "FILE")]
    io_log: Option<PathBuf>,
    /// Argument to pass to mkfs, before the device (repeatable)
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    mkfs_arg: Vec<OsString>,
    /// Mount options, as for mount -o
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    mount_options: String,
    /// Command or script to run
    #[arg(last = true, required = true, value_name = "SCRIPT")]
    script: Vec<OsString>,
}

/// See [`FileSystem`].
#[derive(ValueEnum, Clone, Copy, Debug)]
enum FileSystemArg {
    /// ext4
    Ext4,
    /// XFS
    Xfs,
    /// Btrfs
    Btrfs,
}

impl From<FileSystemArg> for FileSystem {
    fn from(fs: FileSystemArg) -> Self {
        match fs {
            FileSystemArg::Ext4 => Self::Ext4,
            FileSystemArg::Xfs => Self::Xfs,
            FileSystemArg::Btrfs => Self::Btrfs,
        }
    }
}

pub(crate) fn run(args: &DiskArgs, global: &Global) -> Result<ExitCode, Failure> {
    // Before anything is mounted: a signal during setup must find its handler.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let signals = signals.map_err(|error| Failure::io("signals", &error))?;
    if let Some(DiskSubcommand::Run(run)) = &args.what {
        return run_script(run, global, signals);
    }
    let (Some(image), Some(dir), Some(model)) = (&args.image, &args.dir, &args.model) else {
        return Err(Failure::usage("IMAGE, DIR and --model are required"));
    };
    if !dir.is_dir() {
        return Err(Failure::new(Kind::System, format!("{}: not a directory", dir.display())));
    }
    let built = device::spec(model)?.build();
    let file = disk::open_image(image, args.size.filter(|_| args.create))?;
    let title = args.title.clone().unwrap_or_else(|| image.display().to_string());
    let name = (title, model.clone());
    let log = open_log(args.io_log.as_deref(), [image, Path::new(model)])?;
    let before = args.settle.clone().map(|dir| {
        let before: disk::BeforePhase = Box::new(move |_| testbed::settle(&dir));
        before
    });
    if args.settle.is_some() {
        seekless_host::scratch::private_mounts()?;
    }
    let made = Disk::new(file, name, built, clock(args.realtime), log, before);
    let disk = Arc::new(made.map_err(|error| Failure::io(image.display(), &error))?);
    let served = disk::serve(DiskMount::new(disk.clone()), dir, image, signals);
    if let Some(log) = &args.io_log {
        disk.finish().map_err(|error| Failure::io(log.display(), &error))?;
    }
    served.map_err(|error| Failure::io(format!("disk on {}", dir.display()), &error))?;
    if !image.exists() && args.settle.is_none() {
        crate::say::warning!(
            "{} was removed while it was being served; the data written to it is lost",
            image.display()
        );
    }
    if global.json && args.settle.is_none() {
        say!("{}", disk.report().as_json());
    }
    Ok(ExitCode::SUCCESS)
}

fn clock(realtime: bool) -> Clock {
    if realtime { Clock::Real } else { Clock::Virtual }
}

fn open_log(
    path: Option<&Path>,
    inputs: [&Path; 2],
) -> Result<Option<Box<dyn Write + Send>>, Failure> {
    let Some(path) = path else { return Ok(None) };
    refuse_inputs(path, inputs)?;
    let file = File::create(path).map_err(|error| Failure::io(path.display(), &error))?;
    Ok(Some(Box::new(BufWriter::new(file))))
}

fn run_script(
    args: &DiskRunArgs,
    global: &Global,
    mut signals: Signals,
) -> Result<ExitCode, Failure> {
    // An invalid name of a model fails before anything is created.
    device::spec(&args.model)?;
    let io_log = args.io_log.as_deref().map(std::path::absolute).transpose();
    let io_log = io_log.map_err(|error| Failure::io("--io-log", &error))?;
    let disk =
        ModelledDisk { model: &args.model, realtime: args.realtime, io_log: io_log.as_deref() };
    let (fs, temp_dir) = (args.fs.into(), temp_dir());
    let testbed = Testbed::new(fs, args.size, &temp_dir, &|served| disk.command(served))?;
    let script = |dir: &Path| command(&args.script, dir);
    let report = if global.json { "stats.json" } else { "stats" };
    let (report, status) =
        testbed.run(&args.mkfs_arg, &args.mount_options, script, report, &mut signals)?;
    say!("{}", report.trim_end());
    Ok(exit_code(status))
}

/// A command with its arguments. A single word that names no program is a line for the shell.
fn command(script: &[OsString], dir: &Path) -> Command {
    match script {
        [line] if !is_program(line, dir) => {
            let mut command = Command::new("sh");
            command.arg("-ec").arg(line);
            command
        }
        [] => Command::new("true"),
        [program, args @ ..] => {
            // A path is relative to the directory in which seekless was started.
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

/// The script's exit code; 128 plus the signal's number if a signal killed it, as in a shell.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
