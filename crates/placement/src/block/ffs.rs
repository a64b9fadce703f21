//! What FFS's own policies for blocks want to know, and its policies by name.

use super::{
    Blkpref, BlockPlacement, BsdBlkpref, EXT_NAMES, NearStart, NextFree, OldBlkpref, RandomStart,
};
use crate::names::EXT;
use crate::{Groups, PolicyError};
use seekless_units::{BlockNo, GroupNo};

/// How FFS divides a group, and how much of one a file may take, under the names
/// of `struct fs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Zones {
    /// Fragments at the start of a group's data that are for metadata.
    pub metaspace: u64,
    /// Block numbers in an indirect block.
    pub nindir: u64,
    /// Blocks that a file may take in one group before it must move on.
    pub maxbpg: u32,
    /// Blocks that 4.4BSD lays next to each other before it leaves a gap.
    pub maxcontig: u32,
    /// Fragments of the gap that 4.4BSD leaves for the disk to turn.
    pub rotdelay_frags: u32,
}

impl Zones {
    /// `cgdata`: where a group's zone for data begins. In front of it, where its
    /// data begin, is the one for metadata (`cgmeta`).
    #[must_use]
    pub fn data_zone(&self, groups: &Groups, group: GroupNo) -> BlockNo {
        groups.data_start(group).saturating_add(self.metaspace)
    }
}

/// What the map of a file in FFS tells of a block that it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hints {
    /// What is needed.
    pub wanted: Wanted,
    /// Where the last direct block lies, if there is one.
    pub last_direct: Option<BlockNo>,
    /// Where the first indirect block lies, if there is one.
    pub first_indirect: Option<BlockNo>,
}

impl Hints {
    /// The block that a policy without hints lays the new one behind: the last
    /// direct block for an indirect one, and the first indirect one for the block
    /// that follows.
    #[must_use]
    pub fn nearest(&self) -> Option<BlockNo> {
        match self.wanted {
            Wanted::Indirect(_) => self.last_direct,
            Wanted::Data { index: 0, .. } => self.first_indirect.or(self.last_direct),
            Wanted::Data { previous, .. } => previous,
        }
    }
}

/// What kind of block is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// An indirect block: 1 for a single one, 2 for a double one, 3 for a
    /// triple one.
    Indirect(u32),
    /// A block of data.
    Data {
        /// Its place in the map that holds its number: the inode's direct
        /// blocks, or one indirect block.
        index: u64,
        /// The number in front of it in that map; none for a hole, and for the
        /// first.
        previous: Option<BlockNo>,
        /// The number `maxcontig` places in front of it, where there is one.
        /// Only [`OldBlkpref`] looks at it.
        run_before: Option<BlockNo>,
    },
}

/// The names of all policies.
pub const NAMES: [&str; 6] = [
    Blkpref::NAME,
    BsdBlkpref::NAME,
    OldBlkpref::NAME,
    NextFree::NAME,
    RandomStart::NAME,
    NearStart::NAME,
];

/// The policy of a name for a volume so divided, which draws from `seed` what it leaves to chance.
///
/// # Errors
/// When there is none of that name.
pub fn by_name(
    name: &str,
    zones: Zones,
    seed: u64,
) -> Result<Box<dyn BlockPlacement<Hints>>, PolicyError> {
    match name {
        Blkpref::NAME => Ok(Box::new(Blkpref::new(zones))),
        BsdBlkpref::NAME => Ok(Box::new(BsdBlkpref::new(zones))),
        OldBlkpref::NAME => Ok(Box::new(OldBlkpref::new(zones))),
        NextFree::NAME => Ok(Box::new(NextFree::default())),
        RandomStart::NAME => Ok(Box::new(RandomStart::new(seed))),
        NearStart::NAME => Ok(Box::new(NearStart)),
        _ => Err(PolicyError::unknown(name, &NAMES, (EXT, &EXT_NAMES))),
    }
}
