//! FFS in use: the format behind the operations of `seekless-live`.
//!
//! - `format`: the answers; `typed`: directory entries;
//! - `node`, `encode`: inodes from their bytes, and as bytes again;
//! - `groups`: cylinder groups, their bytes in the cache and their counts; `allocator`: inodes and
//!   blocks taken from them, as the policies choose;
//! - `map`, `blocks`: the maps of files;
//! - `xattr`: extended attributes;
//! - `take`, `snapshot`: the image that a new snapshot keeps; `release`: snapshots that become
//!   empty files; `copies`: room for the copies that snapshots need;
//! - `policies`: the policies by their names; `grow`: a volume that becomes larger;
//! - `quotas`: quota files, read when the volume is mounted;
//! - `mount`, `seal`: opening, closing, check hashes; `recovery`: after a crash, while it is in use.

mod allocator;
mod blocks;
mod copies;
mod encode;
mod format;
mod groups;
mod grow;
mod linked;
mod map;
mod mount;
mod node;
#[cfg(test)]
mod placing;
mod policies;
pub(crate) mod quotas;
pub(crate) mod recovery;
mod release;
mod seal;
mod snapshot;
mod take;
mod typed;
mod xattr;

pub use quotas::{QuotaFiles, keep_quotas};
#[cfg(feature = "faults")]
pub use seekless_live::Fault as LiveFault;
pub use seekless_live::Wall;

use crate::quota_file::QuotaFile;
use crate::superblock::Super;
use allocator::Allocator;
use copies::Copies;
use hashbrown::HashSet;
use policies::PolicyNames;
use seekless_live::{Limits, Live, Progress};
use seekless_units::Ino;
use std::sync::Arc;
use typed::Typed;

/// A UFS1 or UFS2 image in use.
pub type FfsLive = Live<Ffs>;

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
    /// Open it even if it was in use under soft updates when the system crashed: the caller has it
    /// checked, and corrects it, meanwhile ([`corrections`](crate::corrections())).
    pub recover: bool,
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
    copies: Copies,
    allocator: Allocator,
    policies: PolicyNames,
    /// Inodes whose check hash was compared.
    verified_inodes: HashSet<Ino>,
    ignore_checksums: bool,
    progress: Progress,
    quota_files: Vec<QuotaFile>,
}
