//! Changing a layout in place: blocks move within the image in steps. The file system is consistent
//! after each step.

use super::{Demand, ObjectId, Placed};
use seekless_units::{BlockNo, Extent, Lbn};

/// The objects to be placed, with their present locations.
pub trait Occupied: Demand {
    /// The present location of an object's data, sorted by logical block. It covers all of
    /// [`Demand::runs`].
    fn data(&self, object: ObjectId) -> Vec<Placed>;

    /// The blocks of the object's map, in order of use.
    fn map(&self, object: ObjectId) -> Vec<BlockNo>;

    /// Number of blocks of the object's map if the data is placed as in `data`.
    fn map_needed(&self, object: ObjectId, data: &[Placed]) -> u64;
}

/// Changes that are made together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// Data to be copied to blocks that were free before the step.
    pub copies: Vec<Copied>,
    /// Objects whose data or map has another location afterwards, each once.
    pub changed: Vec<Changed>,
    /// Blocks allocated by the step, each once.
    pub taken: Vec<Extent>,
    /// Blocks freed by the step, each once; none of them is in `taken`.
    pub freed: Vec<Extent>,
}

impl Step {
    /// Number of blocks copied.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.copies.iter().map(|copy| copy.to.len).sum()
    }
}

/// A run of data to be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// The object.
    pub object: ObjectId,
    /// First logical block.
    pub lbn: Lbn,
    /// First physical block now.
    pub from: BlockNo,
    /// The physical blocks to copy to.
    pub to: Extent,
}

/// The state of an object after a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    /// The object.
    pub object: ObjectId,
    /// All of its data, sorted by logical block, neighbours joined.
    pub data: Vec<Placed>,
    /// All blocks of its map, some of which may be unchanged.
    pub map: Vec<BlockNo>,
}

/// Limits of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StepLimits {
    /// Number of blocks copied.
    pub blocks: u64,
    /// Number of objects changed.
    pub objects: usize,
    /// Number of groups in which blocks are allocated or freed.
    pub groups: usize,
}
