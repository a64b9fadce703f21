//! `seekless mount`: mounts an image as a directory.

mod help;
mod recovery;
mod settings;

use crate::args::{Global, OpenArgs, PlaceArgs};
use crate::failure::{Failure, Kind};
use crate::say::say;
use crate::source::temp_dir;
use crate::{background, statistics};
use clap::Args;
use recovery::Running;
use seekless_device::RealClock;
use seekless_fs::FsError;
use seekless_serve::{
    self as serve, Filesystem, ImageMount, KernelCache, LiveMount, LiveMountOptions, MountOptions,
    Recorder, Volume,
};
use seekless_units::{ByteLen, parse_size};
use settings::Change;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;

/// Mount an image read-only, with a recording of all accesses, or read-write
#[derive(Args, Debug)]
#[command(after_help = help::after_help())]
pub(crate) struct MountArgs {
    /// Image file (raw or qcow2) or block device; with --set and --counters, the
    /// directory where a volume is mounted
    image: PathBuf,
    /// Where to mount it
    #[arg(required_unless_present_any = ["set", "counters"])]
    dir: Option<PathBuf>,
    /// Change settings of a volume that is mounted read-write: max_softdeps=N,
    /// tickdelay=N, max_undo=SIZE, cache=SIZE, counters=0
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["dir", "record", "options", "foreground", "verbose"])]
    set: Vec<Change>,
    /// Print settings and counters of a volume that is mounted read-write
    #[arg(long)]
    #[arg(conflicts_with_all = ["dir", "record", "options", "foreground", "verbose"])]
    counters: bool,
    /// Stay in the foreground until it is unmounted, and show what goes wrong meanwhile
    #[arg(short, long)]
    foreground: bool,
    /// Record all accesses to a trace file, compressed if its name ends in .zst
    #[arg(long, value_name = "TRACE")]
    record: Option<PathBuf>,
    /// Kernel read-ahead while recording: 128K, as on a disk, records what a disk
    /// would be asked to read; 4K records only the pages that were accessed
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "128K")]
    #[arg(requires = "record")]
    read_ahead: ByteLen,
    /// Number of threads that serve requests. With one, reads wait while an fsync is served;
    /// with several too, on a read-write mount of an image without a journal
    #[arg(long, value_name = "N", default_value = "4")]
    threads: NonZeroUsize,
    /// Mount options, separated by commas, as for mount(8)
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// With -o rw, print statistics when the mount ends: synchronous and other
    /// writes, and soft updates dependencies by type. A server in the background keeps
    /// standard output and error open for them
    #[arg(short, long)]
    verbose: bool,
    /// Allow access by other users (always allowed when mounted by root)
    #[arg(long)]
    allow_other: bool,
    /// What `background` starts
    #[arg(long = background::SERVER, hide = true)]
    is_server: bool,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: &MountArgs, global: &Global) -> Result<ExitCode, Failure> {
    let Some(dir) = &args.dir else { return settings::run(args, global) };
    let options = LiveMountOptions::parse(&args.options)?;
    if !dir.is_dir() {
        return Err(Failure::new(Kind::System, format!("{}: not a directory", dir.display())));
    }
    if !args.foreground && !args.is_server {
        return background::start();
    }
    if options.writable {
        run_writable(args, dir, options, global)
    } else {
        run_read_only(args, dir, &options, global)
    }
}

fn run_read_only(
    args: &MountArgs,
    dir: &Path,
    options: &LiveMountOptions,
    global: &Global,
) -> Result<ExitCode, Failure> {
    let image = seekless_images::open(&args.image, &args.place.place(), args.open.options())?;
    let recorder = args.record.as_ref().map(|path| {
        let created = Recorder::create(path, &args.image, args.read_ahead.get());
        created.map(Arc::new).map_err(|error| Failure::io(path.display(), &error))
    });
    let recorder = recorder.transpose()?;
    let read_ahead = u32::try_from(args.read_ahead.get())
        .map_err(|_| Failure::usage("--read-ahead is too large"))?;
    let mount = ImageMount::new(image, recorder.clone(), read_ahead.max(4096));
    let faults = mount.faults();
    let served = serve_until_unmounted(args, dir, options, (mount, KernelCache::default()), global);
    if let (Some(recorder), Some(path)) = (recorder, &args.record) {
        recorder.finish().map_err(|error| Failure::io(path.display(), &error))?;
    }
    if faults.any() && served.is_ok() {
        let why = format!("{}: parts of it could not be read", args.image.display());
        return Err(Failure::new(Kind::System, why));
    }
    served
}

