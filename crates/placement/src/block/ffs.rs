//! Hints of FFS's own block policies, and its policies by name.

use super::{
    Blkpref, BlockPlacement, BsdBlkpref, EXT_NAMES, NearStart, NextFree, OldBlkpref, RandomStart,
};
use crate::names::EXT;
use crate::{Groups, PolicyError};
use seekless_units::{BlockNo, GroupNo};

/// FFS's division of a group, and a file's share of a group, under the names of `struct fs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Zones {
    /// Fragments at the start of a group's data reserved for metadata.
    pub metaspace: u64,
    /// Block numbers in an indirect block.
    pub nindir: u64,
    /// Maximum number of blocks of a file in one group before it must move on.
    pub maxbpg: u32,
    /// Number of contiguous blocks before 4.4BSD leaves a gap.
    pub maxcontig: u32,
    /// Fragments of the rotational gap in 4.4BSD.
    pub rotdelay_frags: u32,
}

impl Zones {
    /// `cgdata`: start of a group's zone for data. The zone for metadata (`cgmeta`) precedes it,
    /// from the start of the group's data.
    #[must_use]
    pub fn data_zone(&self, groups: &Groups, group: GroupNo) -> BlockNo {
        groups.data_start(group) + self.metaspace
    }
}

/// FFS's hints about a requested block, from the file's map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hints {
    /// The kind of the requested block.
    pub wanted: Wanted,
    /// The last direct block, if there is one.
    pub last_direct: Option<BlockNo>,
    /// The first indirect block, if there is one.
    pub first_indirect: Option<BlockNo>,
}

impl Hints {
    /// The block after which a policy without hints places the new one: the last direct block for
    /// an indirect one, and the first indirect block for the block that follows it.
    #[must_use]
    pub fn nearest(&self) -> Option<BlockNo> {
        match self.wanted {
            Wanted::Indirect(_) => self.last_direct,
            Wanted::Data { index: 0, .. } => self.first_indirect.or(self.last_direct),
            Wanted::Data { previous, .. } => previous,
        }
    }
}

/// The kind of a requested block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// An indirect block: 1 for a single one, 2 for a double one, 3 for a
    /// triple one.
    Indirect(u32),
    /// A block of data.
    Data {
        /// Its index in the array with its number: the inode's direct blocks, or one indirect
        /// block.
        index: u64,
        /// The previous number in that array; `None` for a hole, and for the first.
        previous: Option<BlockNo>,
        /// The number `maxcontig` places before it, if there is one. Only [`OldBlkpref`] uses it.
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

/// Creates a policy for a volume with these zones by name; random choices use `seed`.
///
/// # Errors
/// If no policy has that name.
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
