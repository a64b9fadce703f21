//! `seekless mount`: an image as a read-only directory.

use crate::args::OpenArgs;
use crate::failure::{Failure, Kind};
use crate::image;
use crate::mount::{self, ImageMount, MountOptions, Recorder};
use clap::Args;
use seekless_units::{ByteLen, parse_size};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Mount an image read-only; record what is read
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless mount disk.img /mnt
  seekless mount disk.img /mnt --record boot.trace &
  chroot /mnt /bin/job; umount /mnt

Runs until the directory is unmounted or a signal (INT, TERM, HUP) comes; then
unmounts and completes the trace. Needs root or fusermount3.")]
pub(crate) struct MountArgs {
    /// Image file or block device
    image: PathBuf,
    /// Where to mount it
    dir: PathBuf,
    /// Write a trace of all that is asked for
    #[arg(long, value_name = "TRACE")]
    record: Option<PathBuf>,
    /// How far the kernel reads ahead while recording: 128K, as it does on a
    /// disk, records what a disk would be asked for; 4K, the pages really
    /// touched
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "128K")]
    #[arg(requires = "record")]
    read_ahead: ByteLen,
    /// How many threads serve requests
    #[arg(long, value_name = "N", default_value = "4")]
    threads: NonZeroUsize,
    /// Let other users in as well (always so for root)
    #[arg(long)]
    allow_other: bool,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: &MountArgs) -> Result<ExitCode, Failure> {
    if !args.dir.is_dir() {
        return Err(Failure::new(Kind::System, format!("{}: not a directory", args.dir.display())));
    }
    let image = image::open(&args.image, args.open)?;
    let recorder = args.record.as_ref().map(|path| {
        let created = Recorder::create(path, &args.image);
        created.map(Arc::new).map_err(|error| Failure::io(path.display(), &error))
    });
    let recorder = recorder.transpose()?;
    // Before mounting: a signal in between must find its handler.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let signals = signals.map_err(|error| Failure::io("signals", &error))?;
    let everyone = args.allow_other || rustix::process::geteuid().is_root();
    let options = MountOptions { name: &args.image, threads: args.threads.get(), everyone };
    let read_ahead = u32::try_from(args.read_ahead.get())
        .map_err(|_| Failure::usage("--read-ahead is too large"))?;
    let mount = ImageMount::new(image, recorder.clone(), read_ahead.max(4096));
    let served = mount::serve(mount, &args.dir, &options, signals);
    if let (Some(recorder), Some(path)) = (recorder, &args.record) {
        recorder.finish().map_err(|error| Failure::io(path.display(), &error))?;
    }
    served.map_err(|error| {
        Failure::io(format!("mount on {}{}", args.dir.display(), hint()), &error)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What most often stands in the way of a mount, if it does.
fn hint() -> &'static str {
    match std::fs::File::options().read(true).write(true).open("/dev/fuse") {
        Ok(_) => "",
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            " (there is no /dev/fuse: modprobe fuse)"
        }
        Err(_) => " (/dev/fuse is not open to this user: root can chmod 666 it)",
    }
}
