//! `seekless score`: the cost of a trace on an image.

use crate::args::{Global, OpenArgs, PlaceArgs};
use crate::failure::Failure;
use crate::say::say;
use crate::scoring::boot_chart;
use crate::scoring::{self, DeviceArgs, ModelArgs, Order, Scored, StoredBytes};
use crate::verify::{self, VerifyArgs, Wanted};
use crate::written::is_same;
use clap::Args;
use seekless_capture::verify::ImageFile;
use seekless_compose::sharing::{Cache, stored_bytes};
use seekless_compose::traces;
use seekless_images::output::Output;
use seekless_layout::chunks::{Codec, Fetched};
use seekless_report::table::{Figure, Table};
use seekless_units::ByteLen;
use serde_json::{Value, json};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Number of files in an explanation.
const WORST: usize = 15;

/// Replay a trace on an image and count requests, seeks, bytes and chunks
#[derive(Args, Debug)]
#[command(after_help = "\
The trace is replayed from a cold start through a model of the Linux page cache,
file read-ahead, and ext4's reads of directories and inode tables. Several traces
are merged in order of time. docs/score.md defines all figures.

Examples:
  seekless score disk.img --trace boot.trace
  seekless score old.img new.img --trace boot.trace --chunk 512K --chunk 2M
  seekless score disk.img --trace boot.trace --explain
  seekless score old.img new.img --trace boot.trace --device gp3 --device hdd.toml
  seekless score disk.img --trace boot.trace --device raptor-74 --think trace --boot-chart boot.svg
  seekless score disk.img --trace boot.trace --json | jq .seeks
  seekless score disk.img --trace boot.trace --io-log io.jsonl
  seekless score derived.img --trace boot.trace --cached base.img
  seekless score old.img new.img --trace boot.trace --store zstd:3
  seekless score disk.img --trace boot.trace --verify-kernel
  seekless score cloud.img --partition root --trace boot.trace --verify-kernel
  seekless score old.img new.img --trace job.trace --verify-program -- find {} -size +1M
  seekless score disk.img --trace job.trace --verify-program --chroot --explain -- /bin/job")]
pub(crate) struct ScoreArgs {
    /// Image file (raw or qcow2) or block device
    image: PathBuf,
    /// Second image, to compare with the first
    other: Option<PathBuf>,
    /// Trace to replay (repeatable)
    #[arg(long, value_name = "TRACE", required = true)]
    trace: Vec<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    devices: DeviceArgs,
    /// Show the purpose of the requests and the most expensive files; with --verify-kernel
    /// or --verify-program, where the requests differ from the prediction
    #[arg(long)]
    explain: bool,
    /// Log every request to FILE, one JSON object per line
    #[arg(long, value_name = "FILE")]
    io_log: Option<PathBuf>,
    /// Draw the replay on the first --device over time: processor, disk, and the process that
    /// waits for it (SVG). --think trace has the pauses of the recording
    #[arg(long, value_name = "FILE", requires = "device",
          conflicts_with_all = ["other", "verify_kernel", "verify_program"])]
    boot_chart: Option<PathBuf>,
    /// Image of which the chunks are cached: count the chunks that must still be fetched
    /// (repeatable)
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["verify_kernel", "verify_program"])]
    cached: Vec<PathBuf>,
    /// Count the bytes of the chunks that are fetched from a store that compresses each by
    /// itself: zstd, zstd:LEVEL with a level from 1 to 19 [3], or none. Chunks of zeros and
    /// cached ones cost nothing
    #[arg(long, value_name = "CODEC", conflicts_with_all = ["verify_kernel", "verify_program"])]
    store: Option<Codec>,
    #[command(flatten)]
    verify: VerifyArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    open: OpenArgs,
}

impl ScoreArgs {
    /// The files that are read.
    fn inputs(&self) -> impl Iterator<Item = &PathBuf> {
        let Self { image, other, cached, trace, .. } = self;
        std::iter::once(image).chain(other).chain(cached).chain(trace)
    }
}

