//! `seekless compare`: the chunks that images share.

use crate::args::{Global, OpenArgs, PlaceArgs};
use crate::failure::Failure;
use crate::say::say;
use crate::scoring::{self, ModelArgs};
use crate::written::Written;
use clap::Args;
use seekless_compose::sharing::{Compared, Comparison, LastShared, UnitShared};
use seekless_compose::traces;
use seekless_images::Place;
use seekless_images::output::{refuse_inputs, replace};
use seekless_layout::chunks::{Cause, Count, KindBytes, Unit};
use seekless_layout::usage::Use;
use seekless_report::chunk_map::{self, ChunkClass, ChunkMap, ChunkPage};
use seekless_report::strip;
use seekless_report::table::{Figure, Table, counted};
use seekless_units::{ByteLen, format_size};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Cells of the line that shows new chunks.
const WIDTH: usize = 80;

/// Count the chunks that images share, and say why the others are new
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless compare base.img derived.img
  seekless compare week1.img week2.img --chunk 512K --trace boot.trace
  seekless compare base.img app1.img app2.img app3.img --json | jq '.units[].images[-1].new'
  seekless compare a.img b.img --chunk 64K --json | jq '.last[].by_use'
  seekless compare a.img b.img --html compare.html

Whoever loads images lazily, caches their chunks or sends updates stores equal chunks
once. Chunks are counted in three ways: aligned ones of each --chunk, blocks of 4K, and
content-defined ones as casync cuts them (16K, 64K on average, 256K). Chunks of zeros
are not counted, and equal ones of an image count once. A chunk is new if no image
before has it. For the last image, the bytes of its new chunks are told by use: new
where no image before has the block of 4K, moved where one has it elsewhere.

With --trace, the chunks that the trace reads of the last image are counted too, and
those of them that a cache with the chunks of the other images lacks.

Chunks begin at the first byte of the image, or of the file system with --partition
or --offset. docs/share.md defines all figures.")]
pub(crate) struct CompareArgs {
    /// Image files (raw or qcow2) or block devices, older ones first
    #[arg(required = true, num_args = 2.., value_name = "IMAGE")]
    images: Vec<PathBuf>,
    /// Trace of reads of the last image (repeatable)
    #[arg(long, value_name = "TRACE")]
    trace: Vec<PathBuf>,
    /// Write a self-contained HTML page to FILE: the tables, and maps of the chunks of the last
    /// image by the reason why they are new
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    open: OpenArgs,
}

impl CompareArgs {
    /// The files that are read.
    fn inputs(&self) -> impl Iterator<Item = &PathBuf> {
        self.images.iter().chain(&self.trace)
    }
}

