//! The attributes of files.

use seekless_fs::{Attr, FileKind, Timestamp};
use serde::Serialize;
use std::path::PathBuf;

/// The type of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl From<FileKind> for Kind {
    fn from(kind: FileKind) -> Self {
        match kind {
            FileKind::Regular => Self::Regular,
            FileKind::Directory => Self::Directory,
            FileKind::Symlink => Self::Symlink,
            FileKind::CharDevice => Self::CharDevice,
            FileKind::BlockDevice => Self::BlockDevice,
            FileKind::Fifo => Self::Fifo,
            FileKind::Socket => Self::Socket,
        }
    }
}

/// A time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Time {
    /// Seconds since 1970; negative before.
    pub seconds: i64,
    /// Nanoseconds within the second, below 1,000,000,000.
    pub nanoseconds: u32,
}

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Self {
        Self { seconds: time.secs, nanoseconds: time.nanos }
    }
}

impl Time {
    pub(crate) fn into_timestamp(self) -> Timestamp {
        Timestamp { secs: self.seconds, nanos: self.nanoseconds }
    }
}

/// The attributes of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Metadata {
    /// Type of the file.
    pub kind: Kind,
    /// The inode's number.
    pub inode: u32,
    /// Permission bits, with set-user-id and sticky bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that lead to it.
    pub links: u32,
    /// Bytes of its contents.
    pub len: u64,
    /// Bytes that it occupies on the disk.
    pub occupied: u64,
    /// Major and minor number of a device; zeros for other files.
    pub device: (u32, u32),
    /// When it was read last.
    pub accessed: Time,
    /// When its contents were changed.
    pub modified: Time,
    /// When its inode was changed.
    pub changed: Time,
}

impl From<&Attr> for Metadata {
    fn from(attr: &Attr) -> Self {
        Self {
            kind: attr.kind.into(),
            inode: attr.ino.get(),
            mode: attr.perm,
            uid: attr.uid,
            gid: attr.gid,
            links: attr.nlink,
            len: attr.size,
            occupied: attr.sectors * 512,
            device: (attr.device.major, attr.device.minor),
            accessed: attr.atime.into(),
            modified: attr.mtime.into(),
            changed: attr.ctime.into(),
        }
    }
}

/// A file by a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its path from the root, which has none: `etc/passwd`.
    pub path: PathBuf,
    /// Its attributes.
    pub metadata: Metadata,
}
