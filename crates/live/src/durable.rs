//! Making one file durable: contents, inode, and the names that lead to it.

use crate::fault::Fault;
use crate::link_order::OrderedLinks;
use crate::pending::Ids;
use crate::{Live, Named, Names};
use hashbrown::HashSet;
use seekless_cache::{ChangeId, CommitWork};
use seekless_fs::operate::FsyncParts;
use seekless_fs::{FileKind, FsError};
use seekless_units::{Extent, Ino};
use smallvec::SmallVec;

/// Passes after which an `fsync` keeps the volume locked until it is done, since other callers
/// keep changing the file.
const MOST_PASSES: u32 = 16;

impl<F: Named> Live<F> {
    pub(crate) fn make_durable(&mut self, ino: Ino) -> Result<(), FsError> {
        while self.write_pass(ino)? {
            self.volume.core.cache.blocks_mut().flush()?;
        }
        // One flush for all that nothing else has waited for.
        self.volume.core.cache.blocks_mut().flush()
    }

    /// [`Live::make_durable`] up to the next flush of the device, which is returned. Each call
    /// looks for changes of the file again, since other callers change it meanwhile.
    pub(crate) fn make_durable_apart(
        &mut self,
        ino: Ino,
        parts: &mut FsyncParts,
    ) -> Result<Option<CommitWork>, FsError> {
        if parts.written.is_none() {
            loop {
                if !self.volume.core.cache.blocks().leaves_flushes() || parts.passes >= MOST_PASSES
                {
                    return self.make_durable(ino).map(|()| None);
                }
                parts.passes += 1;
                if !self.write_pass(ino)? {
                    break;
                }
                // A full cache may have flushed within the pass: then the next one follows.
                if let Some(flush) = self.volume.core.cache.blocks_mut().flush_work()? {
                    return Ok(Some(flush));
                }
            }
            parts.written = Some(self.volume.core.cache.blocks().written());
        }
        match parts.written {
            Some(written) if !self.volume.core.cache.blocks().is_stable(written) => {
                self.volume.core.cache.blocks_mut().flush_work()
            }
            _ => Ok(None),
        }
    }

    /// Writes the changes of a file, and of the names that lead to it, that may be written now.
    /// True if others have to be written after a flush.
    fn write_pass(&mut self, ino: Ino) -> Result<bool, FsError> {
        // Actions that are ready may change the blocks written here.
        self.run_actions()?;
        self.volume.named_node(ino)?;
        self.write_back(ino, true)?;
        let runs = self.runs_to_settle(ino)?;
        let runs = self.volume.core.unless(Fault::FsyncWithoutContents, runs);
        self.volume.core.cache.begin_pass();
        let done =
            self.volume.core.cache.complete_runs(&runs).and_then(|()| F::Names::settle(self, ino));
        let is_incomplete = self.volume.core.cache.end_pass();
        done?;
        if !is_incomplete {
            self.volume.core.note_settled(ino);
            self.run_actions()?;
        }
        Ok(is_incomplete)
    }

    /// Whether a file is on the disk only once a transaction is committed. Its delayed contents are
    /// given a place.
    pub(crate) fn awaits_commit(&mut self, ino: Ino) -> Result<bool, FsError> {
        self.volume.named_node(ino)?;
        self.write_back(ino, true)?;
        let mut runs = self.runs_to_settle(ino)?;
        // Contents that no transaction writes go before it, so that its flush is theirs too.
        self.volume.core.cache.start_runs(&runs)?;
        runs.extend(F::Names::inode_run(self, ino)?);
        Ok(self.volume.core.cache.await_commit(&runs))
    }

    /// The runs of a file (contents, map blocks and attributes) that may not be wholly on the disk.
    /// The cost is in proportion to the changes, not to the file.
    fn runs_to_settle(&mut self, ino: Ino) -> Result<Vec<Extent>, FsError> {
        let Some(mut noted) = self.volume.core.unsettled_runs(ino) else {
            let mut runs = self.volume.format.attribute_runs(&mut self.volume.core, ino)?;
            runs.extend(self.volume.format.runs_of(&mut self.volume.core, ino)?);
            return Ok(runs);
        };
        noted.extend(self.volume.format.attribute_runs(&mut self.volume.core, ino)?);
        debug_assert_eq!(
            self.volume.format.unnoted(&self.volume.core, ino, &noted),
            None,
            "a run of inode {ino} is not noted"
        );
        Ok(noted)
    }
}

impl<F: OrderedLinks> Live<F> {
    /// The inode of a file, and the names that lead to it.
    pub(crate) fn settle_names(&mut self, ino: Ino) -> Result<(), FsError> {
        let root = self.volume.format.limits().root;
        self.settle_inode(ino)?;
        let arriving = self.volume.arriving(ino)?;
        self.volume.core.cache.settle(&arriving)?;
        self.volume.node(ino)?;
        let node = self.volume.core.nodes.get(&ino).ok_or_else(|| crate::gone(ino))?;
        let due: Ids = node.pending.links_due.left(&self.volume.core.cache).collect();
        self.volume.core.cache.settle(&due)?;
        // Up the tree: a name is of use only when its directory has one.
        let mut seen = HashSet::new();
        let mut next = self.volume.core.unless(Fault::FsyncWithoutNames, vec![ino]);
        while let Some(ino) = next.pop() {
            if ino == root || !seen.insert(ino) {
                continue;
            }
            // A directory that the file once had a name in may be gone.
            if !self.volume.is_there(ino)? {
                continue;
            }
            self.volume.node(ino)?;
            let cache = &self.volume.core.cache;
            let Some(node) = self.volume.core.nodes.get(&ino).filter(|node| node.effective > 0)
            else {
                continue;
            };
            let pending: SmallVec<[(Ino, ChangeId); 2]> =
                node.pending.named_by.left(cache).collect();
            next.extend(pending.iter().map(|&(dir, _)| dir).chain(node.parents.iter().copied()));
            let linked = node.pending.linked;
            let is_directory = node.kind == FileKind::Directory;
            if !pending.is_empty() {
                self.settle_inode(ino)?;
                let names: SmallVec<[ChangeId; 2]> = pending.iter().map(|&(_, id)| id).collect();
                self.volume.core.cache.settle(&names)?;
            }
            self.volume.core.cache.settle(&[linked])?;
            if is_directory {
                // Of two names of a directory a check keeps one, and does not
                // know which is the newer.
                let leaving = self.volume.leaving(ino)?;
                let leaving = self.volume.core.unless(Fault::FsyncWithOlderNames, leaving);
                self.volume.core.cache.settle(&leaving)?;
                next.push(self.directories().parent_of(ino)?);
            }
        }
        Ok(())
    }

    fn settle_inode(&mut self, ino: Ino) -> Result<(), FsError> {
        let run = self.volume.format.inode_run(ino)?;
        self.volume.core.cache.complete_runs(&[run])
    }
}
