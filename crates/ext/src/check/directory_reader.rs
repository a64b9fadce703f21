//! Reads directories for pass 2.

use super::checker::Checker;
use super::index::{self, IndexFault};
use crate::dir::Directory;
use crate::inode::Inode;
use crate::ondisk::flags;
use crate::volume::Volume;
use seekless_fs::FsError;
use seekless_fs::read_cache::Block;
use seekless_units::{Ino, Lbn};

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
        std::iter::from_fn(move || {
            dirs.peek()?;
            let (mut batch, mut blocks) = (Vec::new(), 0);
            while blocks < BATCH
                && let Some(dir) = dirs.next()
            {
                let read = self.read(dir);
                // Also one without blocks takes time.
                blocks += read.as_ref().map_or(1, |read| read.blocks.len().max(1));
                batch.push(read);
            }
            Some(batch)
        })
    }

    fn read(&self, dir: Ino) -> Result<ReadDirectory, FsError> {
        let inode = self.volume.inodes().read(dir)?;
        let mut blocks = Vec::new();
        let mut faults = None;
        if !inode.has_flag(flags::INLINE_DATA) {
            let dir = Directory::new(&self.volume, &inode);
            let end = dir.blocks();
            for lbn in dir.present()?.into_iter().filter(|lbn| lbn.get() < end) {
                let (block, fault) = match Directory::new(&self.strict, &inode).block(lbn) {
                    Ok(block) => (block, None),
                    Err(error @ FsError::Corrupt { .. }) => (dir.block(lbn)?, Some(error)),
                    Err(error) => return Err(error),
                };
                blocks.push(ReadBlock { lbn, block, fault });
            }
            let is_hashed = self.volume.inodes().is_hashed(&inode);
            faults = is_hashed.then(|| index::faults(&dir));
        }
        Ok(ReadDirectory { inode, blocks, faults })
    }
}
