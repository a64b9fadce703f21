//! ext2, ext3 and ext4 in use: the format behind the operations of `seekless-live`.
//!
//! Parts with state of their own, from the bottom up:
//!
//! - `layout`: the part of a volume that does not change; `descriptor`, `groups`: bitmaps and
//!   counts of groups; `search`: bits of bitmaps;
//! - `allocate`: blocks taken; `mballoc`, `ahead`: blocks preallocated for files in memory, or on
//!   the disk; `numbers`: inodes taken; `orlov`: further input of policies;
//! - `sums`: checksums; `map`, `node`, `encode`: inodes from their bytes, and as bytes again;
//! - `primary`: the superblock; `errors`: the record of errors once nothing can be changed;
//! - `orphans`, `orphan_file`: files that a crash leaves behind;
//! - `maps`: maps of files, with the inodes and the allocator that they need; `blocks`: maps by
//!   indirect blocks; `extents`: maps by extents.
//!
//! Types that borrow these for one operation on a file:
//!
//! - `inline`: contents in inodes; `contents`: all contents; `pieces`: the size of one
//!   transaction's part;
//! - `entries`: names in a block; `inline_names`: names in inodes; `directory`: blocks of
//!   directories; `hashed`: directories with an index;
//! - `attributes`: extended attributes.
//!
//! `ext` brings them together and answers; `permit` refuses features, by name.

mod ahead;
mod allocate;
mod attributes;
mod blocks;
mod contents;
mod descriptor;
mod directory;
mod encode;
mod entries;
mod errors;
mod ext;
mod extents;
mod groups;
mod hashed;
mod inline;
mod inline_names;
mod layout;
mod map;
mod maps;
mod mballoc;
mod node;
mod numbers;
mod orlov;
mod orphan_file;
mod orphans;
mod permit;
mod pieces;
mod primary;
mod search;
mod sums;

pub use ext::Ext;
pub use hashed::ListingOrder;

use seekless_live::{Live, Wall};
use seekless_placement::inode::LinkedAreas;

/// An ext2 or ext4 image in use.
pub type ExtLive = Live<Ext>;

/// How to open an image for changes.
pub struct LiveOptions {
    /// The policy for directories, by name (`ext2-orlov`).
    pub directories: String,
    /// The policy for all other inodes; `None` for the default of the directories'
    /// (`find-group-other`; `parent` with `linux-orlov`).
    pub inodes: Option<String>,
    /// Second areas of directories that earlier mounts of the volume used, with a policy that has
    /// windows; `None` to forget them.
    pub areas: Option<LinkedAreas>,
    /// The policy for blocks; `None` for `ext2-next`.
    pub blocks: Option<String>,
    /// The seed of the policies' random numbers.
    pub seed: u64,
    /// Open it even if it is not clean.
    pub force: bool,
    /// Open it although it is not clean, to be used while it is checked. It must have been in use
    /// under soft updates.
    pub recover: bool,
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
