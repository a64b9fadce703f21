//! Policies for comparison, independent of groups (after B. Evans' comparisons of dirpref and
//! blkpref with simpler rules).

use super::{BlockPlacement, Request};
use crate::Groups;
use crate::chance::Chance;
use seekless_units::{BlockNo, GroupNo};

/// Every block is the next free one behind the last allocated one, as on a tape, wrapping around at
/// the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct NextFree {
    last: Option<BlockNo>,
}

/// A file begins at a random block.
#[derive(Clone, Debug)]
pub struct RandomStart {
    chance: Chance,
}

/// A file begins at the first free block of the volume.
#[derive(Clone, Copy, Debug)]
pub struct NearStart;

impl NextFree {
    /// Name of the policy.
    pub const NAME: &'static str = "next-free";
}

impl RandomStart {
    /// Name of the policy.
    pub const NAME: &'static str = "random-start";

    /// Creates the policy with a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { chance: Chance::new(seed) }
    }
}

impl Ext2Next {
    /// Name of the policy.
    pub const NAME: &'static str = "ext2-next";
    /// Maximum number of blocks taken at once.
    pub const MOST_AHEAD: u32 = 1024;

    /// Creates the policy; `ahead` is from 1 to [`Ext2Next::MOST_AHEAD`].
    #[must_use]
    pub fn new(ahead: u32) -> Option<Self> {
        (1..=Self::MOST_AHEAD).contains(&ahead).then_some(Self { ahead })
    }
}

impl NearStart {
    /// Name of the policy.
    pub const NAME: &'static str = "near-start";
}

/// A block follows the previous one; a file begins at the start of its inode's group
/// (`ext2_find_goal` of `fs/ext2/inode.c`, without the colour that separates processes). Linux
/// before 2.6.2x took 8 at once (`EXT2_DEFAULT_PREALLOC_BLOCKS`).
#[derive(Clone, Copy, Debug)]
pub struct Ext2Next {
    /// Number of blocks taken at once for a regular file, at least one.
    ahead: u32,
}

/// The location behind the previous block, if there is one.
fn following<H>(groups: &Groups, request: &Request<H>) -> Option<BlockNo> {
    request.nearest.map(|block| block + u64::from(groups.shape().frag))
}

impl<H> BlockPlacement<H> for NextFree {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, groups: &Groups, _: &Request<H>) -> Option<BlockNo> {
        let frag = u64::from(groups.shape().frag);
        let next = self.last.map(|last| last + frag);
        let begin = groups.data_start(GroupNo::ZERO);
        Some(next.filter(|next| next.get() < groups.shape().size).unwrap_or(begin))
    }

    fn takes_next(&self) -> bool {
        true
    }

    fn allocated(&mut self, at: BlockNo) {
        self.last = Some(at);
    }
}

impl<H> BlockPlacement<H> for RandomStart {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, groups: &Groups, request: &Request<H>) -> Option<BlockNo> {
        let frag = u64::from(groups.shape().frag).max(1);
        following(groups, request).or_else(|| {
            let blocks = groups.shape().size.checked_div(frag).unwrap_or(0);
            Some(BlockNo::new(self.chance.below(blocks) * frag))
        })
    }
}

impl<H> BlockPlacement<H> for Ext2Next {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn ahead(&self) -> u32 {
        self.ahead
    }

    fn prefer(&mut self, groups: &Groups, request: &Request<H>) -> Option<BlockNo> {
        following(groups, request).or_else(|| Some(groups.shape().base(request.group)))
    }
}

impl<H> BlockPlacement<H> for NearStart {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, groups: &Groups, request: &Request<H>) -> Option<BlockNo> {
        following(groups, request).or_else(|| {
            let (first, _) = groups.from(GroupNo::ZERO).find(|(_, group)| group.nbfree > 0)?;
            Some(groups.data_start(first))
        })
    }
}
