//! Allocation for delayed contents.

use super::Tree;
use super::plan::Put;
use crate::encode::mapping::{IN_INODE, fan_out};
use crate::extent::{header, root_frame};
use seekless_cache::{ChangeId, Role};
use seekless_fs::FsError;
use seekless_fs::field::{index, wide};
use seekless_live::BlockState;
use seekless_units::{BlockNo, Extent};

impl Tree<'_> {
    /// The state of a block in the tree, and the end of the run with that state.
    pub(in super::super) fn stand_of(&mut self, lbn: u64) -> Result<(BlockState, u64), FsError> {
        if lbn >= self.max_size().div_ceil(self.block().max(1)) {
            // There can be none: writing there fails elsewhere.
            return Ok((BlockState::Hole, u64::MAX));
        }
        let near = self.find(lbn)?;
        let stand = match near.at(lbn) {
            None => BlockState::Hole,
            Some((_, false)) => BlockState::Written,
            Some((_, true)) => BlockState::Unwritten,
        };
        Ok((stand, near.end()))
    }

    /// Allocates the first of some blocks, which is in a hole, and the following ones in the same
    /// run.
    pub(in super::super) fn place(
        &mut self,
        lbn: u64,
        contents: &[Box<[u8]>],
    ) -> Result<Extent, FsError> {
        debug_assert!(!contents.is_empty(), "somebody waits");
        let block = self.block();
        let recorded = self.node()?.recorded;
        let shown = self.node()?.recorded_size();
        let (contents_role, role) = self.roles(lbn * block < shown)?;
        // A hole may go on in the next leaf, but an extent does not.
        let near = self.find(lbn)?;
        debug_assert!(near.at(lbn).is_none(), "D1: {lbn} of inode {} waits", self.ino);
        let most = wide(contents.len()).min(near.end() - lbn);
        debug_assert!(most > 0, "the first block is in the hole");
        let (run, bitmap) = self.take(lbn, most, false)?;
        let mut after = self.fill_whole(run, contents, contents_role)?;
        after.push(bitmap);
        let end = (lbn + run.len) * block;
        let node = self.node()?;
        node.record_up_to(end);
        let put = Put { role, after: &after, size: node.size, more: run.len, fewer: 0 };
        let entered = self.enter(lbn, run, false, &put);
        if entered.is_err() {
            self.node()?.recorded = recorded;
        }
        entered.map(|_| run)
    }

    /// Puts contents into new blocks.
    fn fill_whole(
        &mut self,
        run: Extent,
        contents: &[Box<[u8]>],
        role: Role,
    ) -> Result<Vec<ChangeId>, FsError> {
        debug_assert!(run.len <= wide(contents.len()), "no more was wanted");
        let len = self.ext.volume.block_len();
        let mut ids = Vec::with_capacity(index(run.len));
        for (at, bytes) in (run.start.get()..run.end().get()).zip(contents) {
            let ((), id) = self.core.cache.changes().fill(BlockNo::new(at), len, role, |to| {
                to.copy_from_slice(bytes);
                Ok(())
            })?;
            ids.push(id);
        }
        debug_assert_eq!(wide(ids.len()), run.len, "each new block gets contents");
        self.core.note_unsettled(self.ino, run);
        Ok(ids)
    }

    /// The most new nodes when `blocks` blocks in `runs` holes get a place, each with an extent of
    /// its own.
    pub(in super::super) fn most_nodes(&mut self, runs: u64, blocks: u64) -> Result<u64, FsError> {
        let root = self.node()?.map.root;
        let frame = root_frame(&root.0, self.ino)?;
        let used = header(&root.0, root.0.len(), frame.place)?.eh_entries.get();
        let half = fan_out(self.ext.volume.sb.block_size) / 2;
        Ok(most_nodes(u64::from(frame.depth), u64::from(used), half, (runs, blocks)))
    }
}

/// As [`Tree::most_nodes`], for a tree of a depth with `used` entries in its root, whose nodes have
/// at least `half` entries after a split.
///
/// Extents that fill a hole go to one leaf, which is split in half once, and again after every
/// `half` entries; the same holds of the numbers of new nodes in the nodes above.
fn most_nodes(depth: u64, used: u64, half: u64, (runs, blocks): (u64, u64)) -> u64 {
    let half = half.max(2);
    let mut all = 0u64;
    let mut new = blocks;
    for _ in 0..depth {
        new = new.min(runs * 2 + new.div_ceil(half));
        all += new;
    }
    // The root's entries move to nodes of their own, until so few are left that they fit.
    let mut entries = used + new;
    while entries > IN_INODE {
        entries = entries.div_ceil(half) + 1;
        all += entries;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_nodes_as_the_worst_placement_takes() {
        // In the inode.
        assert_eq!(most_nodes(0, 0, 42, (1, 4)), 0);
        assert_eq!(most_nodes(0, 3, 42, (1, 1)), 0);
        // A leaf, and the one that it is split into.
        assert_eq!(most_nodes(0, 4, 42, (1, 1)), 2);
        assert_eq!(most_nodes(0, 0, 42, (1, 84)), 3);
        // More leaves than the root has room for.
        assert_eq!(most_nodes(0, 0, 42, (1, 420)), 11 + 2);
        // Leaves of a tree, each of which may be split.
        assert_eq!(most_nodes(1, 1, 42, (1, 1)), 1);
        assert_eq!(most_nodes(1, 1, 42, (1, 100)), 5 + 2);
        assert_eq!(most_nodes(1, 4, 42, (3, 3)), 3 + 2);
        assert_eq!(most_nodes(2, 1, 170, (1, 1)), 2);
    }
}
