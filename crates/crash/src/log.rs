//! The writes and flushes of a device.

use seekless_units::{ByteLen, Lba, SECTOR};
use std::ops::Range;
use std::sync::Arc;

/// One command to a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// To write; the write had completed when the call returned.
    Write {
        /// The first sector.
        at: Lba,
        /// Whole sectors.
        bytes: Arc<[u8]>,
        /// It was on stable storage when the call returned (`REQ_FUA`).
        fua: bool,
    },
    /// To write, as [`Step::Write`], but it is under way until a
    /// [`Step::Complete`]. It may reach the disk at any time from now on.
    Submit {
        /// The first sector.
        at: Lba,
        /// Whole sectors.
        bytes: Arc<[u8]>,
        /// It is on stable storage when it has completed.
        fua: bool,
    },
    /// Nothing: the write that was submitted in this step has completed. The next
    /// flush puts it on stable storage, and none before.
    Complete {
        /// The step.
        submit: usize,
    },
    /// That the contents of some sectors matter no more. They may still be read
    /// as they were.
    Discard {
        /// The first sector.
        at: Lba,
        /// How many.
        sectors: u64,
    },
    /// To put all writes that have completed on stable storage.
    Flush,
    /// A mark, without effect on the device: a text for the log's owner.
    Mark(String),
}

/// The write of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written<'a> {
    pub(crate) at: Lba,
    pub(crate) bytes: &'a [u8],
    pub(crate) fua: bool,
}

impl Step {
    /// Its write, at once or later; `None` when it writes nothing.
    pub(crate) fn written(&self) -> Option<Written<'_>> {
        match self {
            Self::Write { at, bytes, fua } | Self::Submit { at, bytes, fua } => {
                Some(Written { at: *at, bytes, fua: *fua })
            }
            _ => None,
        }
    }
}

/// All commands to a device, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Log {
    /// In the order of the commands.
    pub steps: Vec<Step>,
    /// Sectors that a write has all of or none, by their first and their number.
    pub whole: Option<(Lba, u64)>,
}

impl Log {
    /// Steps, and nothing that is written as a whole but sectors.
    #[must_use]
    pub const fn new(steps: Vec<Step>) -> Self {
        Self { steps, whole: None }
    }

    /// Whether a write has both sectors or neither.
    pub(crate) fn ties(&self, one: u64, other: u64) -> bool {
        self.whole.is_some_and(|(first, len)| {
            let part = |lba: u64| lba >= first.get() && lba - first.get() < len;
            part(one) && part(other)
        })
    }
}

/// The writes between two flushes, and those before that the first of these
/// flushes did not cover: any of them may be lost, whatever became of the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Epoch {
    /// Its steps in the log, the flush that ends it not among them.
    pub steps: Range<usize>,
    /// Steps before those with writes that were under way when it began.
    pub carried: Vec<usize>,
}

impl Log {
    /// The epochs of the steps from `from` on. The last need not end in a flush.
    #[must_use]
    pub fn epochs(&self, from: usize) -> Vec<Epoch> {
        let mut epochs = Vec::new();
        let mut start = from;
        let mut under_way = Vec::new();
        let mut carried = Vec::new();
        for (at, step) in self.steps.iter().enumerate() {
            match step {
                Step::Submit { .. } => under_way.push(at),
                Step::Complete { submit } => under_way.retain(|at| at != submit),
                Step::Flush if at >= from => {
                    let before = std::mem::replace(&mut carried, under_way.clone());
                    epochs.push(Epoch { steps: start..at, carried: before });
                    start = at + 1;
                }
                _ => {}
            }
            if at < from {
                carried.clone_from(&under_way);
            }
        }
        epochs.push(Epoch { steps: start..self.steps.len(), carried });
        epochs
    }

    /// The step in which the write of a step has completed: the one that reports it, or itself;
    /// `None` when it never has.
    #[must_use]
    pub(crate) fn completion(&self, step: usize) -> Option<usize> {
        let is_it = |(_, other): &(usize, &Step)| **other == Step::Complete { submit: step };
        match self.steps.get(step)? {
            Step::Submit { .. } => {
                self.steps.iter().enumerate().skip(step).find(is_it).map(|(at, _)| at)
            }
            _ => Some(step),
        }
    }

    /// The writes that have completed in some steps, in that order.
    pub(crate) fn completed(&self, steps: Range<usize>) -> impl Iterator<Item = Written<'_>> {
        self.steps.get(steps).unwrap_or_default().iter().filter_map(|step| match step {
            Step::Write { .. } => step.written(),
            Step::Complete { submit } => self.steps.get(*submit)?.written(),
            _ => None,
        })
    }

    /// How many writes there are from step `from` on.
    #[must_use]
    pub fn writes(&self, from: usize) -> usize {
        self.steps.iter().skip(from).filter(|step| step.written().is_some()).count()
    }

    /// The step behind the first mark of a name.
    #[must_use]
    pub fn behind_mark(&self, name: &str) -> Option<usize> {
        let is_it = |step: &Step| matches!(step, Step::Mark(text) if text == name);
        self.steps.iter().position(is_it).map(|at| at + 1)
    }

    /// The byte behind the last that is written.
    #[must_use]
    pub fn reach(&self) -> ByteLen {
        let end = |step: &Step| {
            let end = |to: Written<'_>| to.at.get() * SECTOR + to.bytes.len() as u64;
            step.written().map_or(0, end)
        };
        ByteLen::new(self.steps.iter().map(end).max().unwrap_or(0))
    }
}
