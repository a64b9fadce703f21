//! Where a file has been changed since the disk last had all of it, so that
//! `fsync` need not walk the file's map.

use crate::core::Core;
use crate::node::Node;
use seekless_cache::Cache;
use seekless_fs::FileKind;
use seekless_units::{BlockNo, Extent, Ino};
use std::collections::BTreeMap;

/// Runs that are kept before those which the disk has are first looked for.
const FEW: usize = 64;

/// Runs of a file, contents and indirect blocks, that may hold changes which are
/// not on the disk. None that does is missing; some may have been written since
/// they were noted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsettled {
    /// Fragments of each run, by its first. Runs begin where blocks of the file
    /// do.
    runs: BTreeMap<BlockNo, u64>,
    /// How many runs there may be before those that the disk has are dropped:
    /// twice as many as were left the last time, so that a change costs the same
    /// however many there are.
    most: usize,
}

impl Unsettled {
    fn note<A>(&mut self, run: Extent, cache: &Cache<A>) {
        let len = self.runs.entry(run.start).or_default();
        *len = run.len.max(*len);
        if self.runs.len() > self.most.max(FEW) {
            self.drop_settled(cache);
            self.most = self.runs.len().saturating_mul(2);
        }
    }

    /// Leaves out a run that the file does not have any more.
    fn forget(&mut self, gone: Extent) {
        // The one in front may reach into it: a tail that has become shorter.
        if let Some((&start, len)) = self.runs.range_mut(..gone.start).next_back() {
            *len = (*len).min(gone.start.get().saturating_sub(start.get()));
        }
        while let Some((&start, _)) = self.runs.range(gone.start..gone.end()).next() {
            self.runs.remove(&start);
        }
    }

    fn drop_settled<A>(&mut self, cache: &Cache<A>) {
        self.runs.retain(|&start, &mut len| cache.is_unsettled(Extent::new(start, len)));
    }

    /// Whether the disk has all of the file's contents; runs that it has are
    /// dropped.
    pub(crate) fn is_settled<A>(&mut self, cache: &Cache<A>) -> bool {
        self.drop_settled(cache);
        self.runs.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.runs.iter().map(|(&start, &len)| Extent::new(start, len))
    }
}

/// Directories and symlinks are small, and walked.
fn is_tracked<M>(node: &Node<M>) -> bool {
    node.kind == FileKind::Regular
}

impl<M> Core<M> {
    /// Notes that a run of a file has been changed in the cache.
    pub fn note_unsettled(&mut self, ino: Ino, run: Extent) {
        debug_assert!(self.nodes.contains_key(&ino), "inode {ino} is being changed");
        if let Some(node) = self.nodes.get_mut(&ino).filter(|node| is_tracked(node)) {
            node.unsettled.note(run, &self.cache);
        }
    }

    /// Notes that runs have left a file.
    pub fn forget_unsettled(&mut self, ino: Ino, runs: &[Extent]) {
        if let Some(node) = self.nodes.get_mut(&ino).filter(|node| is_tracked(node)) {
            runs.iter().for_each(|&run| node.unsettled.forget(run));
        }
    }

    /// The runs of a file's contents that may hold what is not on the disk, where
    /// they are known without a walk of its map.
    pub(crate) fn unsettled_runs(&self, ino: Ino) -> Option<Vec<Extent>> {
        let node = self.nodes.get(&ino).filter(|node| is_tracked(node))?;
        Some(node.unsettled.iter().collect())
    }

    /// Drops what the disk has by now.
    pub(crate) fn note_settled(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.unsettled.drop_settled(&self.cache);
        }
    }
}
