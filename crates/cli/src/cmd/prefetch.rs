//! `seekless prefetch`: reads parts of a lazily fetched volume ahead of its user.

use crate::args::Global;
use crate::failure::{Failure, Kind};
use crate::say::{say, warning};
use clap::Args;
use seekless_prefetch::{
    DeviceReads, FetchList, Fetched, ListError, OtherVolume, Prefetcher, User, open_volume,
};
use seekless_units::{ByteLen, format_size, parse_size};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Read parts of a lazily fetched volume ahead of its user
#[derive(Args, Debug)]
#[command(after_help = "\
The list is made by `seekless trace export --format chunks` (or ranges). Its parts are read in
the order in which they will be needed, by several readers: the volume then has them when its
user asks for them. Run it on the host before or while a virtual machine starts, or in the
machine itself.

With --user, the reads of a block device tell how far the user is: parts that it has passed are
left out, and --window limits how far ahead is read. Without it, the list is read to its end.

A part that cannot be read is left to the user; it is named, and the exit code is 1. A list of a
volume of another size is refused. `seekless-prefetch` is a small program that does the same.

Examples:
  seekless trace export --format chunks boot.trace --image disk.img -o boot.chunks
  seekless prefetch boot.chunks disk.img
  seekless prefetch boot.chunks /dev/vdb --user /dev/vdb --window 64M --readers 32")]
pub(crate) struct PrefetchArgs {
    /// The list
    list: PathBuf,
    /// The volume: a block device or a file
    volume: PathBuf,
    /// Number of readers
    #[arg(short, long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    readers: u16,
    /// The block device through which the user reads the volume
    #[arg(short, long, value_name = "DEVICE")]
    user: Option<PathBuf>,
    /// Read at most this size ahead of the user
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size, requires = "user")]
    window: Option<ByteLen>,
    /// Leave out parts that fewer percent of the traces need
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    least_sure: u8,
}

fn open(path: &Path) -> Result<File, Failure> {
    seekless_images::refuse_directory(path)?;
    File::open(path).map_err(|error| Failure::io(path.display(), &error))
}

fn load(path: &Path) -> Result<FetchList, Failure> {
    let list = FetchList::parse(BufReader::new(open(path)?));
    list.map_err(|error| {
        let kind = match &error {
            ListError::Io(error) => return Failure::io(path.display(), error),
            ListError::Version(_) => Kind::Unsupported,
            ListError::Line { .. } | ListError::Empty => Kind::Corrupt,
        };
        Failure::new(kind, error.to_string()).about(path.display())
    })
}

pub(crate) fn run(args: &PrefetchArgs, global: &Global) -> Result<ExitCode, Failure> {
    let list = load(&args.list)?;
    seekless_images::refuse_directory(&args.volume)?;
    let volume = open_volume(&args.volume);
    let volume = volume.map_err(|error| Failure::io(args.volume.display(), &error))?;
    let user = args.user.as_deref().map(|path| reads_of(path, &volume)).transpose()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::io("signals", &error))?;
    }
    let mut prefetcher =
        Prefetcher::new(&list).readers(args.readers.into()).least_sure(args.least_sure).stop(&stop);
    if let Some(user) = &user {
        prefetcher = prefetcher.user(user);
    }
    if let Some(window) = args.window {
        prefetcher = prefetcher.window(window.get());
    }
    let fetched = prefetcher.run(&volume).map_err(|error| match other_volume(&error) {
        Some(other) => Failure::new(Kind::Usage, other.to_string()).about(args.list.display()),
        None => Failure::io(args.volume.display(), &error),
    })?;
    report(args, &fetched, global);
    Ok(if fetched.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn reads_of(path: &Path, volume: &File) -> Result<impl User + use<>, Failure> {
    DeviceReads::of(&open(path)?, volume).map_err(|error| Failure::io(path.display(), &error))
}

fn other_volume(error: &io::Error) -> Option<OtherVolume> {
    error.get_ref()?.downcast_ref().copied()
}

fn report(args: &PrefetchArgs, fetched: &Fetched, global: &Global) {
    let Fetched { parts, bytes, passed, unsure, left, failed } = fetched;
    for failed in failed {
        let (offset, length) = (failed.fetch.offset, failed.fetch.length);
        warning!("{}: {length} bytes at {offset}: {}", args.volume.display(), failed.why);
    }
    if global.json {
        let failed: Vec<_> = failed
            .iter()
            .map(|failed| {
                let (offset, length) = (failed.fetch.offset, failed.fetch.length);
                json!({ "offset": offset, "length": length, "error": failed.why })
            })
            .collect();
        say!(
            "{}",
            json!({
                "parts": parts, "bytes": bytes, "passed": passed, "unsure": unsure, "left": left,
                "failed": failed,
            })
        );
    } else if !global.quiet {
        let size = format_size(ByteLen::new(*bytes));
        say!(
            "{}: {parts} parts read ({size}); {passed} passed, {unsure} unsure, {left} left",
            args.volume.display()
        );
    }
}
