//! `seekless optimize`: rearranges an image by traces.

mod held_out;
mod in_place;
mod like;
mod scattered;

pub(super) use in_place::tell_gain;

use crate::args::{
    FreedBlocks, Global, OpenArgs, OutputFormatArg, PlaceArgs, ReflinkArgs, StorageArg,
};
use crate::failure::Failure;
use crate::progress;
use crate::say::say;
use crate::scoring::fit;
use crate::written::Written;
use clap::{Args, ValueEnum};
use seekless_compose::base::{Likeness, Moved, Taken};
use seekless_compose::freed::Freed;
use seekless_compose::held_out::HeldOut;
use seekless_compose::rearrange::{self, Rearrangeable, Rearrangement};
use seekless_compose::traces;
use seekless_ext::BuildOptions;
use seekless_fs::inspect::files_in;
use seekless_fs::{FsError, Inspect};
use seekless_images::targets::Target;
use seekless_layout::fit::Fit;
use seekless_layout::planner::scattered::{ScatteredFile, scattered_in};
use seekless_layout::replay::{Machine, Replayed, replay_for_layout};
use seekless_layout::score::{Score, parse_chunk, score};
use seekless_layout::trace::{Events, Program};
use seekless_units::{ByteLen, format_size, parse_size};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Rearrange an image so that data used together is stored together
#[derive(Args, Debug)]
#[command(after_help = "\
The new image holds the same file system: features, UUID, label, and the contents
and attributes of every file. Directory blocks, inodes and file ranges accessed by
the traces are stored together, in the order of first access. With several traces,
data accessed by more of them comes first. Of three or more recordings of a program,
the one is followed whose order fits the others best. With several recordings of one
command, the seeks and chunks to expect of a run that was not recorded are reported
as a range.
The old image is not changed. It is checked first, as by `seekless check`, and refused
if it is damaged.

A large file that a trace reads in small pieces would be read slowly as a whole if these
lay elsewhere: with --for disk, the default, most of them stay, and the price of both is
printed. --for lazy moves them.

Ext images can be rearranged, and FAT images, whose directory entries are put in
that order, too; with --like also UFS images.

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
  seekless optimize disk.img --trace make.1.trace --trace make.2.trace -o fast.img
  seekless optimize disk.img --trace boot.trace --trace job.trace --holdout -o fast.img
  seekless optimize disk.img --trace boot.trace --in-place --dry-run
  seekless optimize disk.img --trace boot.trace --in-place --budget 2G --undo disk.e2undo
  seekless optimize week2.img --trace boot.trace -o fast.img --like week1.img
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
    /// Format of the output file [default: by the end of its name, such as .qcow2; else raw]
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with = "in_place")]
    output_format: Option<OutputFormatArg>,
    #[command(flatten)]
    in_place: in_place::InPlaceArgs,
    /// Replace the output file if it exists, or overwrite the contents of the block device. An input
    /// is never replaced
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    reflink: ReflinkArgs,
    /// Align the start of the hot part to a multiple of this size: the unit in
    /// which a lazily loaded volume is fetched
    #[arg(long, value_parser = parse_chunk, default_value = "512K")]
    chunk: ByteLen,
    /// The storage to lay out for
    #[arg(long = "for", value_enum, value_name = "STORAGE", default_value_t)]
    storage: StorageArg,
    /// Store small files in their inodes: as in the old image (auto), or always
    /// or never, which may require a new file system with the same label and UUID
    #[arg(long, value_enum, default_value_t = InlineData::Auto)]
    inline_data: InlineData,
    /// New inode size in bytes; a different size requires a new file system
    #[arg(long, value_parser = parse_size)]
    inode_size: Option<ByteLen>,
    /// Keep the files of this older image of the same format, or of its layout list, where they lie
    /// there, and its size, features, UUID and label, as `seekless build --like` (repeatable)
    #[arg(long, value_name = "IMG", conflicts_with_all = ["in_place", "inline_data", "inode_size"],
          group = "older")]
    like: Vec<PathBuf>,
    /// With --like: fail where groups and inode tables cannot be those of the older image
    #[arg(long, requires = "older")]
    like_strict: bool,
    /// With --like: blocks of files that the new image lacks are filled with zeros (default), or
    /// stay as they are there, so that their chunks stay equal; they can be read from the image
    #[arg(long, requires = "older", value_enum, value_name = "zero|keep")]
    freed: Option<FreedBlocks>,
    /// With --like: let so many bytes that traces read leave the places that they have there, so
    /// that they lie in the order in which they are read
    #[arg(long, requires = "older", value_name = "SIZE", value_parser = parse_size)]
    move_budget: Option<ByteLen>,
    /// Also report, for each trace, the cost on a layout that only the other traces give: the gain
    /// to expect for input that was not recorded
    #[arg(long, conflicts_with_all = ["in_place", "like", "inline_data", "inode_size"])]
    holdout: bool,
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
    /// The image that is written: the output, or the image itself with `--in-place`.
    fn written(&self) -> &Path {
        self.output.as_deref().unwrap_or(&self.image)
    }

    /// All files that are read.
    fn inputs(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.image).chain(&self.trace).chain(&self.like)
    }

    /// How far the new image is like the older one.
    fn likeness(&self) -> Likeness {
        let freed = self.freed.map_or(Freed::Zero, Freed::from);
        let move_budget = self.move_budget.unwrap_or_default();
        Likeness { is_strict: self.like_strict, freed, move_budget }
    }

    /// Options of a rebuild; `None` if moving files within the file system suffices.
    fn rebuild(&self, opened: &dyn Rearrangeable) -> Result<Option<BuildOptions>, Failure> {
        let Some(image) = opened.ext() else {
            if self.inline_data != InlineData::Auto || self.inode_size.is_some() {
                return Err(Failure::usage("--inline-data and --inode-size are for ext images"));
            }
            return Ok(None);
        };
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
        if self.place.is_part() {
            let why = "a partition keeps its file system: leave --inline-data and --inode-size out";
            return Err(Failure::usage(why));
        }
        Ok(Some(options))
    }
}

