//! `seekless optimize`: an image laid out anew by what traces touch.

mod disk;
mod in_place;
mod opened;

pub(super) use in_place::tell_gain;

use crate::args::{Global, OpenArgs, OutputFormatArg, PlaceArgs};
use crate::cmd::build::{Destination, write_built};
use crate::failure::Failure;
use crate::progress;
use crate::say::say;
use crate::scoring::Fit;
use crate::traces;
use crate::written::{Written, files_in};
use clap::{Args, ValueEnum};
use opened::{Opened, open, open_written};
use seekless_device::DeviceError;
use seekless_ext::{BuildOptions, Builder, ExtImage, Relayout};
use seekless_fat::FatImage;
use seekless_fs::plan::{ObjectId, Rearrange, Run};
use seekless_fs::{FsError, Inspect};
use seekless_images::target::Target;
use seekless_layout::planner::{self, Part};
use seekless_layout::replay::{Machine, Replayed, add_symlinks, replay_for_layout};
use seekless_layout::score::{Score, parse_chunk, score};
use seekless_layout::trace::Event;
use seekless_source::{ImageSource, TreeOptions};
use seekless_units::{ByteLen, Lbn, format_size, parse_size};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Rearrange an image so that data used together is stored together
#[derive(Args, Debug)]
#[command(after_help = "\
The new image holds the same file system: features, UUID, label, and the contents
and attributes of every file. Directory blocks, inodes and file ranges accessed by
the traces are stored together, in the order of first access. With several traces,
data accessed by more of them comes first. The old image is not changed. It is
checked first, as by `seekless check`, and refused if it is damaged.

Ext images can be rearranged, and FAT images, whose directory entries are put in
that order, too.

Of a disk image --partition names the partition that is rearranged; the new file is the
whole disk, with everything else as it was.

With --in-place the blocks that were accessed move within an ext3 or ext4 image, which
must not be mounted, and no second image is written. Each step goes through the journal
of the image: if the command is killed, or the machine stops, e2fsck, the kernel or the
next run recovers a whole file system, and the next run goes on. Inodes keep their
numbers and places.

Examples:
  seekless optimize disk.img --trace boot.trace -o fast.img
  seekless optimize disk.img --trace boot.trace --trace job.trace -o fast.img --chunk 1M
  seekless optimize disk.img --trace boot.trace --in-place --dry-run
  seekless optimize disk.img --trace boot.trace --in-place --budget 2G --undo disk.e2undo
  seekless optimize disk.qcow2 --trace boot.trace -o fast.qcow2
  seekless score disk.img fast.img --trace boot.trace")]
pub(crate) struct OptimizeArgs {
    /// Image to rearrange: a file (raw or qcow2), or a block device
    image: PathBuf,
    /// Trace to optimize the layout for (repeatable)
    #[arg(long, required = true, value_name = "TRACE")]
    trace: Vec<PathBuf>,
    /// The image to write: a file, or a block device
    #[arg(short, long, value_name = "IMG", required_unless_present = "in_place")]
    output: Option<PathBuf>,
    /// What the output file is [default: qcow2 if its name ends in .qcow2, else raw]
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with = "in_place")]
    output_format: Option<OutputFormatArg>,
    #[command(flatten)]
    in_place: in_place::InPlaceArgs,
    /// Replace the output file if it exists, or what the block device holds
    #[arg(long)]
    force: bool,
    /// Align the start of the hot part to a multiple of this size: the unit in
    /// which a lazily loaded volume is fetched
    #[arg(long, value_parser = parse_chunk, default_value = "512K")]
    chunk: ByteLen,
    /// Store small files in their inodes: as in the old image (auto), or always
    /// or never, which may require a new file system with the same label and UUID
    #[arg(long, value_enum, default_value_t = InlineData::Auto)]
    inline_data: InlineData,
    /// New inode size in bytes; a different size requires a new file system
    #[arg(long, value_parser = parse_size)]
    inode_size: Option<ByteLen>,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    open: OpenArgs,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum InlineData {
    Auto,
    On,
    Off,
}

impl OptimizeArgs {
    /// The image that is changed.
    fn written(&self) -> &Path {
        self.output.as_deref().unwrap_or(&self.image)
    }

    /// How to make the file system anew, when files cannot just be moved.
    fn rebuild(&self, image: &ExtImage) -> Result<Option<BuildOptions>, Failure> {
        let mut options = BuildOptions::like(image);
        let list = match (self.inline_data, options.has_inline_data()) {
            (InlineData::On, false) => "inline_data",
            (InlineData::Off, true) => "^inline_data",
            _ => "",
        };
        let size = self.inode_size.map(|size| size.get());
        let size = size.filter(|&size| size != u64::from(options.inode_size));
        if list.is_empty() && size.is_none() {
            return Ok(None);
        }
        options.features = options.features.apply(list)?;
        if let Some(size) = size {
            options.inode_size = u32::try_from(size)
                .map_err(|_| Failure::usage(format!("inode size {size} is too large")))?;
        }
        options.check()?;
        Ok(Some(options))
    }
}

