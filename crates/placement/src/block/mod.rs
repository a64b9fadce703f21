//! Where a file's next block goes.

mod blkpref;
mod plain;

pub use blkpref::{Blkpref, OldBlkpref};
pub use plain::{NearStart, NextFree, RandomStart};

use crate::{UnknownPolicy, View};
use seekless_units::{BlockNo, GroupNo, Lbn};

/// A block that a file needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The group of the file's inode.
    pub group: GroupNo,
    /// Whether the file is a directory.
    pub is_directory: bool,
    /// The logical block that is wanted; for an indirect block, the one on whose
    /// way it lies.
    pub lbn: Lbn,
    /// What is needed.
    pub wanted: Wanted,
    /// Where the last direct block lies, if there is one.
    pub last_direct: Option<BlockNo>,
    /// Where the first indirect block lies, if there is one.
    pub first_indirect: Option<BlockNo>,
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

/// A policy for blocks.
pub trait BlockPlacement: Send {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// Where to look first, in fragments from the start of the volume; `None`
    /// for anywhere in the inode's group, and then anywhere.
    fn prefer(&mut self, view: &View<'_>, request: &Request) -> Option<BlockNo>;

    /// To be told where a block was found.
    fn allocated(&mut self, _at: BlockNo) {}
}

/// The names of all policies.
pub const NAMES: [&str; 5] =
    [Blkpref::NAME, OldBlkpref::NAME, NextFree::NAME, RandomStart::NAME, NearStart::NAME];

/// The policy of a name, which draws from `seed` what it leaves to chance.
///
/// # Errors
/// When there is none of that name.
pub fn by_name(name: &str, seed: u64) -> Result<Box<dyn BlockPlacement>, UnknownPolicy> {
    match name {
        Blkpref::NAME => Ok(Box::new(Blkpref)),
        OldBlkpref::NAME => Ok(Box::new(OldBlkpref)),
        NextFree::NAME => Ok(Box::new(NextFree::default())),
        RandomStart::NAME => Ok(Box::new(RandomStart::new(seed))),
        NearStart::NAME => Ok(Box::new(NearStart)),
        _ => Err(UnknownPolicy::new(name, &NAMES)),
    }
}