/// Mounts a file system, and serves it until it is unmounted.
fn serve_until_unmounted<FS: Filesystem + Send + 'static>(
    args: &MountArgs,
    dir: &Path,
    options: &LiveMountOptions,
    (mount, cached): (FS, KernelCache),
    global: &Global,
) -> Result<ExitCode, Failure> {
    // Before mounting: a signal after it must find its handler.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let signals = signals.map_err(|error| Failure::io("signals", &error))?;
    let root = rustix::process::geteuid().is_root();
    let writable = options.writable;
    let how = MountOptions {
        name: &args.image,
        threads: args.threads.get(),
        everyone: args.allow_other || options.allow_other || root,
        writable,
        flags: &options.flags,
        cached,
    };
    let mounted = || {
        let keeps_output = args.verbose || global.json;
        if args.is_server { background::mounted(keeps_output) } else { Ok(()) }
    };
    serve::serve(mount, dir, &how, signals, mounted)
        .map_err(|error| Failure::io(format!("mount on {}{}", dir.display(), hint()), &error))?;
    Ok(ExitCode::SUCCESS)
}

fn run_writable(
    args: &MountArgs,
    dir: &Path,
    options: LiveMountOptions,
    global: &Global,
) -> Result<ExitCode, Failure> {
    if args.record.is_some() {
        return Err(Failure::usage("--record needs a read-only mount: leave -o rw out"));
    }
    let about = |error: FsError| Failure::from(error).about(args.image.display());
    let device = seekless_images::device_locked(&args.image, &args.place.place())?;
    seekless_images::refuse_others(&args.image, device.as_ref(), seekless_images::FORMATS, "")?;
    let (clock, ignore) = (Arc::new(RealClock::new()), args.open.ignore_checksums);
    let wall = Box::new(serve::now);
    let (mut volume, recovery) = if options.how.recovers() {
        let store = recovery::store(device.len(), &temp_dir());
        Volume::open_to_recover(device, clock, &options, ignore, wall, store).map_err(about)?
    } else {
        (Volume::open(device, clock, &options, ignore, wall).map_err(about)?, None)
    };
    if args.place.place().offset.is_some() {
        volume.keep_size();
    }
    let ignored = volume.lock().ignored_features();
    if !ignored.is_empty() {
        let (image, ignored) = (args.image.display(), ignored.join(", "));
        crate::say::warning!("{image}: the volume has flags that are not acted on: {ignored}");
    }
    // A root that cannot be read fails for those that use it.
    let stale = volume.lock().stale_quota_files().unwrap_or_default();
    if !stale.is_empty() {
        let (image, stale) = (args.image.display(), stale.join(" and "));
        crate::say::warning!(
            "{image}: {stale}: usage is not kept up without -o userquota and groupquota"
        );
    }
    let (stop, stopped) = channel();
    let ticked = volume.clone();
    let ticker = std::thread::spawn(move || ticked.tick(&stopped));
    print_when_asked(volume.clone(), global.json)?;
    let recovery = recovery.map(|recovery| Running::start(recovery, &args.image, global));
    let mount = LiveMount::new(volume.clone(), statistics::of_mounted);
    let cached = volume.cached();
    let served = serve_until_unmounted(args, dir, &options, (mount, cached), global);
    drop(stop);
    let _ = ticker.join();
    if let Some(recovery) = recovery {
        recovery.end();
    }
    // Writes the changes back even if serving failed.
    let unmounted = volume.unmount().map_err(about);
    if global.json {
        say!("{}", statistics::json(&volume.counters()));
    } else if args.verbose {
        say!("{}", statistics::text(&volume.counters()));
    }
    unmounted.and(served)
}

/// Prints the counters to standard error on each SIGUSR1.
fn print_when_asked(volume: Volume, json: bool) -> Result<(), Failure> {
    let asked = Signals::new([SIGUSR1]).map_err(|error| Failure::io("signals", &error))?;
    std::thread::spawn(move || {
        let mut asked = asked;
        for _ in &mut asked {
            crate::say::error_line(&if json {
                statistics::json(&volume.counters()).to_string()
            } else {
                statistics::text(&volume.counters())
            });
        }
    });
    Ok(())
}

/// The most common reason for a failed mount: access to /dev/fuse. Empty if that works.
fn hint() -> &'static str {
    match std::fs::File::options().read(true).write(true).open("/dev/fuse") {
        Ok(_) => "",
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            " (/dev/fuse does not exist; try modprobe fuse)"
        }
        Err(_) => " (no permission to open /dev/fuse; root can chmod it to 666)",
    }
}
