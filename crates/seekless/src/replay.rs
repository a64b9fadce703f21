//! The requests of a trace.

use seekless_layout::replay::{self, Replayed};
use seekless_layout::score::Score;
use serde::Serialize;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A trace replayed on an image, from [`Image::replay`](crate::Image::replay).
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Replay {
    /// The cost of the requests.
    pub score: Score,
    /// The requests to the disk, in their order.
    pub requests: Vec<Request>,
}

/// A request to the disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Request {
    /// The first byte, from the beginning of the file system.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Kind of the blocks.
    pub purpose: Purpose,
    /// Inode of the file that it is for; the root directory where it is for none.
    pub inode: u32,
    /// Path of that file from the root, which has none, where the trace leads to it.
    pub path: Option<PathBuf>,
    /// Byte of the file that it begins with, for contents and directories.
    pub file_offset: u64,
    /// Index of the access in the trace that causes it.
    pub access: usize,
}

/// The kind of blocks that a request reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Purpose {
    /// Blocks of an inode table.
    Inode,
    /// Blocks of a directory.
    Directory,
    /// Blocks of the map of a file, such as an extent tree.
    Map,
    /// A block of extended attributes.
    Attribute,
    /// Contents of a file, or the target of a long symlink.
    Data,
    /// Blocks of the device that a program reads itself.
    Device,
}

impl From<replay::Purpose> for Purpose {
    fn from(purpose: replay::Purpose) -> Self {
        match purpose {
            replay::Purpose::Inode => Self::Inode,
            replay::Purpose::Directory => Self::Directory,
            replay::Purpose::Map => Self::Map,
            replay::Purpose::Attribute => Self::Attribute,
            replay::Purpose::Data => Self::Data,
            replay::Purpose::Device => Self::Device,
        }
    }
}

impl Replay {
    /// `block` is the size of a block.
    pub(crate) fn new(score: Score, replayed: &Replayed, block: u64) -> Self {
        let path = |path: &Vec<u8>| {
            let path = path.strip_prefix(b"/").unwrap_or(path);
            PathBuf::from(OsStr::from_bytes(path))
        };
        let request = |request: &replay::Request| Request {
            offset: request.extent.start.get() * block,
            len: request.extent.len * block,
            purpose: request.purpose.into(),
            inode: request.ino.get(),
            path: replayed.paths.get(&request.ino).map(path),
            file_offset: request.lbn.get() * block,
            access: request.event,
        };
        Self { score, requests: replayed.requests.iter().map(request).collect() }
    }
}
