//! Scores a trace on images, for `score` and `map`.

pub(crate) mod boot_chart;
pub(crate) mod fit;

use crate::args::some_size;
use crate::failure::Failure;
use crate::say::say;
use crate::{device, show};
use clap::Args;
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_images::Place;
use seekless_layout::chunks::{Codec, Fetched};
use seekless_layout::fit::Fit;
use seekless_layout::replay::{KernelVersion, Machine, Processes, Purpose, Replayed};
use seekless_layout::score::{self, Score, parse_chunk};
use seekless_layout::timing::{self, Timing};
use seekless_layout::trace::Events;
use seekless_report::reads::{Read, Reads};
use seekless_report::table::{Figure, Table};
use seekless_units::{ByteLen, Extent, Nanos, format_size, parse_size};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How the model reads.
#[derive(Args, Debug, Clone)]
pub(crate) struct ModelArgs {
    /// Size of a chunk that is fetched as a whole (repeatable)
    #[arg(long, value_name = "SIZE", value_parser = parse_chunk, default_values = ["128K", "512K", "4M"])]
    pub(crate) chunk: Vec<ByteLen>,
    /// Maximum size of a file read-ahead, as read_ahead_kb
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "128K")]
    pub(crate) read_ahead: ByteLen,
    /// Maximum size of a request, as max_sectors_kb
    #[arg(long, value_name = "SIZE", value_parser = some_size, default_value = "1280K")]
    pub(crate) max_request: ByteLen,
    /// Version of Linux whose read-ahead is modelled, as uname -r prints it. Since 6.17 a
    /// page fault in an executable mapping reads forward; before, it reads around the page
    #[arg(long, value_name = "VERSION", default_value = "6.18")]
    pub(crate) kernel: KernelVersion,
    /// Order of the events of processes that run at the same time; with --verify-kernel
    /// always as recorded
    #[arg(long, value_name = "ORDER", value_enum, default_value_t = Order::Drawn)]
    pub(crate) order: Order,
    /// Seed of the order that is drawn
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
}

/// See [`Processes`].
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// As in another run: each process at its own pace, around that of the trace
    Drawn,
    /// As in the trace
    Recorded,
}

impl ModelArgs {
    /// The machine to model.
    pub(crate) fn machine(&self) -> Machine {
        let processes = match self.order {
            Order::Drawn => Processes::SideBySide(self.seed),
            Order::Recorded => Processes::AsRecorded,
        };
        let (read_ahead, max_request) = (self.read_ahead, self.max_request);
        Machine { read_ahead, max_request, processes, ..Machine::default() }
            .with_kernel(self.kernel)
    }
}

/// What requests are timed on.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct DeviceArgs {
    /// Compute request times on this device: a preset (see `seekless model list`)
    /// or a parameter file (repeatable)
    #[arg(long, value_name = "DEVICE")]
    device: Vec<String>,
    /// Think time between the events of the trace
    #[arg(long, value_name = "TIME", value_enum, default_value_t = ThinkTime::Zero, requires = "device",
          conflicts_with_all = ["verify_kernel", "verify_program"])]
    think: ThinkTime,
}

/// See [`timing::ThinkTime`].
#[derive(clap::ValueEnum, Debug, Clone, Copy, Default)]
enum ThinkTime {
    /// No think time
    #[default]
    Zero,
    /// The time between events in the trace, from start to start
    Trace,
}

impl DeviceArgs {
    /// The given devices, without think time.
    pub(crate) fn of(device: &[String]) -> Self {
        Self { device: device.to_vec(), ..Self::default() }
    }
}

/// A device, and the times of the requests on it.
pub(crate) struct Timed {
    pub(crate) device: String,
    pub(crate) timing: Timing,
}

/// Times an image's requests on each device given.
pub(crate) fn time(
    scored: &Scored,
    events: &Events,
    args: &DeviceArgs,
) -> Result<Vec<Timed>, Failure> {
    let think = match args.think {
        ThinkTime::Zero => timing::ThinkTime::Zero,
        ThinkTime::Trace => timing::ThinkTime::Trace,
    };
    let block_size = ByteLen::new(u64::from(scored.image.geometry().block_size));
    let one = |name: &String| {
        let spec = device::spec(name)?;
        let requests = &scored.replayed.requests;
        let timing = timing::time(spec.build().as_mut(), requests, events, block_size, think)
            .map_err(|refused| Failure::usage(format!("{} on {name}: {refused}", scored.name)))?;
        Ok(Timed { device: name.clone(), timing })
    };
    args.device.iter().map(one).collect()
}

/// Prefix of the names of times on devices.
pub(crate) const TIME_ON: &str = "ms_on_";

