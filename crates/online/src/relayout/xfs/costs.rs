//! The cost of traces on a mounted volume, for contents of files only.

use super::reason::XfsReason;
use super::tree::View;
use crate::relayout::Row;
use seekless_fs::FsError;
use seekless_layout::replay::{Machine, Purpose, Request, replay};
use seekless_layout::trace::Events;
use seekless_units::{Extent, Ino};
use std::collections::{BTreeMap, BTreeSet};

/// Requests of traces for contents of files on an XFS. Those for directories and inodes are
/// unknown.
#[derive(Clone, Debug, Default)]
pub struct XfsCosts {
    /// Requests by trace.
    pub traces: Vec<Row>,
    /// Number of contiguous runs on the disk that the traces read.
    pub runs: u64,
    /// Requests of all traces for files that stay, with the number of files, by reason.
    pub staying: BTreeMap<XfsReason, (u64, Row)>,
}

impl XfsCosts {
    /// Seeks of all traces: requests that do not begin where the previous one ended.
    pub fn seeks(&self) -> u64 {
        self.traces.iter().map(|row| row.seeks).sum()
    }

    /// Replays traces on a view. `left` contains files that are known to stay, besides those that
    /// cannot be moved anyway.
    ///
    /// # Errors
    /// The errors of a replay.
    pub(crate) fn new(
        view: &View<'_>,
        traces: &[Events],
        left: &BTreeMap<u64, XfsReason>,
    ) -> Result<Self, FsError> {
        let bs = u64::from(seekless_fs::Inspect::geometry(view).block_size);
        let mut costs = Self::default();
        let mut extents: Vec<Extent> = Vec::new();
        let mut files: BTreeMap<XfsReason, BTreeSet<Ino>> = BTreeMap::new();
        for events in traces {
            // The locations of inodes are unknown, so none is read ahead.
            let machine = Machine { inode_read_ahead_blocks: 0, ..Machine::for_score() };
            let replayed = replay(view, events, machine)?;
            let is_data = |request: &&Request| request.purpose == Purpose::Data;
            let (mut row, mut head) = (Row::default(), None);
            let reason = |ino: Ino| {
                let known = || left.get(&view.tree.real(ino)).copied();
                view.tree.found(ino).stays.or_else(known)
            };
            for ino in &replayed.files {
                if let Some(reason) = reason(*ino) {
                    files.entry(reason).or_default().insert(*ino);
                }
            }
            for request in replayed.requests.iter().filter(is_data) {
                let extent = request.extent;
                let seeks = u64::from(head.is_some_and(|head| head != extent.start));
                head = Some(extent.end());
                row.add(1, extent.len * bs, seeks);
                extents.push(extent);
                if let Some(reason) = reason(request.ino) {
                    costs.staying.entry(reason).or_default().1.add(1, extent.len * bs, seeks);
                }
            }
            costs.traces.push(row);
        }
        for (reason, files) in files {
            costs.staying.entry(reason).or_default().0 = files.len() as u64;
        }
        costs.runs = runs_of(extents);
        Ok(costs)
    }
}

/// Number of contiguous runs of extents, which may overlap.
fn runs_of(mut extents: Vec<Extent>) -> u64 {
    extents.sort_unstable();
    let (mut runs, mut end) = (0, None);
    for extent in extents {
        runs += u64::from(end.is_none_or(|end| end < extent.start));
        end = end.max(Some(extent.end()));
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_units::BlockNo;

    #[test]
    fn extents_that_touch_or_overlap_are_one_run() {
        let of = |pairs: &[(u64, u64)]| {
            runs_of(
                pairs.iter().map(|&(start, len)| Extent::new(BlockNo::new(start), len)).collect(),
            )
        };
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[(10, 5), (0, 10), (15, 1)]), 1);
        assert_eq!(of(&[(0, 30), (5, 5), (30, 1), (32, 1), (32, 1)]), 2);
    }
}
