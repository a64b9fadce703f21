//! Making one file durable: contents, inode, and the names that lead to it.

use super::FfsLive;
use super::fault::Fault;
use crate::ondisk::{DIRECT, ROOT};
use hashbrown::HashSet;
use seekless_cache::ChangeId;
use seekless_fs::field::{index, wide};
use seekless_fs::{FileKind, FsError};
use seekless_units::{Extent, Ino};
use smallvec::SmallVec;

impl FfsLive {
    pub(super) fn make_durable(&mut self, ino: Ino) -> Result<(), FsError> {
        self.named_node(ino)?;
        let runs = self.runs_to_settle(ino)?;
        let runs = self.unless(Fault::FsyncWithoutContents, runs);
        self.cache.settle_runs(&runs)?;
        self.note_settled(ino);
        self.settle_inode(ino)?;
        let arriving = self.arriving(ino)?;
        self.cache.settle(&arriving)?;
        // Up the tree: a name is of use only when its directory has one.
        let mut seen = HashSet::new();
        let mut next = self.unless(Fault::FsyncWithoutNames, vec![ino]);
        while let Some(ino) = next.pop() {
            if ino.get() == ROOT || !seen.insert(ino) {
                continue;
            }
            // A directory that the file once had a name in may be gone.
            if !self.is_there(ino)? {
                continue;
            }
            self.node(ino)?;
            let cache = &self.cache;
            let Some(node) = self.nodes.get_mut(&ino).filter(|node| node.effective > 0) else {
                continue;
            };
            node.named_by.retain(|(_, id)| !cache.is_committed(*id));
            let pending = node.named_by.clone();
            next.extend(pending.iter().map(|&(dir, _)| dir).chain(node.seen_in.iter().copied()));
            let is_directory = node.kind == FileKind::Directory;
            if !pending.is_empty() {
                self.settle_inode(ino)?;
                let names: SmallVec<[ChangeId; 2]> = pending.iter().map(|&(_, id)| id).collect();
                self.cache.settle(&names)?;
            }
            if is_directory {
                // Of two names of a directory a check keeps one, and does not
                // know which is the newer.
                let leaving = self.leaving(ino)?;
                let leaving = self.unless(Fault::FsyncWithOlderNames, leaving);
                self.cache.settle(&leaving)?;
                next.push(self.parent_of(ino)?);
            }
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

    /// The runs of a file, contents, indirect blocks and attributes, of which the
    /// disk may not have all. What they cost is in proportion to what has been
    /// changed, not to the file.
    fn runs_to_settle(&mut self, ino: Ino) -> Result<Vec<Extent>, FsError> {
        let Some(mut noted) = self.unsettled_runs(ino) else { return self.runs_of(ino) };
        noted.extend(self.ext_runs(ino)?);
        debug_assert_eq!(self.unnoted(ino, &noted), None, "a run of inode {ino} is not noted");
        Ok(noted)
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
