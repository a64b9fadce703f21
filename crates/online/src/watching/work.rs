//! Execution of the policy's proposals on a mounted volume.

use super::files::Names;
use super::{Config, now};
use crate::relayout::{Costs, Halt, Job, Reason, Target, VolumeSnapshot};
use seekless_host::mounts::DeviceNumber;
use seekless_images::{Error, ErrorKind, Unwatched};
use seekless_layout::habits::{Estimate, Habits, Proposal, Round, Wait};
use seekless_layout::planner::{Storage, StorageKind};
use seekless_layout::replay::{Machine, replay};
use seekless_layout::trace::Events;
use seekless_units::{ByteLen, Ino, format_size};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The result of a proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Files were moved.
    Moved,
    /// The rest of it could not be moved today.
    Part,
    /// It would be moved, but this is a trial.
    Would,
    /// It is not worthwhile.
    No,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Moved => "moved",
            Self::Part => "moved_in_part",
            Self::Would => "would_move",
            Self::No => "does_not_pay",
        }
    }
}

/// A processed proposal.
pub struct Done {
    /// Number of the habit.
    pub habit: u32,
    /// Name of its program.
    pub program: String,
    /// Number of files that it reads.
    pub files: usize,
    /// Seeks before and after, and bytes to move.
    pub estimate: Estimate,
    /// The result.
    pub verdict: Verdict,
}

impl Done {
    /// Encodes it as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let Estimate { before, after, bytes } = self.estimate;
        json!({
            "habit": self.habit,
            "program": self.program,
            "files": self.files,
            "verdict": self.verdict.name(),
            "bytes": bytes,
            "seeks": { "before": before, "after": after },
            "text": self.to_string(),
        })
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { habit, program, files, estimate, verdict } = self;
        let Estimate { before, after, bytes } = *estimate;
        let bytes = format_size(ByteLen::new(bytes));
        write!(f, "habit {habit} ({program}, {files} files): ")?;
        match verdict {
            Verdict::Moved => write!(f, "{bytes} moved; ")?,
            Verdict::Part => write!(f, "{bytes} moved, the budget of the day is spent; ")?,
            Verdict::Would => write!(f, "{bytes} would be moved; ")?,
            Verdict::No => write!(f, "stays, moving {bytes} does not pay; ")?,
        }
        write!(f, "{before:.0} seeks a run, {after:.0} after")
    }
}

/// Saves the habits.
pub(super) type Keep<'a> = dyn Fn(&Habits) -> Result<(), Error> + 'a;

/// Executes proposals.
pub struct Worker<'a> {
    /// Mount point of the volume.
    pub mount: &'a Path,
    /// The device that must be mounted there.
    pub device: DeviceNumber,
    /// The settings.
    pub config: &'a Config,
    /// Whether nothing is moved.
    pub dry_run: bool,
}

