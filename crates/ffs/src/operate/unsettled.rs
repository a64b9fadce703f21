//! Where a file has been changed since the disk last had all of it, so that
//! `fsync` need not walk the file's map.

use super::FfsLive;
use super::node::Node;
use hashbrown::HashSet;
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
pub(super) struct Unsettled {
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
    pub(super) fn is_settled<A>(&mut self, cache: &Cache<A>) -> bool {
        self.drop_settled(cache);
        self.runs.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.runs.iter().map(|(&start, &len)| Extent::new(start, len))
    }
}

/// Directories and symlinks are small, and walked.
fn is_tracked(node: &Node) -> bool {
    node.kind == FileKind::Regular
}

impl FfsLive {
    /// Notes that a run of a file has been changed in the cache.
    pub(super) fn note_unsettled(&mut self, ino: Ino, run: Extent) {
        debug_assert!(self.nodes.contains_key(&ino), "inode {ino} is being changed");
        if let Some(node) = self.nodes.get_mut(&ino).filter(|node| is_tracked(node)) {
            node.unsettled.note(run, &self.cache);
        }
    }

    /// Notes that runs have left a file.
    pub(super) fn forget_unsettled(&mut self, ino: Ino, runs: &[Extent]) {
        if let Some(node) = self.nodes.get_mut(&ino).filter(|node| is_tracked(node)) {
            runs.iter().for_each(|&run| node.unsettled.forget(run));
        }
    }

    /// The runs of a file's contents that may hold what is not on the disk, where
    /// they are known without a walk of its map.
    pub(super) fn unsettled_runs(&self, ino: Ino) -> Option<Vec<Extent>> {
        let node = self.nodes.get(&ino).filter(|node| is_tracked(node))?;
        Some(node.unsettled.iter().collect())
    }

    /// A fragment of a file, as far as its map is in the cache, that is not on the
    /// disk and in none of some runs: there should be none. Nothing is read for
    /// it, so that builds which check do the same as those which do not.
    pub(super) fn unnoted(&self, ino: Ino, noted: &[Extent]) -> Option<BlockNo> {
        let node = self.nodes.get(&ino)?;
        let frag = u64::from(self.sb.frag);
        let mut runs: Vec<Extent> = (0..)
            .zip(&node.direct)
            .filter(|&(_, &number)| number != 0)
            .map(|(lbn, &number)| (BlockNo::new(number), self.frags_at(node, lbn)))
            .map(|(at, frags)| Extent::new(at, u64::from(frags)))
            .collect();
        let mut trees: Vec<(u64, usize)> = node.indirect.iter().copied().zip(1..).collect();
        while let Some((number, levels)) = trees.pop() {
            if number == 0 {
                continue;
            }
            let at = BlockNo::new(number);
            runs.push(Extent::new(at, frag));
            if let Some(below) = levels.checked_sub(1) {
                let inside = (0..self.sb.pointers()).map_while(|place| self.peek(at, place));
                trees.extend(inside.map(|number| (number, below)));
            }
        }
        let frags = |runs: &[Extent]| -> HashSet<BlockNo> {
            runs.iter().flat_map(|run| run.start.get()..run.end().get()).map(BlockNo::new).collect()
        };
        let is_unsettled = |at: &BlockNo| self.cache.is_unsettled(Extent::new(*at, 1));
        frags(&runs).difference(&frags(noted)).copied().filter(is_unsettled).min()
    }

    /// Drops what the disk has by now.
    pub(super) fn note_settled(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.unsettled.drop_settled(&self.cache);
        }
    }
}
