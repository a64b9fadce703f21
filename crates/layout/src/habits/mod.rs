//! Habits: which files are opened together, again and again, and when it pays to bring
//! them together on the disk.
//!
//! All of it is policy: no I/O and no clock. The observer reports which files were opened and when
//! ([`Habits::opened`]), the facts of files (through a function), and the load of the machine
//! ([`Idle::observe`]); the mover asks for the next layout ([`Habits::propose`]), whether a plan
//! pays ([`Habits::pays`]) and reports the moves made ([`Habits::moved`]). Moments are seconds
//! since 1970 of any clock; one that goes backwards makes nothing older.
//!
//! - opens of one source (a group of processes), until it is quiet for a while, are an
//!   [`Episode`];
//! - episodes that have most of their files in common are runs of one [`Habit`], whose
//!   weight is the number of its runs, each of which counts half after
//!   [`Rules::half_life`];
//! - a habit's weight is also how many runs of it are to be expected in the time in which it would
//!   be forgotten: a new layout saves its gain per run so many times.

mod choose;
mod habit;
mod idle;
mod keep;
mod rules;
mod streams;
#[cfg(test)]
mod tests;

pub use choose::{Estimate, Moved, Proposal, Round, Wait};
pub use habit::{Habit, HabitLayout};
pub use idle::{Busy, Idle, MachineState};
pub use keep::{StateError, read, write};
pub use rules::{IdleRules, Rules};
pub use streams::Episode;

use crate::trace::{Event, Op};
use choose::Budget;
use seekless_units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use streams::Streams;

/// Bytes in the pages that ranges are counted in.
pub const PAGE: u64 = 4096;

/// A moment, or a length of time, in seconds.
pub type Seconds = u64;

/// Seconds in a day.
pub const DAY: Seconds = 86_400;

/// After so long a file is looked at again.
const STALE: Seconds = DAY;

/// Ranges of a file that are kept apart, at most; the nearest are joined.
const MOST_RANGES: usize = 8;

/// A file: one that was removed and made again is another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct FileId {
    /// Inode number.
    pub ino: u32,
    /// Generation of the inode.
    pub generation: u32,
}

/// Facts about a file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Its pages that are used, in order: first one, and the one behind the last. Empty:
    /// all of it.
    pub pages: Vec<(u32, u32)>,
    /// When it was looked at.
    pub looked: Seconds,
}

impl Facts {
    /// Adds pages that were used, too.
    fn join(&mut self, pages: &[(u32, u32)]) {
        if self.pages.is_empty() || pages.is_empty() {
            self.pages.clear();
            return;
        }
        self.pages.extend_from_slice(pages);
        self.pages.sort_unstable();
        self.pages.dedup_by(|later, earlier| {
            let touch = later.0 <= earlier.1;
            if touch {
                earlier.1 = earlier.1.max(later.1);
            }
            touch
        });
        if self.pages.len() <= MOST_RANGES {
            return;
        }
        // The widest gaps stay; of gaps alike the last ones do.
        let gap = |at: usize| self.pages[at].0.saturating_sub(self.pages[at - 1].1);
        let mut gaps: Vec<(u32, usize)> = (1..self.pages.len()).map(|at| (gap(at), at)).collect();
        gaps.sort_unstable_by(|one, other| other.cmp(one));
        gaps.truncate(MOST_RANGES - 1);
        let mut starts: Vec<usize> = gaps.into_iter().map(|(_, at)| at).collect();
        starts.sort_unstable();
        let ends = starts.iter().copied().chain([self.pages.len()]);
        let joined = std::iter::once(0).chain(starts.iter().copied()).zip(ends);
        self.pages = joined.map(|(from, to)| (self.pages[from].0, self.pages[to - 1].1)).collect();
    }
}

/// The outcome of an episode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filed {
    /// Too few files of it are there.
    Small,
    /// It is a run of the habit with this number.
    Joined(u32),
    /// A new habit, with this number.
    New(u32),
}

/// All that is known of the habits of one volume. Its memory is bounded by
/// [`Rules::most_habits`], [`Rules::most_entries`] and [`Rules::most_open`].
#[derive(Clone, Debug)]
pub struct Habits {
    rules: Rules,
    streams: Streams,
    habits: Vec<Habit>,
    /// Of all files in samples of habits.
    facts: HashMap<FileId, Facts>,
    budget: Budget,
    /// Recent moves, the last one last.
    moves: Vec<Moved>,
    next_number: u32,
}

