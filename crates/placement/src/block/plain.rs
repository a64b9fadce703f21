//! Policies to compare with, which know nothing of groups (after B. Evans'
//! comparisons of dirpref and blkpref with simpler rules).

use super::{BlockPlacement, Request};
use crate::Groups;
use crate::chance::Chance;
use seekless_units::{BlockNo, GroupNo};

/// Every block is the next free one behind whatever was allocated last, as on a tape,
/// and at the start again behind the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct NextFree {
    last: Option<BlockNo>,
}

/// A file begins anywhere.
#[derive(Clone, Debug)]
pub struct RandomStart {
    chance: Chance,
}

/// A file begins as near to the start of the volume as there is a free block.
#[derive(Clone, Copy, Debug)]
pub struct NearStart;

impl NextFree {
    /// What it is called.
    pub const NAME: &'static str = "next-free";
}

impl RandomStart {
    /// What it is called.
    pub const NAME: &'static str = "random-start";

    /// With a seed for its chance.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { chance: Chance::new(seed) }
    }
}

impl Ext2Next {
    /// What it is called.
    pub const NAME: &'static str = "ext2-next";
    /// Most blocks that are taken at once.
    pub const MOST_AHEAD: u32 = 1024;

    /// Taking so many blocks at once, from 1 to [`Ext2Next::MOST_AHEAD`].
    #[must_use]
    pub fn new(ahead: u32) -> Option<Self> {
        (1..=Self::MOST_AHEAD).contains(&ahead).then_some(Self { ahead })
    }
}

impl NearStart {
    /// What it is called.
    pub const NAME: &'static str = "near-start";
}

/// A block follows the one in front of it; a file begins at the start of its inode's
/// group (`ext2_find_goal` of `fs/ext2/inode.c`, without the colour that keeps
/// processes apart). Linux before 2.6.2x took 8 at once (`EXT2_DEFAULT_PREALLOC_BLOCKS`).
#[derive(Clone, Copy, Debug)]
pub struct Ext2Next {
    /// Blocks that are taken at once for a regular file, at least one.
    ahead: u32,
}

/// The place behind the block in front, where there is one.
fn following<H>(groups: &Groups, request: &Request<H>) -> Option<BlockNo> {
    request.nearest.map(|block| block.saturating_add(u64::from(groups.shape().frag)))
}

impl<H> BlockPlacement<H> for NextFree {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, groups: &Groups, _: &Request<H>) -> Option<BlockNo> {
        let frag = u64::from(groups.shape().frag);
        let next = self.last.map(|last| last.saturating_add(frag));
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
            Some(BlockNo::new(self.chance.below(blocks).saturating_mul(frag)))
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
