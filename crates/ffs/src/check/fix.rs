//! Repairs that findings ask for, and the order in which they are made.

use seekless_fs::FileKind;
use seekless_units::{GroupNo, Ino};

/// An entry of a directory, by the byte of the directory that it begins at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Spot {
    pub(super) dir: Ino,
    pub(super) at: u64,
}

/// A change of the image that does away with a finding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Fix {
    /// Write the superblock.
    Superblock,
    /// Write the copy of it at a byte of the volume.
    Copy(u64),
    /// Rewrite a group's head; its maps are left for later.
    Head(GroupNo),
    /// Say that more inodes of a group were initialised.
    Initialise(GroupNo, u32),
    /// Make an inode unused.
    Clear(Ino),
    /// Let a file have this length, in bytes, and no block numbers past it.
    Trim(Ino, u64),
    /// Give it another length, in bytes.
    Length(Ino, u64),
    /// Forget its extended attributes.
    DropAttributes(Ino),
    /// Set `di_blocks`.
    Sectors(Ino, u64),
    /// Renew its check hash.
    Seal(Ino),
    /// Take the mark of a snapshot from it.
    Unmark(Ino),
    /// Make an entry unused.
    Remove(Spot),
    /// Set the kind of file that an entry says.
    Retype(Spot, FileKind),
    /// Put a zero behind its name.
    Terminate(Spot),
    /// Make the rest of a unit unused.
    Cut(Spot),
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
    /// The entry that it changes, if it does.
    pub(super) fn spot(self) -> Option<Spot> {
        match self {
            Self::Remove(spot)
            | Self::Retype(spot, _)
            | Self::Terminate(spot)
            | Self::Cut(spot) => Some(spot),
            Self::Parent(dir, _) => Some(Spot { dir, at: 0 }),
            _ => None,
        }
    }
}

/// Stages of a repair. The changes of each are decided by a check of the image after the earlier
/// ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Stage {
    /// The superblock and its copies: they say where everything is.
    Superblock,
    /// Heads of groups: they say which inodes there are.
    Heads,
    /// Inodes: they say which blocks are whose.
    Inodes,
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

/// Stages that are made at once: numbers of links change nothing that the bitmaps
/// depend on.
pub(super) const TOGETHER: [Stage; 2] = [Stage::Links, Stage::Groups];

/// Changes, by when they are made.
pub(super) type Fixes = seekless_fs::check::Fixes<Stage, Fix>;
