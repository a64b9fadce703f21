//! Rows of a map without content, which are drawn as one.

use crate::disk::{Class, Disk};
use crate::grid::{Cell, Shape, cells};
use std::ops::Range;

/// Minimum number of consecutive rows that are folded.
const FEWEST: usize = 3;

/// Rows without files and without reads, in all of these disks: those with only free blocks and
/// fixed structures, at least three in a row.
pub(crate) fn folds(disks: &[Disk], shape: Shape) -> Vec<Range<usize>> {
    let rows = disks.iter().map(|disk| shape.rows(disk)).max().unwrap_or(0);
    let mut empty = vec![true; usize::try_from(rows).unwrap_or(0)];
    let columns = usize::try_from(shape.columns).unwrap_or(1);
    for disk in disks {
        for (is_empty, row) in empty.iter_mut().zip(cells(disk, shape).chunks(columns)) {
            *is_empty &= row.iter().all(shows_nothing);
        }
    }
    let mut folds = Vec::new();
    let mut at = 0;
    for run in empty.chunk_by(|one, other| one == other) {
        if run[0] && run.len() >= FEWEST {
            folds.push(at..at + run.len());
        }
        at += run.len();
    }
    folds
}

fn shows_nothing(cell: &Cell) -> bool {
    let shown = [Class::Directory, Class::Data, Class::Internal];
    cell.requests == 0 && shown.into_iter().all(|class| cell.blocks(class) == 0)
}

/// The groups of some rows of a disk, if it has them: `3-17`.
pub(crate) fn groups_of(disk: &Disk, shape: Shape, rows: &Range<usize>) -> String {
    let group = disk.group_blocks.max(1);
    let first = rows.start as u64 * shape.row_blocks / group;
    let end = (rows.end as u64 * shape.row_blocks).min(disk.whole.len);
    let last = end.saturating_sub(1) / group;
    if first < last { format!("{first}-{last}") } else { first.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Usage;
    use crate::grid::tests::disk;
    use crate::reads::tests::reads;
    use seekless_units::{BlockNo, Extent};

    /// Groups of ten blocks, the first of which is fixed; some of them contain file data.
    fn with_files(groups: u64, used: &[u64]) -> Disk {
        let run = |start, len| Extent::new(BlockNo::new(start), len);
        let mut claimed = Vec::new();
        for group in 0..groups {
            claimed.push((run(group * 10, 1), Class::Metadata));
            let class = if used.contains(&group) { Class::Data } else { Class::Free };
            claimed.push((run(group * 10 + 1, 9), class));
        }
        let whole = run(0, groups * 10);
        let usage = Usage::new(whole, claimed);
        Disk { whole, group_blocks: 10, usage, reads: reads(&[]), ..disk() }
    }

    #[test]
    fn rows_without_files_are_folded_unless_they_are_few() {
        let shape = Shape { row_blocks: 10, columns: 5 };
        let folded = |disks: &[Disk]| folds(disks, shape);
        let disk = with_files(12, &[0, 3, 8]);
        assert_eq!(folded(std::slice::from_ref(&disk)), [4..8, 9..12]);
        assert_eq!(groups_of(&disk, shape, &(4..8)), "4-7");
        assert_eq!(groups_of(&disk, shape, &(9..20)), "9-11");
        // Rows with reads are shown; so are rows in which another disk has contents.
        let mut read = disk.clone();
        read.reads = reads(&[(50, 1, "/")]);
        assert_eq!(folded(&[read]), vec![Range { start: 9, end: 12 }]);
        assert_eq!(folded(&[disk.clone(), with_files(14, &[10])]), [4..8, 11..14]);
        assert_eq!(folded(&[disk, with_files(3, &[])]), [4..8, 9..12]);
    }
}
