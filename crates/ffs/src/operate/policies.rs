//! The policies of a volume in use, by name.

use crate::superblock::Super;
use seekless_fs::FsError;
use seekless_placement::PolicyError;
use seekless_placement::block::{self, Blkpref, BlockPlacement, Hints, OldBlkpref};
use seekless_placement::directory::{self, OldDirpref};
use seekless_placement::inode::{self, InodePlacement};

/// The policies of a volume in use, for inodes and for blocks.
pub(super) struct Policies {
    pub(super) inodes: Box<dyn InodePlacement>,
    pub(super) blocks: Box<dyn BlockPlacement<Hints>>,
    /// Gather new blocks into clusters.
    pub(super) reallocblks: bool,
}

/// The names of policies, which make them for a volume of any size.
pub(super) struct PolicyNames {
    pub(super) directories: String,
    pub(super) inodes: Option<String>,
    pub(super) blocks: Option<String>,
    pub(super) seed: u64,
    pub(super) reallocblks: bool,
}

impl PolicyNames {
    /// The policies for a volume, which know nothing of it yet.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for an unknown name.
    pub(super) fn policies(&self, sb: &Super) -> Result<Policies, FsError> {
        let unknown = |error: PolicyError| FsError::Invalid(error.to_string());
        let directories = directory::by_name(&self.directories, sb.ncg, sb.expected(), self.seed);
        let inodes =
            directories.and_then(|directories| inode::by_name(directories, self.inodes.as_deref()));
        let old = self.directories == OldDirpref::NAME;
        let usual = if old { OldBlkpref::NAME } else { Blkpref::NAME };
        let blocks = self.blocks.as_deref().unwrap_or(usual);
        let blocks = block::by_name(blocks, sb.zones(), self.seed);
        Ok(Policies {
            inodes: inodes.map_err(unknown)?,
            blocks: blocks.map_err(unknown)?,
            reallocblks: self.reallocblks,
        })
    }
}
