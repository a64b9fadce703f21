//! Changes as an order is given them, and the steps that get them to the disk.

use crate::change::{ChangeId, Piece, Role};
use crate::shape::Place;

/// A change to some places of a block, all of them in memory.
pub(crate) struct Change<'a> {
    pub(crate) block: u64,
    pub(crate) places: &'a [Place],
    /// The new bytes, a piece for each place.
    pub(crate) pieces: &'a [Piece<'a>],
    pub(crate) role: Role,
    /// Changes that must be on the disk before.
    pub(crate) after: &'a [ChangeId],
    /// It may take the place of the one earlier change to these places, and then
    /// does not wait for any of these.
    pub(crate) replace: Option<&'a [ChangeId]>,
}

impl Change<'_> {
    /// The fragments it touches.
    pub(crate) fn mask(&self) -> u64 {
        self.places.iter().fold(0, |mask, place| mask | place.mask)
    }
}

/// Steps, as far as now possible, to get some changes to the disk.
#[derive(Default, Debug)]
pub(crate) struct ToSettle {
    /// Blocks with changes that can be written.
    pub(crate) to_write: Vec<u64>,
    /// Blocks that are being written.
    pub(crate) under_way: Vec<u64>,
    /// Something has been written and waits for a flush.
    pub(crate) to_flush: bool,
}

impl ToSettle {
    /// Whether they are on the disk.
    pub(crate) fn is_settled(&self) -> bool {
        self.to_write.is_empty() && self.under_way.is_empty() && !self.to_flush
    }
}
