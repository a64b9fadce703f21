//! A layout changed where it is: blocks move within the image, in steps after each
//! of which the file system is whole.

use super::{Demand, ObjectId, Placed};
use seekless_units::{BlockNo, Extent, Lbn};

/// What must be placed, and where it lies now.
pub trait Occupied: Demand {
    /// Where an object's data lies, sorted by logical block: all of what
    /// [`Demand::runs`] names.
    fn data(&self, object: ObjectId) -> Vec<Placed>;

    /// The blocks of its map, in the order in which they are to be handed out.
    fn map(&self, object: ObjectId) -> Vec<BlockNo>;

    /// How many blocks its map takes when the data lies like this.
    fn map_needed(&self, object: ObjectId, data: &[Placed]) -> u64;
}

/// What changes together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// Data to be copied to blocks that were free before the step.
    pub copies: Vec<Copied>,
    /// Objects whose data or map lies elsewhere afterwards, each once.
    pub changed: Vec<Changed>,
    /// Blocks that are in use from then on, each once.
    pub taken: Vec<Extent>,
    /// Blocks that are free from then on, each once; none of them was taken.
    pub freed: Vec<Extent>,
}

impl Step {
    /// Blocks that are copied.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.copies.iter().map(|copy| copy.to.len).sum()
    }
}

/// Data on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// Whose.
    pub object: ObjectId,
    /// The first of its logical blocks.
    pub lbn: Lbn,
    /// Where they begin now.
    pub from: BlockNo,
    /// Where they go.
    pub to: Extent,
}

/// An object after a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    /// Which one.
    pub object: ObjectId,
    /// All of its data, sorted by logical block, neighbours joined.
    pub data: Vec<Placed>,
    /// All blocks of its map. Some may have been so before.
    pub map: Vec<BlockNo>,
}

/// How much one step may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Blocks to be copied.
    pub blocks: u64,
    /// Objects that change.
    pub objects: usize,
    /// Groups in which blocks are taken or given back.
    pub groups: usize,
}
