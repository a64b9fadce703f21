//! `seekless optimize --in-place`: moves blocks within the image, step by step.

use super::{InlineData, OptimizeArgs, scattered, scores, tabulate};
use crate::args::Global;
use crate::failure::Failure;
use crate::progress;
use crate::say::say;
use clap::Args;
use seekless_compose::formats::E2FSCK;
use seekless_compose::rearrange::refused;
use seekless_compose::traces;
use seekless_device::{BlockDevice, Overlay};
use seekless_ext::{ExtImage, Relayout, UndoDevice};
use seekless_fs::plan::Rearrange;
use seekless_fs::{FsError, Inspect, Timestamp};
use seekless_images::refuse_others;
use seekless_layout::planner;
use seekless_layout::planner::in_place::{InPlace, Progress, Stopped};
use seekless_layout::planner::scattered::{ScatteredFile, blocks_in, gather, named};
use seekless_layout::replay::add_symlinks;
use seekless_layout::score::Score;
use seekless_layout::trace::Events;
use seekless_units::{ByteLen, format_size, parse_size};
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Size of the pieces of a trial's overlay in memory, in bytes.
const TRIAL_CHUNK: u64 = 4096;

#[derive(Args, Debug)]
pub(super) struct InPlaceArgs {
    /// Move blocks within the image, which must not be mounted, instead of writing a
    /// new one
    #[arg(long, conflicts_with_all = ["output", "force"], group = "moving")]
    in_place: bool,
    /// With --in-place: move at most so many bytes, those accessed first before all
    /// others [default: three times the bytes that the traces access]
    #[arg(long, value_parser = parse_size, requires = "moving", value_name = "SIZE")]
    budget: Option<ByteLen>,
    /// With --in-place: save what is overwritten in this new file, from which e2undo
    /// (of e2fsprogs) restores the image
    #[arg(long, requires = "moving", conflicts_with = "dry_run", value_name = "FILE")]
    undo: Option<PathBuf>,
    /// With --in-place: only print what would be moved and gained
    #[arg(long, requires = "moving")]
    dry_run: bool,
}

/// Progress of the moves, and the scores after them.
struct Rearranged {
    progress: Progress,
    steps: u64,
    block_size: u64,
    after: Vec<Score>,
    scattered: Vec<ScatteredFile>,
}

pub(super) fn run(args: &OptimizeArgs, global: &Global) -> Result<ExitCode, Failure> {
    if args.inline_data != InlineData::Auto || args.inode_size.is_some() {
        return Err(Failure::usage("--inline-data and --inode-size need a new image (-o)"));
    }
    args.reflink.refuse()?;
    if args.open.ignore_checksums || args.open.skip_journal {
        return Err(Failure::usage("--in-place takes sound images only"));
    }
    let about = |error: FsError| Failure::from(error).about(args.image.display());
    let traces = traces::load_all(&args.trace)?;
    let raw = open(args)?;
    // Checked before anything is changed: an image that is refused stays as it is, with the
    // transactions in its journal.
    let looked = Arc::new(ExtImage::open(raw.clone(), args.open.options()).map_err(about)?);
    let relayout = look(args, &looked)?;
    let undo = save_in(args, &raw, looked.geometry().block_size)?;
    let device = undo.clone().map_or(raw, |undo| -> Arc<dyn BlockDevice> { undo });
    let (before, outcome) = if seekless_ext::recover(&device).map_err(about)? {
        let image = ExtImage::open(device.clone(), args.open.options()).map_err(about)?;
        let image = Arc::new(image);
        rearrange(args, &device, &image, &look(args, &image)?, &traces, global)?
    } else {
        rearrange(args, &device, &looked, &relayout, &traces, global)?
    };
    undo.map_or(Ok(()), |undo| undo.finish()).map_err(about)?;
    report(args, &before, &outcome, global);
    Ok(ExitCode::SUCCESS)
}

/// The device to change: the image, locked, or for a trial an overlay in memory.
fn open(args: &OptimizeArgs) -> Result<Arc<dyn BlockDevice>, Failure> {
    let path = args.image.as_path();
    let only = "optimize --in-place rearranges ext3 and ext4 images";
    let looked = if args.in_place.dry_run {
        seekless_images::device(path, &args.place.place())?
    } else {
        seekless_images::device_locked(path, &args.place.place())?
    };
    refuse_others(path, looked.as_ref(), &[seekless_ext::FORMAT], only)?;
    if args.in_place.dry_run {
        return Ok(Arc::new(Overlay::new(looked, TRIAL_CHUNK)));
    }
    Ok(looked)
}

/// The image, with each block saved in the file of `--undo` before it is overwritten.
fn save_in(
    args: &OptimizeArgs,
    image: &Arc<dyn BlockDevice>,
    block_size: u32,
) -> Result<Option<Arc<UndoDevice>>, Failure> {
    let Some(path) = &args.in_place.undo else { return Ok(None) };
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(|error| Failure::io(path.display(), &error))?;
    let undo = UndoDevice::new(image.clone(), file, block_size);
    undo.map(|undo| Some(Arc::new(undo)))
        .map_err(|error| Failure::from(error).about(path.display()))
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let secs = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Timestamp { secs, nanos: since.subsec_nanos() }
}

/// Checks the image completely, and that it can be rearranged in place.
fn look<'a>(args: &OptimizeArgs, image: &'a ExtImage) -> Result<Relayout<'a>, Failure> {
    let relayout = Relayout::new(image).map_err(|error| refused(error, &args.image, E2FSCK))?;
    let looked = relayout.in_place().map(drop);
    looked.map_err(|error| Failure::from(error).about(args.image.display()))?;
    Ok(relayout)
}

