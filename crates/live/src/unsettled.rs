//! Where a file has been changed since the disk last had all of it, so that
//! `fsync` need not walk the file's map.

use crate::core::Core;
use crate::node::Node;
use seekless_cache::Cache;
use seekless_fs::FileKind;
use seekless_units::{BlockNo, Extent, Ino};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Number of runs from which on those that the disk has are looked for.
const FEW: usize = 64;

/// Most runs that are kept without a tree. Most files have one.
const IN_A_ROW: usize = 4;

/// Runs by their first fragment, with their lengths: in a row while they are few, since most files
/// have one.
#[derive(Clone, Debug)]
enum RunSet {
    /// In order.
    Few(SmallVec<[Extent; 1]>),
    Many(BTreeMap<BlockNo, u64>),
}

impl RunSet {
    fn len(&self) -> usize {
        match self {
            Self::Few(runs) => runs.len(),
            Self::Many(runs) => runs.len(),
        }
    }

    /// Adds a run, or lets the one that begins there be as long.
    fn add(&mut self, run: Extent) {
        debug_assert!(run.len > 0, "a run has fragments");
        if let Self::Few(runs) = self {
            let at = runs.partition_point(|old| old.start < run.start);
            if let Some(old) = runs.get_mut(at).filter(|old| old.start == run.start) {
                old.len = run.len.max(old.len);
                return;
            }
            if runs.len() < IN_A_ROW {
                runs.insert(at, run);
                return;
            }
            *self = Self::Many(runs.iter().map(|run| (run.start, run.len)).collect());
        }
        if let Self::Many(runs) = self {
            let len = runs.entry(run.start).or_default();
            *len = run.len.max(*len);
        }
    }

    /// Leaves out those that begin in a run, and the part of the one in front that reaches into it.
    fn cut(&mut self, gone: Extent) {
        let left = |start: BlockNo| gone.start.get().saturating_sub(start.get());
        match self {
            Self::Few(runs) => {
                runs.retain(|run| run.start < gone.start || run.start >= gone.end());
                for run in runs.iter_mut().filter(|run| run.start < gone.start) {
                    run.len = run.len.min(left(run.start));
                }
            }
            Self::Many(runs) => {
                if let Some((&start, len)) = runs.range_mut(..gone.start).next_back() {
                    *len = (*len).min(left(start));
                }
                while let Some((&start, _)) = runs.range(gone.start..gone.end()).next() {
                    runs.remove(&start);
                }
            }
        }
    }

    fn retain(&mut self, mut stays: impl FnMut(Extent) -> bool) {
        match self {
            Self::Few(runs) => runs.retain(|run| stays(*run)),
            Self::Many(runs) => runs.retain(|&start, &mut len| stays(Extent::new(start, len))),
        }
    }

    fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        let (few, many) = match self {
            Self::Few(runs) => (Some(runs.iter().copied()), None),
            Self::Many(runs) => (None, Some(runs.iter())),
        };
        let many = many.into_iter().flatten().map(|(&start, &len)| Extent::new(start, len));
        few.into_iter().flatten().chain(many)
    }
}

/// Runs of a file, contents and indirect blocks, that may hold changes which are
/// not on the disk. None that does is missing; some may have been written since
/// they were noted.
#[derive(Clone, Debug)]
pub(crate) struct Unsettled {
    /// They begin where blocks of the file do.
    runs: RunSet,
    /// How many runs there may be before those that the disk has are dropped:
    /// twice as many as were left the last time, so that a change costs the same
    /// however many there are.
    most: usize,
}

impl Default for Unsettled {
    fn default() -> Self {
        Self { runs: RunSet::Few(SmallVec::new()), most: 0 }
    }
}

impl Unsettled {
    fn note<A>(&mut self, run: Extent, cache: &Cache<A>) {
        self.runs.add(run);
        if self.runs.len() > self.most.max(FEW) {
            self.drop_settled(cache);
            self.most = self.runs.len() * 2;
        }
    }

    /// Leaves out a run that the file does not have any more. The one in front may reach into
    /// it: a tail that has become shorter.
    fn forget(&mut self, gone: Extent) {
        self.runs.cut(gone);
    }

    fn drop_settled<A>(&mut self, cache: &Cache<A>) {
        self.runs.retain(|run| cache.is_unsettled(run));
    }

    /// Whether the disk has all of the file's contents; runs that it has are
    /// dropped.
    pub(crate) fn is_settled<A>(&mut self, cache: &Cache<A>) -> bool {
        self.drop_settled(cache);
        self.runs.len() == 0
    }

    fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.runs.iter()
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
            node.pending.unsettled.note(run, &self.cache);
        }
    }

    /// Notes that runs have left a file.
    pub fn forget_unsettled(&mut self, ino: Ino, runs: &[Extent]) {
        if let Some(node) = self.nodes.get_mut(&ino).filter(|node| is_tracked(node)) {
            runs.iter().for_each(|&run| node.pending.unsettled.forget(run));
        }
    }

    /// The runs of a file's contents that may not be on the disk, where they are known without a
    /// walk of its map.
    pub(crate) fn unsettled_runs(&self, ino: Ino) -> Option<Vec<Extent>> {
        let node = self.nodes.get(&ino).filter(|node| is_tracked(node))?;
        Some(node.pending.unsettled.iter().collect())
    }

    /// Drops the runs that are on the disk by now.
    pub(crate) fn note_settled(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.pending.unsettled.drop_settled(&self.cache);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways in which runs are kept do the same.
    #[test]
    fn runs_in_a_row_and_in_a_tree_are_the_same_runs() {
        let run = |start, len| Extent::new(BlockNo::new(start), len);
        let mut number = 1u64;
        let mut draw = |below: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            (number >> 33) % below
        };
        let mut both = [RunSet::Few(SmallVec::new()), RunSet::Many(BTreeMap::new())];
        let (mut few, mut many) = (0, 0);
        for _ in 0..5000 {
            let (what, at) = (draw(6), run(draw(12) * 8, 1 + draw(8)));
            for runs in &mut both {
                match what {
                    0 => runs.cut(at),
                    1 => runs.retain(|run| run.start != at.start),
                    // Fragments taken from a block leave its end.
                    2 => runs.cut(run(at.start.get() + at.len, 8 - at.len % 8)),
                    _ => runs.add(at),
                }
            }
            let [one, two] = &both;
            assert!(one.iter().eq(two.iter()), "{one:?} {two:?}");
            assert_eq!(one.len(), two.len());
            few += usize::from(matches!(one, RunSet::Few(_)));
            many += usize::from(matches!(one, RunSet::Many(_)));
            if one.len() == 0 || matches!(one, RunSet::Many(_)) && draw(9) == 0 {
                both = [RunSet::Few(SmallVec::new()), RunSet::Many(BTreeMap::new())];
            }
        }
        assert!(few > 1000 && many > 1000, "{few} {many}");
    }
}
