//! Chooses the next habit to lay out, and decides whether that pays.

use super::habit::{HabitLayout, sum_of};
use super::{DAY, FileId, Habit, Habits, Seconds};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fmt;

/// A habit whose core has changed is looked at again no earlier than this.
const SOONEST: Seconds = 3600;

/// Fewer bytes than this are not worth a plan.
const LEAST_BUDGET: u64 = 1 << 20;

/// A habit may take files from another whose weight is less by this factor.
const TAKES: f64 = 2.0;

/// Moves that are kept.
const MOST_MOVES: usize = 64;

/// Requests of a run that are kept for the picture.
const MOST_READS: usize = 4096;

/// One look at all habits.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Whether it is by hand: habits are looked at whenever they were before.
    again: bool,
    /// Habits that were proposed in it.
    seen: HashSet<u32>,
}

impl Round {
    /// A round over the habits that are due.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A look at everything.
    #[must_use]
    pub fn by_hand() -> Self {
        Self { again: true, ..Self::default() }
    }
}

/// A proposed layout of a habit.
#[derive(Clone, PartialEq, Debug)]
pub struct Proposal {
    /// The habit's number.
    pub habit: u32,
    /// Files to bring together, in this order.
    pub lay: Vec<FileId>,
    /// Runs to judge a layout by, each in its order.
    pub samples: Vec<Vec<FileId>>,
    /// Files that lie where they should for other habits, and must not be moved.
    pub protect: HashSet<FileId>,
    /// Bytes that may be moved.
    pub budget: u64,
}

/// The expected gain of a plan.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// Seeks of a run now, on average over the samples.
    pub before: f64,
    /// Seeks of a run afterwards.
    pub after: f64,
    /// Bytes that would be moved.
    pub bytes: u64,
}

/// A move that was made.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Moved {
    /// When.
    pub when: Seconds,
    /// The habit's number.
    pub habit: u32,
    /// Its program.
    pub program: String,
    /// Seeks of a run before, on average over the samples.
    pub before: f64,
    /// Seeks of a run afterwards.
    pub after: f64,
    /// Bytes that were moved.
    pub bytes: u64,
    /// More of it could not be moved on that day.
    pub is_part: bool,
}

/// Why nothing is proposed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Wait {
    /// The volume is too full: the part in use, from 0 to 1.
    Full(f64),
    /// All bytes of the day are spent.
    Budget,
    /// No habit has the weight, or all were looked at.
    Nothing,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(share) => write!(f, "{:.0}% of the volume are in use", share * 100.0),
            Self::Budget => write!(f, "the bytes of the day are spent"),
            Self::Nothing => write!(f, "no habit needs another layout"),
        }
    }
}

/// Bytes moved on one day.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Budget {
    /// Since 1970, of UTC.
    pub(super) day: u64,
    pub(super) spent: u64,
}

impl Habits {
    /// Bytes that may still be moved today.
    #[must_use]
    pub fn budget_left(&self, now: Seconds) -> u64 {
        self.rules.budget.saturating_sub(self.spent(now))
    }

    /// Bytes that were moved today.
    #[must_use]
    pub fn spent(&self, now: Seconds) -> u64 {
        // Where a clock goes backwards, the day does not begin again.
        if now / DAY > self.budget.day { 0 } else { self.budget.spent }
    }

    fn spend(&mut self, now: Seconds, bytes: u64) {
        let spent = self.spent(now) + bytes;
        self.budget = Budget { day: self.budget.day.max(now / DAY), spent };
    }

    /// Whether a habit has the weight to be laid out.
    #[must_use]
    pub fn is_established(&self, habit: &Habit, now: Seconds) -> bool {
        habit.weight(now, self.rules.half_life) >= self.rules.weight
    }

    /// Whether some habit is to be looked at, and there is a budget for it.
    #[must_use]
    pub fn is_anything_due(&self, now: Seconds, round: &Round) -> bool {
        let is_due =
            |habit: &Habit| self.is_established(habit, now) && self.is_due(habit, now, round);
        self.budget_left(now) >= LEAST_BUDGET && self.habits.iter().any(is_due)
    }

