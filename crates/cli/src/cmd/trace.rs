//! `seekless trace`: imports, exports, shows and merges access traces.

mod export;
mod summary;

use crate::args::{Global, OpenArgs};
use crate::failure::{Failure, Kind};
use crate::say::{self, warning};
use crate::show::name;
use crate::source::temp_dir;
use crate::written::Written;
use clap::{Args, Subcommand};
use seekless_compose::traces::merge::Merge;
use seekless_compose::traces::summary::{MergeLimits, is_summary};
use seekless_compose::traces::{failed, open};
use seekless_images::Place;
use seekless_images::output::{self, NO_INPUTS, refuse_inputs};
use seekless_layout::recording::map_reads;
use seekless_layout::trace::{self, Event, Reader, StraceOptions, Writer};
use seekless_units::{ByteLen, format_size, parse_size};
use serde_json::{Map, Value, json};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Import, show, export and merge access traces
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  strace -f -ttt -y -o boot.strace chroot /srv/root /bin/job
  seekless trace import --strace boot.strace --root /srv/root -o job.trace
  seekless trace import --paths hot-files.txt -o hot.trace
  seekless trace import --blocks io.jsonl --image disk.img -o boot.trace
  blkparse -i vda | seekless trace import --blocks - --image disk.img --offset 1M -o boot.trace
  seekless trace show job.trace
  seekless trace export --format squashfs-sort job.trace -o job.sort
  seekless trace export --format stargz job.trace --image disk.img -o record.json
  seekless trace export --format ranges job.trace --image disk.img -o job.ranges
  seekless trace merge monday.trace tuesday.trace -o week.trace")]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    what: TraceSubcommand,
}

#[derive(Subcommand, Debug)]
enum TraceSubcommand {
    /// Create a trace from the output of another tool
    #[command(after_help = "\
Examples:
  seekless trace import --paths hot-files.txt -o paths.trace
  seekless trace import --strace boot.strace --root /srv/root -o strace.trace
  seekless trace import --blocks io.jsonl --image disk.img -o blocks.trace")]
    Import(ImportArgs),
    /// Print a trace in readable form
    #[command(
        after_help = "Examples:\n  seekless trace show job.trace\n  seekless trace show job.trace | head"
    )]
    Show {
        /// The trace
        trace: PathBuf,
    },
    /// Convert a trace for other tools
    Export(export::ExportArgs),
    /// Summarize traces of a machine for layouts, as a Parquet file
    #[command(after_help = "\
A summary takes the place of a trace for optimize, build, relayout, score, and trace show and
export. One trace gives the same layout as its summary. Merge the summaries of many
machines with `seekless trace merge`.

Examples:
  seekless trace summarize job.trace -o job.parquet
  seekless trace summarize monday.trace tuesday.trace --weight 2 -o week.parquet
  seekless trace summarize job.trace --half-life 30d --age 45d -o old.parquet")]
    Summarize(summary::SummarizeArgs),
    /// Merge traces in order of time, or add up summaries
    #[command(after_help = "\
Traces that are in order of time are merged as streams; others are sorted first, in
temporary files if they need more than --memory.

Summaries are added up: in any order, and in several steps, they give the same bytes.