pub(crate) fn run(args: &OptimizeArgs, global: &Global) -> Result<ExitCode, Failure> {
    let Some(path) = &args.output else { return in_place::run(args, global) };
    let target = Target::create(path, args.force, args.output_format.map(Into::into))?;
    target.refuse_source([&args.image])?;
    let opened = open(args)?;
    let image = opened.inspect();
    let block = opened.inspect().geometry().block_size;
    target.refuse_blocks(block, "build a new image with larger blocks for it")?;
    let traces = traces::load_all(&args.trace)?;
    let about = |error| Failure::from(error).about(args.image.display());
    let mut replays = replays(&args.image, image, &args.trace, &traces)?;
    match &opened {
        Opened::Ext(image) => match args.rebuild(image)? {
            None => write_relayout(args, image, &mut replays, &target, global)?,
            Some(options) => write_rebuilt(args, image, &options, &mut replays, &target, global)?,
        },
        Opened::Fat(image) => write_fat(args, image, &replays, &target, global)?,
    }
    let new = open_written(args, &target, path)?;
    let before = scores(args.chunk, image, &traces).map_err(about)?;
    let after = scores(args.chunk, new.inspect(), &traces)?;
    let files =
        files_in(new.inspect()).map_err(|error| Failure::from(error).about(path.display()))?;
    disk::complete(args, &target)?;
    target.finish()?;
    let written = Written::image_in(path, &args.place.place(), files)?;
    report(&args.trace, &before, &after, args.chunk, &written, global);
    Ok(ExitCode::SUCCESS)
}

/// What each trace costs on an image.
fn scores(
    chunk: ByteLen,
    image: &dyn Inspect,
    traces: &[Vec<Event>],
) -> Result<Vec<Score>, FsError> {
    let scored = |events: &Vec<Event>| score(image, events, Machine::for_score(), &[chunk]);
    traces.iter().map(|events| scored(events).map(|(score, _)| score)).collect()
}

/// What each trace reads of an image, in the order to lay out by; `name` is that of the
/// image, `paths` are those of the traces, for warnings.
fn replays(
    name: &Path,
    image: &dyn Inspect,
    paths: &[PathBuf],
    traces: &[Vec<Event>],
) -> Result<Vec<Replayed>, Failure> {
    let about = |error| Failure::from(error).about(name.display());
    let replays = replay_for_layout(image, traces).map_err(about)?;
    warn_of_others(name, paths, traces, &replays);
    Ok(replays)
}

/// Warns of traces that do not fit an image.
pub(super) fn warn_of_others(
    name: &Path,
    paths: &[PathBuf],
    traces: &[Vec<Event>],
    replays: &[Replayed],
) {
    let mut fits = false;
    for ((path, events), replayed) in paths.iter().zip(traces).zip(replays) {
        let fit = Fit::new(events, replayed);
        fit.warn(&path.display().to_string(), &name.display().to_string());
        fits |= fit.fitting > 0;
    }
    let is_idle = |replayed: &Replayed| replayed.files.is_empty() && replayed.inodes.len() <= 1;
    if fits && replays.iter().all(is_idle) {
        crate::say::warning!("the traces do not access any file of {}", name.display());
    }
}

fn write_fat(
    args: &OptimizeArgs,
    image: &FatImage,
    replays: &[Replayed],
    target: &Target,
    global: &Global,
) -> Result<(), Failure> {
    if args.inline_data != InlineData::Auto || args.inode_size.is_some() {
        return Err(Failure::usage("--inline-data and --inode-size are for ext images"));
    }
    let relayout = seekless_fat::Relayout::new(image)
        .map_err(|error| refused(error, &args.image, "repair it with seekless check -y first"))?;
    rearrange(args, &relayout, image.geometry().block_size, replays, target, global)
}

fn write_relayout(
    args: &OptimizeArgs,
    image: &ExtImage,
    replays: &mut [Replayed],
    target: &Target,
    global: &Global,
) -> Result<(), Failure> {
    let about = |error| Failure::from(error).about(args.image.display());
    let relayout = Relayout::new(image).map_err(|error| refused(error, &args.image, E2FSCK))?;
    add_symlinks(image, replays).map_err(about)?;
    rearrange(args, &relayout, image.geometry().block_size, replays, target, global)
}

