//! `seekless map`: maps the use of an image's blocks, and the reads of a trace.

use crate::args::{Global, OpenArgs, PlaceArgs};
use crate::failure::Failure;
use crate::say::say;
use crate::scoring::{self, DeviceArgs, ModelArgs, Scored, Timed};
use crate::usage;
use crate::written::Written;
use clap::Args;
use seekless_compose::traces;
use seekless_fs::{FsError, Inspect};
use seekless_images::output::{refuse_inputs, replace};
use seekless_report::disk::{Class, Disk};
use seekless_report::grid::{Shape, cells};
use seekless_report::page::{self, Page};
use seekless_report::reads::{DeviceTime, Reads};
use seekless_report::terminal::{self, Style};
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Rows of the map on a terminal, and width of the map without a terminal.
const ROWS: u64 = 40;
const WIDTH: usize = 100;

/// Draw a map of an image, and of the reads of a trace
#[derive(Args, Debug)]
#[command(after_help = "\
Each row of the map is a block group, or several in a large image; rows without files
are shown as one. The letter of a cell shows its main use; a capital letter means that
the trace read part of it.

Examples:
  seekless map disk.img
  seekless map disk.img --trace boot.trace
  seekless map old.img new.img --trace boot.trace --html map.html
  seekless map old.img new.img --trace boot.trace --device sata-7200 --html map.html
  seekless map --json disk.img | jq '.groups[] | select(.free == 0) | .group'")]
pub(crate) struct MapArgs {
    /// Image file (raw or qcow2) or block device
    image: PathBuf,
    /// Second image, drawn below the first at the same scale
    other: Option<PathBuf>,
    /// Trace to replay (repeatable)
    #[arg(long, value_name = "TRACE")]
    trace: Vec<PathBuf>,
    /// Show how long the requests take on this device: a preset (see `seekless model list`)
    /// or a parameter file (repeatable)
    #[arg(long, value_name = "DEVICE", requires = "trace")]
    device: Vec<String>,
    /// Write a self-contained HTML page to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Line width in characters [default: width of the terminal, or 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..))]
    width: Option<u16>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    open: OpenArgs,
}

impl MapArgs {
    /// The files that are read.
    fn inputs(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.image].into_iter().chain(&self.other).chain(&self.trace)
    }
}

pub(crate) fn run(args: &MapArgs, global: &Global) -> Result<ExitCode, Failure> {
    if let Some(page) = &args.html {
        refuse_inputs(page, args.inputs())?;
    }
    let events = traces::load_merged(&args.trace)?;
    let (mut disks, mut scored) = (Vec::new(), Vec::new());
    for path in std::iter::once(&args.image).chain(&args.other) {
        let about = |error: FsError| Failure::from(error).about(path.display());
        if args.trace.is_empty() {
            let image = seekless_images::open(path, &args.place.place(), args.open.options())?;
            disks.push(disk(path, image.as_ref(), Reads::default()).map_err(about)?);
        } else {
            let mut one =
                scoring::run(path, &args.place.place(), args.open.options(), &events, &args.model)?;
            one.times = scoring::time(&one, &events, &DeviceArgs::of(&args.device))?;
            one.reads.times = device_times(&one);
            scoring::fit::warn(&one.fit, &scoring::names(&args.trace), &one.name);
            disks.push(disk(path, one.image.as_ref(), one.reads.clone()).map_err(about)?);
            scored.push(one);
        }
    }
    if let Some(path) = &args.html {
        let page = heading(args, &scored, events.len() as u64);
        replace(path, args.inputs(), |out| out.write_all(page::html(&page, &disks).as_bytes()))?;
    }
    if global.json {
        let mut values: Vec<Value> = disks.iter().map(as_json).collect();
        if !args.device.is_empty() {
            for (value, one) in values.iter_mut().zip(&scored) {
                value["devices"] = scoring::devices_json(one);
            }
        }
        match values.as_slice() {
            [a, b] => say!("{}", json!({ "a": a, "b": b })),
            values => values.iter().for_each(|value| say!("{value}")),
        }
    } else if args.html.is_none() {
        let mut text = terminal::draw(&disks, style(args.width));
        text.push_str(&scoring::times_in_words(&scored));
        return show(&text);
    } else if let Some(path) = &args.html {
        Written::file(path).tell(global);
    }
    Ok(ExitCode::SUCCESS)
}

fn device_times(scored: &Scored) -> Vec<DeviceTime> {
    let time = |timed: &Timed| DeviceTime {
        device: timed.device.clone(),
        ends: timed.timing.ends.clone(),
    };
    scored.times.iter().map(time).collect()
}

fn disk(path: &Path, image: &dyn Inspect, reads: Reads) -> Result<Disk, FsError> {
    let shape = image.geometry();
    Ok(Disk {
        name: path.display().to_string(),
        block_size: shape.block_size,
        whole: seekless_layout::usage::whole(image),
        group_blocks: shape.blocks_per_group,
        usage: usage::classify(image)?,
        reads,
    })
}

/// Width from `--width` or the terminal; colours on a terminal, unless NO_COLOR or TERM=dumb is
/// set.
fn style(width: Option<u16>) -> Style {
    let stdout = io::stdout();
    let terminal = stdout.is_terminal();
    let window = rustix::termios::tcgetwinsize(&stdout).ok().filter(|_| terminal);
    let width = width.or(window.map(|window| window.ws_col).filter(|&columns| columns > 0));
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    Style { width: width.map_or(WIDTH, usize::from), rows: ROWS, colour: terminal && !plain }
}

fn show(text: &str) -> Result<ExitCode, Failure> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::io("standard output", &error))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Titles and tables of the page.
fn heading(args: &MapArgs, scored: &[Scored], events: u64) -> Page {
    let mut page = Page { title: "Map of the disk".into(), events, ..Page::default() };
    if scored.is_empty() {
        return page;
    }
    page.title = "Where the reads fall".into();
    let traces: Vec<String> = args.trace.iter().map(|path| path.display().to_string()).collect();
    page.subtitle =
        format!("{} replayed from a cold start by seekless's model of Linux", traces.join(", "));
    let summary = scoring::summary(scored);
    page.tables.push(("Figures".into(), summary, scoring::PREFETCH_NOTE.into()));
    for one in scored {
        let title = format!("By purpose: {}", one.name);
        page.tables.push((title, scoring::purposes(one), String::new()));
    }
    page
}

/// Blocks of each group by class, as JSON.
fn as_json(disk: &Disk) -> Value {
    let groups: Vec<Value> = (0u64..)
        .zip(cells(disk, Shape::groups(disk)))
        .map(|(group, cell)| {
            json!({
                "group": group,
                "start": disk.whole.start.get() + group * disk.group_blocks,
                "blocks": cell.all_blocks(),
                "metadata": cell.blocks(Class::Metadata),
                "directories": cell.blocks(Class::Directory),
                "data": cell.blocks(Class::Data),
                "internal": cell.blocks(Class::Internal),
                "free": cell.blocks(Class::Free),
                "read": cell.read_blocks(),
                "requests": cell.requests,
            })
        })
        .collect();
    json!({
        "image": disk.name,
        "block_size": disk.block_size,
        "blocks": disk.whole.len,
        "groups": groups,
    })
}