/// Moves the blocks that the traces touch; returns the scores before, and the outcome.
fn rearrange(
    args: &OptimizeArgs,
    device: &Arc<dyn BlockDevice>,
    image: &Arc<ExtImage>,
    relayout: &Relayout<'_>,
    traces: &[Events],
    global: &Global,
) -> Result<(Vec<Score>, Rearranged), Failure> {
    let about = |error: FsError| Failure::from(error).about(args.image.display());
    let before = scores(args.chunk, image.as_ref(), traces).map_err(about)?;
    let mut replays = super::replays(&args.image, image.as_ref(), &args.trace, traces)?;
    add_symlinks(image.as_ref(), &mut replays).map_err(about)?;
    let block_size = u64::from(image.geometry().block_size);
    let storage = args.storage.with(args.chunk);
    let object = |ino| relayout.object(ino);
    let blocks = |object| blocks_in(relayout.demand(), object);
    let touches = planner::touches(&replays, &object, 1);
    let (touches, scattered) = gather(touches, storage, block_size, &blocks);
    let scattered = named(scattered, &replays, &object);
    let (occupied, space) = relayout.in_place().map_err(about)?;
    let mut mover = relayout.mover(device.clone(), Box::new(now)).map_err(about)?;
    if args.in_place.dry_run {
        mover.without_contents();
    }
    let align = storage.align(block_size);
    let budget = args.in_place.budget.map(|budget| budget.get() / block_size);
    let mut plan =
        InPlace::new(occupied, &space, &touches, align, budget, mover.limits()).map_err(about)?;
    let bar = progress::bytes(global, ByteLen::new(plan.progress().hot * block_size));
    let mut steps = 0;
    let result = loop {
        let done = plan.next_step().and_then(|step| match step {
            None => Ok(false),
            Some(step) => mover.apply(&step).map(|()| true),
        });
        match done {
            Ok(true) => {
                steps += 1;
                let progress = plan.progress();
                bar.set_position((progress.in_place + progress.moved_in) * block_size);
            }
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    bar.finish_and_clear();
    // The file system is consistent after each step: an error keeps the steps done so far.
    mover.finish().map_err(about)?;
    result.map_err(|error| {
        let what = format!("stopped after {steps} steps; the file system is whole");
        about(error).hint(what)
    })?;
    let progress = plan.progress();
    let new = ExtImage::open(device.clone(), args.open.options()).map_err(about)?;
    let after = scores(args.chunk, &new, traces).map_err(about)?;
    Ok((before, Rearranged { progress, steps, block_size, after, scattered }))
}

impl Rearranged {
    fn bytes(&self, blocks: u64) -> ByteLen {
        ByteLen::new(blocks * self.block_size)
    }

    /// Reason for which blocks were left where they are.
    fn stopped(&self) -> Option<&'static str> {
        self.progress.stopped.map(|stopped| match stopped {
            Stopped::Budget => "budget",
            Stopped::Room => "room",
        })
    }

    fn left(&self) -> u64 {
        let progress = self.progress;
        progress.hot.saturating_sub(progress.in_place + progress.moved_in)
    }
}

fn report(args: &OptimizeArgs, before: &[Score], outcome: &Rearranged, global: &Global) {
    let progress = outcome.progress;
    let bytes = |blocks| outcome.bytes(blocks);
    let moved = progress.moved_in + progress.moved_out;
    if global.json {
        let traces: Vec<_> = args
            .trace
            .iter()
            .zip(before)
            .zip(&outcome.after)
            .map(|((path, before), after)| {
                serde_json::json!({ "trace": path, "before": before, "after": after })
            })
            .collect();
        let report = serde_json::json!({
            "traces": traces,
            "dry_run": args.in_place.dry_run,
            "steps": outcome.steps,
            "touched_bytes": bytes(progress.hot).get(),
            "in_place_bytes": bytes(progress.in_place).get(),
            "moved_in_bytes": bytes(progress.moved_in).get(),
            "moved_out_bytes": bytes(progress.moved_out).get(),
            "left_bytes": bytes(outcome.left()).get(),
            "stopped": outcome.stopped(),
            "scattered": scattered::fields(&outcome.scattered, args.chunk),
        });
        say!("{report}");
        return;
    }
    for ((path, before), after) in args.trace.iter().zip(before).zip(&outcome.after) {
        tabulate(path, before, after, None, args.chunk);
        tell_gain(before, after, bytes(moved));
    }
    scattered::tell(&outcome.scattered, args.chunk, global);
    if global.quiet {
        return;
    }
    let would = if args.in_place.dry_run { "would be " } else { "" };
    let size = |blocks| format_size(bytes(blocks));
    say!(
        "{}: {} accessed, {} of it in place; {} {would}moved in, {} {would}moved away, in {} steps",
        args.image.display(),
        size(progress.hot),
        size(progress.in_place),
        size(progress.moved_in),
        size(progress.moved_out),
        outcome.steps
    );
    match progress.stopped {
        None => {}
        Some(Stopped::Budget) => say!("{} stay where they are: --budget", size(outcome.left())),
        Some(Stopped::Room) => {
            say!("{} stay where they are: too few blocks are free", size(outcome.left()));
        }
    }
}

/// Prints the seeks saved per MiB moved.
pub(in crate::cmd) fn tell_gain(before: &Score, after: &Score, moved: ByteLen) {
    let saved = before.seeks.saturating_sub(after.seeks);
    if moved > ByteLen::ZERO && saved > 0 {
        let per = saved as f64 * (1 << 20) as f64 / moved.get() as f64;
        say!("  {:<28}{:>28.1}", "seeks saved per MiB moved", per);
    }
}
