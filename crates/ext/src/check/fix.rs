//! Repairs that findings ask for, and the order in which they are made.

use crate::part::Part;
use seekless_fs::FileKind;
use seekless_units::{BlockNo, GroupNo, Ino, Lbn};

/// An entry of a directory, by the byte of the directory at which it begins; of an inline
/// directory, by the byte of its inode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Spot {
    pub(super) dir: Ino,
    pub(super) at: u64,
}

/// A change of the image that repairs a finding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Fix {
    /// Write the superblock that was decided on.
    Superblock,
    /// Make the block of multiple mount protection, there or in a free block.
    Mmp(Option<BlockNo>),
    /// Set the feature for large files.
    LargeFile,
    /// Set the feature for directories with many subdirectories.
    ManyLinks,
    /// Write the journal's blocks home, and empty it.
    Replay,
    /// Empty the journal without replaying it.
    EmptyJournal,
    /// Put a bitmap of a group, which is not where it should be, into a free block.
    Place(GroupNo, Part),
    /// Take the mark of a never written block bitmap from a descriptor.
    WrittenBitmap(GroupNo),
    /// Clear the fields that a journal of the first version does not have.
    JournalFields,
    /// Make a journal, or clear the feature where there is no room for one.
    NewJournal(Ino),
    /// Write a group's descriptor, with the pointers that were decided on and without the flags for
    /// never written bitmaps and tables.
    Head(GroupNo),
    /// Drop the list of orphans.
    OrphanList,
    /// Rewrite the blocks of the orphan file.
    OrphanFile,
    /// Delete or truncate all orphans.
    Orphans,
    /// Restore the journal's inode from the superblock's copy of its map, or drop the journal.
    JournalInode(Ino),
    /// Remove the orphan file, which has no sound inode, from the volume.
    DropOrphanFile(Ino),
    /// Set its file type.
    Kind(Ino, FileKind),
    /// Write the resize inode, and the blocks of its map.
    ResizeInode(Ino),
    /// Make an inode unused.
    Clear(Ino),
    /// Set the deletion time of an unused inode.
    Deleted(Ino),
    /// Clear the deletion time of an inode in use.
    Undelete(Ino),
    /// Renew its checksum.
    Seal(Ino),
    /// Set `i_extra_isize` to the size that the volume wants.
    ExtraSize(Ino),
    /// Clear the mark of an encrypted inode.
    Decrypt(Ino),
    /// Clear flags and fields that it must not have.
    Fields(Ino),
    /// Drop its contents, which cannot be found in it.
    Empty(Ino),
    /// Set its length, in bytes.
    Length(Ino, u64),
    /// Set `i_blocks`, in sectors.
    Sectors(Ino, u64),
    /// Rewrite its map from the pieces that can be read; blocks that are shared with other files
    /// are copied.
    Map(Ino),
    /// Renew the checksums in the blocks of its map.
    SealMap(Ino),
    /// Drop the attributes that cannot be read.
    DropAttributes(Ino),
    /// Give it an attribute block of its own.
    CopyAttributes(Ino),
    /// Renew the checksum of its attribute block.
    SealAttributes(Ino),
    /// Make an entry unused.
    Remove(Spot),
    /// Replace bytes of a name that no path can have.
    Respell(Spot),
    /// End the name of `.` or `..` with a zero byte.
    Terminate(Spot),
    /// Set the file type of an entry.
    Retype(Spot, FileKind),
    /// Set the length of an entry.
    Span(Spot, u16),
    /// Make an unused entry of this length.
    Blank(Spot, u16),
    /// Let `.` lead elsewhere.
    Lead(Spot, Ino),
    /// Set the `..` of a directory.
    Parent(Ino, Ino),
    /// Renew the checksum of a block of a directory.
    SealBlock(Ino, Lbn),
    /// Rewrite a directory.
    Rebuild(Ino),
    /// Make a root directory.
    Root,
    /// Make `lost+found`.
    LostFound,
    /// Give it a name in `lost+found`.
    Connect(Ino),
    /// Write a quota file with the usage that was counted.
    QuotaFile(Ino),
    /// Give each file its own copy of the blocks that it shares, and clear the feature for that.
    Unshare,
    /// Set the number of links.
    Links(Ino, u16),
    /// Set the reference count of an attribute block.
    Shares(BlockNo, u32),
    /// Set the reference count of an inode with a value.
    ValueShares(Ino, u64),
    /// Mark an inode as one with a value.
    MarkValue(Ino),
    /// Clear the bits of epoch of times after the year 2310.
    Times(Ino),
    /// Bring a group's bitmaps, counts and checksums up to date.
    Group(GroupNo),
}

impl Fix {
    /// The inode, if it is the only structure that it changes.
    pub(super) fn inode(self) -> Option<Ino> {
        match self {
            Self::Clear(ino)
            | Self::JournalInode(ino)
            | Self::NewJournal(ino)
            | Self::ResizeInode(ino)
            | Self::DropOrphanFile(ino)
            | Self::Kind(ino, _)
            | Self::Deleted(ino)
            | Self::Undelete(ino)
            | Self::Seal(ino)
            | Self::ExtraSize(ino)
            | Self::Decrypt(ino)
            | Self::Fields(ino)
            | Self::Empty(ino)
            | Self::Length(ino, _)
            | Self::Sectors(ino, _)
            | Self::Map(ino)
            | Self::SealMap(ino)
            | Self::DropAttributes(ino)
            | Self::CopyAttributes(ino)
            | Self::QuotaFile(ino)
            | Self::ValueShares(ino, _)
            | Self::MarkValue(ino)
            | Self::Times(ino)
            | Self::SealAttributes(ino) => Some(ino),
            _ => None,
        }
    }

    /// The directory whose entries it changes in place, if it does.
    pub(super) fn directory(self) -> Option<Ino> {
        match self {
            Self::Remove(spot)
            | Self::Respell(spot)
            | Self::Terminate(spot)
            | Self::Retype(spot, _)
            | Self::Span(spot, _)
            | Self::Blank(spot, _)
            | Self::Lead(spot, _) => Some(spot.dir),
            Self::SealBlock(dir, _) | Self::Parent(dir, _) => Some(dir),
            _ => None,
        }
    }
}

/// Stages of a repair. The changes of each are decided by a check of the image after the earlier
/// ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Stage {
    /// The superblock: the layout of the volume.
    Superblock,
    /// The journal's contents.
    Journal,
    /// Descriptors of groups: the inode tables.
    Heads,
    /// Files that were being deleted or truncated.
    Orphans,
    /// Inodes: the owners of blocks.
    Inodes,
    /// Entries of directories.
    Names,
    /// The root, and unconnected directories.
    Connections,
    /// Unreferenced inodes, now that every name is known.
    Unreferenced,
    /// Bitmaps in wrong places: the earlier stages have found the owners of all blocks.
    Parts,
    /// A new journal in place of a lost one: the earlier stages have found the free blocks.
    NewJournal,
    /// Quota files: the earlier stages have found the owners of all blocks.
    Quotas,
    /// Copies of blocks that files share: the earlier stages have found the free blocks.
    Copies,
    /// Numbers of links.
    Links,
    /// Bitmaps and counts.
    Groups,
}

/// Stages that are made at once: no bitmap depends on link counts.
pub(super) const TOGETHER: [Stage; 2] = [Stage::Links, Stage::Groups];

/// Changes, by stage.
pub(super) type Fixes = seekless_fs::check::Fixes<Stage, Fix>;
