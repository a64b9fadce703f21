//! `seekless score`: what a trace costs on an image.

use crate::args::{Global, OpenArgs};
use crate::failure::Failure;
use crate::output::Output;
use crate::say::say;
use crate::scoring::{self, DeviceArgs, ModelArgs, Scored};
use crate::verify::{self, Observation};
use clap::Args;
use seekless_layout::score;
use seekless_layout::trace::Event;
use seekless_report::reads::{Read, Reads};
use seekless_report::table::{Figure, Table};
use seekless_units::ByteLen;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Files that an explanation names.
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
  seekless score disk.img --trace boot.trace --json | jq .seeks
  seekless score disk.img --trace boot.trace --io-log io.jsonl
  seekless score disk.img --trace boot.trace --verify-kernel")]
pub(crate) struct ScoreArgs {
    /// Image file or block device
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
    /// Show the purpose of the requests and the most expensive files
    #[arg(long)]
    explain: bool,
    /// Log every request to FILE, one JSON object per line
    #[arg(long, value_name = "FILE")]
    io_log: Option<PathBuf>,
    /// Mount the image, replay the trace with real system calls, and compare the
    /// kernel's requests with the prediction (needs root)
    #[arg(long, conflicts_with_all = ["other", "explain"])]
    verify_kernel: bool,
    /// Maximum error of the prediction, in percent, that --verify-kernel accepts;
    /// otherwise the exit code is 1
    #[arg(long, value_name = "PERCENT", default_value = "10", requires = "verify_kernel")]
    tolerance: f64,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: &ScoreArgs, global: &Global) -> Result<ExitCode, Failure> {
    let events = scoring::events(&args.trace)?;
    let images = std::iter::once(&args.image).chain(&args.other);
    let scored: Vec<Scored> = images
        .map(|image| {
            let mut scored = scoring::run(image, args.open, &events, &args.model)?;
            scored.times = scoring::time(&scored, &events, &args.devices)?;
            Ok(scored)
        })
        .collect::<Result<_, Failure>>()?;
    if args.verify_kernel {
        return verify(args, global, &scored, &events);
    }
    if let Some(path) = &args.io_log {
        write_log(&scored, path)?;
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
        show_missing(scored);
        if args.explain {
            explain(scored);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sets the prediction against a kernel.
fn verify(
    args: &ScoreArgs,
    global: &Global,
    scored: &[Scored],
    events: &[Event],
) -> Result<ExitCode, Failure> {
    let [scored] = scored else {
        return Err(Failure::usage("only one image can be verified at a time"));
    };
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.map_err(|error| Failure::io("signals", &error))?;
    let image = scored.image.as_ref();
    let chunk = &args.model.chunk;
    let observation =
        verify::observe(&args.image, image, events, args.model.machine(), chunk, &mut signals)?;
    let block_size = u64::from(image.geometry().block_size);
    let requests = scored.replayed.requests.iter();
    let predicted = score::figures(
        requests.map(|request| (request.extent, request.purpose.is_metadata())),
        block_size,
        chunk,
    );
    let rows = verify::compare(&predicted, &observation.figures);
    if let Some(path) = &args.io_log {
        write_both(scored, &observation, path)?;
    }
    if global.json {
        let mut value = verify::as_json(&predicted, &observation, args.tolerance);
        value["image"] = scored.name.clone().into();
        value["missing"] = json!(scored.score.missing);
        say!("{value}");
    } else {
        let columns = ["predicted", "kernel", "off by"].map(String::from).to_vec();
        let mut table = Table::new(columns, false);
        for row in &rows {
            let figure = |value: f64| match row.name.as_str() {
                "metadata_share" => Figure::Share(value),
                _ => Figure::Count(value as u64),
            };
            let off = Figure::Percent(row.percent());
            table.push(row.name.as_str(), vec![figure(row.predicted), figure(row.counted), off]);
        }
        say!("{}\nLinux {}", table.text().trim_end(), observation.release);
        show_missing(scored);
    }
    if observation.failed > 0 {
        eprintln!("seekless: {} events could not be replayed on the mount", observation.failed);
    }
    let good = rows.iter().all(|row| row.percent().abs() <= args.tolerance);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The requests of both sides, as lines of one log.
fn write_both(scored: &Scored, observation: &Observation, path: &Path) -> Result<(), Failure> {
    let mut kernel = Reads::default();
    for (event, (extent, class)) in (0..).zip(&observation.requests) {
        let purpose = kernel.purposes.number(class.name());
        let (path, op) = (kernel.paths.number(""), kernel.ops.number(""));
        kernel.list.push(Read { extent: *extent, purpose, path, op, event });
    }
    let output = Output::create(path, true)?;
    let mut out = BufWriter::new(output.file()?);
    let io = |error| Failure::io(path.display(), &error);
    let block_size = u64::from(scored.image.geometry().block_size);
    scored.reads.write_log(block_size, Some("predicted"), &mut out).map_err(io)?;
    kernel.write_log(block_size, Some("kernel"), &mut out).map_err(io)?;
    out.flush().map_err(io)?;
    drop(out);
    output.finish()
}

fn worst(scored: &Scored) -> Vec<seekless_report::reads::FileCost> {
    scored.reads.worst_files(WORST, u64::from(scored.image.geometry().block_size))
}

fn as_json(scored: &Scored, explain: bool) -> Value {
    let mut value = json!(scored.score);
    value["image"] = scored.name.clone().into();
    if !scored.times.is_empty() {
        let seconds = |time: seekless_units::Nanos| time.get() as f64 / 1e9;
        value["devices"] = scored
            .times
            .iter()
            .map(|timed| {
                let (total, busy) = (seconds(timed.timing.total), seconds(timed.timing.busy));
                json!({ "device": timed.device, "seconds": total, "busy": busy })
            })
            .collect();
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

fn show_missing(scored: &Scored) {
    const SHOWN: usize = 5;
    let missing = &scored.score.missing;
    if missing.is_empty() {
        return;
    }
    say!("\nnot in {}:", scored.name);
    for path in missing.iter().take(SHOWN) {
        say!("  {}", path.escape_debug());
    }
    if missing.len() > SHOWN {
        say!("  and {} more (--json lists them)", missing.len() - SHOWN);
    }
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

fn write_log(scored: &[Scored], path: &Path) -> Result<(), Failure> {
    let output = Output::create(path, true)?;
    let mut out = BufWriter::new(output.file()?);
    let io = |error| Failure::io(path.display(), &error);
    for one in scored {
        let name = (scored.len() > 1).then_some(one.name.as_str());
        let block_size = u64::from(one.image.geometry().block_size);
        one.reads.write_log(block_size, name, &mut out).map_err(io)?;
    }
    out.flush().map_err(io)?;
    drop(out);
    output.finish()
}
