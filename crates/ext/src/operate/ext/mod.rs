//! The parts of an image in use, brought together: `format` and `linked` are its answers, `mount`
//! opens it, and `recovery` is its recovery from a crash meanwhile.

mod format;
mod linked;
mod mount;
mod recovery;

use crate::operate::directory::DirectoryBlocks;
use crate::operate::entries::Entries;
use crate::operate::hashed::{Htree, ListingOrder};
use crate::operate::layout::Layout;
use crate::operate::map::{Core, Map};
use crate::operate::maps::FileMaps;
use crate::operate::numbers::InodeAllocator;
use crate::operate::orphans::Orphans;
use crate::operate::primary::PrimarySuperblock;
use seekless_fs::FsError;
use seekless_live::{Limits, Progress};
use seekless_units::Ino;
use std::sync::Arc;

/// ext2 and ext4 as a format of images in use.
pub struct Ext {
    layout: Arc<Layout>,
    limits: Limits,
    entries: Entries,
    superblock: PrimarySuperblock,
    maps: FileMaps,
    inodes: InodeAllocator,
    orphans: Orphans,
    /// It was opened in any state: files may have blocks in common.
    is_doubtful: bool,
    progress: Progress,
}

impl Ext {
    /// The names of a directory that are in blocks.
    fn htree<'a>(&'a mut self, core: &'a mut Core, dir: Ino) -> Htree<'a> {
        Htree::of(DirectoryBlocks::of(&mut self.maps, core, dir), self.entries)
    }

    /// The order in which the kernel lists a directory; `None` where it lists names as
    /// they lie.
    ///
    /// # Errors
    /// [`FsError::Corrupt`]; [`FsError::Device`].
    pub fn listing_order(
        &mut self,
        core: &mut seekless_live::Core<Map>,
        dir: Ino,
    ) -> Result<Option<ListingOrder>, FsError> {
        self.htree(core, dir).listing_order()
    }
}
