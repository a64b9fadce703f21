//! Making one file durable: contents, inode, and the names that lead to it.

use super::FfsLive;
use crate::ondisk::DIRECT;
use hashbrown::HashSet;
use seekless_cache::ChangeId;
use seekless_fs::FsError;
use seekless_fs::field::{index, wide};
use seekless_units::{Extent, Ino};
use smallvec::SmallVec;

impl FfsLive {
    pub(super) fn make_durable(&mut self, ino: Ino) -> Result<(), FsError> {
        self.named_node(ino)?;
        let runs = self.runs_of(ino)?;
        self.cache.settle_runs(&runs)?;
        self.settle_inode(ino)?;
        // Up the tree: a name is of use only when its directory has one.
        let mut seen = HashSet::new();
        let mut next = vec![ino];
        while let Some(ino) = next.pop() {
            if !seen.insert(ino) {
                continue;
            }
            let cache = &self.cache;
            let Some(node) = self.nodes.get_mut(&ino) else { continue };
            node.named_by.retain(|(_, id)| !cache.is_committed(*id));
            let pending = node.named_by.clone();
            next.extend(pending.iter().map(|&(dir, _)| dir).chain(node.name_in));
            if pending.is_empty() || node.effective == 0 {
                continue;
            }
            self.settle_inode(ino)?;
            let names: SmallVec<[ChangeId; 2]> = pending.iter().map(|&(_, id)| id).collect();
            self.cache.settle(&names)?;
        }
        self.run_actions()?;
        self.device.flush()?;
        Ok(())
    }

    pub(super) fn settle_inode(&mut self, ino: Ino) -> Result<(), FsError> {
        let place = self.sb.inode_place(ino)?;
        let fsize = index(self.sb.fsize);
        let within = wide(place.skip.checked_div(fsize).unwrap_or(0));
        let run = Extent::new(place.block.saturating_add(within), 1);
        self.cache.settle_runs(&[run])
    }

    /// The runs that hold a file: contents and indirect blocks.
    fn runs_of(&mut self, ino: Ino) -> Result<Vec<Extent>, FsError> {
        let node = self.node(ino)?.clone();
        let mut runs = self.ext_runs(ino)?;
        if !node.has_blocks() {
            return Ok(runs);
        }
        let blocks = node.size.div_ceil(u64::from(self.sb.bsize));
        for lbn in 0..blocks.min(wide(DIRECT)) {
            if let Some(at) = self.lookup_block(ino, lbn)? {
                runs.push(Extent::new(at, u64::from(self.frags_at(&node, lbn))));
            }
        }
        for (tree, &number) in node.indirect.iter().enumerate().filter(|(_, n)| **n != 0) {
            self.runs_of_tree(ino, number, tree, &mut runs)?;
        }
        Ok(runs)
    }

    fn runs_of_tree(
        &mut self,
        ino: Ino,
        number: u64,
        tree: usize,
        runs: &mut Vec<Extent>,
    ) -> Result<(), FsError> {
        let frag = u64::from(self.sb.frag);
        let block = self.check_run(ino, number, self.sb.frag)?;
        runs.push(Extent::new(block, frag));
        for place in 0..self.sb.pointers() {
            let number = self.pointer(block, place)?;
            match tree.checked_sub(1) {
                _ if number == 0 => {}
                Some(below) => self.runs_of_tree(ino, number, below, runs)?,
                None => {
                    let at = self.check_run(ino, number, self.sb.frag)?;
                    runs.push(Extent::new(at, frag));
                }
            }
        }
        Ok(())
    }
}