pub(crate) fn run(args: &OptimizeArgs, global: &Global) -> Result<ExitCode, Failure> {
    let Some(path) = &args.output else { return in_place::run(args, global) };
    let format = args.output_format.map(Into::into);
    let target = Target::create(path, args.force, format, args.inputs())?;
    let target = target.with_reflink(args.reflink.mode())?;
    let older = like::open(args)?;
    let storage = args.storage.with(args.chunk);
    let (place, progress) = (args.place.place(), progress::shown(global));
    let rearrangement = Rearrangement {
        image: &args.image,
        place: &place,
        target: &target,
        written: args.written(),
        storage,
        progress: &progress,
    };
    if let Some(older) = &older {
        let (gains, scattered) = like::rebuild(args, older, &rearrangement)?;
        target.finish()?;
        report(args, &gains, &[], &scattered, global)?;
        return Ok(ExitCode::SUCCESS);
    }
    let opened = rearrange::open(&args.image, &args.place.place(), args.open.options())?;
    let image = opened.inspect();
    target.refuse_blocks(
        image.geometry().block_size,
        "build a new image with larger blocks for it",
    )?;
    let recordings: Vec<_> =
        args.trace.iter().map(|path| traces::load_recording(path)).collect::<Result<_, _>>()?;
    let (programs, traces): (Vec<Program>, Vec<Events>) = recordings.into_iter().unzip();
    let about = |error| Failure::from(error).about(args.image.display());
    if args.holdout {
        rearrangement.refuse_hold_out(opened.as_ref(), &traces)?;
    }
    let mut replays = replays(&args.image, image, &args.trace, &traces)?;
    let scattered = scattered_in(image, &replays, storage).map_err(about)?;
    let held_out = match (opened.ext(), args.rebuild(opened.as_ref())?) {
        (Some(image), Some(options)) => {
            rearrangement.rebuild(image, &options, &mut replays)?;
            Vec::new()
        }
        _ => {
            rearrangement.rearrange(opened.as_ref(), &mut replays)?;
            rearrangement.held_out(opened.as_ref(), &programs, &traces, &replays)?
        }
    };
    let without = match args.holdout {
        true => rearrangement.without_each(opened.as_ref(), &traces, &replays)?,
        false => Vec::new(),
    };
    let gains = Gains { without, ..gains(args, &rearrangement, image, &traces)? };
    target.finish()?;
    report(args, &gains, &held_out, &scattered, global)?;
    Ok(ExitCode::SUCCESS)
}

/// Completes the new image, and scores the traces on it and on the old one.
fn gains(
    args: &OptimizeArgs,
    rearrangement: &Rearrangement<'_>,
    image: &dyn Inspect,
    traces: &[Events],
) -> Result<Gains, Failure> {
    let new = rearrangement.open_written()?;
    let of = |path: &Path, error| Failure::from(error).about(path.display());
    let before = scores(args.chunk, image, traces).map_err(|error| of(&args.image, error))?;
    let after = scores(args.chunk, new.as_ref(), traces)?;
    let files = files_in(new.as_ref()).map_err(|error| of(args.written(), error))?;
    rearrangement.complete()?;
    Ok(Gains { before, after, without: Vec::new(), files, kept: None })
}

