//! Extents inserted and converted.

use super::Tree;
use super::plan::{LeafChange, Put};
use crate::encode::mapping::max_len;
use seekless_cache::ChangeId;
use seekless_fs::{FsError, Mapping};
use seekless_units::{Extent, Lbn};
use std::ops::Range;

/// The first block of the file behind a run.
pub(super) fn end_of(run: &Mapping) -> u64 {
    run.lbn.get() + run.extent.len
}

/// The part of a run that maps a range of blocks of the file, which lie in it.
pub(super) fn part(run: &Mapping, blocks: &Range<u64>) -> Mapping {
    debug_assert!(run.lbn.get() <= blocks.start && blocks.end <= end_of(run));
    let skip = blocks.start - run.lbn.get();
    let len = blocks.end - blocks.start;
    let extent = Extent::new(run.extent.start + skip, len);
    Mapping { lbn: Lbn::new(blocks.start), extent, ..*run }
}

/// The run of a leaf with a block of the file, and its place.
pub(super) fn run_with(leaf: &[Mapping], lbn: u64) -> Option<(usize, Mapping)> {
    let at = leaf.partition_point(|run| run.lbn.get() <= lbn).checked_sub(1)?;
    leaf.get(at).map(|run| (at, *run))
}

/// Whether two runs can be joined: they touch, and fit in one extent.
fn joins(one: &Mapping, next: &Mapping) -> bool {
    end_of(one) == next.lbn.get()
        && one.extent.end() == next.extent.start
        && one.unwritten == next.unwritten
        && one.extent.len + next.extent.len <= max_len(one.unwritten)
}

/// Joins the new runs of a leaf with each other and with their neighbours.
fn join_around(leaf: &mut Vec<Mapping>, new: Range<usize>) {
    let mut at = new.start.saturating_sub(1);
    let mut stop = (new.end + 1).min(leaf.len());
    while at + 1 < stop {
        let next = leaf.get(at + 1).copied();
        match (leaf.get_mut(at), next) {
            (Some(one), Some(next)) if joins(one, &next) => {
                one.extent.len += next.extent.len;
                leaf.remove(at + 1);
                stop -= 1;
            }
            _ => at += 1,
        }
    }
    debug_assert!(
        leaf.is_sorted_by(|one, next| end_of(one) <= next.lbn.get()),
        "the runs of a leaf rise and do not overlap"
    );
}

/// How a leaf with new runs up to `end` changes.
fn how(leaf: &[Mapping], end: usize) -> LeafChange {
    if end >= leaf.len() { LeafChange::Appended } else { LeafChange::Inserted }
}

impl Tree<'_> {
    /// Enters a run where there was a hole.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] if there is no block for the tree; nothing has changed then.
    pub(super) fn insert(&mut self, run: Mapping, put: &Put<'_>) -> Result<ChangeId, FsError> {
        let path = self.path(run.lbn.get())?;
        let mut leaf = path.leaf.clone();
        let at = leaf.partition_point(|other| other.lbn < run.lbn);
        debug_assert!(
            leaf.get(at).is_none_or(|next| end_of(&run) <= next.lbn.get())
                && at.checked_sub(1).and_then(|at| leaf.get(at)).is_none_or(|before| end_of(
                    before
                ) <= run
                    .lbn
                    .get()),
            "{run:?} fills a hole of {leaf:?}"
        );
        leaf.insert(at, run);
        let end = at + 1;
        let how = how(&leaf, end);
        join_around(&mut leaf, at..end);
        let plan = self.plan(&path, &leaf, how)?;
        self.apply_and_free(&plan, put)
    }

    /// Marks blocks of the file as written: their extent is split into up to three
    /// (`ext4_ext_convert_to_initialized`).
    ///
    /// # Errors
    /// As [`Tree::insert`].
    pub(super) fn convert(
        &mut self,
        blocks: &Range<u64>,
        put: &Put<'_>,
    ) -> Result<ChangeId, FsError> {
        let path = self.path(blocks.start)?;
        let mut leaf = path.leaf.clone();
        let Some((at, run)) = run_with(&leaf, blocks.start) else {
            debug_assert!(false, "{blocks:?} were found");
            return Ok(ChangeId::COMMITTED);
        };
        debug_assert!(run.unwritten, "{blocks:?} were found unwritten");
        let parts = [run.lbn.get()..blocks.start, blocks.clone(), blocks.end..end_of(&run)];
        let parts = parts
            .iter()
            .filter(|part| !part.is_empty())
            .map(|blocks_of| Mapping { unwritten: blocks_of != blocks, ..part(&run, blocks_of) });
        let parts: Vec<Mapping> = parts.collect();
        debug_assert_eq!(
            parts.iter().map(|part| part.extent.len).sum::<u64>(),
            run.extent.len,
            "an extent is split into all of its blocks"
        );
        let end = at + parts.len();
        leaf.splice(at..=at, parts);
        let how = how(&leaf, end);
        join_around(&mut leaf, at..end);
        let plan = self.plan(&path, &leaf, how)?;
        self.apply_and_free(&plan, put)
    }

    /// Marks the whole extent with a block of the file as written: one length changes.
    pub(super) fn convert_whole(&mut self, lbn: u64, put: &Put<'_>) -> Result<ChangeId, FsError> {
        let path = self.path(lbn)?;
        let mut leaf = path.leaf.clone();
        if let Some((at, _)) = run_with(&leaf, lbn)
            && let Some(run) = leaf.get_mut(at)
        {
            debug_assert!(run.unwritten, "{lbn} was found unwritten");
            run.unwritten = false;
        }
        debug_assert!(
            run_with(&leaf, lbn).is_some_and(|(_, run)| !run.unwritten && lbn < end_of(&run)),
            "the extent with block {lbn} is written now"
        );
        let plan = self.plan(&path, &leaf, LeafChange::Inserted)?;
        self.apply_and_free(&plan, put)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_units::BlockNo;

    fn run(lbn: u64, start: u64, len: u64, unwritten: bool) -> Mapping {
        let extent = Extent::new(BlockNo::new(start), len);
        Mapping { lbn: Lbn::new(lbn), extent, unwritten }
    }

    #[test]
    fn neighbours_join_up_to_the_longest_extent() {
        let mut leaf = vec![run(0, 100, 5, false), run(5, 105, 5, false), run(10, 110, 2, false)];
        join_around(&mut leaf, 1..2);
        assert_eq!(leaf, [run(0, 100, 12, false)]);
        let apart = vec![
            run(0, 100, 5, true),
            run(5, 105, 5, false),
            run(10, 111, 2, false),
            run(13, 113, 2, false),
        ];
        let mut leaf = apart.clone();
        join_around(&mut leaf, 1..3);
        assert_eq!(leaf, apart);
        for (unwritten, most) in [(false, 32_768), (true, 32_767)] {
            let long = |more| {
                vec![run(0, 0, most - 1, unwritten), run(most - 1, most - 1, more, unwritten)]
            };
            let mut leaf = long(1);
            join_around(&mut leaf, 1..2);
            assert_eq!(leaf.len(), 1, "{unwritten}");
            let mut leaf = long(2);
            join_around(&mut leaf, 1..2);
            assert_eq!(leaf.len(), 2, "{unwritten}");
        }
    }
}
