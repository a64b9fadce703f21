//! Runs that leave a file.

use crate::pending::Ids;
use seekless_fs::field::range;
use seekless_fs::{FsError, Location};
use seekless_units::Extent;
use smallvec::SmallVec;

/// Runs of fragments. Most files have one.
pub type Runs = SmallVec<[Extent; 1]>;

/// Runs that leave a file, and the changes that take them out of its map.
#[derive(Clone, Debug, Default)]
pub struct Cut {
    /// The runs.
    pub runs: Runs,
    /// The changes that must be on the disk for nothing to lead to them, besides the change of the
    /// inode.
    pub cleared: Ids,
    /// Their size, in units of block numbers.
    pub blocks: u64,
}

impl Cut {
    /// Adds a run. A file that has more than its volume, which is `limit`, has some
    /// of it twice.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] at `place` for such a file.
    pub fn push(&mut self, run: Extent, limit: u64, place: Location) -> Result<(), FsError> {
        self.blocks += run.len;
        if self.blocks > limit {
            return Err(range("mapped blocks", self.blocks, limit, place));
        }
        match self.runs.last_mut() {
            Some(last) if last.end() == run.start => last.len += run.len,
            _ => self.runs.push(run),
        }
        Ok(())
    }
}
