//! What a device was told to write, and where it was told to flush.

use seekless_units::{ByteLen, Lba, SECTOR};
use std::ops::Range;
use std::sync::Arc;

/// One thing a device was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// To write.
    Write {
        /// The first sector.
        at: Lba,
        /// Whole sectors.
        bytes: Arc<[u8]>,
        /// It was on stable storage when the call returned (`REQ_FUA`).
        fua: bool,
    },
    /// That the contents of some sectors matter no more. They may still be read
    /// as they were.
    Discard {
        /// The first sector.
        at: Lba,
        /// How many.
        sectors: u64,
    },
    /// To put all that was written on stable storage.
    Flush,
    /// Nothing: whoever keeps the log has something to remember.
    Mark(String),
}

/// All that a device was told, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Log {
    /// In the order it was told.
    pub steps: Vec<Step>,
}

/// The writes between two flushes: any of them may be lost, whatever became of
/// the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Epoch {
    /// Its steps in the log, the flush that ends it not among them.
    pub steps: Range<usize>,
}

impl Log {
    /// The epochs of the steps from `from` on. The last need not end in a flush.
    #[must_use]
    pub fn epochs(&self, from: usize) -> Vec<Epoch> {
        let mut epochs = Vec::new();
        let mut start = from;
        for (at, step) in self.steps.iter().enumerate().skip(from) {
            if *step == Step::Flush {
                epochs.push(Epoch { steps: start..at });
                start = at.saturating_add(1);
            }
        }
        epochs.push(Epoch { steps: start..self.steps.len() });
        epochs
    }

    /// How many writes there are from step `from` on.
    #[must_use]
    pub fn writes(&self, from: usize) -> usize {
        let is_write = |step: &&Step| matches!(step, Step::Write { .. });
        self.steps.iter().skip(from).filter(is_write).count()
    }

    /// The step behind the first mark of a name.
    #[must_use]
    pub fn behind_mark(&self, name: &str) -> Option<usize> {
        let is_it = |step: &Step| matches!(step, Step::Mark(text) if text == name);
        self.steps.iter().position(is_it).map(|at| at.saturating_add(1))
    }

    /// The byte behind the last that is written.
    #[must_use]
    pub fn reach(&self) -> ByteLen {
        let end = |step: &Step| match step {
            Step::Write { at, bytes, .. } => {
                at.get().saturating_mul(SECTOR).saturating_add(bytes.len() as u64)
            }
            _ => 0,
        };
        ByteLen::new(self.steps.iter().map(end).max().unwrap_or(0))
    }
}
