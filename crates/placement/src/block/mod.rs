//! Where a file's next block goes.
//!
//! What every policy may ask stands in a [`Request`]; what only the policies of
//! one format understand are the hints in it.

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

/// A block that a file needs; `H` is what the format tells its own policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<H> {
    /// The group of the file's inode.
    pub group: GroupNo,
    /// Whether the file is a directory.
    pub is_directory: bool,
    /// The logical block that is wanted; for a block of the map, the one on whose
    /// way it lies.
    pub lbn: Lbn,
    /// The block that lies in front of it, of data or of the map; none for a hole
    /// and for the first.
    pub nearest: Option<BlockNo>,
    /// What the policies of its format go by.
    pub hints: H,
}

/// A policy for blocks that understands the hints `H`.
pub trait BlockPlacement<H>: Send {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// Where to look first, in fragments from the start of the volume; `None`
    /// for anywhere in the inode's group, and then anywhere.
    fn prefer(&mut self, groups: &Groups, request: &Request<H>) -> Option<BlockNo>;

    /// Whether the first free block from the preferred one on is taken, all over the
    /// volume; by default, formats look for one in their own way.
    fn takes_next(&self) -> bool {
        false
    }

    /// How many blocks are taken at once when a regular file with a block map needs one, those
    /// that it does not need yet on the disk too; by default one.
    fn ahead(&self) -> u32 {
        1
    }

    /// What keeps free blocks for files in memory; by default nothing does. Where it does,
    /// the preferred block names no more than a group.
    fn chunks(&mut self) -> Option<&mut Chunks> {
        None
    }

    /// To be told where a block was found.
    fn allocated(&mut self, _at: BlockNo) {}
}