/// Milliseconds of the requests on each device, performed one by one in the given order.
pub(crate) fn in_order(
    scored: &Scored,
    requests: &[Extent],
    args: &DeviceArgs,
) -> Result<Vec<(String, f64)>, Failure> {
    let block_size = ByteLen::new(u64::from(scored.image.geometry().block_size));
    let one = |name: &String| {
        let mut device = device::spec(name)?.build();
        let timing = timing::in_order(device.as_mut(), requests.iter().copied(), block_size)
            .map_err(|refused| Failure::usage(format!("{} on {name}: {refused}", scored.name)))?;
        Ok((format!("{TIME_ON}{name}"), timing.total.get() as f64 / 1e6))
    };
    args.device.iter().map(one).collect()
}

/// An image, with the score of a trace on it.
pub(crate) struct Scored {
    pub(crate) name: String,
    pub(crate) image: Arc<dyn Inspect>,
    pub(crate) score: Score,
    pub(crate) replayed: Replayed,
    pub(crate) fit: Fit,
    pub(crate) reads: Reads,
    pub(crate) times: Vec<Timed>,
    /// Chunks by their size, if some are cached.
    pub(crate) fetched: BTreeMap<ByteLen, Fetched>,
    /// The bytes that a store sends for the chunks that are fetched, by the chunk's size.
    pub(crate) stored: Option<StoredBytes>,
}

/// Bytes of chunks in a store.
pub(crate) struct StoredBytes {
    pub(crate) codec: Codec,
    pub(crate) by_size: BTreeMap<ByteLen, u64>,
}

/// Replays and scores the events on an image.
pub(crate) fn run(
    path: &Path,
    place: &Place,
    open: OpenOptions,
    events: &Events,
    model: &ModelArgs,
) -> Result<Scored, Failure> {
    let image = seekless_images::open(path, place, open)?;
    let machine = model.machine();
    let (score, replayed) = score::score(image.as_ref(), events, machine, &model.chunk)
        .map_err(|error| Failure::from(error).about(path.display()))?;
    let reads = reads(&replayed, events);
    let name = path.display().to_string();
    let fit = Fit::new(events, &replayed);
    Ok(Scored {
        name,
        image,
        score,
        replayed,
        fit,
        reads,
        times: Vec::new(),
        fetched: BTreeMap::new(),
        stored: None,
    })
}

