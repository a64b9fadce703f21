//! Blocks that are taken before a file needs them, as Linux did on ext2 before it had reservation
//! windows (`ext2_alloc_block`, `ext2_discard_prealloc`): in use on the disk, and given back when
//! the file is cut, removed or closed, and before space runs out. A crash leaks them, and `e2fsck
//! -p` finds them.

use super::{Core, Ext};
use seekless_cache::ChangeId;
use seekless_fs::FsError;
use seekless_units::{BlockNo, Extent, GroupNo, Ino};
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
}

impl Ext {
    /// Frees the released blocks. False if there were none.
    pub(super) fn give_back_ahead(&mut self, core: &mut Core) -> Result<bool, FsError> {
        let runs = std::mem::take(&mut self.ahead.given_up);
        self.give_blocks(core, &runs)?;
        debug_assert!(self.ahead.given_up.is_empty(), "nothing is released meanwhile");
        Ok(!runs.is_empty())
    }

    /// A block for a file: the next one of those taken ahead, if that is the goal or the block
    /// behind it; or one that is found, with as many behind it as are free, up to `most` in all.
    pub(super) fn take_ahead(
        &mut self,
        core: &mut Core,
        ino: Ino,
        (group, goal): (GroupNo, Option<BlockNo>),
        most: u32,
        limit: u64,
    ) -> Result<(Extent, ChangeId), FsError> {
        let hits =
            |run: Extent| goal.is_some_and(|goal| goal == run.start || goal + 1 == run.start);
        let (run, id) = match self.ahead.files.get(&ino).copied() {
            Some((run, id)) if hits(run) => (run, id),
            _ => {
                self.ahead.give_up(ino);
                self.give_back_ahead(core)?;
                self.find_run(core, (group, goal), most, limit)?
            }
        };
        debug_assert!(run.len > 0, "blocks taken ahead are dropped with the last one");
        let rest = Extent::new(run.start + 1, run.len - 1);
        if rest.len > 0 {
            self.ahead.files.insert(ino, (rest, id));
        } else {
            self.ahead.files.remove(&ino);
        }
        Ok((Extent::new(run.start, 1), id))
    }
}
