//! The source of a tree's contents.

use crate::FsError;
use crate::tree::{NodeAttr, NodeId, Tree, TreeBuilder};
use seekless_device::HostRange;

/// A run of bytes of a file that is not a hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// First byte.
    pub offset: u64,
    /// Bytes; never zero.
    pub len: u64,
}

/// Alignment of fs-verity's hash tree in bytes: it begins behind the end of the file, at the next
/// multiple (`ext4_verity_metadata_pos` in `fs/ext4/verity.c`).
pub const SEAL_ALIGN: u64 = 65536;

/// The metadata of fs-verity behind the end of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sealed {
    /// The allocated ranges, in order and not touching, at or behind the next multiple of
    /// [`SEAL_ALIGN`].
    pub segments: Vec<Segment>,
    /// Block size of the file's file system in bytes. The descriptor is located from the end of the
    /// last block, and begins at a block: with another block size it is not found.
    pub block_size: u32,
}

/// A tree and the bytes of its regular files.
///
/// The tree is complete before contents are read, so a writer can plan the whole layout first.
/// Contents may then be read in any order and from several threads.
pub trait Source: Sync {
    /// The tree, without the contents.
    fn tree(&self) -> &Tree;

    /// Whether the source lacks an entry for a directory, whose attributes are then defaults. An
    /// archive may have entries without those of their directories.
    fn is_implied(&self, _dir: NodeId) -> bool {
        false
    }

    /// The ranges of a regular file that have data, in order and not touching; the rest, up to the
    /// node's size, reads as zeros.
    ///
    /// # Errors
    /// When the file cannot be examined.
    fn segments(&self, node: NodeId) -> Result<Vec<Segment>, FsError>;

    /// The metadata behind the end of a file sealed by fs-verity
    /// ([`inode_flag::VERITY`](crate::inode_flag::VERITY)): its hash tree and descriptor. The
    /// file's [`Content`] can be read there too, in these segments. `None` for other files.
    ///
    /// # Errors
    /// When the file cannot be examined.
    fn sealed(&self, _node: NodeId) -> Result<Option<Sealed>, FsError> {
        Ok(None)
    }

    /// Opens a regular file's contents. Only [`Content::verify`] tells whether they are still those
    /// of the tree.
    ///
    /// # Errors
    /// [`FsError::SourceChanged`] when the file no longer exists; [`FsError::Io`] when it cannot be
    /// opened.
    fn open(&self, node: NodeId) -> Result<Box<dyn Content + '_>, FsError>;
}

/// The readable contents of one regular file.
pub trait Content {
    /// Fills `buf` from byte `offset`. The range lies within the file.
    ///
    /// # Errors
    /// [`FsError::SourceChanged`] when the file ends early; [`FsError::Io`].
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), FsError>;

    /// The file of the host that contains the bytes from `offset` on, as many of `len` as it
    /// contains in one piece. By default, none does. [`Content::verify`] tells, after they were
    /// cloned, whether they were those of the tree.
    fn host_range(&self, offset: u64, len: u64) -> Option<HostRange<'_>> {
        let _ = (offset, len);
        None
    }

    /// Checks, after everything is read, that all of it was one version.
    ///
    /// # Errors
    /// [`FsError::SourceChanged`] when the file was changed since the tree was built.
    fn verify(&mut self) -> Result<(), FsError> {
        Ok(())
    }
}

/// A source with only a root directory, for empty images.
#[derive(Debug)]
pub struct EmptySource(Tree);

impl EmptySource {
    /// A root directory with these attributes.
    #[must_use]
    pub fn new(root: NodeAttr) -> Self {
        Self(TreeBuilder::new(root).finish())
    }
}

impl Source for EmptySource {
    fn tree(&self) -> &Tree {
        &self.0
    }

    fn segments(&self, _: NodeId) -> Result<Vec<Segment>, FsError> {
        Ok(Vec::new())
    }

    fn open(&self, _: NodeId) -> Result<Box<dyn Content + '_>, FsError> {
        Err(FsError::NotFound("a file in an empty tree".into()))
    }
}
