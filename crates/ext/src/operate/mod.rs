//! ext2 in use: what the operations of `seekless-live` ask of a format.
//!
//! - `format`: the answers; `entries`: directories;
//! - `node`, `encode`: inodes from their bytes, and as bytes again;
//! - `space`, `search`: bitmaps, policies and the cache brought together;
//! - `blocks`: the maps of files;
//! - `attributes`: extended attributes;
//! - `mount`: opening and closing; `permit`: what is refused, by name.

mod attributes;
mod blocks;
mod encode;
mod entries;
mod format;
mod mount;
mod node;
mod permit;
mod search;
mod space;

use crate::volume::Volume;
use entries::Entries;
use node::Map;
use seekless_live::{Limits, Live, Wall};
use seekless_placement::Groups;
use seekless_placement::block::BlockPlacement;
use seekless_placement::inode::InodePlacement;
use seekless_units::{BlockNo, Extent, GroupNo};
use std::collections::BTreeSet;

/// An ext2 image in use.
pub type ExtLive = Live<Ext>;

type Core = seekless_live::Core<Map>;
type Node = seekless_live::Node<Map>;

/// How to open an image for changes.
pub struct LiveOptions {
    /// The policy for directories, by name (`ext2-orlov`).
    pub directories: String,
    /// The policy for blocks; `None` for `ext2-next`.
    pub blocks: Option<String>,
    /// What the policies draw from.
    pub seed: u64,
    /// Open it even if it is not clean.
    pub force: bool,
    /// The time of day.
    pub wall: Wall,
}

/// Where the parts of a group are.
#[derive(Clone, Copy)]
struct Places {
    block_bitmap: BlockNo,
    inode_bitmap: BlockNo,
    inode_table: BlockNo,
}

/// ext2 as a format of images in use.
pub struct Ext {
    /// What does not change while it is in use: geometry, features, where the
    /// parts of groups are. Its counts are those that the image was opened with.
    volume: Volume,
    limits: Limits,
    entries: Entries,
    places: Vec<Places>,
    /// What no file has: superblocks, descriptors, bitmaps, tables; in order.
    metadata: Vec<Extent>,
    groups: Groups,
    /// Groups of which the descriptors on the disk do not say the latest.
    stale: BTreeSet<GroupNo>,
    inodes: Box<dyn InodePlacement>,
    blocks: Box<dyn BlockPlacement<()>>,
}