impl Habits {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        let streams = Streams::new(&rules);
        let (habits, facts, moves) = (Vec::new(), HashMap::new(), Vec::new());
        let budget = Budget::default();
        Self { rules, streams, habits, facts, budget, moves, next_number: 1 }
    }

    /// Its rules.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// All habits, in the order in which they were first seen.
    #[must_use]
    pub fn habits(&self) -> &[Habit] {
        &self.habits
    }

    /// The habit with this number.
    #[must_use]
    pub fn habit(&self, number: u32) -> Option<&Habit> {
        self.habits.iter().find(|habit| habit.number == number)
    }

    /// Recent moves, the last one last.
    #[must_use]
    pub fn moves(&self) -> &[Moved] {
        &self.moves
    }

    /// Facts about a file of a habit.
    #[must_use]
    pub fn facts(&self, file: FileId) -> Option<&Facts> {
        self.facts.get(&file)
    }

    /// Entries of files in all samples, and files that are known.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.habits.iter().map(Habit::entries).sum(), self.facts.len())
    }

    /// A file was opened. Opens of the same `source` belong together, `program` is its name for
    /// people.
    pub fn opened(&mut self, now: Seconds, source: u32, program: &str, file: FileId) {
        self.streams.opened(now, source, program, file);
    }

    /// Episodes that are over.
    pub fn due(&mut self, now: Seconds) -> Vec<Episode> {
        self.streams.due(now)
    }

    /// Adds an episode to its habit. `look` gives the facts of a file, or `None` if it is gone or
    /// no regular file; it is asked for files that are not known, and for others once a day.
    pub fn file(
        &mut self,
        now: Seconds,
        episode: Episode,
        look: &mut dyn FnMut(FileId) -> Option<Vec<(u32, u32)>>,
    ) -> Filed {
        let mut files = episode.files;
        files.retain(|file| self.look(now, *file, look));
        let number = self.place(now, files, episode.program);
        self.shrink(now);
        number
    }

    /// Whether a file is still there.
    fn look(
        &mut self,
        now: Seconds,
        file: FileId,
        look: &mut dyn FnMut(FileId) -> Option<Vec<(u32, u32)>>,
    ) -> bool {
        let known = self.facts.get_mut(&file);
        if known.as_ref().is_some_and(|facts| now.saturating_sub(facts.looked) < STALE) {
            return true;
        }
        let Some(pages) = look(file) else {
            self.facts.remove(&file);
            return false;
        };
        match known {
            Some(facts) => {
                facts.looked = now;
                facts.join(&pages);
            }
            None => {
                let mut facts = Facts { pages: pages.clone(), looked: now };
                facts.join(&pages);
                self.facts.insert(file, facts);
            }
        }
        true
    }

    /// Adds pages of a file that are used, too, if the file is known: it need not be looked at for
    /// that. In order, and empty for all of it, as [`Facts::pages`].
    pub fn add_pages(&mut self, file: FileId, pages: &[(u32, u32)]) {
        if let Some(facts) = self.facts.get_mut(&file) {
            facts.join(pages);
        }
    }

    fn place(&mut self, now: Seconds, files: Vec<FileId>, program: String) -> Filed {
        if files.len() < self.rules.least_files {
            return Filed::Small;
        }
        let set: HashSet<FileId> = files.iter().copied().collect();
        let alike = self.rules.alike;
        let scored = self.habits.iter().map(|habit| habit.likeness(&set, alike));
        let best = scored.enumerate().max_by(|one, other| one.1.total_cmp(&other.1));
        if let Some((at, likeness)) = best
            && likeness >= alike
        {
            let habit = &mut self.habits[at];
            habit.run(now, files, self.rules.half_life);
            return Filed::Joined(habit.number);
        }
        let number = self.next_number;
        self.next_number += 1;
        self.habits.push(Habit::new(number, now, program, files));
        Filed::New(number)
    }

    /// Forgets the habits of the least weight until the rest is within the bounds.
    fn shrink(&mut self, now: Seconds) {
        let half_life = self.rules.half_life;
        let mut entries: usize = self.habits.iter().map(Habit::entries).sum();
        let least = self.rules.forgotten;
        let before = self.habits.len();
        self.habits.retain(|habit| {
            let keep = habit.weight(now, half_life) >= least;
            entries -= if keep { 0 } else { habit.entries() };
            keep
        });
        while self.habits.len() > self.rules.most_habits || entries > self.rules.most_entries {
            let weights = self.habits.iter().map(|habit| habit.weight(now, half_life));
            let lightest = weights.enumerate().min_by(|one, other| one.1.total_cmp(&other.1));
            let Some((at, _)) = lightest else { break };
            entries -= self.habits.remove(at).entries();
        }
        if self.habits.len() < before || self.facts.len() > 2 * entries.max(1) {
            self.forget_files();
        }
    }

    /// Forgets files that are in no habit.
    fn forget_files(&mut self) {
        let used: HashSet<FileId> = self.habits.iter().flat_map(Habit::files).collect();
        self.facts.retain(|file, _| used.contains(file));
    }

    /// Forgets a habit; whether there was one.
    pub fn forget(&mut self, number: u32) -> bool {
        let before = self.habits.len();
        self.habits.retain(|habit| habit.number != number);
        self.forget_files();
        self.habits.len() < before
    }

    /// Forgets all habits. Moves are remembered.
    pub fn forget_all(&mut self) {
        self.habits.clear();
        self.facts.clear();
    }

    /// A trace of files that are opened and read in this order. `path` gives the name of a
    /// file from the root of the volume; those without one are left out.
    #[must_use]
    pub fn trace(
        &self,
        files: &[FileId],
        path: &mut dyn FnMut(FileId) -> Option<Vec<u8>>,
    ) -> Vec<Event> {
        let mut events = Vec::with_capacity(files.len());
        for &file in files {
            let Some(path) = path(file) else { continue };
            let pages = self.facts.get(&file).map_or(&[][..], |facts| &facts.pages);
            let read = |offset, length| Event {
                offset,
                length,
                fetched: true,
                ..Event::new(Nanos::new(events.len() as u64), Op::Read, path.clone())
            };
            if pages.is_empty() {
                events.push(read(0, None));
                continue;
            }
            let pages = pages.iter().map(|&(first, end)| (u64::from(first), u64::from(end)));
            let reads: Vec<Event> = pages
                .map(|(first, end)| read(first * PAGE, Some(end.saturating_sub(first) * PAGE)))
                .collect();
            events.extend(reads);
        }
        events
    }
}
