//! `seekless record`: what programs touch on a mounted file system.

use crate::args::Global;
use crate::failure::{Failure, Kind};
use crate::recording::{self, Collected, End, ReadAhead, Recorder, Source, Whose};
use clap::{Args, ValueEnum};
use seekless_host::mounts::{self, Mount};
use seekless_host::tracefs::{self, Root};
use seekless_layout::recording::{Assembled, Pages};
use seekless_units::{ByteLen, parse_size};
use serde_json::{Map, Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Record the reads on a mounted file system
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless record --mount /srv -o job.trace -- /srv/bin/job
  seekless record -o build.trace -- make
  seekless record --pid 812 --mount /var -o server.trace
  seekless record --boot-unit multi-user.target -o boot.trace
  seekless record --mount /mnt -o day.trace      (until Ctrl-C)

Records one file system: that of --mount, by default the root file system. With a
COMMAND, records the accesses of the command and its child processes until it
ends, and exits with its exit code. Unless --keep-caches is given, the caches of
the machine are dropped first, so that all reads are seen. Needs root.
docs/recording.md describes what each source records and what it misses.")]
pub(crate) struct RecordArgs {
    /// File system to record: any path on it
    #[arg(long, value_name = "PATH", default_value = "/")]
    mount: PathBuf,
    /// Record a running process and its children until it ends
    #[arg(long, value_name = "PID", conflicts_with_all = ["command", "boot_unit"])]
    pid: Option<u32>,
    /// Record all processes until this systemd unit is active
    #[arg(long, value_name = "UNIT", conflicts_with = "command")]
    boot_unit: Option<String>,
    /// Trace file to write
    #[arg(long, short, value_name = "TRACE")]
    output: PathBuf,
    /// Source of events
    #[arg(long, value_enum, default_value_t = Wanted::Auto)]
    source: Wanted,
    /// Pages to record: those fetched from the disk, including read-ahead, or
    /// those accessed by programs (for mapped files: page faults)
    #[arg(long, value_enum, default_value_t = WantedPages::Fetched)]
    pages: WantedPages,
    /// Maximum read-ahead of the device during the recording, as read_ahead_kb, or
    /// `keep`; the previous value is restored at the end
    /// [default: 128K]
    #[arg(long, value_name = "SIZE", value_parser = parse_read_ahead)]
    read_ahead: Option<WantedReadAhead>,
    /// Do not drop the caches first: reads of cached pages are still recorded,
    /// but the lookups that led to them are not
    #[arg(long)]
    keep_caches: bool,
    /// Size of the kernel's event buffer for each processor
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "16M")]
    buffer: ByteLen,
    /// Command to run and record
    #[arg(last = true)]
    command: Vec<OsString>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    /// tracefs if available and permitted, otherwise fanotify
    Auto,
    /// Kernel trace events, and fanotify for opens
    Tracefs,
    /// Opens and accesses, and the pages in memory afterwards
    Fanotify,
}

/// What a kernel reads ahead on a disk if nobody says otherwise, in KiB.
const READ_AHEAD_KIB: u64 = 128;

/// How much the device shall read ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct WantedReadAhead(Option<ByteLen>);

