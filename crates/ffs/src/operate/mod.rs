//! FFS in use: the format behind the operations of `seekless-live`.
//!
//! - `format`: the answers, and directory entries;
//! - `node`, `encode`: inodes from their bytes, and as bytes again;
//! - `allocate`: groups' bytes, policies and the cache brought together;
//! - `map`, `blocks`, `gather`: the maps of files, and clusters;
//! - `xattr`: extended attributes;
//! - `mount`, `seal`: opening, closing, check hashes.

mod allocate;
mod blocks;
mod encode;
mod format;
mod gather;
mod linked;
mod map;
mod mount;
mod node;
#[cfg(test)]
mod placing;
mod seal;
mod xattr;

#[cfg(feature = "faults")]
pub use seekless_live::Fault as LiveFault;
pub use seekless_live::Wall;

use crate::superblock::Super;
use format::Typed;
use hashbrown::HashSet;
use map::Map;
use seekless_device::BlockDevice;
use seekless_live::{Limits, Live};
use seekless_placement::Groups;
use seekless_placement::block::{BlockPlacement, Hints};
use seekless_placement::inode::InodePlacement;
use seekless_placement::realloccg::Optimization;
use seekless_units::{GroupNo, Ino};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A UFS1 or UFS2 image in use.
pub type FfsLive = Live<Ffs>;

type Core = seekless_live::Core<Map>;
type Node = seekless_live::Node<Map>;

/// How to open an image for changes.
pub struct LiveOptions {
    /// The policy for directories, by name (`orlov`).
    pub directories: String,
    /// The policy for all other inodes; `None` for FFS's only one (`parent`).
    pub inodes: Option<String>,
    /// The policy for blocks; `None` for that of the time of the directories' policy.
    pub blocks: Option<String>,
    /// The seed of the policies' random numbers.
    pub seed: u64,
    /// Gather new blocks into clusters (`vfs.ffs.doreallocblks`).
    pub reallocblks: bool,
    /// Open it even if it is not clean.
    pub force: bool,
    /// Do not compare check hashes.
    pub ignore_checksums: bool,
    /// The time of day.
    pub wall: Wall,
}

/// FFS as a format of images in use.
pub struct Ffs {
    sb: Arc<Super>,
    limits: Limits,
    codec: Typed,
    device: Arc<dyn BlockDevice>,
    groups: Groups,
    /// Groups whose counts in the summary area are out of date.
    stale_summaries: BTreeSet<GroupNo>,
    optim: Optimization,
    inodes: Box<dyn InodePlacement>,
    blocks: Box<dyn BlockPlacement<Hints>>,
    reallocblks: bool,
    verified_groups: Vec<bool>,
    verified_inodes: HashSet<Ino>,
    ignore_checksums: bool,
}
