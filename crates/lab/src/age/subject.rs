//! What is aged.

use super::ledger::Room;
use super::op::{FileId, Op};
use super::score::FileLayout;
use seekless_fs::FsError;
use seekless_units::Nanos;

/// What became of an operation.
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
    /// Whatever stands in its way but a want of room.
    fn apply(&mut self, op: &Op) -> Result<Applied, FsError>;

    /// Lets virtual time go on to a moment.
    ///
    /// # Errors
    /// [`FsError::Device`] when what falls due then cannot be written.
    fn advance(&mut self, to: Nanos) -> Result<(), FsError>;

    /// How much room there is.
    ///
    /// # Errors
    /// What the system says.
    fn room(&mut self) -> Result<Room, FsError>;

    /// Whether what it tells is the same in each run, and costs nothing: room is
    /// relied on, and layouts are asked for after each operation.
    fn is_exact(&self) -> bool;

    /// Sees to it that layouts are known.
    ///
    /// # Errors
    /// What the system says.
    fn settle(&mut self) -> Result<(), FsError>;

    /// How a file lies; `None` when it has no blocks, or that cannot be told.
    ///
    /// # Errors
    /// What the system says.
    fn layout(&mut self, file: FileId) -> Result<Option<FileLayout>, FsError>;
}

/// A list by the numbers of files or directories, which are given again.
pub(super) fn put<T: Default + Clone>(list: &mut Vec<T>, at: usize, value: T) {
    if at >= list.len() {
        list.resize(at + 1, T::default());
    }
    list[at] = value;
}
