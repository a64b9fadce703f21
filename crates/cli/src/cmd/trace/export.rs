//! Exports traces in the formats of other tools.

use super::write_to;
use crate::args::{Global, OpenArgs, PlaceArgs};
use crate::failure::{Failure, Kind};
use crate::say::{say, warning};
use crate::scoring::fit;
use crate::show::json_bytes;
use crate::written::Written;
use clap::{Args, ValueEnum};
use seekless_compose::traces::load;
use seekless_images::Place;
use seekless_images::output::refuse_inputs;
use seekless_layout::fit::Fit;
use seekless_layout::score::parse_chunk;
use seekless_layout::trace::{
    Events, PrefetchList, Unlisted, first_files, first_touches, write_paths, write_squashfs_sort,
};
use seekless_layout::warm::{self, Warm};
use seekless_prefetch::{Fetch, FetchList};
use seekless_units::ByteLen;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
#[command(after_help = "\
With --image, the files are those of the image that the trace reads, under their
own names: symlinks are resolved, and what the image does not have is left out
with a warning. Without it, they are named as in the trace.

Lists for runtimes of containers have files only, no directories, for a
directory would mean all that is in it. What a format has no place for is left
out with a warning.

Examples:
  seekless trace export boot.trace
  seekless trace export --format nydus job.trace --image disk.img -o job.prefetch
  seekless trace export --format stargz job.trace -o record.json
  seekless trace export --format soci job.trace -o prefetch.json
  seekless trace export --format overlaybd job.trace -o filelist
  seekless trace export --format ranges boot.trace --image cloud.img --partition 1
  seekless trace export --format chunks boot.trace job.trace --image disk.img -o all.chunks
  seekless trace export --format fio boot.trace --image disk.img --target /dev/vdb")]
pub(super) struct ExportArgs {
    /// The trace; several for the chunks format only
    #[arg(required = true, value_name = "TRACE")]
    trace: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Form::Paths)]
    format: Form,
    /// Include files that were only looked up or listed (paths format only)
    #[arg(long, conflicts_with = "image")]
    all: bool,
    /// The image that the trace is of (required by ranges, chunks and fio)
    #[arg(long, value_name = "IMG")]
    image: Option<PathBuf>,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    open: OpenArgs,
    /// Bytes of a chunk (chunks format only) [default: 512K]
    #[arg(long, value_name = "SIZE", value_parser = parse_chunk)]
    chunk: Option<ByteLen>,
    /// File or device to be read (fio format only) [default: IMG]
    #[arg(long, value_name = "FILE")]
    target: Option<PathBuf>,
    /// Output file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One path per line, in the order of first access
    Paths,
    /// Priorities for mksquashfs -sort
    SquashfsSort,
    /// Files for nydus-image create --prefetch-policy, on its standard input
    Nydus,
    /// Record for nerdctl image convert --estargz-record-in or --zstdchunked-record-in
    Stargz,
    /// Files for soci create --prefetch-files-json
    Soci,
    /// Files for overlaybd, as its recordTracePath
    Overlaybd,
    /// Lines of offset and length in bytes, in the order of first access, each byte once
    Ranges,
    /// List for seekless prefetch: chunks in the order in which they are needed, each once
    Chunks,
    /// Log that fio --read_iolog replays, to read these ranges
    Fio,
}

impl Form {
    fn prefetch(self) -> Option<PrefetchList> {
        match self {
            Self::Nydus => Some(PrefetchList::Nydus),
            Self::Stargz => Some(PrefetchList::Stargz),
            Self::Soci => Some(PrefetchList::Soci),
            Self::Overlaybd => Some(PrefetchList::Overlaybd),
            Self::Paths | Self::SquashfsSort | Self::Ranges | Self::Chunks | Self::Fio => None,
        }
    }

    fn is_of_ranges(self) -> bool {
        matches!(self, Self::Ranges | Self::Chunks | Self::Fio)
    }
}

