//! Contents of files, wherever they are: in the inode, or in blocks that are mapped by extents or
//! by indirect blocks.

use super::extents::{self, Tree};
use super::inline::{InlineContents, is_inline};
use super::map::Core;
use super::maps::FileMaps;
use super::primary::PrimarySuperblock;
use crate::ondisk::flags;
use seekless_cache::{ChangeId, Role};
use seekless_fs::field::{invalid, wide};
use seekless_fs::{FsError, Location, Mapping};
use seekless_live::indirect::Files;
use seekless_live::{Contents, Cut};
use seekless_units::{BlockNo, Extent, Ino};
use smallvec::SmallVec;

/// The contents of a file. All functions fail as those of [`Format`](seekless_live::Format) do.
pub(super) struct FileContents<'a> {
    maps: &'a mut FileMaps,
    core: &'a mut Core,
    ino: Ino,
}

impl<'a> FileContents<'a> {
    /// The contents of an inode that is in memory.
    pub(super) fn of(maps: &'a mut FileMaps, core: &'a mut Core, ino: Ino) -> Self {
        Self { maps, core, ino }
    }

    fn is_inline(&mut self) -> Result<bool, FsError> {
        is_inline(self.core, self.ino)
    }

    fn has_extents(&mut self) -> Result<bool, FsError> {
        extents::maps(self.core, self.ino)
    }

