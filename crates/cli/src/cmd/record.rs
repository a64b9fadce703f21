//! `seekless record`: records accesses to a mounted file system.

mod boot;
mod outcome;

use crate::args::{Global, some_size};
use crate::failure::{Failure, Kind};
use boot::BootArgs;
use clap::{Args, ValueEnum};
use seekless_capture::{self as recording, ReadAhead, Recorder, Source, Subject, Whose};
use seekless_host::mounts;
use seekless_host::tracefs::{self, Root};
use seekless_layout::recording::Pages;
use seekless_units::{ByteLen, parse_size};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
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
  seekless record --compact -o week.trace.zst    (only what layouts need)
  seekless record --install-boot                 (each boot from now on)
  seekless record --install-boot -- --until-unit nginx.service --until-idle 10s
  seekless record --install-boot --root /mnt -- -o /dev/virtio-ports/org.seekless.trace
  seekless record --remove-boot

Records one file system: that of --mount, by default the root file system. With a
COMMAND, records the accesses of the command and its child processes until it
ends, and exits with its exit code. Unless --keep-caches is given, the caches of
the machine are dropped first, so that all reads are seen. Needs root.

--install-boot writes a hook for initramfs-tools or dracut that runs `seekless
record --boot` before the root is switched. It records the accesses of all
processes to the root file system, from a cold start, and writes the trace to
/var/lib/seekless/boot.trace when default.target is active and nothing has been
read for 5 seconds, after 10 minutes, or when the system is shut down.

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
    /// Trace file to write, compressed if its name ends in .zst, a character device,
    /// or `-` for standard output [default with --boot: /var/lib/seekless/boot.trace]
    #[arg(long, short, value_name = "TRACE",
          required_unless_present_any = ["boot", "install_boot", "remove_boot"])]
    output: Option<PathBuf>,
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
    /// Record only first touches: memory and trace do not grow with the time of the
    /// recording, and layouts by the trace stay the same
    #[arg(long)]
    compact: bool,
    /// Size of the kernel's event buffer for each processor
    #[arg(long, value_name = "SIZE", value_parser = some_size, default_value = "16M")]
    buffer: ByteLen,
    #[command(flatten)]
    boot: BootArgs,
    /// Command to run and record; with --install-boot, options of the recorder
    #[arg(last = true)]
    command: Vec<OsString>,
}

impl RecordArgs {
    /// Path of the trace.
    fn destination(&self) -> &Path {
        self.output.as_deref().unwrap_or(Path::new(boot::TRACE))
    }
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

/// Default read-ahead of the kernel for a disk, in KiB.
const READ_AHEAD_KIB: u64 = 128;

/// Read-ahead of the device during the recording; `None` keeps it.
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
    if let Some(code) = args.boot.run(args, global)? {
        return Ok(code);
    }
    if !args.command.is_empty() && recording::is_stdout(args.destination()) {
        return Err(Failure::usage("standard output is the command's: give -o a file"));
    }
    // Before anything is set up: a signal during setup must find its handler.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.map_err(|error| Failure::io("signals", &error))?;
    let mut mount = mounts::holding(&args.mount)?;
    let source = source(args)?;
    if source == Source::Fanotify && args.pages == WantedPages::Touched {
        return Err(Failure::usage(
            "--pages touched needs --source tracefs: fanotify does not see pages",
        ));
    }
    let whose = match (&*args.command, args.pid) {
        _ if args.boot.boot => Whose::Everybody(args.boot.subject(&mount)?),
        ([], Some(pid)) => Whose::Process(pid),
        ([], None) => {
            Whose::Everybody(args.boot_unit.as_deref().map_or(Subject::Nobody, Subject::unit))
        }
        (command, _) => Whose::Program(command),
    };
    let buffer_kib = usize::try_from(args.buffer.get() >> 10).unwrap_or(usize::MAX).max(64);
    let read_ahead = match args.read_ahead {
        // The guard that restores it would not survive the switch of the root.
        _ if args.boot.boot => ReadAhead::Keep,
        None => ReadAhead::IfPossible(READ_AHEAD_KIB),
        Some(WantedReadAhead(None)) => ReadAhead::Keep,
        Some(WantedReadAhead(Some(size))) => ReadAhead::Set(size.get() >> 10),
    };
    let keep_caches = args.keep_caches || args.boot.boot;
    let compact = args.compact;
    let recorder = Recorder { mount: &mount, source, keep_caches, buffer_kib, read_ahead, compact };
    let collected = recorder.run(whose, &mut signals)?;
    if args.boot.boot {
        mount = mounts::of_device(mount.device)?;
        boot::make_directory(args)?;
    }
    let code = outcome::exit_code(&collected.end);
    let header = outcome::header(args, &mount, &collected);
    let (lost, strangers) = (collected.lost, collected.strangers);
    let pages = match args.pages {
        WantedPages::Fetched => Pages::Fetched,
        WantedPages::Touched => Pages::Touched,
    };
    // A boot starts with cold caches, apart from the new mount of the root: it is assembled as
    // after dropped caches, unless `--keep-caches` is given.
    let mut assembled = recording::assemble(collected, &mount, pages, args.keep_caches)?;
    if args.compact {
        assembled.compact();
    }
    recording::store(args.destination(), &header, &assembled)?;
    outcome::report(args, global, &mount, source, &assembled, lost, strangers);
    Ok(code)
}

/// The source of events; warns if it is not the best one.
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
        // Fanotify would need paths, which do not exist yet before the switch of the root.
        Wanted::Auto if args.boot.boot => usable().map(|()| Source::Tracefs),
        Wanted::Auto => Ok(match usable() {
            Ok(()) => Source::Tracefs,
            Err(failure) => {
                crate::say::warning!("{failure}; recording with fanotify");
                Source::Fanotify
            }
        }),
    }
}
