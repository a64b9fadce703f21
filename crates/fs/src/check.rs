//! Findings of a check of an image, and the tables of the problems that it finds.

use crate::field::wide;
use crate::{FsError, Location};
use std::collections::{BTreeMap, HashSet};

/// Whether a crash explains an inconsistency.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// A crash under an ordering discipline may leave it; repairing it loses nothing (`fsck -p`
    /// does so without asking).
    Expected,
    /// Only damage leaves it: an "unexpected inconsistency".
    Unexpected,
}

/// The answer of a preen to a problem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preen {
    /// It repairs the problem: every finding of it is expected.
    Repairs,
    /// It stops, and leaves the image as it is: every finding of it is unexpected.
    Stops,
    /// It repairs the problem under a condition, which only the place that finds it knows, and
    /// stops at it otherwise. The text completes "it repairs it ...".
    Depends(&'static str),
}

/// A kind of inconsistency, as a row of a format's table of problems. Texts are single lines of
/// Markdown for people, without a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Its name, unique in its format and stable across versions: words in lower case, separated
    /// by a dot or hyphens.
    pub code: &'static str,
    /// The phase of the check that finds it: 0 to 5, as the format counts them.
    pub phase: u8,
    /// Whether a preen repairs it.
    pub preen: Preen,
    /// The error.
    pub text: &'static str,
    /// The question that precedes its repair, with its question mark; `None` where no repair
    /// exists.
    pub question: Option<&'static str>,
    /// The effect of the repair.
    pub repair: &'static str,
}

impl Problem {
    /// The class of its findings; `None` where it depends on the place.
    #[must_use]
    pub const fn class(&self) -> Option<Class> {
        match self.preen {
            Preen::Repairs => Some(Class::Expected),
            Preen::Stops => Some(Class::Unexpected),
            Preen::Depends(_) => None,
        }
    }
}

/// Defines the table of problems of a format: `PROBLEMS` with all rows, and for each row a
/// constant, by which the format's modules refer to it.
///
/// ```
/// mod problems {
///     use seekless_fs::check::Preen;
///
///     seekless_fs::problems! {
///         NOT_CLEAN = {
///             code: "superblock.not-clean", phase: 0, preen: Preen::Repairs,
///             text: "it is not marked clean",
///             question: Some("Mark it clean?"),
///             repair: "it is marked clean",
///         }
///     }
/// }
/// assert_eq!(problems::PROBLEMS, [problems::NOT_CLEAN]);
/// ```
#[macro_export]
macro_rules! problems {
    ($($name:ident = { $($field:ident: $value:expr,)+ })+) => {
        $(
            pub(crate) const $name: &$crate::check::Problem =
                &$crate::check::Problem { $($field: $value,)+ };
        )+

        /// The problems that the check finds, by phase.
        pub const PROBLEMS: &[&$crate::check::Problem] = &[$($name,)+];
    };
}

/// An inconsistency.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The kind of inconsistency.
    pub problem: &'static Problem,
    /// Whether a crash may leave it.
    pub class: Class,
    /// Description for people.
    pub what: String,
    /// Its location.
    pub location: Location,
    /// The value of the field that its repair sets, if it sets one number.
    pub values: Option<Values>,
    /// Whether it has been repaired.
    pub repaired: bool,
}

/// The value of a field before and after its repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Values {
    /// As it was found.
    pub old: u64,
    /// As the repair sets it.
    pub new: u64,
}

/// Follows the progress of a check.
pub trait Watch: Send + Sync {
    /// The phase has done this much of all that it has to do. A repair checks the image several
    /// times, and begins with the first phase each time.
    fn reach(&self, phase: u8, done: u64, of: u64);
}

/// The outcome of a repair; `fsck`'s exit codes 0, 1 and 4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing was found or written.
    Clean,
    /// All findings were repaired: the image is clean now.
    Corrected,
    /// Some findings remain. A preen that meets an unexpected inconsistency leaves everything as it
    /// is.
    Left,
}

/// The findings and the outcome of a repair.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// All findings of all rounds, each with its state of repair.
    pub report: Report,
    /// The state of the image now.
    pub outcome: Outcome,
    /// Number of checks of the image.
    pub rounds: u32,
    /// Number of writes to the image.
    pub writes: u64,
}

/// Changes that repair findings, by the stage `S` in which they are made. A check after the earlier
/// stages decides about the changes of a later one.
#[derive(Clone, Debug)]
pub struct Fixes<S, F>(BTreeMap<S, Vec<F>>);

impl<S, F> Default for Fixes<S, F> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<S: Copy + Ord, F: Copy + PartialEq> Fixes<S, F> {
    /// Adds a change, unless it equals the last one of its stage: several findings in a row often
    /// require the same change.
    pub fn add(&mut self, stage: S, fix: F) {
        let fixes = self.0.entry(stage).or_default();
        if fixes.last() != Some(&fix) {
            fixes.push(fix);
        }
    }

    /// Removes the changes for which `is_out` returns true.
    pub fn leave_out(&mut self, is_out: impl Fn(&F) -> bool) {
        self.0.values_mut().for_each(|fixes| fixes.retain(|fix| !is_out(fix)));
        self.0.retain(|_, fixes| !fixes.is_empty());
    }

