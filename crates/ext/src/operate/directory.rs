//! The blocks of a directory, which have checksums.

use super::contents::FileContents;
use super::inline::is_inline;
use super::layout::Layout;
use super::map::{Core, Node};
use super::maps::FileMaps;
use crate::volume::Volume;
use seekless_cache::{ChangeId, Role};
use seekless_fs::field::range;
use seekless_fs::{FsError, Location};
use seekless_live::Table;
use seekless_units::{BlockNo, Extent, Ino};

/// The blocks of a directory.
pub(super) struct DirectoryBlocks<'a> {
    maps: &'a mut FileMaps,
    core: &'a mut Core,
    dir: Ino,
}

impl<'a> DirectoryBlocks<'a> {
    /// The blocks of a directory that is in memory.
    pub(super) fn of(maps: &'a mut FileMaps, core: &'a mut Core, dir: Ino) -> Self {
        Self { maps, core, dir }
    }

    /// The layout of the volume.
    pub(super) fn layout(&self) -> &Layout {
        self.maps.layout()
    }

    /// The directory's inode.
    pub(super) fn node(&mut self) -> Result<&mut Node, FsError> {
        self.core.node(self.dir)
    }

    /// The place for errors of its index.
    pub(super) fn place(&self) -> Location {
        Location::of("htree").in_inode(self.dir)
    }

    /// Whether there are none: its names are in its inode.
    pub(super) fn is_inline(&mut self) -> Result<bool, FsError> {
        is_inline(self.core, self.dir)
    }

    /// How many there are.
    pub(super) fn count(&mut self) -> Result<u64, FsError> {
        let bsize = u64::from(self.layout().sb().block_size);
        Ok(self.node()?.size / bsize)
    }

    /// The place of one.
    pub(super) fn at(&mut self, lbn: u64) -> Result<BlockNo, FsError> {
        let blocks = self.count()?;
        let found = if lbn < blocks {
            FileContents::of(self.maps, self.core, self.dir).lookup(lbn)?
        } else {
            None
        };
        found.ok_or_else(|| range("block", lbn, blocks, self.place()))
    }

    /// The bytes of one, and the volume that they lie in.
    pub(super) fn read(&mut self, at: BlockNo) -> Result<(&Volume, &[u8]), FsError> {
        let layout = self.maps.layout();
        let bytes = self.core.cache.blocks_mut().read(at, 0, layout.block_len())?;
        Ok((layout.volume(), bytes))
    }

    /// Changes one. It was claimed when the path was found, but may have left memory since, with
    /// its owner: it is claimed again.
    pub(super) fn edit(
        &mut self,
        (lbn, at): (u64, BlockNo),
        edit: impl FnOnce(&mut [u8]),
    ) -> Result<(), FsError> {
        self.maps.sums().claim(self.core, self.dir, lbn, at)?;
        let len = self.layout().block_len();
        self.core.cache.changes().edit(at, 0, len, Role::EntryChange, |bytes| {
            edit(bytes);
            Ok(())
        })?;
        Ok(())
    }

    /// Appends one, with its checksum.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<ChangeId, FsError> {
        FileContents::of(self.maps, self.core, self.dir).append(bytes)
    }

    /// Writes the flags of the directory's inode.
    pub(super) fn put_rest(&mut self) -> Result<(), FsError> {
        self.maps.tables().put_rest(self.core, self.dir)
    }

    /// Waits until the directory's inode is on the disk.
    pub(super) fn settle_inode(&mut self) -> Result<(), FsError> {
        let (block, _) = self.layout().inode_place(self.dir)?;
        self.core.cache.settle_runs(&[Extent::new(block, 1)])
    }
}