pub(super) fn run(args: &ExportArgs, global: &Global) -> Result<(), Failure> {
    let needs_image = args.place.is_part() || args.open.ignore_checksums || args.open.skip_journal;
    if args.image.is_none() && (args.format.is_of_ranges() || needs_image) {
        let what = if needs_image { "the options of an image need" } else { "this format needs" };
        return Err(Failure::usage(format!("{what} --image")));
    }
    if let Some(output) = &args.output {
        refuse_inputs(output, args.inputs())?;
    }
    if args.target.is_some() && args.format != Form::Fio {
        return Err(Failure::usage("--target is for the fio format"));
    }
    if args.format == Form::Chunks {
        return chunks(args, global);
    }
    if args.chunk.is_some() {
        return Err(Failure::usage("--chunk is for the chunks format"));
    }
    let [path] = &args.trace[..] else {
        return Err(Failure::usage("several traces are for the chunks format"));
    };
    let events = load(path)?;
    let warm = args.image.as_ref().map(|image| replay(args, image, (path, &events))).transpose()?;
    match &warm {
        Some(warm) if args.format.is_of_ranges() => ranges(args, path, warm, global),
        _ => files(args, (path, &events), warm.as_ref(), global),
    }
}

impl ExportArgs {
    /// The files that are read.
    fn inputs(&self) -> impl Iterator<Item = &PathBuf> {
        self.trace.iter().chain(&self.image)
    }
}

/// Default size of a chunk.
const CHUNK: ByteLen = ByteLen::new(512 << 10);

/// Exports the chunks that traces need.
fn chunks(args: &ExportArgs, global: &Global) -> Result<(), Failure> {
    let Some(image) = &args.image else { return Err(Failure::usage("this format needs --image")) };
    let replayed = |path: &PathBuf| replay(args, image, (path, &load(path)?));
    let warms = args.trace.iter().map(replayed).collect::<Result<Vec<_>, _>>()?;
    let size = args.chunk.unwrap_or(CHUNK);
    let needed = warm::chunks(&warms, size);
    if needed.is_empty() {
        return Err(nothing(&args.trace[0], "reads of the image"));
    }
    let volume = seekless_images::device(image, &Place::default())?.len().get();
    let (chunk, traces) = (size.get(), warms.len() as u64);
    let fetches: Vec<Fetch> = needed
        .iter()
        .map(|needed| {
            let offset = needed.number * chunk;
            let length = chunk.min(volume - offset);
            // At most 100.
            let sure = (needed.traces * 100 / traces) as u8;
            Fetch { offset, length, after: needed.after, sure }
        })
        .collect();
    let list = FetchList { volume: Some(volume), chunk: Some(chunk), traces, fetches };
    let as_json = || {
        let chunk = |fetch: &Fetch| {
            let Fetch { offset, length, after, sure } = fetch;
            json!({ "offset": offset, "length": length, "after": after, "sure": sure })
        };
        let chunks: Vec<Value> = list.fetches.iter().map(chunk).collect();
        json!({ "volume": volume, "chunk": size.get(), "traces": traces, "chunks": chunks })
    };
    put(args, global, ("chunks", list.fetches.len()), as_json, |out| list.write(out))
}

/// Replays the trace on its image.
fn replay(
    args: &ExportArgs,
    path: &Path,
    (trace, events): (&Path, &Events),
) -> Result<Warm, Failure> {
    let volume = seekless_images::open(path, &args.place.place(), args.open.options())?;
    let disk = seekless_images::device(path, &Place::default())?;
    let start = seekless_images::partition::range(path, &disk, &args.place.place())?.0;
    let warm = warm::warm(volume.as_ref(), events, start.get())
        .map_err(|error| Failure::from(error).about(path.display()))?;
    let (trace, image) = (trace.display().to_string(), path.display().to_string());
    fit::warn(&Fit::new(events, &warm.replayed), &trace, &image);
    Ok(warm)
}

/// Error for an empty list: most tools give it another meaning.
fn nothing(trace: &Path, what: &str) -> Failure {
    Failure::new(Kind::Unsupported, format!("{}: contains no {what}", trace.display()))
}