fn parse_read_ahead(text: &str) -> Result<WantedReadAhead, String> {
    if text == "keep" {
        return Ok(WantedReadAhead(None));
    }
    let size = parse_size(text)?;
    if size.get() % 1024 != 0 {
        return Err("read-ahead must be a multiple of 1K".into());
    }
    Ok(WantedReadAhead(Some(size)))
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum WantedPages {
    /// Pages fetched from the disk
    Fetched,
    /// Pages accessed by programs
    Touched,
}

pub(crate) fn run(args: &RecordArgs, global: &Global) -> Result<ExitCode, Failure> {
    // Before anything is set up: a signal in between must find its handler.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.map_err(|error| Failure::io("signals", &error))?;
    let mount = mounts::holding(&args.mount)?;
    let source = source(args)?;
    if source == Source::Fanotify && args.pages == WantedPages::Touched {
        return Err(Failure::usage(
            "--pages touched needs --source tracefs: fanotify does not see pages",
        ));
    }
    let whose = match (&*args.command, args.pid) {
        ([], Some(pid)) => Whose::Process(pid),
        ([], None) => Whose::Everybody(args.boot_unit.clone()),
        (command, _) => Whose::Program(command),
    };
    let buffer_kib = usize::try_from(args.buffer.get() >> 10).unwrap_or(usize::MAX).max(64);
    let read_ahead = match args.read_ahead {
        None => ReadAhead::IfPossible(READ_AHEAD_KIB),
        Some(WantedReadAhead(None)) => ReadAhead::Keep,
        Some(WantedReadAhead(Some(size))) => ReadAhead::Set(size.get() >> 10),
    };
    let recorder =
        Recorder { mount: &mount, source, keep_caches: args.keep_caches, buffer_kib, read_ahead };
    let collected = recorder.run(&whose, &mut signals)?;
    let code = exit_code(&collected.end);
    let header = header(args, &mount, &collected);
    let (lost, strangers) = (collected.lost, collected.strangers);
    let pages = match args.pages {
        WantedPages::Fetched => Pages::Fetched,
        WantedPages::Touched => Pages::Touched,
    };
    let assembled = recording::assemble(collected, &mount, pages, args.keep_caches)?;
    recording::store(&args.output, &header, &assembled)?;
    report(args, global, &mount, source, &assembled, lost, strangers);
    Ok(code)
}

/// Where events come from, and why, if it is not the best.
fn source(args: &RecordArgs) -> Result<Source, Failure> {
    let usable = || {
        let root = Root::find()?;
        let any = root.has(tracefs::Source::Fetched) || root.has(tracefs::Source::Asked);
        if any {
            Ok(())
        } else {
            Err(Failure::new(
                Kind::Unsupported,
                "this kernel has no filemap events (CONFIG_TRACING)",
            ))
        }
    };
    match args.source {
        Wanted::Fanotify => Ok(Source::Fanotify),
        Wanted::Tracefs => usable()
            .map(|()| Source::Tracefs)
            .map_err(|failure| failure.hint("or use --source fanotify")),
        Wanted::Auto => Ok(match usable() {
            Ok(()) => Source::Tracefs,
            Err(failure) => {
                eprintln!("seekless: {failure}; recording with fanotify");
                Source::Fanotify
            }
        }),
    }
}

/// The program's exit code, as a shell has it.
fn exit_code(end: &End) -> ExitCode {
    match end {
        End::Exit(status) => {
            let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
            ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
        }
        End::Done | End::Signal(_) => ExitCode::SUCCESS,
    }
}

fn header(args: &RecordArgs, mount: &Mount, collected: &Collected) -> Map<String, Value> {
    let text = |path: &Path| Value::from(path.to_string_lossy());
    let mut header = Map::new();
    header.insert("recorder".into(), collected.source.name().into());
    header.insert("mount".into(), text(&mount.dir));
    header.insert("fs".into(), mount.fs_type.clone().into());
    header.insert("source".into(), text(&mount.source));
    if !args.command.is_empty() {
        let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
        header.insert("command".into(), json!(words));
    }
    header.insert("kernel".into(), seekless_host::kernel_release().into());
    if let Some(kib) = collected.read_ahead_kib {
        header.insert("read_ahead_kb".into(), kib.into());
    }
    if let Ok(space) = rustix::fs::statvfs(&mount.dir) {
        header.insert("block_size".into(), space.f_bsize.into());
    }
    let pages = match args.pages {
        WantedPages::Fetched => "fetched",
        WantedPages::Touched => "touched",
    };
    header.insert("pages".into(), pages.into());
    if collected.lost > 0 {
        header.insert("lost".into(), collected.lost.into());
    }
    header
}

/// What is not in the trace is told; with --json, so is what is.
fn report(
    args: &RecordArgs,
    global: &Global,
    mount: &Mount,
    source: Source,
    assembled: &Assembled,
    lost: u64,
    strangers: u64,
) {
    let unknown = assembled.unknown;
    if global.json {
        // Standard output is the command's.
        eprintln!(
            "{}",
            json!({
                "trace": args.output.to_string_lossy(),
                "source": source.name(),
                "mount": mount.dir.to_string_lossy(),
                "events": assembled.events.len(),
                "lost": lost,
                "strangers": strangers,
                "nameless": unknown.nameless,
                "unnamed_inodes": unknown.inodes,
            })
        );
        return;
    }
    let tell = |count: u64, what: &str| {
        if count > 0 {
            eprintln!("seekless: {count} {what}");
        }
    };
    tell(lost, "events were lost in the kernel (use a larger --buffer)");
    tell(
        strangers,
        "accesses are left out because their processes ended before they could be identified",
    );
    tell(
        unknown.nameless,
        "accesses to files without a name (deleted, or internal to the file system) are left out",
    );
    tell(unknown.inodes, "inode reads are left out because they could belong to several files");
}
