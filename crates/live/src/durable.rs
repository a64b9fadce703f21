//! Making one file durable: contents, inode, and the names that lead to it.

use crate::fault::Fault;
use crate::format::Ids;
use crate::{Format, Linked, Live, Names};
use hashbrown::HashSet;
use seekless_cache::{ChangeId, CommitWork};
use seekless_fs::operate::FsyncParts;
use seekless_fs::{FileKind, FsError};
use seekless_units::{Extent, Ino};
use smallvec::SmallVec;

/// Passes after which an `fsync` keeps the volume locked until it is done, since other callers
/// keep changing the file.
const MOST_PASSES: u32 = 16;

impl<F: Format> Live<F> {
    pub(crate) fn make_durable(&mut self, ino: Ino) -> Result<(), FsError> {
        while self.write_pass(ino)? {
            self.core.cache.flush()?;
        }
        // One flush for all that nothing else has waited for.
        self.core.cache.flush()
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
                if !self.core.cache.leaves_flushes() || parts.passes >= MOST_PASSES {
                    return self.make_durable(ino).map(|()| None);
                }
                parts.passes = parts.passes.saturating_add(1);
                if !self.write_pass(ino)? {
                    break;
                }
                // A full cache may have flushed within the pass: then the next one follows.
                if let Some(flush) = self.core.cache.flush_work()? {
                    return Ok(Some(flush));
                }
            }
            parts.written = Some(self.core.cache.written());
        }
        match parts.written {
            Some(written) if !self.core.cache.is_stable(written) => self.core.cache.flush_work(),
            _ => Ok(None),
        }
    }

    /// Writes the changes of a file, and of the names that lead to it, that may be written now.
    /// True if others have to be written after a flush.
    fn write_pass(&mut self, ino: Ino) -> Result<bool, FsError> {
        // Actions that are ready may change the blocks written here.
        self.run_actions()?;
        self.named_node(ino)?;
        self.write_back(ino, true)?;
        let runs = self.runs_to_settle(ino)?;
        let runs = self.unless(Fault::FsyncWithoutContents, runs);
        self.core.cache.begin_pass();
        let done = self.core.cache.complete_runs(&runs).and_then(|()| F::Names::settle(self, ino));
        let is_incomplete = self.core.cache.end_pass();
        done?;
        if !is_incomplete {
            self.core.note_settled(ino);
            self.run_actions()?;
        }
        Ok(is_incomplete)
    }

    /// Whether a file is on the disk only once a transaction is committed. Its delayed contents are
    /// given a place.
    pub(crate) fn awaits_commit(&mut self, ino: Ino) -> Result<bool, FsError> {
        self.named_node(ino)?;
        self.write_back(ino, true)?;
        let mut runs = self.runs_to_settle(ino)?;
        // Contents that no transaction writes go before it, so that its flush is theirs too.
        self.core.cache.start_runs(&runs)?;
        runs.extend(F::Names::inode_run(self, ino)?);
        Ok(self.core.cache.await_commit(&runs))
    }

    /// The runs of a file (contents, map blocks and attributes) that may not be wholly on the disk.
    /// The cost is in proportion to the changes, not to the file.
    fn runs_to_settle(&mut self, ino: Ino) -> Result<Vec<Extent>, FsError> {
        let Some(mut noted) = self.core.unsettled_runs(ino) else {
            let mut runs = self.format.attribute_runs(&mut self.core, ino)?;
            runs.extend(self.format.runs_of(&mut self.core, ino)?);
            return Ok(runs);
        };
        noted.extend(self.format.attribute_runs(&mut self.core, ino)?);
        debug_assert_eq!(
            self.format.unnoted(&self.core, ino, &noted),
            None,
            "a run of inode {ino} is not noted"
        );
        Ok(noted)
    }
}

impl<F: Linked> Live<F> {
    /// The inode of a file, and the names that lead to it.
    pub(crate) fn settle_names(&mut self, ino: Ino) -> Result<(), FsError> {
        let root = self.format.limits().root;
        self.settle_inode(ino)?;
        let arriving = self.arriving(ino)?;
        self.core.cache.settle(&arriving)?;
        self.node(ino)?;
        let node = self.core.nodes.get(&ino).ok_or_else(|| crate::gone(ino))?;
        let due: Ids = node.links_due.left(&self.core.cache).collect();
        self.core.cache.settle(&due)?;
        // Up the tree: a name is of use only when its directory has one.
        let mut seen = HashSet::new();
        let mut next = self.unless(Fault::FsyncWithoutNames, vec![ino]);
        while let Some(ino) = next.pop() {
            if ino == root || !seen.insert(ino) {
                continue;
            }
            // A directory that the file once had a name in may be gone.
            if !self.is_there(ino)? {
                continue;
            }
            self.node(ino)?;
            let cache = &self.core.cache;
            let Some(node) = self.core.nodes.get(&ino).filter(|node| node.effective > 0) else {
                continue;
            };
            let pending: SmallVec<[(Ino, ChangeId); 2]> = node.named_by.left(cache).collect();
            next.extend(pending.iter().map(|&(dir, _)| dir).chain(node.seen_in.iter().copied()));
            let linked = node.linked;
            let is_directory = node.kind == FileKind::Directory;
            if !pending.is_empty() {
                self.settle_inode(ino)?;
                let names: SmallVec<[ChangeId; 2]> = pending.iter().map(|&(_, id)| id).collect();
                self.core.cache.settle(&names)?;
            }
            self.core.cache.settle(&[linked])?;
            if is_directory {
                // Of two names of a directory a check keeps one, and does not
                // know which is the newer.
                let leaving = self.leaving(ino)?;
                let leaving = self.unless(Fault::FsyncWithOlderNames, leaving);
                self.core.cache.settle(&leaving)?;
                next.push(self.parent_of(ino)?);
            }
        }
        Ok(())
    }

    fn settle_inode(&mut self, ino: Ino) -> Result<(), FsError> {
        let run = self.format.inode_run(ino)?;
        self.core.cache.complete_runs(&[run])
    }

    /// Whether an inode is in use, and not about to be given back.
    pub(crate) fn is_there(&mut self, ino: Ino) -> Result<bool, FsError> {
        Ok(self.core.nodes.contains_key(&ino) || self.format.is_in_use(&mut self.core, ino)?)
    }
}
