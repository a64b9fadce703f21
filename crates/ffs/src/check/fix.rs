//! Repairs that findings ask for, and the order in which they are made.

use seekless_fs::FileKind;
use seekless_units::{GroupNo, Ino};

/// An entry of a directory, by the byte of the directory at which it begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct DirectorySlot {
    pub(super) dir: Ino,
    pub(super) at: u64,
}

/// A change of the image that repairs a finding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Fix {
    /// Write the superblock.
    Superblock,
    /// Write its copy at a byte of the volume.
    Copy(u64),
    /// Rewrite a group's head; its maps are left for later.
    Head(GroupNo),
    /// Raise the number of a group's initialised inodes.
    Initialise(GroupNo, u32),
    /// Make an inode unused.
    Clear(Ino),
    /// Drop block numbers that lead nowhere, and copy the blocks that another file has too.
    Map(Ino),
    /// Set a file's length, in bytes, and drop block numbers past it.
    Trim(Ino, u64),
    /// Set its length, in bytes.
    Length(Ino, u64),
    /// Drop its extended attributes.
    DropAttributes(Ino),
    /// Set `di_blocks`.
    Sectors(Ino, u64),
    /// Renew its check hash.
    Seal(Ino),
    /// Clear its flag of a snapshot.
    Unmark(Ino),
    /// Make an entry unused.
    Remove(DirectorySlot),
    /// Set the file type of an entry.
    Retype(DirectorySlot, FileKind),
    /// Put a zero behind its name.
    Terminate(DirectorySlot),
    /// Make the rest of a unit unused.
    Cut(DirectorySlot),
    /// Put `.` and `..` in front.
    Dots(Ino),
    /// Let `..` lead elsewhere.
    Parent(Ino, Ino),
    /// Make a root directory.
    Root,
    /// Give it a name in `lost+found`.
    Connect(Ino),
    /// Set the number of links.
    Links(Ino, u16),
    /// Bring a group's maps and counts up to date.
    Group(GroupNo),
}

impl Fix {
    /// The entry, if it changes one.
    pub(super) fn slot(self) -> Option<DirectorySlot> {
        match self {
            Self::Remove(slot)
            | Self::Retype(slot, _)
            | Self::Terminate(slot)
            | Self::Cut(slot) => Some(slot),
            Self::Parent(dir, _) => Some(DirectorySlot { dir, at: 0 }),
            _ => None,
        }
    }
}

/// Stages of a repair. The changes of each are decided by a check of the image after the earlier
/// ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Stage {
    /// The superblock and its copies: the layout of the volume.
    Superblock,
    /// Heads of groups: the inodes in use.
    Heads,
    /// Inodes: the owners of blocks.
    Inodes,
    /// Block numbers that cannot stay, now that the owners of all other blocks are known.
    Maps,
    /// Entries of directories.
    Names,
    /// The root, and unconnected directories.
    Connections,
    /// Unreferenced inodes, now that every name is known.
    Unreferenced,
    /// Numbers of links.
    Links,
    /// Bitmaps and counts.
    Groups,
}

/// Stages that are made at once: no bitmap depends on link counts.
pub(super) const TOGETHER: [Stage; 2] = [Stage::Links, Stage::Groups];

/// Changes, by stage.
pub(super) type Fixes = seekless_fs::check::Fixes<Stage, Fix>;
