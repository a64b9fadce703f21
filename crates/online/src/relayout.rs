//! Moving files of a mounted ext4: a job contains the traces, the limits, and the rule by which a
//! plan is worthwhile. Differences on XFS are in [`xfs`].

mod acquire;
mod expected;
mod perform;
mod plan;
mod survey;
mod target;
pub mod xfs;

pub use perform::MoveCounts;
pub use plan::{Costs, Row, VolumeSnapshot};
pub use survey::Reason;
pub use target::Target;

use acquire::{Wanted, free_of};
use perform::Mover;
use plan::{Trial, limits};
use seekless_fs::{FsError, Inspect};
use seekless_host::donor::Blocks;
use seekless_images::Error;
use seekless_layout::planner::Storage;
use seekless_layout::planner::in_place::{InPlace, Progress, Stopped, enough_for};
use seekless_layout::trace::Events;
use seekless_units::{ByteLen, Extent, Ino};
use std::collections::BTreeMap;

/// Maximum number of plans: another one is made if files were changed during the previous one.
const ROUNDS: u32 = 3;

/// Default budget in blocks moved per accessed block.
const DEFAULT_BUDGET: u64 = 3;

/// Free blocks for files that make way, beyond those that the trial used.
const SPARE: u64 = 64;

/// Called between two exchanges of blocks; an error ends the work, and files are whole then.
pub type Halt<'a> = dyn FnMut() -> Result<(), Error> + 'a;

/// Parameters of a rearrangement.
pub struct Job<'a> {
    /// The traces to lay out by.
    pub lay: &'a [Events],
    /// The traces to judge a layout by.
    pub judge: &'a [Events],
    /// The storage that the volume lies on.
    pub storage: Storage,
    /// Limit of bytes moved.
    pub budget: Option<ByteLen>,
    /// Files that must stay, with the reason.
    pub kept: BTreeMap<Ino, Reason>,
    /// Whether a plan that moves this many bytes is worthwhile.
    pub is_worth_it: &'a dyn Fn(u64, &Costs, &Costs) -> bool,
}

/// The reason why the rearrangement stopped early (per-file failures are counted separately).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The budget of moves is exhausted.
    Budget,
    /// There is no room for the files that would have to make way.
    Room,
    /// The gain in seeks is too small for the bytes to move.
    Gain,
}

impl Stop {
    /// Identifier in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::Room => "room",
            Self::Gain => "gain",
        }
    }
}

impl From<Stopped> for Stop {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Budget => Self::Budget,
            Stopped::Room => Self::Room,
        }
    }
}

/// Numbers of accessed blocks that can be moved.
#[derive(Clone, Copy, Debug)]
pub struct Extents {
    /// All of them.
    pub hot: u64,
    /// Those that were in place before.
    pub in_place: u64,
    /// Those that are not in place now.
    pub left: u64,
}

impl Extents {
    /// The numbers after a plan that moved `moved_in` blocks into place.
    fn after(progress: Progress, moved_in: u64) -> Self {
        let Progress { hot, in_place, .. } = progress;
        Self { hot, in_place, left: hot.saturating_sub(in_place + moved_in) }
    }
}

/// The result of a rearrangement.
pub struct Outcome {
    /// Size of a block in bytes.
    pub block_size: u64,
    /// Blocks that were accessed, before and after.
    pub extents: Extents,
    /// Numbers of blocks and files that were moved or stay.
    pub counts: MoveCounts,
    /// The reason for stopping early, if any.
    pub stopped: Option<Stop>,
    /// Requests of the traces, before.
    pub before: Costs,
    /// Requests of the traces, after.
    pub after: Costs,
}

impl Outcome {
    /// Bytes moved, in both directions together.
    pub fn moved(&self) -> u64 {
        (self.counts.moved_in + self.counts.moved_out) * self.block_size
    }

    /// Whether the budget ended the work.
    pub fn is_over_budget(&self) -> bool {
        self.stopped == Some(Stop::Budget)
    }
}