/// The traces, as messages name them.
pub(crate) fn names(traces: &[PathBuf]) -> String {
    traces.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The requests in the form of the reports, with paths, purposes and operations.
fn reads(replayed: &Replayed, events: &Events) -> Reads {
    let mut reads = Reads::default();
    for request in &replayed.requests {
        let path = match replayed.paths.get(&request.ino) {
            Some(path) => show::name(path),
            None => "/".into(),
        };
        let read = Read {
            extent: request.extent,
            purpose: reads.purposes.number(request.purpose.name()),
            path: reads.paths.number(&path),
            op: reads.ops.number(events.get(request.event).map_or("", |event| event.op.name())),
            event: request.event as u64,
        };
        reads.list.push(read);
    }
    reads
}

/// Note below a table of figures.
pub(crate) const PREFETCH_NOTE: &str = "prefetch: cost of reading the same files completely, with their \
    inodes and directories, in order of position on the disk, before the program starts.";

/// Times of an image's requests on each device, in seconds.
pub(crate) fn devices_json(scored: &Scored) -> Value {
    let seconds = |time: Nanos| time.get() as f64 / 1e9;
    let devices = scored.times.iter().map(|timed| {
        let (total, busy) = (seconds(timed.timing.total), seconds(timed.timing.busy));
        json!({ "device": timed.device, "seconds": total, "busy": busy })
    });
    devices.collect()
}

/// The figures of several images, a column for each.
pub(crate) fn summary(scored: &[Scored]) -> Table {
    let names = scored.iter().map(|scored| scored.name.clone()).collect();
    let mut table = Table::new(names, scored.len() == 2);
    let mut row = |label: &str, figure: &dyn Fn(&Score) -> Figure| {
        table.push(label, scored.iter().map(|scored| figure(&scored.score)).collect());
    };
    let bytes = |bytes| Figure::Bytes(ByteLen::new(bytes));
    let chunk_sizes: Vec<u64> =
        scored.first().map_or_else(Vec::new, |first| first.score.chunks.keys().copied().collect());
    row("requests", &|score| Figure::Count(score.requests));
    row("  for metadata", &|score| Figure::Count(score.metadata_requests));
    row("  for file data", &|score| Figure::Count(score.data_requests));
    row("bytes read", &|score| bytes(score.bytes));
    row("  asked for by the trace", &|score| bytes(score.touched_bytes));
    row("seeks", &|score| Figure::Count(score.seeks));
    if scored.iter().any(|one| one.score.seeks != one.score.recorded_order.seeks) {
        row("  in recorded order", &|score| Figure::Count(score.recorded_order.seeks));
    }
    row("seek distance", &|score| bytes(score.seek_distance_bytes));
    for &size in &chunk_sizes {
        let label = format_size(ByteLen::new(size));
        let count = |counts: &std::collections::BTreeMap<u64, u64>| {
            Figure::Count(counts.get(&size).copied().unwrap_or(0))
        };
        row(&format!("chunks of {label}"), &|score| count(&score.chunks));
        row("  floor", &|score| count(&score.chunks_floor));
        row("  prefetch", &|score| count(&score.prefetch.chunks));
    }
    row("prefetch requests", &|score| Figure::Count(score.prefetch.requests));
    row("prefetch seeks", &|score| Figure::Count(score.prefetch.seeks));
    row("prefetch bytes", &|score| bytes(score.prefetch.bytes));
    row("layout score", &|score| Figure::Share(score.layout_score));
    row("dynamic layout score", &|score| Figure::Share(score.dynamic_layout_score));
    row("paths missing", &|score| Figure::Count(score.missing.len() as u64));
    not_cached(scored, &mut table);
    stored(scored, &mut table);
    times(scored, &mut table);
    table
}

/// Adds rows with the chunks that a cache lacks.
fn not_cached(scored: &[Scored], table: &mut Table) {
    for size in scored.first().into_iter().flat_map(|first| first.fetched.keys()) {
        let missing = |one: &Scored| one.fetched.get(size).map_or(0, |it| it.missing.len());
        let figures = scored.iter().map(|one| Figure::Count(missing(one) as u64)).collect();
        table.push(format!("chunks of {} not cached", format_size(*size)), figures);
    }
}

/// Adds rows with the bytes that a store sends.
fn stored(scored: &[Scored], table: &mut Table) {
    let stored = || scored.iter().filter_map(|one| one.stored.as_ref());
    let Some(StoredBytes { codec, by_size }) = stored().next() else { return };
    for size in by_size.keys() {
        let bytes = |one: &StoredBytes| {
            one.by_size.get(size).map_or(Figure::Missing, |&it| Figure::Bytes(ByteLen::new(it)))
        };
        let label = format!("chunks of {}, {codec}", format_size(*size));
        table.push(label, stored().map(bytes).collect());
    }
}

/// Times of the requests, a line for each image and device.
pub(crate) fn times_in_words(scored: &[Scored]) -> String {
    let lines = scored.iter().flat_map(|one| {
        one.times.iter().map(move |timed| {
            let seconds = timed.timing.total.get() as f64 / 1e9;
            format!("{}: {seconds:.2} s on {}\n", one.name, timed.device)
        })
    });
    lines.collect()
}

/// Adds rows with the times on each device.
fn times(scored: &[Scored], table: &mut Table) {
    let seconds = |time: Nanos| Figure::Seconds(time.get() as f64 / 1e9);
    let devices = scored.first().map_or(0, |first| first.times.len());
    for n in 0..devices {
        let timed = || scored.iter().filter_map(|scored| scored.times.get(n));
        let name = timed().next().map_or("", |timed| timed.device.as_str());
        let total = timed().map(|timed| seconds(timed.timing.total)).collect();
        table.push(format!("time on {name}"), total);
        table.push("  device busy", timed().map(|timed| seconds(timed.timing.busy)).collect());
    }
}

/// Requests, bytes and seeks of an image by purpose.
pub(crate) fn purposes(scored: &Scored) -> Table {
    let columns = ["requests", "bytes", "seeks"].map(String::from).to_vec();
    let mut table = Table::new(columns, false);
    for (purpose, requests, bytes, seeks) in by_purpose(scored) {
        let figures =
            vec![Figure::Count(requests), Figure::Bytes(ByteLen::new(bytes)), Figure::Count(seeks)];
        table.push(purpose.name(), figures);
    }
    table
}

/// Purposes, each with its requests, bytes and seeks.
pub(crate) fn by_purpose(
    scored: &Scored,
) -> impl Iterator<Item = (Purpose, u64, u64, u64)> + use<> {
    let block_size = u64::from(scored.image.geometry().block_size);
    let table = score::by_purpose(&scored.replayed.requests);
    table.into_iter().map(move |(purpose, (requests, blocks, seeks))| {
        (purpose, requests, blocks * block_size, seeks)
    })
}

/// Prints the paths of the trace that the image does not contain.
pub(crate) fn show_missing(scored: &Scored) {
    const SHOWN: usize = 5;
    let missing = &scored.score.missing;
    if missing.is_empty() {
        return;
    }
    let Fit { events, fitting, .. } = scored.fit;
    say!("\nnot in {} ({fitting} of {events} events are of files there):", scored.name);
    for path in missing.iter().take(SHOWN) {
        say!("  {}", path.escape_debug());
    }
    if missing.len() > SHOWN {
        say!("  and {} more (--json lists them)", missing.len() - SHOWN);
    }
}