Examples:
  seekless trace merge monday.trace tuesday.trace -o days.trace
  seekless trace merge monday.trace tuesday.trace -o days.trace.zst
  seekless trace merge one.parquet two.parquet --min-machines 2 -o fleet.parquet")]
    Merge {
        /// The traces, or summaries
        #[arg(required = true)]
        traces: Vec<PathBuf>,
        #[command(flatten)]
        how: summary::MergeOptions,
        /// Output file, compressed if its name ends in .zst [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

#[derive(Args, Debug)]
struct ImportArgs {
    #[command(flatten)]
    from: Origin,
    /// With --blocks: the image as it was when the log was written
    #[arg(long, value_name = "IMG", requires = "of_device")]
    image: Option<PathBuf>,
    /// With --blocks: where the file system begins on the device of the log, such
    /// as the start of its partition
    #[arg(long, value_name = "BYTES", value_parser = parse_size, default_value = "0", requires = "of_device")]
    offset: ByteLen,
    /// With --blocks: the partition of a disk image that is meant, its number, name or
    /// UUID, the label of its file system, or root; the log is of the disk
    #[arg(long, value_name = "N|LABEL|root", requires = "of_device", conflicts_with = "offset")]
    partition: Option<String>,
    #[command(flatten)]
    open: OpenArgs,
    /// Directory that corresponds to the root of the image; other files are left
    /// out
    #[arg(long, value_name = "DIR", conflicts_with = "blocks")]
    root: Option<PathBuf>,
    /// Working directory in which the traced program was started
    #[arg(long, value_name = "DIR", requires = "of_strace")]
    cwd: Option<PathBuf>,
    /// Output file, compressed if its name ends in .zst [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Origin {
    /// List of paths, one per line; each file is opened and read completely
    #[arg(long, value_name = "FILE")]
    paths: Option<PathBuf>,
    /// Output of strace -f -tt (or -ttt), preferably with -y
    #[arg(long, value_name = "FILE", group = "of_strace")]
    strace: Option<PathBuf>,
    /// Log of a block device: of blkparse, block_rq_issue or block_bio_queue
    /// events, `seekless disk --io-log`, QEMU's trace (virtio_blk_handle_read,
    /// blk_co_preadv), nbdkit's log filter, or lines of offset and length in
    /// bytes; - for standard input
    #[arg(long, value_name = "LOG", requires = "image", group = "of_device")]
    blocks: Option<PathBuf>,
}

pub(crate) fn run(args: &TraceArgs, global: &Global) -> Result<ExitCode, Failure> {
    match &args.what {
        TraceSubcommand::Import(import) => self::import(import, global)?,
        TraceSubcommand::Show { trace } => show(trace, global)?,
        TraceSubcommand::Export(export) => export::run(export, global)?,
        TraceSubcommand::Summarize(args) => summary::summarize(args, global)?,
        TraceSubcommand::Merge { traces, how, output } => {
            merge(traces, how, output.as_deref(), global)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `write` on a file that is made from `inputs`, or on standard output, where a closed pipe is
/// no error.
fn write_to(
    output: Option<&Path>,
    inputs: impl IntoIterator<Item = impl AsRef<Path>>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let Some(path) = output else {
        let mut out = BufWriter::new(io::stdout().lock());
        return match write(&mut out).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::io("standard output", &error))
            }
            _ => Ok(()),
        };
    };
    Ok(output::replace(path, inputs, |out| trace::write_packed(path, out, write))?)
}

fn store(
    args: &ImportArgs,
    origin: &str,
    events: &[Event],
    global: &Global,
) -> Result<(), Failure> {
    let output = args.output.as_deref();
    write_to(output, args.inputs(), |out| {
        let mut writer = Writer::new(out, &header(origin))?;
        events.iter().try_for_each(|event| writer.write(event))
    })?;
    tell(output, events.len() as u64, global);
    Ok(())
}

/// Percentage of the bytes read that should belong to files and metadata; less is a sign of another
/// image.
const FITTING: u64 = 90;

/// Maps the log of a device to an image, and prints the share that was mapped.
fn import_blocks(
    args: &ImportArgs,
    path: &Path,
    image: &Path,
    global: &Global,
) -> Result<(), Failure> {
    let log = if path == Path::new("-") {
        trace::read_block_log(io::stdin().lock())
    } else {
        trace::read_block_log(open(path)?)
    };
    let log = log.map_err(|error| failed(path, &error))?;
    if log.reads.is_empty() {
        let why = format!(
            "{}: no reads of a device found in {} lines that were not understood",
            path.display(),
            log.other_lines
        );
        return Err(Failure::new(Kind::Corrupt, why));
    }
    let reads = log.reads.len();
    let place = Place { partition: args.partition.clone(), offset: None };
    let volume = seekless_images::open(image, &place, args.open.options())?;
    let start = match &args.partition {
        None => args.offset,
        Some(_) => {
            let disk = seekless_images::device(image, &Place::default())?;
            seekless_images::partition::range(image, &disk, &place)?.0
        }
    };
    let mapped = map_reads(volume.as_ref(), log.reads, start.get())
        .map_err(|error| Failure::from(error).about(image.display()))?;
    let bytes = mapped.bytes;
    let shown = |bytes: u64| format_size(ByteLen::new(bytes));
    if global.json {
        let report = json!({
            "reads": reads, "events": mapped.events.len(), "bytes": bytes.total(),
            "files": bytes.files, "directories": bytes.directories, "metadata": bytes.metadata,
            "nameless": bytes.nameless, "free": bytes.free, "outside": bytes.outside,
            "other_lines": log.other_lines, "cut_short": log.cut_short,
        });
        say::error_line(&report.to_string());
    } else {
        say::tell(&format!(
            "{reads} reads of {}: files {}, directories {}, other metadata {}, \
             blocks without a name (journal, deleted files) {}, free space {}, outside the image {}",
            shown(bytes.total()),
            shown(bytes.files),
            shown(bytes.directories),
            shown(bytes.metadata),
            shown(bytes.nameless),
            shown(bytes.free),
            shown(bytes.outside),
        ));
        if log.other_lines > 0 {
            warning!("{} lines are not requests and were left out", log.other_lines);
        }
        if log.cut_short {
            warning!("the last line of {} is incomplete", path.display());
        }
    }
    let fitting = bytes.files + bytes.directories + bytes.metadata;
    if mapped.events.iter().all(|event| event.op == trace::Op::Device) {
        let why = format!(
            "{}: none of the reads is of a file of {} (is it the log of another image, or does it need --offset?)",
            path.display(),
            image.display()
        );
        return Err(Failure::new(Kind::Corrupt, why));
    }
    if fitting * 100 < bytes.total() * FITTING {
        warning!(
            "only {}% of the bytes read are of files and metadata of {}: is this the log of another image, or does it need --offset?",
            fitting * 100 / bytes.total().max(1),
            image.display()
        );
    }
    store(args, "blocks", &mapped.events, global)
}

impl ImportArgs {
    /// The files that are read.
    fn inputs(&self) -> impl Iterator<Item = &PathBuf> {
        let Origin { paths, strace, blocks } = &self.from;
        paths.iter().chain(strace).chain(blocks).chain(&self.image)
    }
}

fn import(args: &ImportArgs, global: &Global) -> Result<(), Failure> {
    if let Some(output) = &args.output {
        refuse_inputs(output, args.inputs())?;
    }
    let bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
    let root = args.root.as_ref().map(bytes);
    if let (Some(log), Some(image)) = (&args.from.blocks, &args.image) {
        return import_blocks(args, log, image, global);
    }
    if args.open.ignore_checksums || args.open.skip_journal {
        return Err(Failure::usage("--ignore-checksums and --skip-journal need --blocks"));
    }
    if let Some(list) = &args.from.paths {
        let events = trace::read_paths(open(list)?, root.as_deref());
        return store(args, "paths", &events.map_err(|error| failed(list, &error))?, global);
    }
    let Some(file) = &args.from.strace else {
        return Err(Failure::usage("nothing to import (use --paths, --strace or --blocks)"));
    };
    let options = StraceOptions { root, cwd: args.cwd.as_ref().map(bytes) };
    let events = trace::read_strace(open(file)?, &options).map_err(|error| failed(file, &error))?;
    store(args, "strace", &events, global)
}

fn show(path: &Path, global: &Global) -> Result<(), Failure> {
    if is_summary(path)? {
        return summary::show(path, global);
    }
    let mut reader = Reader::new(open(path)?).map_err(|error| failed(path, &error))?;
    let header = reader.header().clone();
    let mut broken = None;
    let mut sound = reader.by_ref().map_while(|event| match event {
        Ok(event) => Some(event),
        Err(error) => {
            broken = Some(error);
            None
        }
    });
    write_to(None, NO_INPUTS, |out| {
        if !global.json {
            return sound.try_for_each(|event| show_event(&event, out));
        }
        let mut writer = Writer::new(out, &header)?;
        sound.try_for_each(|event| writer.write(&event))
    })?;
    broken.map_or(Ok(()), |error| Err(failed(path, &error).into()))
}

fn show_event(event: &Event, out: &mut dyn Write) -> io::Result<()> {
    let seconds = event.time.get() as f64 / 1e9;
    let who = event.comm.as_ref().map_or_else(|| "-".into(), |comm| name(comm.as_bytes()));
    let path = String::from_utf8_lossy(&event.path);
    write!(
        out,
        "{seconds:12.6} {:>7} {who:<15} {:<8} {}",
        event.pid,
        name(event.op.name().as_bytes()),
        path.escape_debug()
    )?;
    match event.length {
        Some(length) => write!(out, " {}+{length}", event.offset)?,
        None if event.op == trace::Op::Read => write!(out, " {}+all", event.offset)?,
        None => {}
    }
    writeln!(out, "{}", if event.missing { " (missing)" } else { "" })
}

fn merge(
    traces: &[PathBuf],
    how: &summary::MergeOptions,
    output: Option<&Path>,
    global: &Global,
) -> Result<(), Failure> {
    if summary::all_are_summaries(traces)? {
        return summary::merge(traces, how, output, global);
    }
    if how.min_machines > 0 {
        return Err(Failure::usage("--min-machines is for summaries"));
    }
    let merge = Merge::new(traces, MergeLimits { memory: how.memory, temp_dir: &temp_dir() })?;
    let mut done = Ok(0);
    let written = write_to(output, traces, |out| {
        let mut writer = Writer::new(out, &header("merge"))?;
        done = merge.write(&mut writer)?;
        // The error is returned below; the file must not get its name.
        if done.is_ok() { Ok(()) } else { Err(io::Error::other("a trace is broken")) }
    });
    let events = done?;
    written?;
    tell(output, events, global);
    Ok(())
}

/// The header of a trace.
fn header(recorder: &str) -> Map<String, Value> {
    Map::from_iter([("recorder".into(), Value::from(recorder))])
}

/// Tells of a trace that was written to a file.
fn tell(output: Option<&Path>, events: u64, global: &Global) {
    if let Some(path) = output {
        Written::file(path).with("events", events).tell(global);
    }
}