/// An interrupted rearrangement.
pub struct Broken {
    /// The error that ended it.
    pub failure: Error,
    /// Bytes moved before.
    pub moved: u64,
}

impl From<Error> for Broken {
    fn from(failure: Error) -> Self {
        Self { failure, moved: 0 }
    }
}

impl Job<'_> {
    /// Examines the present state of the volume.
    ///
    /// # Errors
    /// `ErrorKind::Corrupt` for a damaged volume, `ErrorKind::System`.
    pub fn look(&self, target: &Target) -> Result<VolumeSnapshot, Error> {
        VolumeSnapshot::new(target, self.lay, self.judge, self.storage, &self.kept)
    }

    fn align(&self, block_size: u64) -> u64 {
        self.storage.align(block_size)
    }

    fn trial(&self, target: &Target, seen: &VolumeSnapshot) -> Result<Trial, Error> {
        let block_size = seen.block_size();
        let budget = self.budget.map(|budget| budget.get() / block_size);
        Trial::new(seen, &seen.survey.space, self.align(block_size), budget)
            .map_err(|error| target.about(error))
    }

    /// The outcome that moving would have, without moving anything.
    ///
    /// # Errors
    /// `ErrorKind::Corrupt` for a damaged volume, `ErrorKind::System`.
    pub fn foresee(&self, target: &Target, seen: &VolumeSnapshot) -> Result<Outcome, Error> {
        let trial = self.trial(target, seen)?;
        let after = trial.costs(seen, self.judge, self.storage.chunk);
        let after = after.map_err(|error| target.about(error))?;
        let (moved_in, moved_out) = (trial.progress.moved_in, trial.progress.moved_out);
        Ok(Outcome {
            block_size: seen.block_size(),
            counts: MoveCounts { moved_in, moved_out, ..MoveCounts::default() },
            stopped: trial.progress.stopped.map(Stop::from),
            extents: Extents::after(trial.progress, moved_in),
            before: seen.costs.clone(),
            after,
        })
    }

    /// Moves files into place. However it ends, files are whole, and the donor's blocks are free.
    ///
    /// # Errors
    /// [`Broken`], with the number of bytes moved before.
    pub fn carry_out(
        &self,
        target: &Target,
        seen: VolumeSnapshot,
        halt: &mut Halt<'_>,
        observer: &dyn seekless_images::Progress,
    ) -> Result<Outcome, Broken> {
        let block_size = seen.block_size();
        let before = seen.costs.clone();
        let trial = self.trial(target, &seen)?;
        let hot = trial.progress.hot;
        target.probe(block_size)?;
        observer.begin(ByteLen::new(hot * block_size));
        let budget = self.budget.map(|budget| budget.get() / block_size);
        let mut rounds = Rounds {
            target,
            job: self,
            align: self.align(block_size),
            budget: budget.unwrap_or(hot * DEFAULT_BUDGET),
            halt,
            observer,
            counts: MoveCounts::default(),
            extents: Extents::after(trial.progress, 0),
            left: self.kept.clone(),
            stopped: None,
        };
        let done = rounds.all(seen, trial);
        let Rounds { counts, left, stopped, mut extents, .. } = rounds;
        let moved = (counts.moved_in + counts.moved_out) * block_size;
        let broken = |failure| Broken { failure, moved };
        target.settle().map_err(broken)?;
        done.map_err(broken)?;
        let after = VolumeSnapshot::new(target, self.lay, self.judge, self.storage, &left);
        let after = after.map_err(broken)?.costs;
        // The blocks in place before the first round.
        extents.in_place = extents.hot.saturating_sub(extents.left + counts.moved_in);
        Ok(Outcome { block_size, extents, counts, stopped, before, after })
    }
}

