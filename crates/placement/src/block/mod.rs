//! The location of a file's next block.
//!
//! A [`Request`] has the parameters that every policy uses; its hints are for the policies of one
//! format.

mod blkpref;
mod chunks;
mod ext;
mod ffs;
mod plain;

pub use blkpref::{Blkpref, BsdBlkpref, OldBlkpref};
pub use chunks::{ChunkWanted, Chunks, Search};
pub use ext::{EXT_NAMES, Ext4Goal, ExtBlocks, ExtHints, ext_by_name};
pub use ffs::{Hints, NAMES, Wanted, Zones, by_name};
pub use plain::{Ext2Next, NearStart, NextFree, RandomStart};

use crate::Groups;
use seekless_units::{BlockNo, GroupNo, Lbn};

/// A block requested for a file; `H` is the type of the format's hints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<H> {
    /// The group of the file's inode.
    pub group: GroupNo,
    /// Whether the file is a directory.
    pub is_directory: bool,
    /// The requested logical block; for a block of the map, the logical block for which it is
    /// needed.
    pub lbn: Lbn,
    /// The preceding block, of data or of the map; `None` for a hole and for the first block.
    pub nearest: Option<BlockNo>,
    /// Hints for the format's own policies.
    pub hints: H,
}

/// A block policy that uses the hints `H`.
pub trait BlockPlacement<H>: Send {
    /// Name of the policy.
    fn name(&self) -> &'static str;

    /// Start of the search, in fragments from the start of the volume; `None` for anywhere in the
    /// inode's group, and then anywhere.
    fn prefer(&mut self, groups: &Groups, request: &Request<H>) -> Option<BlockNo>;

    /// Whether the first free block from the preferred one on is taken, in the whole volume; by
    /// default, formats search in their own way.
    fn takes_next(&self) -> bool {
        false
    }

    /// Number of blocks to take at once for a regular file with a block map, including blocks that
    /// are not needed yet; by default one.
    fn ahead(&self) -> u32 {
        1
    }

    /// The preallocation in memory, if the policy has one; by default it has none. With one, the
    /// preferred block only determines the group.
    fn chunks(&mut self) -> Option<&mut Chunks> {
        None
    }

    /// Called with the location of each new block.
    fn allocated(&mut self, _at: BlockNo) {}
}
