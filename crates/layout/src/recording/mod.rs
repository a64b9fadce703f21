//! Touches observed in a kernel, turned into a trace.
//!
//! A kernel reports inode numbers, pages and blocks. An [`Index`] of the file system maps blocks to
//! inodes; [`assemble`] puts names to them and leaves the first touch of everything, as a recording
//! through a mount has it. For observers of a device alone [`map_reads`] does the same.
//! [`FirstTouches`] leaves out touches that change nothing while a long recording runs.

mod assemble;
mod blocks;
mod first;
mod index;
mod listings;

pub use crate::pages::PageSet;
pub use assemble::{Assembled, EndState, Unknown, assemble};
pub use blocks::{Bytes, MappedReads, map_reads};
pub use first::FirstTouches;
pub use index::Index;

use seekless_units::{BlockNo, Extent, Ino};

/// A touch of a file or block as recorded: time, thread, kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedTouch {
    /// Nanoseconds since the start of the recording.
    pub time: u64,
    /// The thread.
    pub tid: u32,
    /// The touch.
    pub what: TouchKind,
}

/// The kind of access to pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageAccess {
    /// A read asked for them.
    Asked,
    /// A mapping was touched there.
    Faulted,
    /// A fault nearby mapped those of them that were in memory.
    Mapped,
    /// They came from the disk.
    Fetched,
}

/// A touch, or a fact about the thread that touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TouchKind {
    /// Pages of a file.
    Pages {
        /// The file.
        ino: Ino,
        /// First page.
        first: u64,
        /// Last page, included.
        last: u64,
        /// The kind of access.
        how: PageAccess,
    },
    /// A block that holds metadata was used; whether it had to be fetched is not
    /// known.
    Block(BlockNo),
    /// A read of blocks was handed to the device: the only touch that tells which
    /// blocks of directories came from it, and when.
    Requested(Extent),
    /// An inode, read from the disk.
    Inode(Ino),
    /// A file or directory was opened.
    Opened(Ino),
    /// A program was started.
    Executed(Ino),
    /// A directory was listed.
    Listed(Ino),
    /// The thread is called so from now on.
    Named(Box<str>),
    /// The thread made another, which is called as it is.
    Forked(u32),
}

/// Which pages a trace holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pages {
    /// Those that came from the disk, read-ahead included, in the order in which
    /// they did, and those that were asked for but in memory already.
    #[default]
    Fetched,
    /// Only those that were asked for.
    Touched,
}