fn files(
    args: &ExportArgs,
    (trace, events): (&Path, &Events),
    warm: Option<&Warm>,
    global: &Global,
) -> Result<(), Failure> {
    let form = args.format;
    let paths = match warm {
        Some(warm) => warm::read_files(&warm.replayed),
        None if form.prefetch().is_some() => first_files(events),
        None => first_touches(events, args.all && form == Form::Paths),
    };
    let mut unlisted = Unlisted::default();
    let mut list = Vec::new();
    let done = match (form, form.prefetch()) {
        (_, Some(prefetch)) => prefetch.write(&paths, &mut list).map(|left| unlisted = left),
        (Form::SquashfsSort, None) => {
            write_squashfs_sort(&paths, &mut list).map(|left| unlisted.unwritable = left)
        }
        _ => write_paths(&paths, &mut list),
    };
    done.map_err(|error| Failure::io("memory", &error))?;
    let count = paths.len() - unlisted.unwritable - unlisted.beyond_limit;
    if form.prefetch().is_some() && count == 0 {
        return Err(nothing(trace, "files that were read and that this format can name"));
    }
    let as_json = || match form {
        Form::SquashfsSort => priorities(&list),
        Form::Stargz => json!({ "records": lines(&list).map(parsed).collect::<Vec<_>>() }),
        Form::Soci => json!({ "paths": parsed(&list) }),
        Form::Paths => {
            json!({ "paths": paths.iter().map(|path| json_bytes(path)).collect::<Vec<_>>() })
        }
        _ => json!({ "paths": lines(&list).map(json_bytes).collect::<Vec<_>>() }),
    };
    put(args, global, ("paths", count), as_json, |out| out.write_all(&list))?;
    if unlisted.unwritable > 0 {
        let what = if form == Form::SquashfsSort {
            "contain a newline"
        } else {
            "contain characters that this format or its readers do not take"
        };
        warning!("{} paths that {what} were left out", unlisted.unwritable);
    }
    if unlisted.beyond_limit > 0 {
        warning!("the last {} paths were left out: the list may have 64K", unlisted.beyond_limit);
    }
    Ok(())
}

fn ranges(args: &ExportArgs, trace: &Path, warm: &Warm, global: &Global) -> Result<(), Failure> {
    if warm.ranges.is_empty() {
        return Err(nothing(trace, "reads of the image"));
    }
    let target = args.target.as_ref().or(args.image.as_ref());
    let name = target.map_or(&b""[..], |path| path.as_os_str().as_bytes());
    if args.format == Form::Fio && !warm::fio_takes_name(name) {
        let failure = Failure::usage("a log of fio cannot name a file with blanks in its name");
        return Err(failure.hint("give another name with --target, and fio --replay_redirect"));
    }
    let as_json = || json!({ "ranges": warm.ranges });
    put(args, global, ("ranges", warm.ranges.len()), as_json, |out| match args.format {
        Form::Fio => warm::write_fio_log(&warm.ranges, name, out),
        _ => warm::write_ranges(&warm.ranges, out),
    })
}

/// Writes an export; as JSON if `--json` is given and it goes to standard output.
fn put(
    args: &ExportArgs,
    global: &Global,
    (what, count): (&str, usize),
    as_json: impl FnOnce() -> Value,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let output = args.output.as_deref();
    if global.json && output.is_none() {
        say!("{}", as_json());
        return Ok(());
    }
    write_to(output, args.inputs(), write)?;
    if let Some(path) = output {
        Written::file(path).with(what, count as u64).tell(global);
    }
    Ok(())
}

fn lines(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|&byte| byte == b'\n').filter(|line| !line.is_empty())
}

/// Parses JSON that was written a moment ago.
fn parsed(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_default()
}

/// Converts a list for `mksquashfs` to JSON.
fn priorities(list: &[u8]) -> Value {
    let row = |line: &[u8]| {
        let space = line.iter().rposition(|&byte| byte == b' ')?;
        let (path, priority) = line.split_at(space);
        let priority: i64 = std::str::from_utf8(priority).ok()?.trim().parse().ok()?;
        Some(json!({ "path": json_bytes(&unescaped(path)), "priority": priority }))
    };
    json!({ "priorities": lines(list).filter_map(row).collect::<Vec<_>>() })
}

/// Removes the backslashes in front of special characters.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut bytes = path.iter();
    let mut plain = Vec::with_capacity(path.len());
    while let Some(&byte) = bytes.next() {
        plain.push(if byte == b'\\' { *bytes.next().unwrap_or(&byte) } else { byte });
    }
    plain
}