/// Plans executed one after the other until files are in place.
struct Rounds<'a, 'h> {
    target: &'a Target,
    job: &'a Job<'a>,
    align: u64,
    /// Remaining budget in blocks.
    budget: u64,
    halt: &'a mut Halt<'h>,
    observer: &'a dyn seekless_images::Progress,
    /// Counts of all rounds.
    counts: MoveCounts,
    /// Extents after the last round.
    extents: Extents,
    /// Files that stay in every round.
    left: BTreeMap<Ino, Reason>,
    stopped: Option<Stop>,
}

impl Rounds<'_, '_> {
    fn all(&mut self, seen: VolumeSnapshot, trial: Trial) -> Result<(), Error> {
        let mut more = self.carry_out(seen, trial)?;
        for _ in 1..ROUNDS {
            if !more {
                break;
            }
            let Job { lay, judge, storage, .. } = *self.job;
            let seen = VolumeSnapshot::new(self.target, lay, judge, storage, &self.left)?;
            more = self.again(seen)?;
        }
        Ok(())
    }

    /// Makes and executes another plan. Returns whether a further round may do more.
    fn again(&mut self, seen: VolumeSnapshot) -> Result<bool, Error> {
        let trial = Trial::new(&seen, &seen.survey.space, self.align, Some(self.budget));
        let trial = trial.map_err(|error| self.target.about(error))?;
        self.carry_out(seen, trial)
    }

    /// Executes one plan. Returns whether another round may do more.
    fn carry_out(&mut self, seen: VolumeSnapshot, trial: Trial) -> Result<bool, Error> {
        if trial.moved() == 0 {
            self.stopped = trial.progress.stopped.map(Stop::from);
            return Ok(false);
        }
        let block_size = seen.block_size();
        let mut donor = self.target.donor(block_size)?;
        let wanted = wanted(&seen, &trial, self.align);
        wanted.acquire(&mut donor, self.target, block_size, self.halt)?;
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
        let costs = attempt.costs(&seen, self.job.judge, self.job.storage.chunk).map_err(about)?;
        if !(self.job.is_worth_it)(attempt.moved() * block_size, &seen.costs, &costs) {
            let stopped = attempt.progress.stopped.map(Stop::from);
            self.stopped = stopped.or((attempt.moved() > 0).then_some(Stop::Gain));
            return Ok(false);
        }
        let mut plan =
            InPlace::new(&seen.survey, &space, &seen.touches, self.align, budget, limits)
                .map_err(about)?;
        let region = plan.region();
        let mut mover = Mover::new(self.target, &seen.survey, donor, region, block_size, self.halt);
        let before = (self.counts.moved_in, self.counts.moved_out);
        let mut done = Ok(());
        while done.is_ok() {
            let step = plan.next_step().map_err(|error| self.target.about(error))?;
            let Some(step) = step else { break };
            done = mover.apply(&step);
            let counts = &mover.counts;
            self.counts.moved_in = before.0 + counts.moved_in;
            self.counts.moved_out = before.1 + counts.moved_out;
            self.observer
                .reach(ByteLen::new((attempt.progress.in_place + counts.moved_in) * block_size));
        }
        let counts = std::mem::take(&mut mover.counts);
        // Frees the donor's blocks before anything else.
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
fn wanted(seen: &VolumeSnapshot, trial: &Trial, align: u64) -> Wanted {
    let region: Extent = trial.region;
    let progress = trial.progress;
    let part = |run: &Extent| {
        let start = run.start.max(region.start).get();
        let end = run.end().min(region.end()).get();
        (start < end).then(|| Blocks { start, len: end - start })
    };
    let free = seen.survey.space.free.iter().filter_map(part).collect();
    // If nothing is in place yet and nothing makes way, any other location is as good, and the
    // kernel's first choice is the cheapest to get.
    let is_free = progress.in_place == 0 && progress.moved_out == 0;
    let blocks = seen.image.geometry().blocks;
    let instead = is_free.then(|| enough_for(progress.hot, blocks, align));
    // The planner reserves some for itself.
    let room = if is_free { 0 } else { progress.moved_out + SPARE };
    Wanted { region, free, instead, room }
}
