//! Deferred actions.

use crate::cut::Runs;
use seekless_units::Ino;

/// An action that is deferred until some changes are on the disk.
#[derive(Debug)]
pub enum Action {
    /// A name of a file is gone.
    DropLink(Ino),
    /// A name of a file is gone, or there, for which its inode had a link more.
    DropHeld(Ino),
    /// A directory's name is gone.
    DropDirectory {
        /// The directory.
        ino: Ino,
        /// The one it was in.
        parent: Ino,
    },
    /// Nothing leads to these any more.
    FreeRuns(Runs),
    /// An inode is unused.
    FreeInode {
        /// Its number.
        ino: Ino,
        /// Whether it was a directory.
        is_directory: bool,
    },
}
