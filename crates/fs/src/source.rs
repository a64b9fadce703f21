//! Where the contents of a tree come from.

use crate::FsError;
use crate::tree::{NodeAttr, NodeId, Tree, TreeBuilder};

/// A run of bytes of a file that is not a hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// First byte.
    pub offset: u64,
    /// Bytes; never zero.
    pub len: u64,
}

/// Where the hash tree of fs-verity begins: behind the end of the file, at the next multiple
/// of so many bytes (`ext4_verity_metadata_pos` in `fs/ext4/verity.c`).
pub const SEAL_ALIGN: u64 = 65536;

/// What fs-verity keeps behind the end of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sealed {
    /// Where something is, in order and not touching, at or behind the next multiple of
    /// [`SEAL_ALIGN`].
    pub segments: Vec<Segment>,
    /// Bytes in a block of the file system that it is of. The descriptor is found from the end
    /// of the last block, and begins a block: with blocks of another size it is not found.
    pub block_size: u32,
}

/// A tree and the bytes of its regular files.
///
/// The tree is complete before the first byte of contents is asked for, so a
/// writer can plan the whole layout. Contents may then be read in any order
/// and from several threads.
pub trait Source: Sync {
    /// Everything but the contents.
    fn tree(&self) -> &Tree;

    /// Whether the source says nothing of a directory but what is in it: its attributes
    /// are made up. An archive may have entries without those of their directories.
    fn is_implied(&self, _dir: NodeId) -> bool {
        false
    }

    /// Where a regular file has data, in order and not touching; what lies
    /// between and behind, up to the node's size, reads as zeros.
    ///
    /// # Errors
    /// When the file cannot be examined.
    fn segments(&self, node: NodeId) -> Result<Vec<Segment>, FsError>;

    /// What lies behind the end of a file sealed by fs-verity
    /// ([`inode_flag::VERITY`](crate::inode_flag::VERITY)): its hash tree and their
    /// descriptor. Its contents can be read there too, in these segments. `None` for other
    /// files.
    ///
    /// # Errors
    /// When the file cannot be examined.
    fn sealed(&self, _node: NodeId) -> Result<Option<Sealed>, FsError> {
        Ok(None)
    }

    /// Opens a regular file's contents. Whether they are still those of the
    /// tree is known only after [`Content::verify`].
    ///
    /// # Errors
    /// [`FsError::SourceChanged`] when the file is not there any more;
    /// [`FsError::Io`] when it cannot be opened.
    fn open(&self, node: NodeId) -> Result<Box<dyn Content + '_>, FsError>;
}

/// The readable contents of one regular file.
pub trait Content {
    /// Fills `buf` from byte `offset`. The range lies within the file.
    ///
    /// # Errors
    /// [`FsError::SourceChanged`] when the file ends early; [`FsError::Io`].
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), FsError>;

    /// Tells, once everything is read, whether it was all of one version.
    ///
    /// # Errors
    /// [`FsError::SourceChanged`] when the file was changed since the tree was
    /// made.
    fn verify(&mut self) -> Result<(), FsError> {
        Ok(())
    }
}

/// Nothing but a root directory: what an empty image is made of.
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
