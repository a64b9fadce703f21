//! What a check of an image finds.

use crate::Location;

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
