//! A disk divided into rows of cells: a row is a group, several groups, or part of one.

use crate::disk::{Class, Disk};
use seekless_units::{BlockNo, Extent};

/// The division of a disk. Disks with the same division can be compared by eye.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Blocks in a row.
    pub row_blocks: u64,
    /// Cells in a row.
    pub columns: u64,
}

impl Shape {
    /// Rows of whole groups, or of halves, quarters and so on of a group, so that the largest of
    /// the disks has between `fewest` and `most` rows if possible.
    #[must_use]
    pub fn fit(disks: &[Disk], columns: u64, fewest: u64, most: u64) -> Self {
        let blocks = disks.iter().map(|disk| disk.whole.len).max().unwrap_or(0).max(1);
        let group = disks.iter().map(|disk| disk.group_blocks).max().unwrap_or(0).max(1);
        let mut row_blocks = group.min(blocks.next_power_of_two());
        while blocks.div_ceil(row_blocks) < fewest && row_blocks / 2 >= columns {
            row_blocks = row_blocks.div_ceil(2);
        }
        let rows = blocks.div_ceil(row_blocks);
        if rows > most {
            row_blocks *= rows.div_ceil(most.max(1));
        }
        Self { row_blocks, columns: columns.clamp(1, row_blocks) }
    }

    /// One cell per group.
    #[must_use]
    pub const fn groups(disk: &Disk) -> Self {
        let row_blocks = if disk.group_blocks == 0 { 1 } else { disk.group_blocks };
        Self { row_blocks, columns: 1 }
    }

    /// Number of rows of a disk.
    #[must_use]
    pub const fn rows(self, disk: &Disk) -> u64 {
        disk.whole.len.div_ceil(self.row_blocks)
    }

    /// The cell that contains the block `at` blocks from the start.
    fn cell(self, at: u64) -> u64 {
        let (row, within) = (at / self.row_blocks, at % self.row_blocks);
        let column = u128::from(within) * u128::from(self.columns) / u128::from(self.row_blocks);
        row * self.columns + u64::try_from(column).unwrap_or(0)
    }

    /// Distance of a cell from the start, in blocks.
    fn start(self, cell: u64) -> u64 {
        let (row, column) = (cell / self.columns, cell % self.columns);
        let within = u128::from(column) * u128::from(self.row_blocks);
        let within = within.div_ceil(u128::from(self.columns));
        row * self.row_blocks + u64::try_from(within).unwrap_or(0)
    }

    /// Divides a run into cells: the cell and its number of blocks.
    fn cut(self, disk: &Disk, run: Extent, mut visit: impl FnMut(u64, u64)) {
        let from = |block: BlockNo| block.saturating_since(disk.whole.start);
        let (mut at, end) = (from(run.start), from(run.end().min(disk.whole.end())));
        while at < end {
            let cell = self.cell(at);
            let next = self.start(cell + 1).min(end);
            visit(cell, next - at);
            at = next;
        }
    }
}

/// The contents of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cell {
    /// Blocks, by class.
    blocks: [u64; Class::ALL.len()],
    /// Number of blocks that were read, by class.
    read: [u64; Class::ALL.len()],
    /// Number of requests that read some of it.
    pub requests: u64,
}

impl Cell {
    /// Blocks of a class.
    #[must_use]
    pub const fn blocks(&self, class: Class) -> u64 {
        self.blocks[class.index()]
    }

    /// Blocks of all classes.
    #[must_use]
    pub fn all_blocks(&self) -> u64 {
        self.blocks.iter().sum()
    }

    /// Number of blocks read; blocks read twice count twice.
    #[must_use]
    pub fn read_blocks(&self) -> u64 {
        self.read.iter().sum()
    }

    /// The class that represents the cell: the one with the most blocks among those that were read,
    /// or else among those in use. `None` beyond the disk's end.
    #[must_use]
    pub fn class(&self) -> Option<Class> {
        let most = |counts: &[u64; Class::ALL.len()]| {
            let used = Class::ALL.into_iter().filter(|class| counts[class.index()] > 0);
            used.min_by_key(|&class| {
                (class == Class::Free, std::cmp::Reverse(counts[class.index()]))
            })
        };
        most(&self.read).or_else(|| most(&self.blocks))
    }

    /// The letter on a map.
    #[must_use]
    pub fn letter(&self) -> char {
        self.class().map_or(' ', |class| class.letter(self.requests > 0))
    }
}

/// All cells of a disk, row by row.
#[must_use]
pub fn cells(disk: &Disk, shape: Shape) -> Vec<Cell> {
    let count = shape.rows(disk) * shape.columns;
    let mut cells = vec![Cell::default(); usize::try_from(count).unwrap_or(0)];
    let mut change = |cell: u64, change: &dyn Fn(&mut Cell)| {
        if let Some(cell) = usize::try_from(cell).ok().and_then(|cell| cells.get_mut(cell)) {
            change(cell);
        }
    };
    for &(run, class) in disk.usage.runs() {
        shape.cut(disk, run, |cell, blocks| {
            change(cell, &|cell| cell.blocks[class.index()] += blocks);
        });
    }
    for read in &disk.reads.list {
        shape.cut(disk, read.extent, |cell, _| change(cell, &|cell| cell.requests += 1));
        for (part, class) in disk.usage.within(read.extent) {
            shape.cut(disk, part, |cell, blocks| {
                change(cell, &|cell| cell.read[class.index()] += blocks);
            });
        }
    }
    cells
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::disk::Usage;
    use crate::reads::tests::reads;

    /// Four groups of 64 blocks, the last one short, read in two places.
    pub(crate) fn disk() -> Disk {
        let run = |start, len| Extent::new(BlockNo::new(start), len);
        let whole = run(1, 240);
        let claimed = vec![
            (run(1, 8), Class::Metadata),
            (run(9, 2), Class::Directory),
            (run(11, 30), Class::Data),
            (run(41, 88), Class::Free),
            (run(129, 8), Class::Metadata),
            (run(145, 90), Class::Free),
        ];
        let reads = reads(&[(9, 1, "/"), (20, 4, "/a"), (24, 2, "/a"), (235, 6, "/b")]);
        let usage = Usage::new(whole, claimed);
        Disk { name: "disk.img".into(), block_size: 4096, whole, group_blocks: 64, usage, reads }
    }

    #[test]
    fn cells_account_for_every_block() {
        let disk = disk();
        for shape in [
            Shape { row_blocks: 64, columns: 8 },
            Shape { row_blocks: 64, columns: 7 },
            Shape { row_blocks: 100, columns: 33 },
            Shape::groups(&disk),
        ] {
            let cells = cells(&disk, shape);
            assert_eq!(cells.iter().map(Cell::all_blocks).sum::<u64>(), 240, "{shape:?}");
            assert_eq!(cells.iter().map(Cell::read_blocks).sum::<u64>(), 13, "{shape:?}");
        }
    }

    #[test]
    fn rows_are_groups_or_even_parts_of_them() {
        let disks = [disk()];
        let shape = |fewest, most| Shape::fit(&disks, 8, fewest, most).row_blocks;
        assert_eq!(shape(1, 40), 64);
        assert_eq!(shape(8, 40), 32);
        assert_eq!(shape(1, 2), 128);
        assert_eq!(shape(1000, 1000), 8);
    }
}
