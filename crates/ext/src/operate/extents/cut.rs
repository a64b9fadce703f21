//! Files made shorter, and taken apart.

use super::Tree;
use super::edit::{end_of, part};
use super::path::ExtentPath;
use super::plan::{LeafChange, Put};
use crate::bmap::EVERYTHING;
use seekless_cache::Role;
use seekless_fs::field::index;
use seekless_fs::{FsError, Location};
use seekless_live::Cut;
use seekless_units::{BlockNo, Extent};

impl Tree<'_> {
    /// Sets a file's length. Blocks allocated behind its end are freed, unless it becomes longer.
    pub(crate) fn truncate(&mut self, len: u64) -> Result<(), FsError> {
        let size = self.node()?.size;
        if len <= size {
            return self.cut_behind(len);
        }
        self.check_len(Some(len))?;
        self.zero_tail(size, len)?;
        self.set_size(len, &[]).map(drop)
    }

    /// Frees the blocks behind a length, which may be before or behind the end.
    pub(crate) fn cut_behind(&mut self, len: u64) -> Result<(), FsError> {
        let kept = len.div_ceil(self.block());
        let size = self.node()?.size;
        let len = len.min(size);
        self.zero_tail(len, size)?;
        let place = Location::of("extent").in_inode(self.ino);
        let limit = self.maps.layout().sb().blocks;
        let mut cut = Cut::default();
        let (runs, tree) = self.walk(&(kept..EVERYTHING.end))?;
        if runs.is_empty() && len == size {
            return Ok(());
        }
        debug_assert!(
            runs.iter().all(|run| run.lbn.get() >= kept),
            "only blocks behind the length leave the file"
        );
        for run in &runs {
            cut.push(run.extent, limit, place)?;
        }
        let fewer = cut.blocks;
        let mut path = self.path(kept)?;
        let on_way: Vec<BlockNo> = path.blocks().collect();
        // Nodes on the path may keep entries; all others are behind it.
        let behind: Vec<BlockNo> = tree.into_iter().filter(|at| !on_way.contains(at)).collect();
        let leaf = cut_path(&mut path, kept);
        debug_assert!(
            leaf.last().is_none_or(|run| end_of(run) <= kept),
            "the leaf ends in front of the cut"
        );
        let mut plan = self.plan(&path, &leaf, LeafChange::Cut)?;
        plan.left.extend(behind);
        for &at in &plan.left {
            cut.push(Extent::new(at, 1), limit, place)?;
        }
        let role = if len == 0 { Role::PointerClear } else { Role::PointerCut };
        let applied = self.apply(&plan, &Put { role, after: &[], size: len, more: 0, fewer })?;
        cut.cleared = applied.nodes.into();
        self.core.forget_unsettled(self.ino, &cut.runs);
        self.core.free_cut(applied.inode, cut);
        Ok(())
    }

    /// All runs of a file: its contents and the blocks of its tree.
    pub(crate) fn all_blocks(&mut self) -> Result<Cut, FsError> {
        let mut cut = Cut::default();
        if self.node()?.has_blocks() {
            let place = Location::of("extent").in_inode(self.ino);
            for run in self.runs_of()? {
                cut.push(run, self.maps.layout().sb().blocks, place)?;
            }
        }
        Ok(cut)
    }

    /// Zeroes the bytes behind the end of a file in its last block, or behind its new end, if the
    /// other one is later.
    pub(crate) fn zero_tail(&mut self, end: u64, other: u64) -> Result<(), FsError> {
        let block = self.block();
        let lbn = end / block;
        let within = end % block;
        if within == 0 || other <= end {
            return Ok(());
        }
        let Some(at) = self.lookup_block(lbn)? else { return Ok(()) };
        let (skip, len) = (index(within), index(block - within));
        self.core.cache.changes().edit(at, skip, len, Role::Data, |to| {
            to.fill(0);
            Ok(())
        })?;
        self.core.note_unsettled(self.ino, Extent::new(at, 1));
        Ok(())
    }
}

/// Removes all behind some blocks of the file from the indexes on the path, and returns the rest of
/// the leaf.
fn cut_path(path: &mut ExtentPath, kept: u64) -> Vec<seekless_fs::Mapping> {
    for step in &mut path.steps {
        debug_assert!(step.slot < step.children.len(), "the path goes through a child");
        step.children.truncate(step.slot + 1);
    }
    let stays = |run: &&seekless_fs::Mapping| run.lbn.get() < kept;
    let leaf = path.leaf.iter().take_while(stays);
    leaf.map(|run| part(run, &(run.lbn.get()..end_of(run).min(kept)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::extents::path::TreeNode;
    use seekless_fs::Mapping;
    use seekless_units::Lbn;

    #[test]
    fn a_leaf_keeps_what_lies_in_front() {
        let run = |lbn, start, len| Mapping {
            lbn: Lbn::new(lbn),
            extent: Extent::new(BlockNo::new(start), len),
            unwritten: false,
        };
        let leaf = vec![run(0, 50, 3), run(5, 90, 4), run(20, 10, 4)];
        let kept = |kept| {
            let node = TreeNode { at: None, most: 4, bytes: Vec::new() };
            let leaf = leaf.clone();
            cut_path(&mut ExtentPath { steps: Vec::new(), node, covers: 0..99, leaf }, kept)
        };
        assert_eq!(kept(0), []);
        assert_eq!(kept(4), [run(0, 50, 3)]);
        assert_eq!(kept(7), [run(0, 50, 3), run(5, 90, 2)]);
        assert_eq!(kept(24), leaf);
    }
}
