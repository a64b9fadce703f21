//! Digests of the contents of files: one of the whole file, and one of each whole block.
//!
//! Of each file, in the order of inode numbers: the number less that of the file before
//! ([`number`]), the first 16 bytes of the SHA-256 of its contents, and the digests of its blocks,
//! the first 8 bytes of their SHA-256. These are in sequences that begin with a number, twice their
//! count: with 1 added, one digest follows, of so many equal blocks; else so many digests follow.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::as_conversions)]

use super::encode::truncated;
use super::error::ListError;
use super::number;
use seekless_fs::tree::NodeId;
use seekless_units::Ino;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The digest of a file's contents.
pub(crate) type FileDigest = [u8; 16];

/// The digest of a block of contents.
pub(crate) type BlockDigest = [u8; 8];

/// A regular file that has contents.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ListedFile {
    pub(crate) ino: Ino,
    pub(crate) node: NodeId,
    pub(crate) size: u64,
}

/// The digest of a block.
pub(crate) fn of_block(block: &[u8]) -> BlockDigest {
    truncated(Sha256::digest(block).into())
}

/// The digests of the files of a volume.
pub(crate) struct ContentDigests {
    unit: u32,
    bytes: Arc<[u8]>,
    /// The digest of each file, and where those of its blocks are in `bytes`.
    files: HashMap<NodeId, (FileDigest, Range<usize>)>,
}

impl ContentDigests {
    /// Reads the digests of these files, which are sorted.
    pub(crate) fn parse(
        bytes: Arc<[u8]>,
        unit: u32,
        listed: &[ListedFile],
    ) -> Result<Self, ListError> {
        let invalid = |fault: String| ListError::invalid("digests", fault);
        let mut rest = &*bytes;
        let mut files = HashMap::with_capacity(listed.len());
        let mut before = 0u64;
        for file in listed {
            let ino = u64::from(file.ino.get());
            let found = number::take(&mut rest).and_then(|more| before.checked_add(more));
            let digest = rest.split_first_chunk();
            let (Some(_), Some((&digest, behind))) = (found.filter(|&found| found == ino), digest)
            else {
                return Err(invalid(format!("inode {ino} has none")));
            };
            let len = len_of_blocks(behind, file.size / u64::from(unit.max(1)));
            let len =
                len.ok_or_else(|| invalid(format!("those of inode {ino} are not its own")))?;
            let (_, after) = behind.split_at_checked(len).unwrap_or_default();
            let start = bytes.len().saturating_sub(behind.len());
            files.insert(file.node, (digest, start..start.saturating_add(len)));
            (rest, before) = (after, ino);
        }
        if !rest.is_empty() {
            return Err(invalid("of files that the volume does not have".into()));
        }
        Ok(Self { unit, bytes, files })
    }

    /// Bytes of contents that the digest of a block covers.
    pub(crate) fn unit(&self) -> u32 {
        self.unit
    }

    /// The digest of a file's contents; `None` of one that has none.
    pub(crate) fn of_file(&self, node: NodeId) -> Option<FileDigest> {
        self.files.get(&node).map(|(digest, _)| *digest)
    }

    /// The digests of a file's blocks, in order.
    pub(crate) fn of_blocks(&self, node: NodeId) -> Blocks<'_> {
        let range = self.files.get(&node).map(|(_, range)| range.clone()).unwrap_or_default();
        Blocks { rest: self.bytes.get(range).unwrap_or_default(), left: 0, repeated: None }
    }
}

/// Bytes of the sequences that have so many digests of blocks.
fn len_of_blocks(bytes: &[u8], mut blocks: u64) -> Option<usize> {
    let mut rest = bytes;
    while blocks > 0 {
        let word = number::take(&mut rest)?;
        let count = word >> 1;
        blocks = blocks.checked_sub(count).filter(|_| count > 0)?;
        let digests = if word & 1 == 0 { usize::try_from(count).ok()? } else { 1 };
        rest = rest.split_at_checked(digests.checked_mul(size_of::<BlockDigest>())?)?.1;
    }
    bytes.len().checked_sub(rest.len())
}

/// The digests of a file's blocks.
pub(crate) struct Blocks<'a> {
    rest: &'a [u8],
    /// Digests of the present sequence.
    left: u64,
    /// The digest that repeats.
    repeated: Option<BlockDigest>,
}

impl Iterator for Blocks<'_> {
    type Item = BlockDigest;

    fn next(&mut self) -> Option<BlockDigest> {
        if self.left == 0 {
            let word = number::take(&mut self.rest)?;
            self.left = word >> 1;
            self.repeated = if word & 1 == 1 { Some(self.take()?) } else { None };
        }
        self.left = self.left.checked_sub(1)?;
        self.repeated.or_else(|| self.take())
    }
}

impl Blocks<'_> {
    fn take(&mut self) -> Option<BlockDigest> {
        let (&digest, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(digest)
    }
}