    fn inline(&mut self) -> InlineContents<'_> {
        InlineContents::of(self.maps, self.core, self.ino)
    }

    fn tree(&mut self) -> Tree<'_> {
        Tree::of(self.maps, self.core, self.ino)
    }

    fn files(&mut self) -> Files<'_, FileMaps> {
        Files::of(self.maps, self.core)
    }

    /// The place of a block of a file; one of a directory is checked.
    pub(super) fn lookup(&mut self, lbn: u64) -> Result<Option<BlockNo>, FsError> {
        let ino = self.ino;
        let found = if self.is_inline()? {
            None
        } else if self.has_extents()? {
            self.tree().lookup_block(lbn)?
        } else {
            self.files().lookup_block(ino, lbn)?
        };
        if let Some(at) = found {
            self.maps.sums().claim(self.core, ino, lbn, at)?;
        }
        Ok(found)
    }

    /// The runs of the contents.
    pub(super) fn mapped_runs(&mut self) -> Result<Vec<Mapping>, FsError> {
        let ino = self.ino;
        if self.is_inline()? {
            return Ok(Vec::new());
        }
        if self.has_extents()? {
            return self.tree().mapped_runs();
        }
        self.files().mapped_runs(ino)
    }

    /// The runs of the contents and of the blocks that map them.
    pub(super) fn runs(&mut self) -> Result<Vec<Extent>, FsError> {
        let ino = self.ino;
        if self.is_inline()? {
            return Ok(Vec::new());
        }
        if self.has_extents()? {
            return self.tree().runs_of();
        }
        self.files().runs_of(ino)
    }

    /// The same, to be given up with the file.
    pub(super) fn all_blocks(&mut self) -> Result<Cut, FsError> {
        let ino = self.ino;
        if self.is_inline()? {
            Ok(Cut::default())
        } else if self.has_extents()? {
            self.tree().all_blocks()
        } else {
            self.files().all_blocks(ino)
        }
    }

    /// Appends a block to a directory, with its checksum.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<ChangeId, FsError> {
        let (dir, len) = (self.ino, self.maps.layout().block_len());
        debug_assert_eq!(bytes.len(), len, "a directory grows by blocks");
        let size = self.core.node(dir)?.size;
        if !size.is_multiple_of(wide(len)) {
            return Err(invalid("i_size", size, Location::of("directory").in_inode(dir)));
        }
        let mut bytes = bytes.to_vec();
        self.maps.sums().seal_names(self.core, dir, &mut bytes)?;
        if self.has_extents()? {
            return self.tree().append(&bytes);
        }
        self.files().append(dir, &bytes)
    }

    /// Makes the first block of a new file whose contents are not in its inode.
    pub(super) fn first_block(
        &mut self,
        len: usize,
        role: Role,
        mut bytes: Vec<u8>,
    ) -> Result<Contents, FsError> {
        let ino = self.ino;
        if role == Role::DirectoryInit {
            self.maps.sums().seal_names(self.core, ino, &mut bytes)?;
        }
        if self.has_extents()? {
            let mut put = |to: &mut [u8]| to.copy_from_slice(&bytes);
            return self.tree().first_block(len, role, &mut put);
        }
        let (at, bitmap) = self.maps.space().take_block(self.core, ino, 0, None)?;
        let ((), data) = self.core.cache.changes().fill(at, bytes.len(), role, |to| {
            to.copy_from_slice(&bytes);
            Ok(())
        })?;
        let sectors = u64::from(self.maps.layout().sb().block_size / 512);
        let node = self.core.node(ino)?;
        if let Some(first) = node.map.trees.direct.first_mut() {
            debug_assert_eq!(*first, 0, "a new file has no blocks yet");
            *first = at.get();
        }
        node.map.last = Some((0, at));
        (node.size, node.sectors) = (wide(len), sectors);
        let run = Extent::new(at, 1);
        Ok(Contents { run: Some(run), after: SmallVec::from_slice(&[bitmap, data]) })
    }

    /// Writes as many bytes as there is space for.
    pub(super) fn write(
        &mut self,
        superblock: &mut PrimarySuperblock,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, FsError> {
        let ino = self.ino;
        if self.is_inline()? && self.inline().write(offset, bytes)? {
            return Ok(bytes.len());
        }
        let end = offset.checked_add(wide(bytes.len()));
        if self.has_extents()? {
            let end = self.tree().check_len(end)?;
            superblock.allow_length(self.core, end)?;
            return self.tree().write_bytes(offset, bytes);
        }
        let end = self.files().check_len(ino, end)?;
        superblock.allow_length(self.core, end)?;
        self.files().write_bytes(ino, offset, bytes)
    }

    /// Prepares a file for delayed bytes. False for bytes that are not delayed: those that fit in
    /// the inode, and those of files with block maps.
    pub(super) fn make_ready(
        &mut self,
        superblock: &mut PrimarySuperblock,
        offset: u64,
        len: u64,
    ) -> Result<bool, FsError> {
        if !self.maps.rules().delays {
            return Ok(false);
        }
        let end = offset.checked_add(len);
        if self.is_inline()? {
            let room = self.inline().room()?;
            if end.is_some_and(|end| end <= room) {
                return Ok(false);
            }
            self.inline().move_out()?;
        }
        if !self.has_extents()? {
            return Ok(false);
        }
        let end = self.tree().check_len(end)?;
        superblock.allow_length(self.core, end)?;
        let size = self.core.node(self.ino)?.size;
        self.tree().zero_tail(size, offset)?;
        Ok(true)
    }

    /// Gives the file another length.
    pub(super) fn truncate(
        &mut self,
        superblock: &mut PrimarySuperblock,
        len: u64,
    ) -> Result<(), FsError> {
        let ino = self.ino;
        if self.is_inline()? && self.inline().truncate(len)? {
            return Ok(());
        }
        self.maps.space().forget(ino);
        if self.has_extents()? {
            self.tree().check_len(Some(len))?;
            superblock.allow_length(self.core, len)?;
            return self.tree().truncate(len);
        }
        let len = self.files().check_len(ino, Some(len))?;
        superblock.allow_length(self.core, len)?;
        self.core.node(ino)?.map.last = None;
        self.files().truncate(ino, len)
    }

    /// Frees blocks behind a length.
    pub(super) fn cut_behind(
        &mut self,
        superblock: &mut PrimarySuperblock,
        len: u64,
    ) -> Result<(), FsError> {
        self.maps.space().forget(self.ino);
        if self.has_extents()? {
            return self.tree().cut_behind(len);
        }
        if len < self.core.node(self.ino)?.size { self.truncate(superblock, len) } else { Ok(()) }
    }

    /// Sees that a range has blocks.
    pub(super) fn allocate(
        &mut self,
        superblock: &mut PrimarySuperblock,
        (from, to): (u64, Option<u64>),
        keep_size: bool,
    ) -> Result<(), FsError> {
        let ino = self.ino;
        let size = self.core.node(ino)?.size;
        if self.is_inline()? {
            self.inline().move_out()?;
        }
        if self.has_extents()? {
            let end = self.tree().check_len(to)?;
            superblock.allow_length(self.core, if keep_size { size } else { end })?;
            return self.tree().allocate_range(from, end, keep_size);
        }
        let end = self.files().check_len(ino, to)?;
        if keep_size && end > size {
            return Err(FsError::Unsupported("allocating space beyond the end of a file".into()));
        }
        superblock.allow_length(self.core, end)?;
        self.files().allocate_range(ino, from, end)
    }
}

/// As [`Format::unnoted`](seekless_live::Format::unnoted).
pub(super) fn unnoted(maps: &FileMaps, core: &Core, ino: Ino, noted: &[Extent]) -> Option<BlockNo> {
    let node = core.nodes.get(&ino)?;
    if node.flags & flags::INLINE_DATA != 0 {
        return None;
    }
    if node.flags & flags::EXTENTS != 0 {
        return extents::unnoted(maps, core, ino, noted);
    }
    Files::unnoted(maps, core, ino, noted)
}
