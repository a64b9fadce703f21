//! Snapshots that a volume has: its own state at earlier moments.

use seekless_units::{ByteLen, Ino};

/// A file of a volume in which an earlier state of the volume is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotFile {
    /// The file's inode.
    pub ino: Ino,
    /// The file's path; `None` if no directory has it.
    pub path: Option<Vec<u8>>,
    /// When the superblock in it was written, in seconds of the epoch.
    pub made: i64,
    /// Bytes of the volume that only the file takes.
    pub held: ByteLen,
}
