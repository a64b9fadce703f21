//! `seekless relayout`: files of a mounted file system moved by what traces access.

mod acquire;
mod expected;
mod perform;
mod plan;
mod report;
mod survey;
mod target;

use crate::args::Global;
use crate::cmd::optimize::{Traces, load_traces, warn_of_others};
use crate::failure::Failure;
use crate::progress;
use crate::scoring::parse_chunk;
use acquire::{Wanted, free_of};
use clap::Args;
use indicatif::ProgressBar;
use perform::{Counts, Mover};
use plan::{Costs, Seen, Trial, limits};
use seekless_fs::{FsError, Inspect};
use seekless_host::donor::Blocks;
use seekless_layout::planner::in_place::{InPlace, Progress, Stopped, enough_for};
use seekless_units::{ByteLen, Extent, Ino, parse_size};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use survey::Reason;
use target::Target;

/// How often a plan is made: again where files were changed while it was carried out.
const ROUNDS: u32 = 3;

/// Blocks moved for each that is accessed, if nothing else is said.
const DEFAULT_BUDGET: u64 = 3;

/// Blocks that are free for what must make way, beyond what the trial took.
const SPARE: u64 = 64;

/// Move files of a mounted ext4 file system so that data used together is stored together
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless record --mount / -o job.trace -- /srv/bin/job
  seekless relayout / --trace job.trace --dry-run
  seekless relayout / --trace job.trace
  seekless relayout /srv --trace day.trace --trace night.trace --budget 2G

The kernel moves the blocks (EXT4_IOC_MOVE_EXT) while files are in use: ranges of files
that the traces access are brought together in one region, in the order of first access;
what lies there makes way. Files are whole at any moment, also if the command is killed or
the machine stops. Contents, inode numbers and times do not change.

Directories, inodes, and programs that are running stay where they are; what they cost is
printed. On an unmounted volume, `seekless optimize --in-place` moves directories too, and
`seekless optimize -o` inodes.

While it runs, free blocks are held by a file without a name; a sixteenth of the
available space is left to others, and at least 64M, or an eighth where that is less.
Needs root.

docs/relayout.md describes what is moved, and how.")]
pub(crate) struct RelayoutArgs {
    /// Mount point of an ext4 file system, or any path on it
    #[arg(value_name = "MOUNTPOINT")]
    mount: PathBuf,
    /// Trace to optimize the layout for (repeatable)
    #[arg(long, required = true, value_name = "TRACE")]
    trace: Vec<PathBuf>,
    /// Only print what would be moved and gained
    #[arg(long)]
    dry_run: bool,
    /// Move at most so many bytes, those accessed first before all others
    /// [default: three times the bytes that the traces access]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    budget: Option<ByteLen>,
    /// Align the start of the region to a multiple of this size: the unit in which a
    /// lazily loaded volume is fetched
    #[arg(long, value_parser = parse_chunk, default_value = "512K", value_name = "SIZE")]
    chunk: ByteLen,
}

/// Why not everything is where it belongs, beside what befell single files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    /// More would have to move than was allowed.
    Budget,
    /// There is no room for what would have to make way.
    Room,
    /// It would save too few seeks for what would have to move.
    Gain,
}

impl From<Stopped> for Stop {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Budget => Self::Budget,
            Stopped::Room => Self::Room,
        }
    }
}

/// What was accessed and can be moved, in blocks.
#[derive(Clone, Copy, Debug)]
struct Extents {
    hot: u64,
    /// Of it, what was in its place before.
    in_place: u64,
    /// Of it, what is not in its place now.
    left: u64,
}

impl Extents {
    /// After a plan that brought so much to its place.
    fn after(progress: Progress, moved_in: u64) -> Self {
        let Progress { hot, in_place, .. } = progress;
        Self { hot, in_place, left: hot.saturating_sub(in_place + moved_in) }
    }
}

