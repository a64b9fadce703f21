//! File systems that are aged.

use super::ledger::Room;
use super::op::{FileId, Op};
use super::score::FileLayout;
use seekless_fs::FsError;
use seekless_units::Nanos;

/// Result of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applied {
    /// It is done.
    Done,
    /// There was no room for it, and nothing has changed.
    Full,
    /// Such a file system has nothing of the kind (links), and nothing has changed.
    LeftOut,
}

/// A file system that operations are done to.
pub trait Subject {
    /// Does an operation.
    ///
    /// # Errors
    /// Any failure but lack of space.
    fn apply(&mut self, op: &Op) -> Result<Applied, FsError>;

    /// Lets virtual time go on to a moment.
    ///
    /// # Errors
    /// [`FsError::Device`] when a write that falls due then fails.
    fn advance(&mut self, to: Nanos) -> Result<(), FsError>;

    /// How much room there is.
    ///
    /// # Errors
    /// Errors of the system call.
    fn room(&mut self) -> Result<Room, FsError>;

    /// Whether reported space and layouts are the same in each run, and cost nothing: then room is
    /// relied on, and layouts are asked for after each operation.
    fn is_exact(&self) -> bool;

    /// Sees to it that layouts are known.
    ///
    /// # Errors
    /// Errors of the system call.
    fn settle(&mut self) -> Result<(), FsError>;

    /// A file's layout; `None` when it has no blocks, or that cannot be told.
    ///
    /// # Errors
    /// Errors of the system call.
    fn layout(&mut self, file: FileId) -> Result<Option<FileLayout>, FsError>;
}

/// A list by the numbers of files or directories, which are given again.
pub(super) fn put<T: Default + Clone>(list: &mut Vec<T>, at: usize, value: T) {
    if at >= list.len() {
        list.resize(at + 1, T::default());
    }
    list[at] = value;
}