pub(crate) fn run(args: &CompareArgs, global: &Global) -> Result<ExitCode, Failure> {
    if let Some(page) = &args.html {
        refuse_inputs(page, args.inputs())?;
    }
    let events = traces::load_merged(&args.trace)?;
    let trace = (!args.trace.is_empty()).then(|| (&events, args.model.machine()));
    let mut sizes = args.model.chunk.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let place: Place = args.place.place();
    let (images, open) = (args.images.as_slice(), args.open.options());
    let compared = Comparison { images, place: &place, open, sizes: &sizes, trace }.run()?;
    if let (Some(fit), Some(last)) = (&compared.fit, args.images.last()) {
        scoring::fit::warn(fit, &scoring::names(&args.trace), &name(last));
    }
    if let Some(path) = &args.html {
        let page = chunk_map::html(&page(args, &compared));
        replace(path, args.inputs(), |out| out.write_all(page.as_bytes()))?;
    }
    if global.json {
        say!("{}", as_json(args, &compared));
    } else if let Some(path) = &args.html {
        Written::file(path).tell(global);
    } else {
        show(args, &compared);
    }
    Ok(ExitCode::SUCCESS)
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

fn show(args: &CompareArgs, compared: &Compared) {
    let last = args.images.last().map_or_else(String::new, |path| name(path));
    say!("{}", totals(args, compared).text().trim_end());
    if args.images.len() > 2 {
        for unit in &compared.units {
            say!("\n{} of each image (row) that another has:", unit.unit);
            say!("{}", matrix(args, unit).text().trim_end());
        }
    }
    say!("\nBytes of the new chunks of {last}, by use:");
    say!("{}", by_use(&compared.last).text().trim_end());
    say!("\nNew chunks of {last}:");
    say!("{}", by_cause(&compared.last).text().trim_end());
    if let Some((size, one)) = pictured(&compared.last) {
        let parts = cells(&one.runs, compared.lens.last().copied(), size);
        say!("\n{last} in chunks of {} (█ new, · not):", format_size(size));
        say!("{}", strip::draw(&parts, WIDTH));
    }
    show_fetched(args, compared);
}

/// Chunks of each image, all and new.
fn totals(args: &CompareArgs, compared: &Compared) -> Table {
    let columns = args.images.iter().map(|path| name(path)).collect();
    let mut table = Table::new(columns, false);
    table.push("length", compared.lens.iter().copied().map(Figure::Bytes).collect());
    for unit in &compared.units {
        let each = |count: fn(&Count) -> Figure, is_new: bool| {
            let of = |(at, image): (usize, &seekless_layout::chunks::Sharing)| match is_new {
                // No image is before the first.
                true if at == 0 => Figure::Missing,
                true => count(&image.new),
                false => count(&image.all),
            };
            unit.images.iter().enumerate().map(of).collect::<Vec<_>>()
        };
        table.push(unit.unit.to_string(), each(|it| Figure::Count(it.chunks), false));
        table.push("  new", each(|it| Figure::Count(it.chunks), true));
        table.push("  bytes of them", each(|it| Figure::Bytes(ByteLen::new(it.bytes)), true));
    }
    table
}

/// Chunks of each image that each other one has.
fn matrix(args: &CompareArgs, unit: &UnitShared) -> Table {
    let mut table = Table::new(args.images.iter().map(|path| name(path)).collect(), false);
    for (path, row) in args.images.iter().zip(&unit.matrix) {
        table.push(name(path), row.iter().copied().map(Figure::Count).collect());
    }
    table
}

/// Maps of the last image, and all tables.
fn page(args: &CompareArgs, compared: &Compared) -> ChunkPage {
    let names: Vec<String> = args.images.iter().map(|path| name(path)).collect();
    let last = names.last().cloned().unwrap_or_default();
    let len = compared.lens.last().copied();
    let maps = compared.last.iter().map(|(&size, one)| map(&last, len, size, one));
    let note = |text: &str| text.to_string();
    let mut tables = vec![(
        note("Chunks"),
        totals(args, compared),
        note(
            "New chunks are in no image before. Chunks of zeros are not counted; equal ones count once.",
        ),
    )];
    if names.len() > 2 {
        let of = |unit: &UnitShared| {
            let title = format!("{} of each image (row) that another has", unit.unit);
            (title, matrix(args, unit), String::new())
        };
        tables.extend(compared.units.iter().map(of));
    }
    let title = format!("Bytes of the new chunks of {last}, by use");
    tables.push((title, by_use(&compared.last), String::new()));
    tables.push((format!("New chunks of {last}"), by_cause(&compared.last), String::new()));
    ChunkPage {
        title: "Chunks that images share".into(),
        subtitle: format!("{last} beside {}", names[..names.len().saturating_sub(1)].join(", ")),
        maps: maps.collect(),
        tables,
    }
}

/// The map of the chunks of one size.
fn map(image: &str, len: Option<ByteLen>, size: ByteLen, one: &LastShared) -> ChunkMap {
    let causes: HashMap<u64, Cause> = one.kinds.places.iter().copied().collect();
    let class = |(at, cell): (u64, Option<bool>)| match (cell, causes.get(&(at * size.get()))) {
        (None, _) => ChunkClass::Zero,
        (Some(_), Some(Cause::Moved)) => ChunkClass::Moved,
        (Some(_), Some(Cause::Metadata)) => ChunkClass::Metadata,
        (Some(_), Some(Cause::Contents)) => ChunkClass::Contents,
        (Some(_), None) => ChunkClass::Equal,
    };
    let chunks = (0..).zip(cells(&one.runs, len, size)).map(class).collect();
    ChunkMap { name: image.into(), size, chunks }
}

/// Bytes of new chunks by use.
fn by_use(last: &BTreeMap<ByteLen, LastShared>) -> Table {
    let mut columns = vec!["new".to_string()];
    columns.extend(last.keys().map(|&size| format!("moved, {}", format_size(size))));
    let mut table = Table::new(columns, false);
    let of = |one: &LastShared, used| one.kinds.bytes.get(&used).copied().unwrap_or_default();
    let bytes = |bytes| Figure::Bytes(ByteLen::new(bytes));
    for used in Use::ALL {
        let each: Vec<KindBytes> = last.values().map(|one| of(one, used)).collect();
        // New blocks of 4K are in new chunks, whatever their size.
        let new = each.iter().map(|it| it.new).max().unwrap_or(0);
        if new > 0 || each.iter().any(|it| it.moved > 0) {
            let moved = each.iter().map(|it| bytes(it.moved));
            table.push(used.name(), std::iter::once(bytes(new)).chain(moved).collect());
        }
    }
    table
}

/// New chunks by cause.
fn by_cause(last: &BTreeMap<ByteLen, LastShared>) -> Table {
    let columns = last.keys().map(|&size| format_size(size)).collect();
    let mut table = Table::new(columns, false);
    for cause in Cause::ALL {
        let count = |one: &LastShared| one.kinds.causes.get(&cause).copied().unwrap_or(0);
        table.push(cause.name(), last.values().map(|one| Figure::Count(count(one))).collect());
    }
    table
}

/// The size that the picture shows: 512K, if it is there.
fn pictured(last: &BTreeMap<ByteLen, LastShared>) -> Option<(ByteLen, &LastShared)> {
    let usual = ByteLen::new(512 << 10);
    let found = last.get_key_value(&usual).or_else(|| last.first_key_value());
    found.map(|(&size, one)| (size, one))
}

/// The chunks of an image in order; `None` for those of zeros.
fn cells(runs: &[(Range<u64>, bool)], len: Option<ByteLen>, size: ByteLen) -> Vec<Option<bool>> {
    let count = len.map_or(0, ByteLen::get).div_ceil(size.get());
    let mut cells = vec![None; usize::try_from(count).unwrap_or(0)];
    for (run, is_new) in runs {
        let number = usize::try_from(run.start / size.get()).unwrap_or(usize::MAX);
        if let Some(cell) = cells.get_mut(number) {
            *cell = Some(*is_new);
        }
    }
    cells
}

fn show_fetched(args: &CompareArgs, compared: &Compared) {
    for (&size, one) in &compared.last {
        if let Some(fetched) = &one.fetched {
            let chunks = counted(fetched.chunks, "chunk");
            let missing = fetched.missing.len();
            let size = format_size(size);
            say!("\nThe trace reads {chunks} of {size}, of which no image before has {missing}.");
        }
    }
    if !compared.missing.is_empty() {
        let last = args.images.last().map_or_else(String::new, |path| name(path));
        say!("{} of the trace are not in {last}.", counted(compared.missing.len() as u64, "path"));
    }
}

fn as_json(args: &CompareArgs, compared: &Compared) -> Value {
    let count = |it: Count| json!({ "chunks": it.chunks, "bytes": it.bytes });
    let units: Vec<Value> = compared
        .units
        .iter()
        .map(|unit| {
            let images: Vec<Value> = unit
                .images
                .iter()
                .map(|image| json!({ "all": count(image.all), "new": count(image.new) }))
                .collect();
            let (kind, size) = match unit.unit {
                Unit::Aligned(size) => ("aligned", Some(size.get())),
                Unit::ContentDefined => ("content-defined", None),
            };
            json!({ "kind": kind, "size": size, "images": images, "shared": unit.matrix })
        })
        .collect();
    let images: Vec<Value> = args
        .images
        .iter()
        .zip(&compared.lens)
        .map(|(path, len)| json!({ "image": name(path), "bytes": len.get() }))
        .collect();
    let last: Vec<Value> = compared.last.iter().map(last_json).collect();
    json!({ "images": images, "units": units, "last": last, "missing": compared.missing.len() })
}

fn last_json((size, one): (&ByteLen, &LastShared)) -> Value {
    let by_use: serde_json::Map<String, Value> = one
        .kinds
        .bytes
        .iter()
        .map(|(used, it)| (used.name().into(), json!({ "new": it.new, "moved": it.moved })))
        .collect();
    let causes: serde_json::Map<String, Value> = one
        .kinds
        .causes
        .iter()
        .map(|(cause, &count)| (cause.name().into(), count.into()))
        .collect();
    let fetched = one.fetched.as_ref();
    let fetched = fetched.map(|it| json!({ "chunks": it.chunks, "missing": it.missing.len() }));
    json!({ "size": size.get(), "by_use": by_use, "causes": causes, "trace": fetched })
}
