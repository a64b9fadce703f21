//! Blocks that were allocated or freed: they stay where a file has them, and are free elsewhere.

use super::maps::Tree;
use super::parts::FilePart;
use super::records::Owner;
use super::tables::{BlockRecord, Pass};
use seekless_fs::field::{invalid, wide};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Extent, Ino};
use std::collections::BTreeSet;

impl Pass {
    /// Looks at all blocks of the journal.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when two files have a fragment.
    pub(super) fn settle_blocks(&mut self) -> Result<(), FsError> {
        let blocks: Vec<BlockNo> = self.runs.keys().copied().collect();
        for block in blocks {
            self.settle_block(block)?;
        }
        Ok(())
    }

    fn settle_block(&mut self, block: BlockNo) -> Result<(), FsError> {
        let records = self.runs.get(&block).cloned().unwrap_or_default();
        let end = block + u64::from(self.staged.volume.sb.frag);
        let mut held = Vec::new();
        let owners: BTreeSet<Owner> = records.iter().map(|record| record.run.owner).collect();
        for owner in owners {
            let inode = self.staged.inode(owner.ino)?;
            if let Some(run) = self.staged.mapped(&inode, owner.part)? {
                held.push(run);
            }
        }
        if let Some(last) = records.last().filter(|last| last.is_free)
            && !held.iter().any(|run| run.overlaps(last.run.extent))
        {
            self.free_below(last)?;
        }
        for fragment in (block.get()..end.get()).map(BlockNo::new) {
            let covers = |record: &BlockRecord| record.run.extent.contains(fragment);
            if !records.iter().any(covers) {
                continue;
            }
            let one = Extent::new(fragment, 1);
            let holders = held.iter().filter(|run| run.contains(fragment)).count();
            if holders > 1 {
                let place = Location::of("block map").in_block(fragment);
                return Err(invalid("owners of a fragment", wide(holders), place));
            }
            let is_free = holders == 0;
            self.staged.groups.set_free(&self.staged.volume, one, is_free)?;
        }
        Ok(())
    }

    /// Frees the blocks that a freed index block leads to. Its contents are those of the file as long
    /// as it is marked as used and nothing was allocated there since; index blocks that were
    /// allocated in the journal have records for all below them.
    fn free_below(&mut self, freed: &BlockRecord) -> Result<(), FsError> {
        let Owner { ino, part } = freed.run.owner;
        let FilePart::Index { levels, first } = part else { return Ok(()) };
        let is_whole = freed.run.extent.len == u64::from(self.staged.volume.sb.frag);
        let is_used = self.staged.groups.are_used(&self.staged.volume, freed.run.extent)?;
        if !is_whole || !is_used {
            return Ok(());
        }
        let root = Tree { block: freed.run.extent.start, levels, first };
        self.free_tree(ino, root)
    }

    /// Frees a tree of index blocks that no file has any more.
    fn free_tree(&mut self, ino: Ino, root: Tree) -> Result<(), FsError> {
        let frags = u64::from(self.staged.volume.sb.frag);
        let inode = self.staged.inode(ino)?;
        let mut next = vec![root];
        let mut seen = BTreeSet::new();
        while let Some(tree) = next.pop() {
            if !seen.insert(tree.block) {
                return Err(invalid("index block", tree.block.get(), Location::of("block map")));
            }
            for (at, block) in self.staged.numbers(&inode, tree)? {
                let run = self.staged.checked(Extent::new(block, frags), &inode)?;
                // Its own records decide.
                if self.runs.contains_key(&self.block_of(block)) {
                    continue;
                }
                let Some(below) = self.staged.below(tree, at, block) else {
                    self.staged.groups.set_free(&self.staged.volume, run, true)?;
                    continue;
                };
                // All below one that is free was free before it, and its contents may be another
                // file's by now.
                if self.staged.groups.are_used(&self.staged.volume, run)? {
                    // This and the one above may be in different groups, which are not written at
                    // once: a second recovery would not find it.
                    self.is_relative = true;
                    next.push(below);
                }
            }
            let run = Extent::new(tree.block, frags);
            self.staged.groups.free_late(&self.staged.volume, run)?;
        }
        Ok(())
    }

    /// Frees fragments that a file gives up, except for those that another has since.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when a map has wrong numbers, or a file gives up fragments with records
    /// that were given up before.
    pub(super) fn give_up(&mut self, ino: Ino, run: Extent) -> Result<(), FsError> {
        if !self.runs.contains_key(&self.block_of(run.start)) {
            return self.staged.groups.set_free(&self.staged.volume, run, true);
        }
        let mut taken = Vec::new();
        for owner in self.owners(run).into_iter().filter(|owner| owner.ino != ino) {
            let inode = self.staged.inode(owner.ino)?;
            taken.extend(self.staged.mapped(&inode, owner.part)?);
        }
        for fragment in (run.start.get()..run.end().get()).map(BlockNo::new) {
            // The records of the block are looked at for each of its fragments once at most.
            if !self.given_up.insert(fragment) {
                let place = Location::of("block map").in_inode(ino).in_block(fragment);
                return Err(invalid("owners of a fragment", 2, place));
            }
            if !taken.iter().any(|run| run.contains(fragment)) {
                let one = Extent::new(fragment, 1);
                self.staged.groups.set_free(&self.staged.volume, one, true)?;
            }
        }
        Ok(())
    }
}