/// What was done, and what it gave.
struct Outcome {
    block_size: u64,
    extents: Extents,
    counts: Counts,
    stopped: Option<Stop>,
    before: Costs,
    after: Costs,
}

pub(crate) fn run(args: &RelayoutArgs, global: &Global) -> Result<ExitCode, Failure> {
    // Before anything is set up: a signal in between must find its handler.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.map_err(|error| Failure::io("signals", &error))?;
    let target = Target::new(&args.mount)?;
    let traces = load_traces(&args.trace)?;
    let seen = Seen::new(&target, &traces, args.chunk, &BTreeMap::new())?;
    warn_of_others(&args.mount, &args.trace, &traces, &seen.replays);
    let block_size = seen.block_size();
    let align = (args.chunk.get() / block_size).max(1);
    let budget = args.budget.map(|budget| budget.get() / block_size);
    let trial = Trial::new(&seen, &seen.survey.space, align, budget)
        .map_err(|error| target.about(error))?;
    let hot = trial.progress.hot;
    let before = seen.costs.clone();
    if args.dry_run {
        let after = trial.costs(&seen, &traces, args.chunk);
        let after = after.map_err(|error| target.about(error))?;
        let (moved_in, moved_out) = (trial.progress.moved_in, trial.progress.moved_out);
        let counts = Counts { moved_in, moved_out, ..Counts::default() };
        let stopped = trial.progress.stopped.map(Stop::from);
        let extents = Extents::after(trial.progress, moved_in);
        let outcome = Outcome { block_size, extents, counts, stopped, before, after };
        report::print(args, &outcome, global);
        return Ok(ExitCode::SUCCESS);
    }
    target.probe(block_size)?;
    let bar = progress::bytes(global, ByteLen::new(hot * block_size));
    let budget = budget.unwrap_or(hot.saturating_mul(DEFAULT_BUDGET));
    let mut rounds = Rounds {
        target: &target,
        traces: &traces,
        chunk: args.chunk,
        align,
        budget,
        signals: &mut signals,
        bar: &bar,
        counts: Counts::default(),
        extents: Extents::after(trial.progress, 0),
        left: BTreeMap::new(),
        stopped: None,
    };
    let done = rounds.carry_out(seen, trial).and_then(|more| {
        let mut more = more;
        for _ in 1..ROUNDS {
            if !more {
                break;
            }
            let seen = Seen::new(&target, &traces, args.chunk, &rounds.left)?;
            more = rounds.again(seen)?;
        }
        Ok(())
    });
    bar.finish_and_clear();
    let Rounds { counts, left, stopped, mut extents, .. } = rounds;
    target.settle()?;
    done.map_err(|failure| {
        let moved = ByteLen::new((counts.moved_in + counts.moved_out) * block_size);
        failure.hint(format!("{moved} bytes were moved; all files are whole"))
    })?;
    let after = Seen::new(&target, &traces, args.chunk, &left)?.costs;
    // What was in place before the first round.
    extents.in_place = extents.hot.saturating_sub(extents.left + counts.moved_in);
    let outcome = Outcome { block_size, extents, counts, stopped, before, after };
    report::print(args, &outcome, global);
    Ok(ExitCode::SUCCESS)
}

/// Plans carried out, one after the other, until files are where they belong.
struct Rounds<'a> {
    target: &'a Target,
    traces: &'a Traces,
    chunk: ByteLen,
    align: u64,
    /// Blocks that may still be moved.
    budget: u64,
    signals: &'a mut Signals,
    bar: &'a ProgressBar,
    /// Of all rounds.
    counts: Counts,
    /// After the last of them.
    extents: Extents,
    /// Files that stay for good.
    left: BTreeMap<Ino, Reason>,
    stopped: Option<Stop>,
}