/// Scores of the traces on an image.
fn scores(chunk: ByteLen, image: &dyn Inspect, traces: &[Events]) -> Result<Vec<Score>, FsError> {
    let scored = |events: &Events| score(image, events, Machine::for_score(), &[chunk]);
    traces.iter().map(|events| scored(events).map(|(score, _)| score)).collect()
}

/// Replays the traces on an image, in the order of the layout. `name` is the image's and `paths`
/// are the traces', for warnings.
fn replays(
    name: &Path,
    image: &dyn Inspect,
    paths: &[PathBuf],
    traces: &[Events],
) -> Result<Vec<Replayed>, Failure> {
    let about = |error| Failure::from(error).about(name.display());
    let replays = replay_for_layout(image, traces).map_err(about)?;
    warn_of_others(name, paths, traces, &replays);
    Ok(replays)
}

/// Warns of traces that do not belong to an image.
pub(super) fn warn_of_others(
    name: &Path,
    paths: &[PathBuf],
    traces: &[Events],
    replays: &[Replayed],
) {
    let mut fits = false;
    for ((path, events), replayed) in paths.iter().zip(traces).zip(replays) {
        let fit = Fit::new(events, replayed);
        fit::warn(&fit, &path.display().to_string(), &name.display().to_string());
        fits |= fit.fitting > 0;
    }
    let is_idle = |replayed: &Replayed| replayed.files.is_empty() && replayed.inodes.len() <= 1;
    if fits && replays.iter().all(is_idle) {
        crate::say::warning!("the traces do not access any file of {}", name.display());
    }
}

/// The scores of the traces, and the number of files of the new image.
struct Gains {
    before: Vec<Score>,
    after: Vec<Score>,
    /// On the layouts that the other traces give; none without `--holdout`.
    without: Vec<Score>,
    files: u64,
    /// With older images.
    kept: Option<(Taken, Moved)>,
}

fn report(
    args: &OptimizeArgs,
    gains: &Gains,
    held_out: &[HeldOut],
    scattered: &[ScatteredFile],
    global: &Global,
) -> Result<(), Failure> {
    let written = Written::image_in(args.written(), &args.place.place(), gains.files)?;
    let written = gains
        .kept
        .iter()
        .fold(written, |written, (taken, moved)| written.with_likeness(taken, moved));
    let chunk = args.chunk;
    let results = || args.trace.iter().zip(&gains.before).zip(&gains.after);
    let without = |at: usize| gains.without.get(at);
    if global.json {
        let traces: Vec<_> = results()
            .enumerate()
            .map(|(at, ((path, before), after))| {
                let mut one =
                    serde_json::json!({ "trace": path, "before": before, "after": after });
                if let Some(without) = without(at) {
                    one["held_out"] = serde_json::json!(without);
                }
                one
            })
            .collect();
        let report = serde_json::json!({
            "traces": traces,
            "held_out": held_out::fields(held_out, &args.trace, chunk),
            "scattered": scattered::fields(scattered, chunk),
            "written": written.fields(),
        });
        say!("{report}");
        return Ok(());
    }
    for (at, ((path, before), after)) in results().enumerate() {
        tabulate(path, before, after, without(at), chunk);
    }
    held_out::tell(held_out, &args.trace, chunk);
    scattered::tell(scattered, chunk, global);
    written.tell_text(global);
    Ok(())
}

/// Prints the scores of a trace, before and after, and on the layout without it.
pub(super) fn tabulate(
    trace: &Path,
    before: &Score,
    after: &Score,
    without: Option<&Score>,
    chunk: ByteLen,
) {
    say!("{}", trace.display());
    let title = without.map_or("", |_| "without it");
    say!("{}", format!("  {:<28}{:>14}{:>14}{title:>14}", "", "before", "after").trim_end());
    let chunks = format!("chunks of {}", format_size(chunk));
    let count = |score: &Score| score.chunks.get(&chunk.get()).copied().unwrap_or(0);
    let fetched = |score: &Score| score.prefetch.chunks.get(&chunk.get()).copied().unwrap_or(0);
    let row = |name: &str, figure: &dyn Fn(&Score) -> u64| {
        let without = without.map_or(String::new(), |score| format!("{:>14}", figure(score)));
        say!("  {name:<28}{:>14}{:>14}{without}", figure(before), figure(after));
    };
    row("requests", &|score| score.requests);
    row("of them for metadata", &|score| score.metadata_requests);
    row("seeks", &|score| score.seeks);
    row("bytes", &|score| score.bytes);
    row(&chunks, &count);
    row("prefetch instead: seeks", &|score| score.prefetch.seeks);
    row("prefetch instead: bytes", &|score| score.prefetch.bytes);
    row("prefetch instead: chunks", &fetched);
}
