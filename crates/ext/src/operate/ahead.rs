//! Blocks that are taken before a file needs them, as Linux did on ext2 before it had reservation
//! windows (`ext2_alloc_block`, `ext2_discard_prealloc`): in use on the disk, and given back when
//! the file is cut, removed or closed, and before space runs out. A crash leaks them, and `e2fsck
//! -p` finds them.

use seekless_cache::ChangeId;
use seekless_units::{BlockNo, Extent, Ino};
use std::collections::BTreeMap;

/// Blocks taken ahead.
#[derive(Default)]
pub(super) struct Ahead {
    /// Those of files, and the change of the bitmap that took them.
    files: BTreeMap<Ino, (Extent, ChangeId)>,
    /// Those to be given back with the next change.
    given_up: Vec<Extent>,
}

impl Ahead {
    /// Releases a file's blocks.
    pub(super) fn give_up(&mut self, ino: Ino) {
        self.given_up.extend(self.files.remove(&ino).map(|(run, _)| run));
    }

    /// Releases the blocks of all files.
    pub(super) fn give_up_all(&mut self) {
        let all = std::mem::take(&mut self.files);
        self.given_up.extend(all.into_values().map(|(run, _)| run));
    }

    /// A file's blocks, if the first of them is the goal or the block behind it.
    pub(super) fn hit(&self, ino: Ino, goal: Option<BlockNo>) -> Option<(Extent, ChangeId)> {
        let (run, id) = self.files.get(&ino).copied()?;
        let goal = goal?;
        (goal == run.start || goal + 1 == run.start).then_some((run, id))
    }

    /// Keeps blocks for a file instead of those that it had.
    pub(super) fn keep(&mut self, ino: Ino, run: Extent, id: ChangeId) {
        if run.len > 0 {
            self.files.insert(ino, (run, id));
        } else {
            self.files.remove(&ino);
        }
    }

    /// The released blocks, which are to be freed now.
    pub(super) fn drain(&mut self) -> Vec<Extent> {
        std::mem::take(&mut self.given_up)
    }

    /// Whether no released blocks wait.
    pub(super) fn is_drained(&self) -> bool {
        self.given_up.is_empty()
    }
}
