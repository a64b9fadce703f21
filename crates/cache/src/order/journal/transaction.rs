//! The transaction that operations add to, and the one on its way to the log.

use super::ids::Number;
use super::quarantine::Quarantine;
use crate::log::Stage;
use crate::work::Part;
use seekless_units::Nanos;
use std::collections::{BTreeSet, VecDeque};

/// The transaction that operations add to.
pub(crate) struct Running {
    pub(crate) number: Number,
    /// Blocks to be logged.
    pub(crate) blocks: BTreeSet<u64>,
    /// Blocks whose copies in the log a recovery must pass over.
    pub(crate) revokes: BTreeSet<u64>,
    /// Contents that must be at home before the commit.
    pub(crate) ordered: BTreeSet<u64>,
    pub(crate) freed: Quarantine,
    /// When it got its first change.
    pub(crate) began: Option<Nanos>,
}

impl Running {
    pub(crate) fn new(number: Number) -> Self {
        Self {
            number,
            blocks: BTreeSet::new(),
            revokes: BTreeSet::new(),
            ordered: BTreeSet::new(),
            freed: Quarantine::default(),
            began: None,
        }
    }

    /// It has, or had, something in it.
    pub(crate) fn touch(&mut self, now: Nanos) {
        self.began.get_or_insert(now);
    }

    /// Whether nothing is in it.
    pub(crate) const fn is_empty(&self) -> bool {
        self.began.is_none()
    }
}

/// The transaction on its way to the log. Its blocks are copied: operations go on.
pub(crate) struct Committing {
    pub(crate) number: Number,
    pub(crate) blocks: Vec<u64>,
    /// Contents that its first stage writes.
    pub(crate) contents: Vec<u64>,
    pub(crate) revokes: Vec<u64>,
    pub(crate) freed: Quarantine,
    /// Stages still to be done.
    pub(crate) stages: VecDeque<Stage>,
    /// The part being done now.
    pub(crate) under_way: Option<Part>,
}
