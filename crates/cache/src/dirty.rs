//! Blocks in the order in which they became dirty, where the number of dirty buffers is limited.

use std::collections::VecDeque;

/// Of the limit, how much may become dirty before all are counted again.
const PARTS: usize = 16;

/// The blocks that became dirty, in that order. Some are clean by now, and some are in it
/// more than once.
#[derive(Debug, Default)]
pub(crate) struct Dirtied {
    blocks: VecDeque<u64>,
    /// How many came since all were counted.
    fresh: usize,
}

impl Dirtied {
    /// A block that was clean is dirty.
    pub(crate) fn note(&mut self, block: u64) {
        self.blocks.push_back(block);
        self.fresh += 1;
    }

    /// Whether so few blocks became dirty since all were counted that no more than `most` can be.
    pub(crate) fn are_few(&self, most: usize) -> bool {
        self.fresh <= most / PARTS
    }

    /// The blocks, to be counted: those that stay dirty are to be [kept](Self::keep).
    pub(crate) fn take(&mut self) -> VecDeque<u64> {
        self.fresh = 0;
        std::mem::take(&mut self.blocks)
    }

    /// A block that was taken stays dirty.
    pub(crate) fn keep(&mut self, block: u64) {
        self.blocks.push_back(block);
    }
}
