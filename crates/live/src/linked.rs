//! Trait for formats with inode tables, where directory entries refer to inodes by number.

use crate::core::Core;
use crate::node::Node;
use crate::{Codec, Format, Ids};
use seekless_cache::{ChangeId, Role};
use seekless_fs::FsError;
use seekless_fs::operate::NewFile;
use seekless_units::{Extent, Ino};

/// The contents of a new inode, and the changes they wait for.
#[derive(Default)]
pub struct Contents {
    /// Where they lie, if they have a place of their own.
    pub run: Option<Extent>,
    /// Changes that must be on the disk before the inode.
    pub after: Ids,
}

/// A format with inodes that lie in tables, to which names in directories lead, and
/// which count them.
///
/// Functions fail as those of [`Format`] do.
pub trait Linked: Format {
    /// Encoding of directory entries.
    type Codec: Codec;

    /// Encoding of directory entries.
    fn codec(&self) -> &Self::Codec;

    /// Whether an inode is in use, and not about to be given back; it need not be
    /// in memory.
    fn is_in_use(&mut self, core: &mut Core<Self::Map>, ino: Ino) -> Result<bool, FsError>;

    /// Refuses kinds of files that this format does not support.
    ///
    /// # Errors
    /// [`FsError::Invalid`], [`FsError::Unsupported`].
    fn check_new(&self, new: &NewFile<'_>) -> Result<(), FsError>;

    /// Takes an inode for a file that gets its first name in a directory.
    ///
    /// # Errors
    /// [`FsError::NoSpace`].
    fn take_inode(
        &mut self,
        core: &mut Core<Self::Map>,
        parent: Ino,
        name: &[u8],
        is_directory: bool,
    ) -> Result<(Ino, ChangeId), FsError>;

    /// Gives an inode back, which is in memory no more.
    fn give_inode(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        is_directory: bool,
    ) -> Result<(), FsError>;

    /// Sets the fields of a new file's node that only this format has: its generation, its time of
    /// birth, the numbers of a device, attributes inherited from the directory that it is made in.
    /// It is not in memory yet.
    fn fit_new(
        &mut self,
        core: &mut Core<Self::Map>,
        parent: Ino,
        node: &mut Node<Self::Map>,
        new: &NewFile<'_>,
    ) -> Result<(), FsError>;

    /// Writes a whole new inode, after the changes that must be on the disk before.
    fn put_new(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError>;

    /// Writes the number of links, after the changes that must be on the disk before:
    /// [`Role::LinkCount`] where others wait for it, [`Role::LinkDrop`] where a count that is too
    /// high does no harm.
    fn put_links(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        role: Role,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError>;

    /// Makes an inode as good as unused, after the changes that must be on the disk before. Without
    /// blocks there is none that could get a second owner, and no hurry where nothing leads to it
    /// any more.
    fn put_cleared(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        has_blocks: bool,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError>;

    /// The run that holds an inode.
    fn inode_run(&self, ino: Ino) -> Result<Extent, FsError>;

    /// Whether the target of a symlink is stored in its inode.
    fn keeps_in_inode(&self, target: &[u8]) -> bool;

    /// The first block of a new file, of `len` bytes.
    ///
    /// # Errors
    /// [`FsError::NoSpace`].
    fn first_block(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        len: usize,
        role: Role,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Contents, FsError>;

    /// Appends to a directory. The returned changes must be on the disk for the bytes to be
    /// reached.
    ///
    /// # Errors
    /// [`FsError::NoSpace`].
    fn append(
        &mut self,
        core: &mut Core<Self::Map>,
        dir: Ino,
        bytes: &[u8],
    ) -> Result<ChangeId, FsError>;
}