impl Rounds<'_> {
    /// Plans anew; whether another round may do more.
    fn again(&mut self, seen: Seen) -> Result<bool, Failure> {
        let trial = Trial::new(&seen, &seen.survey.space, self.align, Some(self.budget));
        let trial = trial.map_err(|error| self.target.about(error))?;
        self.carry_out(seen, trial)
    }

    /// Carries out one plan; whether another round may do more.
    fn carry_out(&mut self, seen: Seen, trial: Trial) -> Result<bool, Failure> {
        if trial.moved() == 0 {
            self.stopped = trial.progress.stopped.map(Stop::from);
            return Ok(false);
        }
        let block_size = seen.block_size();
        let mut donor = self.target.donor(block_size)?;
        let wanted = wanted(&seen, &trial, self.align);
        wanted.acquire(&mut donor, self.target, block_size, self.signals)?;
        let free = free_of(&donor);
        let limits = limits(&free, block_size);
        let space = seen.survey.space_with(free);
        let budget = Some(self.budget);
        let attempt = Trial::new(&seen, &space, self.align, budget);
        let attempt = match attempt {
            Err(FsError::NoSpace(_)) => {
                self.stopped = Some(Stop::Room);
                return Ok(false);
            }
            attempt => attempt.map_err(|error| self.target.about(error))?,
        };
        let about = |error| self.target.about(error);
        let costs = attempt.costs(&seen, self.traces, self.chunk).map_err(about)?;
        if !attempt.is_worth_it(&seen.costs, &costs, block_size) {
            let stopped = attempt.progress.stopped.map(Stop::from);
            self.stopped = stopped.or((attempt.moved() > 0).then_some(Stop::Gain));
            return Ok(false);
        }
        let mut plan =
            InPlace::new(&seen.survey, &space, &seen.touches, self.align, budget, limits)
                .map_err(about)?;
        let region = plan.region();
        let mut mover =
            Mover::new(self.target, &seen.survey, donor, region, block_size, self.signals);
        let before = (self.counts.moved_in, self.counts.moved_out);
        let mut done = Ok(());
        while done.is_ok() {
            let step = plan.next_step().map_err(|error| self.target.about(error))?;
            let Some(step) = step else { break };
            done = mover.apply(&step);
            let counts = &mover.counts;
            self.counts.moved_in = before.0 + counts.moved_in;
            self.counts.moved_out = before.1 + counts.moved_out;
            self.bar.set_position((attempt.progress.in_place + counts.moved_in) * block_size);
        }
        let counts = std::mem::take(&mut mover.counts);
        // Before anything else: the donor's blocks are everybody's again.
        drop(mover);
        done?;
        let moved = counts.moved_in + counts.moved_out;
        self.budget = self.budget.saturating_sub(moved);
        self.extents = Extents::after(plan.progress(), counts.moved_in);
        self.stopped = plan.progress().stopped.map(Stop::from);
        let lasting = counts.reasons.iter().filter(|(_, reason)| reason.lasts());
        self.left.extend(lasting);
        (self.counts.left, self.counts.reasons) = (counts.left, counts.reasons);
        Ok(self.counts.left > 0 && moved > 0)
    }
}

/// The free blocks that a plan needs.
fn wanted(seen: &Seen, trial: &Trial, align: u64) -> Wanted {
    let region: Extent = trial.region;
    let progress = trial.progress;
    let part = |run: &Extent| {
        let start = run.start.max(region.start).get();
        let end = run.end().min(region.end()).get();
        (start < end).then(|| Blocks { start, len: end - start })
    };
    let free = seen.survey.space.free.iter().filter_map(part).collect();
    // Where nothing is in place yet and nothing makes way, any other place is as good,
    // and the kernel's first choice is the cheapest to get.
    let is_free = progress.in_place == 0 && progress.moved_out == 0;
    let blocks = seen.image.geometry().blocks;
    let instead = is_free.then(|| enough_for(progress.hot, blocks, align));
    // The planner keeps some for itself.
    let room = if is_free { 0 } else { progress.moved_out + SPARE };
    Wanted { region, free, instead, room }
}