/// Plans where everything goes, and writes the new image.
fn rearrange(
    args: &OptimizeArgs,
    relayout: &dyn Rearrange,
    block_size: u32,
    replays: &[Replayed],
    target: &Target,
    global: &Global,
) -> Result<(), Failure> {
    let about = |error| Failure::from(error).about(args.image.display());
    let unit = relayout.cluster_blocks();
    let touches = planner::touches(replays, &|ino| relayout.object(ino), unit);
    let unit_bytes = u64::from(block_size) * unit;
    let align = (args.chunk.get() / unit_bytes).max(1);
    let plan =
        planner::plan(relayout.demand(), &relayout.space(), &touches, align).map_err(about)?;
    let device = disk::new_device(args, target, relayout.size(), global)?;
    let bar = progress::bytes(global, relayout.size());
    relayout.write(&plan, device.as_ref(), &|bytes| bar.inc(bytes)).map_err(
        |error| match error {
            // Damage is found where something is read.
            FsError::Device(DeviceError::Damaged { .. }) => about(error),
            _ => Failure::from(error).about(args.written().display()),
        },
    )?;
    bar.finish_and_clear();
    Ok(())
}

/// Why an image is not laid out anew, with what helps where it is damaged.
fn refused(error: FsError, image: &Path, hint: &str) -> Failure {
    let damaged = matches!(error, FsError::Damaged { .. });
    let failure = Failure::from(error).about(image.display());
    if damaged { failure.hint(hint) } else { failure }
}

const E2FSCK: &str = "repair it with e2fsck first";

/// The same tree in a new file system of another shape.
fn write_rebuilt(
    args: &OptimizeArgs,
    image: &Arc<ExtImage>,
    options: &BuildOptions,
    replays: &mut [Replayed],
    target: &Target,
    global: &Global,
) -> Result<(), Failure> {
    if args.place.is_part() {
        let why = "a partition keeps its file system: leave --inline-data and --inode-size out";
        return Err(Failure::usage(why));
    }
    let about = |error| Failure::from(error).about(args.image.display());
    image.refuse_damage().map_err(|error| refused(error, &args.image, E2FSCK))?;
    add_symlinks(image.as_ref(), replays).map_err(about)?;
    let tree = ImageSource::open(image.clone(), &TreeOptions::default()).map_err(about)?;
    let nodes = tree.nodes_by_inode().map_err(about)?;
    let builder = Builder::new(&tree, options).map_err(about)?;
    let object = |ino| nodes.get(&ino).map(|node| ObjectId::new(node.index() as u32));
    let mut touches = planner::touches(replays, &object, 1);
    for touch in &mut touches {
        // A directory is written anew: which block a name is in now says nothing.
        if let Part::Blocks(run) = &mut touch.part
            && builder.demand().is_directory(touch.object)
        {
            *run = Run { lbn: Lbn::ZERO, len: u64::from(u32::MAX) };
        }
    }
    let align = (args.chunk.get() / u64::from(builder.block_size())).max(1);
    let plan = planner::plan(builder.demand(), &builder.space(), &touches, align).map_err(about)?;
    let place = Destination::whole(target);
    write_built(&builder, &plan, &args.image.display(), place, global).map(drop)
}

fn report(
    traces: &[PathBuf],
    before: &[Score],
    after: &[Score],
    chunk: ByteLen,
    written: &Written,
    global: &Global,
) {
    let results = || traces.iter().zip(before).zip(after);
    if global.json {
        let traces: Vec<_> = results()
            .map(|((path, before), after)| {
                serde_json::json!({ "trace": path, "before": before, "after": after })
            })
            .collect();
        say!("{}", serde_json::json!({ "traces": traces, "written": written.fields() }));
        return;
    }
    results().for_each(|((path, before), after)| tabulate(path, before, after, chunk));
    written.tell_text(global);
}

/// The figures of a trace, before and after.
pub(super) fn tabulate(trace: &Path, before: &Score, after: &Score, chunk: ByteLen) {
    say!("{}", trace.display());
    say!("  {:<28}{:>14}{:>14}", "", "before", "after");
    let chunks = format!("chunks of {}", format_size(chunk));
    let count = |score: &Score| score.chunks.get(&chunk.get()).copied().unwrap_or(0);
    let fetched = |score: &Score| score.prefetch.chunks.get(&chunk.get()).copied().unwrap_or(0);
    let rows = [
        ("requests", before.requests, after.requests),
        ("of them for metadata", before.metadata_requests, after.metadata_requests),
        ("seeks", before.seeks, after.seeks),
        ("bytes", before.bytes, after.bytes),
        (chunks.as_str(), count(before), count(after)),
        ("prefetch instead: seeks", before.prefetch.seeks, after.prefetch.seeks),
        ("prefetch instead: bytes", before.prefetch.bytes, after.prefetch.bytes),
        ("prefetch instead: chunks", fetched(before), fetched(after)),
    ];
    for (name, before, after) in rows {
        say!("  {name:<28}{before:>14}{after:>14}");
    }
}