    /// The changes of the first stage, after which the image must be checked again. If the first
    /// stage is in `together`, those of all stages in `together` are included: they are independent
    /// of each other.
    #[must_use]
    pub fn first(&self, together: &[S]) -> Vec<F> {
        let Some(first) = self.0.keys().next() else { return Vec::new() };
        let wanted =
            |stage: &S| stage == first || (together.contains(first) && together.contains(stage));
        let chosen = self.0.iter().filter(|(stage, _)| wanted(stage));
        chosen.flat_map(|(_, fixes)| fixes).copied().collect()
    }

    /// The changes of all stages.
    pub fn all(&self) -> impl Iterator<Item = F> {
        self.0.values().flatten().copied()
    }

    /// Whether the first stage is this one.
    #[must_use]
    pub fn begin_with(&self, stage: S) -> bool {
        self.0.keys().next() == Some(&stage)
    }

    /// Whether no changes of earlier stages remain.
    #[must_use]
    pub fn are_from(&self, stage: S) -> bool {
        self.0.keys().all(|&other| other >= stage)
    }
}

impl Finding {
    /// The code of the problem.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.problem.code
    }

    /// Whether it is of this kind.
    #[must_use]
    pub fn is(&self, problem: &Problem) -> bool {
        self.problem.code == problem.code
    }

    /// The finding's identity: the same in the next check of the same damage.
    #[must_use]
    pub fn identity(&self) -> String {
        format!("{} {} {}", self.code(), self.location, self.what)
    }
}

/// Numbers of objects in an image, sound or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Inodes in use, directories included.
    pub inodes: u64,
    /// Directories.
    pub directories: u64,
    /// Blocks in use by files, in the unit of the format's block numbers.
    pub blocks: u64,
    /// Inodes whose blocks do not follow each other, where the format counts them.
    pub fragmented: u64,
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The first of the findings, in the order of the check's phases.
    pub findings: Vec<Finding>,
    /// Number of further findings, which are unlimited in number.
    pub more: u64,
    /// Number of unexpected ones among all findings.
    pub unexpected: u64,
    /// Numbers of objects in the image.
    pub tally: Tally,
}

/// Maximum number of findings stored.
const MOST: usize = 10_000;

impl Report {
    /// Whether there are no findings.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Number of findings, including those not stored.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.more + self.findings.len() as u64
    }

    /// Refuses a volume with findings other than harmless ones.
    ///
    /// # Errors
    /// [`FsError::Damaged`] with the first of them.
    pub fn refuse(&self, is_harmless: impl Fn(&Finding) -> bool) -> Result<(), FsError> {
        let mut grave = self.findings.iter().filter(|finding| !is_harmless(finding));
        let Some(first) = grave.next() else { return Ok(()) };
        Err(FsError::Damaged {
            code: first.code(),
            what: first.what.clone(),
            location: Box::new(first.location),
            others: wide(grave.count()) + self.more,
        })
    }

    /// Adds a finding of a problem whose class does not depend on the place.
    pub fn add(&mut self, problem: &'static Problem, what: String, location: Location) {
        debug_assert!(problem.class().is_some(), "{} has one class", problem.code);
        let class = problem.class().unwrap_or(Class::Unexpected);
        self.push(Finding { problem, class, what, location, values: None, repaired: false });
    }

    /// Adds a finding of a problem whose class depends on the place.
    pub fn add_as(
        &mut self,
        problem: &'static Problem,
        class: Class,
        what: String,
        location: Location,
    ) {
        debug_assert!(problem.class().is_none(), "{} has both classes", problem.code);
        self.push(Finding { problem, class, what, location, values: None, repaired: false });
    }

    /// Adds the values of the field that the repair of the last finding sets.
    pub fn set_values(&mut self, old: u64, new: u64) {
        // The last one was not stored if any was not.
        if let (0, Some(last)) = (self.more, self.findings.last_mut()) {
            last.values = Some(Values { old, new });
        }
    }

    fn push(&mut self, finding: Finding) {
        debug_assert!(!finding.repaired, "{} was found in a check, not repaired", finding.code());
        self.unexpected += u64::from(finding.class == Class::Unexpected);
        if self.findings.len() < MOST {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }
}

/// Accumulated findings of a repair of several rounds, each with its own check.
#[derive(Debug, Default)]
pub struct Rounds {
    found: Report,
    known: HashSet<String>,
}

impl Rounds {
    /// Adds the findings that are new in this round, except those caused by the repair itself
    /// (`is_ours`).
    pub fn merge(&mut self, report: &Report, is_ours: impl Fn(&Finding) -> bool) {
        for finding in &report.findings {
            if !is_ours(finding) && self.known.insert(finding.identity()) {
                self.found.push(finding.clone());
            }
        }
        self.found.more = self.found.more.max(report.more);
        self.found.tally = report.tally;
    }

    /// Ends the repair, given the unrepaired findings of the last check.
    #[must_use]
    pub fn end(mut self, left: &[Finding], rounds: u32, writes: u64) -> Repaired {
        debug_assert!(rounds > 0, "an outcome follows from a check");
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