pub(crate) fn run(args: &ScoreArgs, global: &Global) -> Result<ExitCode, Failure> {
    if args.verify.wanted() {
        let images = std::iter::once(&args.image).chain(&args.other);
        for image in images {
            seekless_images::refuse_converted(image, "which the kernel does not mount")?;
        }
    }
    spare_inputs(args)?;
    let events = traces::load_merged(&args.trace)?;
    let mut model = args.model.clone();
    if args.verify.in_recorded_order() {
        model.order = Order::Recorded;
    }
    let cache = match args.cached.as_slice() {
        [] => None,
        cached => Some(Cache::read(cached, &model.chunk, &args.place.place())?),
    };
    let images = std::iter::once(&args.image).chain(&args.other);
    let scored: Vec<Scored> = images
        .map(|image| {
            let mut scored =
                scoring::run(image, &args.place.place(), args.open.options(), &events, &model)?;
            scoring::fit::warn(&scored.fit, &scoring::names(&args.trace), &scored.name);
            scored.times = scoring::time(&scored, &events, &args.devices)?;
            let one = (image.as_path(), scored.image.as_ref());
            let (requests, place) = (&scored.replayed.requests, args.place.place());
            if let Some(cache) = &cache {
                scored.fetched = cache.fetched(one, requests, &place)?;
            }
            if let Some(codec) = args.store {
                let fetched = cache.as_ref().map(|_| &scored.fetched);
                let chunks = (model.chunk.as_slice(), fetched);
                let by_size = stored_bytes(one, requests, &place, chunks, codec)?;
                scored.stored = Some(StoredBytes { codec, by_size });
            }
            Ok(scored)
        })
        .collect::<Result<_, Failure>>()?;
    if args.verify.wanted() {
        let paths = std::iter::once(&args.image).chain(&args.other);
        let mut images = Vec::new();
        for (path, scored) in paths.zip(&scored) {
            let part = seekless_images::part_of(path, &args.place.place())?;
            images.push((ImageFile { path, part, image: scored.image.as_ref() }, scored));
        }
        let (model, io_log) = (&model, args.io_log.as_deref());
        let wanted = Wanted {
            model,
            devices: &args.devices,
            explain: args.explain,
            io_log,
            inputs: args.inputs().collect(),
        };
        return verify::verify(&args.verify, &wanted, global, &images, &events);
    }
    if let Some(path) = &args.io_log {
        write_log(args, &scored, path)?;
    }
    if let (Some(path), [one, ..]) = (&args.boot_chart, scored.as_slice())
        && let Some(timed) = one.times.first()
    {
        let svg = boot_chart::chart(one, timed, &events).svg();
        write_file(args, path, svg.as_bytes())?;
    }
    if global.json {
        let values: Vec<Value> =
            scored.iter().map(|scored| as_json(scored, args.explain)).collect();
        match values.as_slice() {
            [a, b] => say!("{}", json!({ "a": a, "b": b })),
            values => values.iter().for_each(|value| say!("{value}")),
        }
        return Ok(ExitCode::SUCCESS);
    }
    say!("{}", scoring::summary(&scored).text().trim_end());
    say!("\n{}", scoring::PREFETCH_NOTE);
    for scored in &scored {
        scoring::show_missing(scored);
        if args.explain {
            explain(scored);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn worst(scored: &Scored) -> Vec<seekless_report::reads::FileCost> {
    scored.reads.worst_files(WORST, u64::from(scored.image.geometry().block_size))
}

fn as_json(scored: &Scored, explain: bool) -> Value {
    let mut value = json!(scored.score);
    value["image"] = scored.name.clone().into();
    value["events"] = json!({ "all": scored.fit.events, "fitting": scored.fit.fitting });
    if !scored.times.is_empty() {
        value["devices"] = scoring::devices_json(scored);
    }
    if !scored.fetched.is_empty() {
        let missing =
            |(size, it): (&ByteLen, &Fetched)| (size.get().to_string(), it.missing.len().into());
        value["chunks_not_cached"] =
            scored.fetched.iter().map(missing).collect::<serde_json::Map<_, _>>().into();
    }
    if let Some(StoredBytes { codec, by_size }) = &scored.stored {
        let bytes = |(size, &bytes): (&ByteLen, &u64)| (size.get().to_string(), bytes.into());
        let fetched: serde_json::Map<_, _> = by_size.iter().map(bytes).collect();
        value["store"] =
            json!({ "codec": codec.name(), "level": codec.level(), "fetched_bytes": fetched });
    }
    if explain {
        value["by_purpose"] = scoring::by_purpose(scored)
            .map(|(purpose, requests, bytes, seeks)| {
                let row = json!({ "requests": requests, "bytes": bytes, "seeks": seeks });
                (purpose.name().to_string(), row)
            })
            .collect::<serde_json::Map<_, _>>()
            .into();
        value["worst_files"] = json!(worst(scored));
    }
    value
}

fn explain(scored: &Scored) {
    say!("\n{}, by what the requests were for:", scored.name);
    say!("{}", scoring::purposes(scored).text().trim_end());
    let columns = ["requests", "bytes", "seeks"].map(String::from).to_vec();
    let mut table = Table::new(columns, false);
    for file in worst(scored) {
        let bytes = Figure::Bytes(ByteLen::new(file.bytes));
        let figures = vec![Figure::Count(file.requests), bytes, Figure::Count(file.seeks)];
        table.push(file.path, figures);
    }
    say!("\n{}, files that cost the most seeks:", scored.name);
    say!("{}", table.text().trim_end());
}

/// Refuses to write a file that is read, or written, too.
fn spare_inputs(args: &ScoreArgs) -> Result<(), Failure> {
    let ScoreArgs { io_log, boot_chart, .. } = args;
    let outputs = [("--io-log", io_log, None), ("--boot-chart", boot_chart, io_log.as_ref())];
    for (option, path, before) in outputs {
        let Some(path) = path else { continue };
        if args.inputs().chain(before).any(|other| is_same(path, other)) {
            let message = "is an image, a trace or another output";
            return Err(Failure::usage(format!("{option} {}: {message}", path.display())));
        }
    }
    Ok(())
}

fn write_file(args: &ScoreArgs, path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let output = Output::create(path, true, args.inputs())?;
    output.file()?.write_all(bytes).map_err(|error| Failure::io(path.display(), &error))?;
    Ok(output.finish()?)
}

fn write_log(args: &ScoreArgs, scored: &[Scored], path: &Path) -> Result<(), Failure> {
    let output = Output::create(path, true, args.inputs())?;
    let mut out = BufWriter::new(output.file()?);
    let io = |error| Failure::io(path.display(), &error);
    for one in scored {
        let name = (scored.len() > 1).then_some(one.name.as_str());
        let block_size = u64::from(one.image.geometry().block_size);
        one.reads.write_log(block_size, name, &mut out).map_err(io)?;
    }
    out.flush().map_err(io)?;
    drop(out);
    Ok(output.finish()?)
}
