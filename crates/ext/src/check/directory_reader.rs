//! Reads directories for pass 2.

use super::checker::Checker;
use super::index::{self, IndexFault};
use crate::dir::Directory;
use crate::inode::Inode;
use crate::ondisk::flags;
use crate::volume::Volume;
use seekless_fs::field::index as in_memory;
use seekless_fs::read_cache::Block;
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Extent, Ino, Lbn};

/// Blocks of directories that are read at once; a directory is read whole.
const BATCH: usize = 64;

/// A block of a directory.
pub(super) struct ReadBlock {
    pub(super) lbn: Lbn,
    pub(super) block: Block,
    /// Its checksum is wrong or missing.
    pub(super) fault: Option<FsError>,
}

/// A directory: its blocks up to its length, or none if its contents are in the inode.
pub(super) struct ReadDirectory {
    pub(super) inode: Inode,
    pub(super) blocks: Vec<ReadBlock>,
    /// The faults of its index, if it should have one.
    pub(super) faults: Option<Result<Vec<IndexFault>, FsError>>,
}

/// A block of a batch that is to be read.
struct WantedBlock {
    at: BlockNo,
    /// The position of its directory in the batch.
    dir: usize,
    lbn: Lbn,
}

/// Reads directories, which needs only the volume.
pub(super) struct DirectoryReader {
    volume: Volume,
    strict: Volume,
}

impl DirectoryReader {
    pub(super) fn of(checker: &Checker) -> Self {
        Self { volume: checker.volume.clone(), strict: checker.strict.clone() }
    }

    /// Reads directories, some at a time.
    pub(super) fn batches(
        &self,
        dirs: impl Iterator<Item = Ino>,
    ) -> impl Iterator<Item = Vec<Result<ReadDirectory, FsError>>> {
        let mut dirs = dirs.peekable();
        let mut bytes = vec![0; self.volume.block_len() * BATCH];
        std::iter::from_fn(move || {
            dirs.peek()?;
            let (mut batch, mut wanted) = (Vec::new(), Vec::new());
            // Also one without blocks takes time.
            while wanted.len().max(batch.len()) < BATCH
                && let Some(dir) = dirs.next()
            {
                batch.push(self.inode(dir, batch.len(), &mut wanted));
            }
            self.read(&mut batch, wanted, &mut bytes);
            batch.iter_mut().flatten().for_each(|directory| self.index(directory));
            Some(batch)
        })
    }

    /// A directory without its blocks, which are added to those that are to be read.
    fn inode(
        &self,
        ino: Ino,
        position: usize,
        wanted: &mut Vec<WantedBlock>,
    ) -> Result<ReadDirectory, FsError> {
        let inode = self.volume.inodes().read(ino)?;
        if !inode.has_flag(flags::INLINE_DATA) {
            let placed = Directory::new(&self.volume, &inode).placed()?;
            let blocks = placed.into_iter();
            wanted.extend(blocks.map(|(lbn, at)| WantedBlock { at, dir: position, lbn }));
        }
        Ok(ReadDirectory { inode, blocks: Vec::new(), faults: None })
    }

    /// Reads the blocks of a batch past the cache, neighbours with one request.
    fn read(
        &self,
        batch: &mut [Result<ReadDirectory, FsError>],
        mut wanted: Vec<WantedBlock>,
        bytes: &mut [u8],
    ) {
        wanted.sort_unstable_by_key(|block| (block.at, block.dir));
        let runs = wanted.chunk_by(|one, next| next.at <= one.at + 1);
        for run in runs.flat_map(|run| run.chunks(BATCH)) {
            let first = self.run(run, bytes);
            for wanted in run {
                let Some(slot) = batch.get_mut(wanted.dir) else { continue };
                let Ok(directory) = slot else { continue };
                let read = first.and_then(|first| self.block_of(bytes, wanted.at - first));
                match self.verified(&directory.inode, wanted, read) {
                    Ok(block) => directory.blocks.push(block),
                    Err(error) => *slot = Err(error),
                }
            }
        }
        let directories = batch.iter_mut().flatten();
        directories.for_each(|it| it.blocks.sort_unstable_by_key(|block| block.lbn));
    }

    /// Reads the blocks from the first to the last of a run; the first of them if they were read.
    fn run(&self, run: &[WantedBlock], bytes: &mut [u8]) -> Option<BlockNo> {
        let (first, last) = (run.first()?.at, run.last()?.at);
        let extent = Extent::new(first, last - first + 1);
        self.volume.check_extent(extent, Location::of("directory block")).ok()?;
        let bytes = bytes.get_mut(..in_memory(extent.len) * self.volume.block_len())?;
        self.volume.read_bytes(first, 0, bytes).ok()?;
        Some(first)
    }

    fn block_of(&self, bytes: &[u8], number: u64) -> Option<Block> {
        let start = in_memory(number) * self.volume.block_len();
        bytes.get(start..start + self.volume.block_len()).map(Block::from)
    }

    /// A block of a directory with its fault. One that was not read with others is read by itself,
    /// so that an error has its place.
    fn verified(
        &self,
        inode: &Inode,
        wanted: &WantedBlock,
        read: Option<Block>,
    ) -> Result<ReadBlock, FsError> {
        let lbn = wanted.lbn;
        let block = read.map_or_else(|| Directory::new(&self.volume, inode).block(lbn), Ok)?;
        let strict = Directory::new(&self.strict, inode);
        let fault = strict.verify(&block, lbn, strict.place().in_block(wanted.at)).err();
        Ok(ReadBlock { lbn, block, fault })
    }

    /// Compares a directory's index with its blocks.
    fn index(&self, directory: &mut ReadDirectory) {
        let ReadDirectory { inode, blocks, faults } = directory;
        if !inode.has_flag(flags::INLINE_DATA) && self.volume.inodes().is_hashed(inode) {
            let held = |lbn: Lbn| {
                let at = blocks.binary_search_by_key(&lbn, |block| block.lbn).ok()?;
                blocks.get(at).map(|it| Block::clone(&it.block))
            };
            *faults = Some(index::faults(&Directory::with_blocks(&self.volume, inode, &held)));
        }
    }
}
