//! Hints of ext's own block policies, and its policies by name.

use super::{BlockPlacement, Chunks, Ext2Next, NAMES, NearStart, NextFree, RandomStart, Request};
use crate::names::UFS;
use crate::{Groups, PolicyError};
use seekless_units::{BlockNo, GroupNo};

/// ext's hints about a requested block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtHints {
    /// Whether the file is a regular one.
    pub is_regular: bool,
}

/// ext4's goals (`ext4_ext_find_goal`, `ext4_inode_to_goal_block`): behind the previous block in
/// the map; else the group of the inode or, if flexible groups have four groups or more, the first
/// group of its flexible group, and the second one for regular files.
///
/// The goal only determines the group: in it, regular files use [`Chunks`], and all others take the
/// first free block.
#[derive(Clone, Debug)]
pub struct Ext4Goal {
    groups_per_flex: u32,
    chunks: Chunks,
}

/// Minimum number of groups in a flexible group whose first group is reserved for directories
/// (`EXT4_FLEX_SIZE_DIR_ALLOC_SCHEME`).
const DIRECTORIES_APART: u32 = 4;

impl Ext4Goal {
    /// Name of the policy.
    pub const NAME: &'static str = "ext4-goal";

    /// Creates the policy for a volume, and a kernel on a machine with `processors` processors.
    #[must_use]
    pub fn new(volume: &ExtBlocks, processors: u32) -> Self {
        let ExtBlocks { groups, groups_per_flex, block_size, blocks_per_group } = *volume;
        let apart = if groups_per_flex >= DIRECTORIES_APART { groups_per_flex } else { 0 };
        let goals = usize::try_from(processors.min(groups.div_ceil(4))).unwrap_or(1);
        let chunks = Chunks::new(block_size, blocks_per_group, apart, goals);
        Self { groups_per_flex, chunks }
    }
}

impl BlockPlacement<ExtHints> for Ext4Goal {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, groups: &Groups, request: &Request<ExtHints>) -> Option<BlockNo> {
        if let Some(front) = request.nearest {
            return Some(front + 1);
        }
        let own = request.group.get();
        let group = if self.groups_per_flex >= DIRECTORIES_APART {
            let first = own - own % self.groups_per_flex;
            first + u32::from(request.hints.is_regular)
        } else {
            own
        };
        // The last flexible group may have only one group.
        let last = groups.shape().ncg - 1;
        Some(groups.shape().base(GroupNo::new(group.min(last))))
    }

    fn chunks(&mut self) -> Option<&mut Chunks> {
        Some(&mut self.chunks)
    }
}

/// The names of ext's policies, ext2's own first.
pub const EXT_NAMES: [&str; 5] =
    [Ext2Next::NAME, Ext4Goal::NAME, NextFree::NAME, RandomStart::NAME, NearStart::NAME];

/// The parameters of an ext volume for block policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtBlocks {
    /// Groups.
    pub groups: u32,
    /// Groups in a flexible group, 1 without.
    pub groups_per_flex: u32,
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks in a group.
    pub blocks_per_group: u32,
}

/// Creates a policy for an ext volume by name; random choices use `seed`. The name of [`Ext4Goal`]
/// may be followed by `=` and a number of processors, that of [`Ext2Next`] by `=` and a number of
/// blocks to take at once; both are 1 by default.
///
/// # Errors
/// If no policy has that name.
pub fn ext_by_name(
    name: &str,
    volume: &ExtBlocks,
    seed: u64,
) -> Result<Box<dyn BlockPlacement<ExtHints>>, PolicyError> {
    let ahead = name.strip_prefix(Ext2Next::NAME).and_then(|rest| rest.strip_prefix('='));
    let ahead = if name == Ext2Next::NAME { Some(1) } else { ahead.and_then(|n| n.parse().ok()) };
    if let Some(policy) = ahead.and_then(Ext2Next::new) {
        return Ok(Box::new(policy));
    }
    let processors = name.strip_prefix(Ext4Goal::NAME).and_then(|rest| rest.strip_prefix('='));
    if let Some(processors) = processors.and_then(|number| number.parse().ok())
        && processors > 0
    {
        return Ok(Box::new(Ext4Goal::new(volume, processors)));
    }
    match name {
        Ext4Goal::NAME => Ok(Box::new(Ext4Goal::new(volume, 1))),
        NextFree::NAME => Ok(Box::new(NextFree::default())),
        RandomStart::NAME => Ok(Box::new(RandomStart::new(seed))),
        NearStart::NAME => Ok(Box::new(NearStart)),
        _ => Err(PolicyError::unknown(name, &EXT_NAMES, (UFS, &NAMES))),
    }
}
