//! One habit: its last runs, and its layout.

use super::{FileId, Seconds};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// Runs of a habit whose files are kept.
pub(super) const SAMPLES: usize = 3;

/// Files that are opened together, again and again.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Habit {
    /// Its own, as long as it is known.
    pub number: u32,
    /// The program that began its first run.
    pub program: String,
    /// When it was first seen.
    pub first: Seconds,
    /// When it was last seen.
    pub last: Seconds,
    /// How often it was seen.
    pub runs: u64,
    /// Its weight at `last`.
    pub(super) weight: f64,
    /// The files of its last runs in their order, the last run last.
    pub(super) samples: Vec<Vec<FileId>>,
    /// Where it was laid out.
    pub laid: Option<HabitLayout>,
    /// When it was last looked at whether it pays to lay it out, and a sum of its core.
    pub(super) looked: Option<(Seconds, u64)>,
}

/// The layout of a habit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HabitLayout {
    /// When, last.
    pub when: Seconds,
    /// Files that lie together.
    pub files: Vec<FileId>,
    /// Seeks of a run before it was first laid out.
    pub before: f64,
    /// Seeks of a run when it was last laid out.
    pub after: f64,
    /// Bytes moved for it, in all.
    pub bytes: u64,
    /// The reads of a run before it was first laid out: first block and number of blocks.
    pub reads: Vec<(u64, u64)>,
}

impl Habit {
    pub(super) fn new(number: u32, now: Seconds, program: String, files: Vec<FileId>) -> Self {
        Self {
            number,
            program,
            first: now,
            last: now,
            runs: 1,
            weight: 1.0,
            samples: vec![files],
            laid: None,
            looked: None,
        }
    }

    /// Its weight: 1 for each run, halved with each half-life since.
    #[must_use]
    pub fn weight(&self, now: Seconds, half_life: Seconds) -> f64 {
        let age = now.saturating_sub(self.last) as f64 / half_life.max(1) as f64;
        self.weight * (-age).exp2()
    }

    /// Another run.
    pub(super) fn run(&mut self, now: Seconds, files: Vec<FileId>, half_life: Seconds) {
        self.weight = self.weight(now, half_life) + 1.0;
        self.last = self.last.max(now);
        self.runs += 1;
        if self.samples.len() >= SAMPLES {
            self.samples.remove(0);
        }
        self.samples.push(files);
    }

    /// The part of the files of its last run and of `set` together that is in both; 0
    /// where it is less than `least`.
    pub(super) fn likeness(&self, set: &HashSet<FileId>, least: f64) -> f64 {
        let Some(last) = self.samples.last() else { return 0.0 };
        let all = (last.len() + set.len()) as f64;
        // b / (all - b) >= least
        let needed = (least * all / (1.0 + least)).ceil() as usize;
        let Some(mut may_lack) = last.len().checked_sub(needed) else { return 0.0 };
        let mut both = 0;
        for file in last {
            if set.contains(file) {
                both += 1;
            } else if may_lack == 0 {
                return 0.0;
            } else {
                may_lack -= 1;
            }
        }
        f64::from(both) / (all - f64::from(both))
    }

    /// Its last runs, in the order in which they opened files, the last one last.
    #[must_use]
    pub fn samples(&self) -> &[Vec<FileId>] {
        &self.samples
    }

    /// Files that most of its last runs opened, in the order of the last run.
    #[must_use]
    pub fn core(&self) -> Vec<FileId> {
        let least = self.samples.len() / 2 + 1;
        let mut counts: HashMap<FileId, usize> = HashMap::new();
        for &file in self.samples.iter().flatten() {
            *counts.entry(file).or_default() += 1;
        }
        let mut core = Vec::new();
        for &file in self.samples.iter().rev().flatten() {
            if counts.get(&file).is_some_and(|count| *count >= least) {
                counts.remove(&file);
                core.push(file);
            }
        }
        core
    }

    pub(super) fn files(&self) -> impl Iterator<Item = FileId> + '_ {
        let laid = self.laid.iter().flat_map(|laid| &laid.files);
        self.samples.iter().flatten().chain(laid).copied()
    }

    /// Files that are kept for it.
    pub(super) fn entries(&self) -> usize {
        self.samples.iter().map(Vec::len).sum()
    }
}

/// A number for a set of files, whatever their order.
pub(super) fn sum_of(files: &[FileId]) -> u64 {
    let mix = |file: &FileId| {
        let raw = u64::from(file.ino) << 32 | u64::from(file.generation);
        let mixed = (raw ^ (raw >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ (mixed >> 32)
    };
    files.iter().map(mix).fold(files.len() as u64, u64::wrapping_add)
}
