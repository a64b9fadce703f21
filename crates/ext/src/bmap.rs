//! Block maps: the places of a file's logical blocks, by extents or by blocks.

use crate::inode::Inode;
use crate::ondisk::flags;
use crate::volume::Volume;
use crate::{extent, indirect};
use seekless_fs::field::range;
use seekless_fs::{BlockMap, FileKind, FsError, IndexBlock, Location, Mapping};
use seekless_units::{ByteLen, Extent, Lbn};
use std::ops::Range;

/// The runs of blocks that a walk over a block map reads, neighbours joined.
pub(crate) struct MappedRuns {
    pub(crate) runs: Vec<Mapping>,
    /// Filled only if requested.
    pub(crate) index: Option<Vec<IndexBlock>>,
    mapped: u64,
    limit: u64,
}

impl MappedRuns {
    /// Takes up to `limit` blocks: no file has more than its volume.
    pub(crate) fn new(limit: u64, with_index: bool) -> Self {
        Self { runs: Vec::new(), index: with_index.then(Vec::new), mapped: 0, limit }
    }

    /// Adds a run. A file that maps more blocks than the volume has maps some
    /// of them twice.
    pub(crate) fn push(&mut self, run: Mapping, place: Location) -> Result<(), FsError> {
        debug_assert!(
            self.runs.last().is_none_or(|last| last.lbn + last.extent.len <= run.lbn),
            "a walk goes forwards"
        );
        self.mapped += run.extent.len;
        if self.mapped > self.limit {
            return Err(range("mapped blocks", self.mapped, self.limit, place));
        }
        if let Some(last) = self.runs.last_mut() {
            let follows = last.lbn + last.extent.len == run.lbn
                && last.extent.end() == run.extent.start
                && last.unwritten == run.unwritten;
            if follows {
                last.extent.len += run.extent.len;
                return Ok(());
            }
        }
        self.runs.push(run);
        Ok(())
    }

    /// Takes all runs as written.
    fn ignore_marks(&mut self) {
        for run in &mut self.runs {
            run.unwritten = false;
        }
    }

    /// Notes a block of the map itself.
    pub(crate) fn push_index(&mut self, node: IndexBlock) {
        if let Some(index) = &mut self.index {
            index.push(node);
        }
    }
}

/// The part of a run that lies in a range of logical blocks.
pub(crate) fn clip(run: Mapping, wanted: &Range<u64>) -> Option<Mapping> {
    let start = run.lbn.get().max(wanted.start);
    let end = (run.lbn + run.extent.len).get().min(wanted.end);
    let skip = start - run.lbn.get();
    (start < end).then(|| Mapping {
        lbn: Lbn::new(start),
        extent: Extent::new(run.extent.start + skip, end - start),
        unwritten: run.unwritten,
    })
}

/// All possible logical blocks.
pub(crate) const EVERYTHING: Range<u64> = 0..u64::MAX;

impl Volume {
    /// The block maps of inodes.
    pub(crate) fn maps(&self) -> MapReader<'_> {
        MapReader { volume: self }
    }
}

/// Reads block maps.
#[derive(Clone, Copy)]
pub(crate) struct MapReader<'a> {
    volume: &'a Volume,
}

impl<'a> MapReader<'a> {
    /// Whether an inode's contents lie in blocks.
    pub(crate) fn has_blocks(&self, inode: &Inode) -> bool {
        if inode.has_flag(flags::INLINE_DATA) {
            return false;
        }
        match inode.kind() {
            Some(FileKind::Regular | FileKind::Directory) => true,
            Some(FileKind::Symlink) => !self.volume.inodes().is_fast_symlink(inode),
            _ => false,
        }
    }

    /// Walks an inode's map over a range of logical blocks.
    fn walk_map(
        &self,
        inode: &Inode,
        wanted: Range<u64>,
        found: &mut MappedRuns,
    ) -> Result<(), FsError> {
        if self.has_blocks(inode) { self.walk_blocks(inode, &wanted, found) } else { Ok(()) }
    }

