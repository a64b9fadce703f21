//! Corrections of a volume that is used while its state after a crash is checked (the background
//! check of McKusick, "Running Fsck in the Background", BSDCon 2002).
//!
//! A snapshot is checked; the volume itself, in use by then, is corrected through its own
//! operations. A correction releases inodes and blocks to which nothing leads, and makes counts
//! smaller that are too high. It is given as a difference to the snapshot, so that it is right
//! after any changes since: nobody can reach a file that was lost then, and a block that is marked
//! as in use is never handed out. Corrections of the names of directories require that no
//! directory is removed or renamed meanwhile.

use crate::check::{Finding, Report};
use seekless_units::{Extent, GroupNo, Ino};

/// The directory in the root in which directories without a name get one.
pub const LOST_FOUND: &[u8] = b"lost+found";

/// A correction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Correction {
    /// Remove one of several names of a directory, or a name of an inode that is not in use.
    RemoveName {
        /// The directory that contains the name.
        dir: Ino,
        /// The name.
        name: Vec<u8>,
        /// The inode that it leads to.
        ino: Ino,
    },
    /// Let the `..` of a directory lead to the one that contains its name.
    SetParent {
        /// The directory.
        dir: Ino,
        /// The one that its `..` leads to and is counted in, if that stays.
        from: Option<Ino>,
        /// The one that contains its name.
        to: Ino,
    },
    /// Give a directory without a name one in `lost+found`, which is made if it is missing. Its
    /// `..` is counted nowhere.
    Connect {
        /// The directory.
        dir: Ino,
        /// By how many its link count is too low for that name. Raising it is safe: nobody can
        /// have reached the directory.
        missing: u16,
    },
    /// Delete a file or an empty directory that has no name, by its inode. Nothing counts the `..`
    /// of such a directory.
    Delete(Ino),
    /// Count fewer names of a file.
    DropLinks {
        /// Its inode.
        ino: Ino,
        /// By how many the count is too high.
        by: u16,
    },
    /// Count more directories in a directory. Raising it is safe: they keep their names.
    RaiseLinks {
        /// Its inode.
        ino: Ino,
        /// By how many the count is too low.
        by: u16,
    },
    /// End a file with its last block, if it still ends in a hole, by its inode.
    Shorten(Ino),
    /// Recount the sectors of a file, by its inode.
    Sectors(Ino),
    /// Mark an unused inode as free.
    FreeInode(Ino),
    /// Mark blocks as free that no file has.
    FreeRun(Extent),
    /// Bring the counts of a group in line with its bitmaps.
    Recount {
        /// The group.
        group: GroupNo,
        /// By how many its number of directories is too high; negative if it is too low.
        surplus_directories: i64,
    },
}

impl Correction {
    /// Whether it is right after any change since the snapshot. The others require that no directory
    /// is removed or renamed meanwhile.
    #[must_use]
    pub fn allows_renames(&self) -> bool {
        match self {
            Self::RemoveName { .. } | Self::SetParent { .. } | Self::RaiseLinks { .. } => false,
            Self::Connect { .. }
            | Self::Delete(_)
            | Self::DropLinks { .. }
            | Self::Shorten(_)
            | Self::Sectors(_)
            | Self::FreeInode(_)
            | Self::FreeRun(_)
            | Self::Recount { .. } => true,
        }
    }
}

/// The result of a check for a volume in use.
#[derive(Debug, Default)]
pub struct Corrections {
    /// The findings.
    pub report: Report,
    /// The corrections, in the order in which they are made: those that need room come last. None
    /// if some findings are left: these may be about the same files.
    pub all: Vec<Correction>,
    /// Findings that cannot be corrected while the volume is in use.
    pub left: Vec<Finding>,
    /// Number of further ones, which are unlimited in number.
    pub more_left: u64,
}

impl Corrections {
    /// Whether the volume is sound once all corrections have been made.
    #[must_use]
    pub fn are_complete(&self) -> bool {
        self.left.is_empty() && self.more_left == 0
    }
}
