//! ext2, ext3 and ext4 in use: the format behind the operations of `seekless-live`.
//!
//! - `format`: the answers; `first`: first blocks, and those of directories; `entries`:
//!   names; `hashed`: directories with an index;
//! - `map`, `node`, `encode`: inodes from their bytes, and as bytes again;
//! - `space`, `numbers`, `search`: bitmaps, policies and the cache brought together; `orlov`:
//!   further input of policies; `reserve`: inodes reserved for the children of directories;
//!   `mballoc`, `ahead`: blocks preallocated for files in memory, or on the disk;
//! - `descriptor`, `bitmaps`, `sums`: fields of groups; bitmaps and tables that were never written;
//!   checksums;
//! - `blocks`: the maps of files; `extents`: those by extents; `inline`: contents in
//!   inodes;
//! - `attributes`: extended attributes;
//! - `mount`: opening and closing; `permit`: refused features, by name; `errors`: the record of
//!   errors once nothing can be changed any more;
//! - `orphans`, `orphan_file`: files that a crash leaves behind; `pieces`: the size of one
//!   transaction's part.

mod ahead;
mod attributes;
mod bitmaps;
mod blocks;
mod descriptor;
mod encode;
mod entries;
mod errors;
mod extents;
mod first;
mod format;
mod hashed;
mod inline;
mod linked;
mod map;
mod mballoc;
mod mount;
mod node;
mod numbers;
mod orlov;
mod orphan_file;
mod orphans;
mod permit;
mod pieces;
mod reserve;
mod search;
mod space;
mod sums;

use crate::volume::Volume;
use ahead::Ahead;
use descriptor::DescriptorFields;
use entries::Entries;
pub use hashed::ListingOrder;
use map::Map;
use orlov::LastGroups;
use orphan_file::OrphanFile;
use seekless_live::{Limits, Live, Wall};
use seekless_placement::Groups;
use seekless_placement::block::{BlockPlacement, ExtHints};
use seekless_placement::inode::InodePlacement;
use seekless_units::{BlockNo, Extent, GroupNo, Ino};
use std::collections::BTreeSet;

/// An ext2 or ext4 image in use.
pub type ExtLive = Live<Ext>;

type Core = seekless_live::Core<Map>;
type Node = seekless_live::Node<Map>;

/// How to open an image for changes.
pub struct LiveOptions {
    /// The policy for directories, by name (`ext2-orlov`).
    pub directories: String,
    /// The policy for all other inodes; `None` for the default of the directories'
    /// (`find-group-other`; `parent` with `linux-orlov`).
    pub inodes: Option<String>,
    /// The policy for blocks; `None` for `ext2-next`.
    pub blocks: Option<String>,
    /// The seed of the policies' random numbers.
    pub seed: u64,
    /// Open it even if it is not clean.
    pub force: bool,
    /// Whether contents wait for their place until they are written back (`delalloc`,
    /// `nodelalloc`); `None` for the default of the policy for blocks: with `ext4-goal`, where it
    /// can be.
    pub delays: Option<bool>,
    /// Rename directories even where e2fsck would ask which name is right after a crash in between;
    /// else that fails with [`FsError::CrossDevice`].
    ///
    /// [`FsError::CrossDevice`]: seekless_fs::FsError::CrossDevice
    pub moves_dirs: bool,
    /// The time of day.
    pub wall: Wall,
}

/// The places of a group's parts.
#[derive(Clone, Copy)]
struct Places {
    block_bitmap: BlockNo,
    inode_bitmap: BlockNo,
    inode_table: BlockNo,
}

/// ext2 and ext4 as a format of images in use.
pub struct Ext {
    /// The part that does not change while it is in use: geometry, features, where the parts of
    /// groups are. Its counts are those that the image was opened with.
    volume: Volume,
    limits: Limits,
    entries: Entries,
    places: Vec<Places>,
    /// The other fields of the descriptors.
    states: Vec<DescriptorFields>,
    /// The volume's own metadata: superblocks, descriptors, bitmaps, tables; in order.
    metadata: Vec<Extent>,
    groups: Groups,
    /// Groups whose descriptors on the disk are out of date.
    stale: BTreeSet<GroupNo>,
    inodes: Box<dyn InodePlacement>,
    blocks: Box<dyn BlockPlacement<ExtHints>>,
    /// Blocks taken ahead for files.
    ahead: Ahead,
    last_groups: LastGroups,
    /// Files that a mount after a crash deletes, or cuts to their length; the list on
    /// the disk leads from the last of them to the first.
    orphans: Vec<Ino>,
    /// Orphans in the orphan file, if the volume has such a file and a journal.
    orphan_file: Option<OrphanFile>,
    /// Only the order of writes keeps any order: blocks of extent trees are changed in copies,
    /// except for changes within one sector.
    shadows: bool,
    /// Allocation is delayed until write-back.
    delays: bool,
    /// It was opened in any state: files may have blocks in common.
    is_doubtful: bool,
}