    fn walk_blocks(
        &self,
        inode: &Inode,
        wanted: &Range<u64>,
        found: &mut MappedRuns,
    ) -> Result<(), FsError> {
        if inode.has_flag(flags::EXTENTS) {
            extent::walk(self.volume, inode, wanted, found)
        } else {
            indirect::walk(self.volume, inode, wanted, found)
        }
    }

    /// All blocks of an inode of any kind, those of its map first: the list of bad blocks has no
    /// kind, and may have extents as any file.
    pub(crate) fn blocks_of_any_kind(&self, inode: &Inode) -> Result<Vec<Extent>, FsError> {
        let mut found = MappedRuns::new(self.volume.sb.blocks, true);
        // An empty `i_block` has no tree yet: libext2fs creates it (`ext2fs_extent_open2`).
        if inode.core.i_block.0.iter().any(|&byte| byte != 0) {
            self.walk_blocks(inode, &EVERYTHING, &mut found)?;
        }
        let map = found.index.unwrap_or_default().into_iter();
        let map = map.map(|node| Extent::new(node.block, 1));
        Ok(map.chain(found.runs.iter().map(|run| run.extent)).collect())
    }

    /// The runs of a range of logical blocks, in order. Those of directories and symlinks count as
    /// written whatever their mark is: the kernel reads them (`ext4_bread`).
    pub(crate) fn runs(&self, inode: &Inode, wanted: Range<u64>) -> Result<Vec<Mapping>, FsError> {
        let mut found = MappedRuns::new(self.volume.sb.blocks, false);
        self.walk_map(inode, wanted, &mut found)?;
        if inode.kind() != Some(FileKind::Regular) {
            found.ignore_marks();
        }
        Ok(found.runs)
    }

    /// The place of one logical block; `None` in a hole or if it was never written.
    pub(crate) fn map_block(&self, inode: &Inode, lbn: Lbn) -> Result<Option<Mapping>, FsError> {
        let runs = self.runs(inode, lbn.get()..lbn.get() + 1)?;
        Ok(runs.first().copied().filter(|run| !run.unwritten))
    }

    /// The whole map with its own blocks.
    pub(crate) fn block_map(&self, inode: &Inode) -> Result<BlockMap, FsError> {
        let mut found = MappedRuns::new(self.volume.sb.blocks, true);
        self.walk_map(inode, EVERYTHING, &mut found)?;
        // A directory with the mark is damaged (e2fsck, `PR_1_UNINIT_DBLOCK`), a symlink is not.
        if inode.kind() == Some(FileKind::Symlink) {
            found.ignore_marks();
        }
        let xattr_block = self.volume.inodes().xattr_block_of(inode);
        if let Some(block) = xattr_block {
            self.volume.check_block(block, Location::of("inode").in_inode(inode.ino))?;
        }
        Ok(BlockMap {
            runs: found.runs,
            index: found.index.unwrap_or_default(),
            xattr_block,
            xattr_inodes: Vec::new(),
        })
    }

    /// Reads bytes that lie in blocks: one request per contiguous run, zeros
    /// for holes. The range must lie within the file.
    pub(crate) fn read_mapped(
        &self,
        inode: &Inode,
        offset: ByteLen,
        buf: &mut [u8],
    ) -> Result<(), FsError> {
        buf.fill(0);
        let block_size = u64::from(self.volume.sb.block_size);
        let start = offset.get();
        let end = start + seekless_fs::field::wide(buf.len());
        let first = start / block_size;
        for run in self.runs(inode, first..end.div_ceil(block_size))? {
            if run.unwritten {
                continue;
            }
            let run_start = run.lbn.get() * block_size;
            let run_end = run_start + run.extent.len * block_size;
            let (from, to) = (run_start.max(start), run_end.min(end));
            let target =
                seekless_fs::field::index(from - start)..seekless_fs::field::index(to - start);
            if let Some(part) = buf.get_mut(target) {
                self.volume.read_bytes(run.extent.start, from - run_start, part)?;
            }
        }
        Ok(())
    }
}
