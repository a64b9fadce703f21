//! What a check of an image finds.

use crate::Location;
use std::collections::{BTreeMap, HashSet};

/// Whether something is what a crash may leave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// A crash under a discipline that keeps order may leave it; repairing it
    /// loses nothing (`fsck -p` does so without asking).
    Expected,
    /// Nothing but damage leaves it: an "unexpected inconsistency".
    Unexpected,
}

/// Something that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What kind of thing, by a name that does not change between versions.
    pub code: &'static str,
    /// Whether a crash may leave it.
    pub class: Class,
    /// What is wrong, for people.
    pub what: String,
    /// Where.
    pub location: Location,
    /// Whether it has been done away with.
    pub repaired: bool,
}

/// What came of a repair; `fsck`'s exit codes 0, 1 and 4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing was found, and nothing written.
    Clean,
    /// All that was found was repaired: the image is clean now.
    Corrected,
    /// Something was left as it is. A preen that meets an unexpected
    /// inconsistency leaves everything as it is.
    Left,
}

/// What was found and what came of it.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// Everything found, in all rounds, each with whether it was repaired.
    pub report: Report,
    /// What the image is like now.
    pub outcome: Outcome,
    /// How often the image was gone through.
    pub rounds: u32,
    /// Writes that were made.
    pub writes: u64,
}

/// Changes that do away with findings, by the stage `S` in which they are made. What a
/// later stage does is decided by a check of what the earlier ones left.
#[derive(Clone, Debug)]
pub struct Fixes<S, F>(BTreeMap<S, Vec<F>>);

impl<S, F> Default for Fixes<S, F> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<S: Copy + Ord, F: Copy + PartialEq> Fixes<S, F> {
    /// Adds a change, unless it is the last that was added to its stage: one thing is
    /// often named by several findings, one after the other.
    pub fn add(&mut self, stage: S, fix: F) {
        let fixes = self.0.entry(stage).or_default();
        if fixes.last() != Some(&fix) {
            fixes.push(fix);
        }
    }

    /// Leaves out what shall not be done.
    pub fn leave_out(&mut self, is_out: impl Fn(&F) -> bool) {
        self.0.values_mut().for_each(|fixes| fixes.retain(|fix| !is_out(fix)));
        self.0.retain(|_, fixes| !fixes.is_empty());
    }

    /// What comes first, up to where the image must be looked at again. Stages that
    /// go `together` change nothing that each other depends on.
    #[must_use]
    pub fn first(&self, together: &[S]) -> Vec<F> {
        let Some(first) = self.0.keys().next() else { return Vec::new() };
        let wanted =
            |stage: &S| stage == first || (together.contains(first) && together.contains(stage));
        let chosen = self.0.iter().filter(|(stage, _)| wanted(stage));
        chosen.flat_map(|(_, fixes)| fixes).copied().collect()
    }

    /// Whether what comes first is of this stage.
    #[must_use]
    pub fn begin_with(&self, stage: S) -> bool {
        self.0.keys().next() == Some(&stage)
    }

    /// Whether nothing is left of the stages before this one.
    #[must_use]
    pub fn are_from(&self, stage: S) -> bool {
        self.0.keys().all(|&other| other >= stage)
    }
}

impl Finding {
    /// What tells a finding from others: the same in the next check of the same
    /// damage.
    #[must_use]
    pub fn identity(&self) -> String {
        format!("{} {} {}", self.code, self.location, self.what)
    }
}

/// How much was found in an image, whether in order or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Inodes in use, directories included.
    pub inodes: u64,
    /// Directories.
    pub directories: u64,
    /// Blocks in use by files, in the unit of the format's block numbers.
    pub blocks: u64,
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The first of the findings, in the order of the check's phases.
    pub findings: Vec<Finding>,
    /// Findings besides those: an image can have any number.
    pub more: u64,
    /// How many of all findings were unexpected.
    pub unexpected: u64,
    /// What there is.
    pub tally: Tally,
}

/// Most findings that are kept.
const MOST: usize = 10_000;

impl Report {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// How many findings there are, those left out included.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.more.saturating_add(self.findings.len() as u64)
    }

    /// Adds a finding.
    pub fn add(&mut self, code: &'static str, class: Class, what: String, location: Location) {
        self.unexpected = self.unexpected.saturating_add(u64::from(class == Class::Unexpected));
        if self.findings.len() < MOST {
            self.findings.push(Finding { code, class, what, location, repaired: false });
        } else {
            self.more = self.more.saturating_add(1);
        }
    }
}

/// What a repair of several rounds, each with a check of its own, has found so
/// far.
#[derive(Debug, Default)]
pub struct Rounds {
    found: Report,
    known: HashSet<String>,
}

impl Rounds {
    /// Adds what no round before has found, but for what is the repair's own.
    pub fn merge(&mut self, report: &Report, is_ours: impl Fn(&Finding) -> bool) {
        for finding in &report.findings {
            if !is_ours(finding) && self.known.insert(finding.identity()) {
                let Finding { code, class, what, location, .. } = finding.clone();
                self.found.add(code, class, what, location);
            }
        }
        self.found.more = self.found.more.max(report.more);
        self.found.tally = report.tally;
    }

    /// What came of it, given what the last check found and nobody repaired.
    #[must_use]
    pub fn end(mut self, left: &[Finding], rounds: u32, writes: u64) -> Repaired {
        let still: HashSet<String> = left.iter().map(Finding::identity).collect();
        for finding in &mut self.found.findings {
            finding.repaired = !still.contains(&finding.identity());
        }
        let outcome = match (left.is_empty(), self.found.is_clean()) {
            (true, true) => Outcome::Clean,
            (true, false) => Outcome::Corrected,
            (false, _) => Outcome::Left,
        };
        Repaired { report: self.found, outcome, rounds, writes }
    }
}