impl Worker<'_> {
    /// Lays out the policy's proposals until there are no more. Returns the reason for that. `tell`
    /// is called with each proposal; `keep` saves the habits, before and after files are moved;
    /// `halt` may end the work.
    ///
    /// # Errors
    /// If the volume's files cannot be moved, or `halt` fails. Files are whole then, and moved
    /// bytes are counted.
    pub fn run(
        &self,
        habits: &mut Habits,
        mut round: Round,
        halt: &mut Halt<'_>,
        keep: &Keep<'_>,
        tell: &mut dyn FnMut(Done),
    ) -> Result<Wait, Error> {
        let mut target = None;
        loop {
            let target = match &target {
                Some(target) => target,
                None => target.insert(self.target()?),
            };
            let fullness = target.fullness()?;
            let proposal = match habits.propose(now(), fullness, &mut round) {
                Ok(proposal) => proposal,
                Err(wait) => return Ok(wait),
            };
            halt()?;
            if let Some(done) = self.deal(target, habits, &proposal, halt, keep)? {
                tell(done);
            }
        }
    }

    /// The volume, if it is still the one with these habits.
    fn target(&self) -> Result<Target, Error> {
        let target = Target::new(self.mount)?;
        if target.mount.device != self.device {
            let what = "is another volume now";
            return Err(Error::new(ErrorKind::System, what).about(self.mount.display()));
        }
        Ok(target)
    }

    fn deal(
        &self,
        target: &Target,
        habits: &mut Habits,
        proposal: &Proposal,
        halt: &mut Halt<'_>,
        keep: &Keep<'_>,
    ) -> Result<Option<Done>, Error> {
        let all = proposal.samples.iter().flatten().chain(&proposal.lay).copied();
        let names = Names::new(target, all)?;
        let mut name = |file| names.get(file);
        let lay: Vec<Events> = vec![habits.trace(&proposal.lay, &mut name).into_iter().collect()];
        let judge: Vec<Events> = proposal
            .samples
            .iter()
            .map(|files| habits.trace(files, &mut name).into_iter().collect())
            .collect();
        let mean = |costs: &Costs| costs.seeks() as f64 / judge.len().max(1) as f64;
        let estimate = |bytes, before: &Costs, after: &Costs| Estimate {
            before: mean(before),
            after: mean(after),
            bytes,
        };
        let known = &*habits;
        let pays = |bytes, before: &Costs, after: &Costs| {
            known.pays(now(), proposal.habit, &estimate(bytes, before, after))
        };
        let kept: BTreeMap<Ino, Reason> =
            proposal.protect.iter().map(|file| (Ino::new(file.ino), Reason::Kept)).collect();
        let job = Job {
            lay: &lay,
            judge: &judge,
            storage: Storage { kind: StorageKind::Disk, chunk: self.config.moving.chunk.0 },
            budget: Some(ByteLen::new(proposal.budget)),
            kept,
            is_worth_it: &pays,
        };
        let seen = job.look(target)?;
        let foreseen = match job.foresee(target, &seen) {
            Ok(foreseen) => foreseen,
            // Too full, or too many files that may not move: tried again another day.
            Err(failure) if failure.kind() == ErrorKind::NoSpace => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let bytes = foreseen.moved();
        let habit = habits.habit(proposal.habit);
        let mut done = Done {
            habit: proposal.habit,
            program: habit.map_or_else(String::new, |habit| habit.program.clone()),
            files: proposal.lay.len(),
            estimate: estimate(bytes, &foreseen.before, &foreseen.after),
            verdict: Verdict::No,
        };
        if bytes == 0 {
            return Ok(None);
        }
        if !pays(bytes, &foreseen.before, &foreseen.after) {
            return Ok(Some(done));
        }
        if self.dry_run {
            done.verdict = Verdict::Would;
            return Ok(Some(done));
        }
        let reads = reads(&seen, &judge);
        // Charges the whole move to the daily budget first, so that a kill cannot exceed it.
        let mut killed = habits.clone();
        killed.spent_in_vain(now(), proposal, bytes);
        keep(&killed)?;
        let outcome = match job.carry_out(target, seen, halt, &Unwatched) {
            Ok(outcome) => outcome,
            Err(broken) => {
                habits.spent_in_vain(now(), proposal, broken.moved);
                keep(habits)?;
                return Err(broken.failure);
            }
        };
        done.estimate = estimate(outcome.moved(), &outcome.before, &outcome.after);
        if outcome.moved() == 0 {
            keep(habits)?;
            return Ok(Some(done));
        }
        let is_part = outcome.is_over_budget();
        done.verdict = if is_part { Verdict::Part } else { Verdict::Moved };
        habits.moved(now(), proposal, &done.estimate, is_part, reads);
        keep(habits)?;
        Ok(Some(done))
    }
}

/// The reads of the last run on the volume: first block and number of blocks.
pub(super) fn reads(seen: &VolumeSnapshot, judge: &[Events]) -> Vec<(u64, u64)> {
    let Some(last) = judge.last() else { return Vec::new() };
    // It is used only for a picture.
    let Ok(replayed) = replay(seen.image.as_ref(), last, Machine::for_score()) else {
        return Vec::new();
    };
    let extents = replayed.requests.iter().map(|request| request.extent);
    extents.map(|extent| (extent.start.get(), extent.len)).collect()
}