    /// The habit to be laid out next, the one that weighs most first, none twice in a
    /// round. `fullness` is the part of the volume in use, from 0 to 1.
    ///
    /// # Errors
    /// Why there is none.
    pub fn propose(
        &mut self,
        now: Seconds,
        fullness: f64,
        round: &mut Round,
    ) -> Result<Proposal, Wait> {
        if fullness > self.rules.fullest {
            return Err(Wait::Full(fullness));
        }
        let budget = self.budget_left(now);
        if budget < LEAST_BUDGET {
            return Err(Wait::Budget);
        }
        let mut candidates: Vec<(f64, usize)> = Vec::new();
        for (at, habit) in self.habits.iter().enumerate() {
            if self.is_established(habit, now) && self.is_due(habit, now, round) {
                let weight = habit.weight(now, self.rules.half_life);
                candidates.push((weight * habit.core().len() as f64, at));
            }
        }
        candidates.sort_by(|one, other| other.0.total_cmp(&one.0));
        for (_, at) in candidates {
            let protect = self.protected(at, now);
            let habit = &mut self.habits[at];
            round.seen.insert(habit.number);
            let core = habit.core();
            habit.looked = Some((now, sum_of(&core)));
            let lay: Vec<FileId> =
                core.into_iter().filter(|file| !protect.contains(file)).collect();
            if lay.len() < 2 {
                continue;
            }
            let (number, samples) = (habit.number, habit.samples.clone());
            return Ok(Proposal { habit: number, lay, samples, protect, budget });
        }
        Err(Wait::Nothing)
    }

    fn is_due(&self, habit: &Habit, now: Seconds, round: &Round) -> bool {
        if round.seen.contains(&habit.number) {
            return false;
        }
        let Some((looked, sum)) = habit.looked else { return true };
        let since = now.saturating_sub(looked);
        let has_changed = || sum != sum_of(&habit.core());
        round.again || since >= self.rules.retry || (since >= SOONEST && has_changed())
    }

    /// Files that lie well for other habits than this one.
    fn protected(&self, at: usize, now: Seconds) -> HashSet<FileId> {
        let half_life = self.rules.half_life;
        let own = self.habits[at].weight(now, half_life);
        let mut protect = HashSet::new();
        for (other, habit) in self.habits.iter().enumerate() {
            let Some(laid) = habit.laid.as_ref().filter(|_| other != at) else { continue };
            let weight = habit.weight(now, half_life);
            // A fading habit's files stay as long as no other needs their place.
            if weight >= self.rules.weight / 2.0 && own < weight * TAKES {
                protect.extend(laid.files.iter().copied());
            }
        }
        // Its own files may be moved.
        if let Some(laid) = &self.habits[at].laid {
            let own: HashSet<FileId> = laid.files.iter().copied().collect();
            protect.retain(|file| !own.contains(file));
        }
        protect
    }

    /// Whether a plan for a habit pays: enough seeks are saved in each run, and, over the
    /// runs that are to be expected, one for each [`super::Rules::price`] bytes moved.
    #[must_use]
    pub fn pays(&self, now: Seconds, habit: u32, estimate: &Estimate) -> bool {
        let Some(habit) = self.habit(habit) else { return false };
        let saved = estimate.before - estimate.after;
        let expected = saved * habit.weight(now, self.rules.half_life);
        estimate.bytes > 0
            && saved >= self.rules.least_seeks
            && saved >= estimate.before * self.rules.least_gain
            && expected * self.rules.price as f64 >= estimate.bytes as f64
    }

    /// Records the move for a proposal; `reads` are the former reads of a run: first block and
    /// number of blocks. With `is_part`, the budget did not suffice for all of it.
    pub fn moved(
        &mut self,
        now: Seconds,
        proposal: &Proposal,
        done: &Estimate,
        is_part: bool,
        mut reads: Vec<(u64, u64)>,
    ) {
        self.spend(now, done.bytes);
        let at = self.habits.iter().position(|habit| habit.number == proposal.habit);
        let Some(habit) = at.map(|at| &mut self.habits[at]) else { return };
        if is_part {
            habit.looked = None;
        }
        let taken: HashSet<FileId> = proposal.lay.iter().copied().collect();
        reads.truncate(MOST_READS);
        let known = habit.laid.take();
        let before = known.as_ref().map_or(done.before, |laid| laid.before);
        let bytes = known.as_ref().map_or(0, |laid| laid.bytes) + done.bytes;
        let reads = known.map_or(reads, |laid| laid.reads);
        let files = proposal.lay.clone();
        habit.laid =
            Some(HabitLayout { when: now, files, before, after: done.after, bytes, reads });
        let moved = Moved {
            when: now,
            habit: habit.number,
            program: habit.program.clone(),
            before: done.before,
            after: done.after,
            bytes: done.bytes,
            is_part,
        };
        self.moves.push(moved);
        if self.moves.len() > MOST_MOVES {
            self.moves.remove(0);
        }
        for other in self.habits.iter_mut().filter(|other| other.number != proposal.habit) {
            if let Some(laid) = &mut other.laid {
                laid.files.retain(|file| !taken.contains(file));
            }
        }
    }

    /// Counts bytes that were moved in vain, because the move ended before its time. If the whole
    /// move is counted in a saved copy before it begins, it is counted even after a kill.
    pub fn spent_in_vain(&mut self, now: Seconds, proposal: &Proposal, bytes: u64) {
        self.spend(now, bytes);
        let at = self.habits.iter().position(|habit| habit.number == proposal.habit);
        if let Some(at) = at {
            self.habits[at].looked = None;
        }
    }
}
