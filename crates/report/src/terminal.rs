//! The map of a disk as text.

use crate::disk::{Class, Disk};
use crate::fold::{folds, groups_of};
use crate::grid::{Cell, Shape, cells};
use crate::table::grouped;
use seekless_units::{ByteLen, format_size};
use std::fmt::Write;
use std::ops::Range;

/// The style of drawing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Characters in a line, labels included.
    pub width: usize,
    /// Maximum number of rows per disk.
    pub rows: u64,
    /// Whether the terminal supports colours.
    pub colour: bool,
}

/// Width of the groups' numbers before a row, and of the figures behind it.
const LABEL: usize = 14;
const FIGURES: usize = 20;
const FEWEST_CELLS: usize = 16;

/// Draws disks below each other, with the same division.
#[must_use]
pub fn draw(disks: &[Disk], style: Style) -> String {
    let columns = style.width.saturating_sub(LABEL + FIGURES).max(FEWEST_CELLS);
    let shape = Shape::fit(disks, columns as u64, 1, style.rows.max(1));
    let mut text = String::new();
    for disk in disks {
        one(disk, shape, style, &mut text);
    }
    legend(disks, style, &mut text);
    text
}

fn one(disk: &Disk, shape: Shape, style: Style, text: &mut String) {
    let bytes = |blocks: u64| format_size(ByteLen::new(blocks * u64::from(disk.block_size)));
    let per_cell = bytes(shape.row_blocks.div_ceil(shape.columns));
    let _ = writeln!(text, "{}: {}, a cell is {per_cell}", disk.name, bytes(disk.whole.len));
    let columns = usize::try_from(shape.columns).unwrap_or(1);
    let folds = folds(std::slice::from_ref(disk), shape);
    let all_cells = cells(disk, shape);
    let rows: Vec<&[Cell]> = all_cells.chunks(columns).collect();
    let mut row = 0;
    while row < rows.len() {
        let fold = folds.iter().find(|fold| fold.start == row);
        if let Some(fold) = fold {
            let _ = write!(text, "{:<LABEL$}", groups_of(disk, shape, fold));
            let _ = write!(text, "{:<columns$}", format!("({} rows without files)", fold.len()));
        } else {
            let _ = write!(text, "{:<LABEL$}", row_label(disk, shape, row as u64));
            rows[row].iter().for_each(|cell| draw_cell(cell, style, text));
        }
        let end = fold.map_or(row + 1, |fold| fold.end);
        figures(disk, shape, row..end, &rows[row..end].concat(), text);
        row = end;
    }
}

/// The figures behind some rows.
fn figures(disk: &Disk, shape: Shape, rows: Range<usize>, cells: &[Cell], text: &mut String) {
    let all: u64 = cells.iter().map(Cell::all_blocks).sum();
    let free: u64 = cells.iter().map(|cell| cell.blocks(Class::Free)).sum();
    let used = (all - free) * 100 / all.max(1);
    if disk.reads.list.is_empty() {
        let _ = writeln!(text, " {used:>3}%");
        return;
    }
    let rows = rows.start as u64..rows.end as u64;
    let requests = disk.reads.list.iter().filter(|read| {
        rows.contains(&(read.extent.start.saturating_since(disk.whole.start) / shape.row_blocks))
    });
    let _ = writeln!(text, " {used:>3}% {:>9} req", grouped(requests.count() as u64));
}

/// The groups of a row: `3`, `3-5`, or `3 1/4` for the first quarter of one.
pub(crate) fn row_label(disk: &Disk, shape: Shape, row: u64) -> String {
    let group = disk.group_blocks.max(1);
    let first = row * shape.row_blocks / group;
    let last_block = ((row + 1) * shape.row_blocks).min(disk.whole.len).saturating_sub(1);
    let last = last_block / group;
    if first < last {
        return format!("{first}-{last}");
    }
    let parts = group.div_ceil(shape.row_blocks);
    if parts <= 1 {
        return first.to_string();
    }
    format!("{first} {}/{parts}", row * shape.row_blocks % group / shape.row_blocks + 1)
}

/// A background colour, of a terminal's 256: red if blocks were read, brighter for more requests.
fn colour(class: Class, requests: u64) -> u8 {
    match (requests, class) {
        (0, Class::Metadata) => 61,
        (0, Class::Directory) => 65,
        (0, Class::Data) => 240,
        (0, Class::Internal) => 95,
        (0, Class::Free) => 234,
        (1, _) => 88,
        (2..4, _) => 124,
        (4..16, _) => 160,
        _ => 196,
    }
}

/// A letter on its background colour.
fn paint(letter: char, background: u8, style: Style, text: &mut String) {
    if style.colour {
        let _ = write!(text, "\x1b[48;5;{background}m\x1b[38;5;252m{letter}\x1b[0m");
    } else {
        text.push(letter);
    }
}

fn draw_cell(cell: &Cell, style: Style, text: &mut String) {
    match cell.class() {
        Some(class) => paint(cell.letter(), colour(class, cell.requests), style, text),
        None => text.push(' '),
    }
}

fn legend(disks: &[Disk], style: Style, text: &mut String) {
    let entry = |class: Class| {
        let mut shown = String::new();
        paint(class.letter(false), colour(class, 0), style, &mut shown);
        format!("{shown} {}", class.name())
    };
    let _ = writeln!(text, "{}", Class::ALL.map(entry).join("  "));
    if disks.iter().any(|disk| !disk.reads.list.is_empty()) {
        let colours = if style.colour { " (red: the brighter the more requests)" } else { "" };
        let _ = write!(text, "Capitals{colours}: read by the trace. ");
        let _ = writeln!(text, "Right: part in use, requests.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::tests::disk;

    #[test]
    fn a_map_in_letters() {
        let style = Style { width: LABEL + FIGURES + 16, rows: 40, colour: false };
        let expected = "\
disk.img: 960K, a cell is 16K
0             mmDfFFFfff......  62%         3 req
1             ................   0%         0 req
2             mmii............  25%         0 req
3             ..........II      12%         1 req
m metadata  d directories  f file data  i internal (journal, quota)  . free
Capitals: read by the trace. Right: part in use, requests.
";
        let drawn = draw(&[disk()], style);
        assert_eq!(drawn, expected, "\n{drawn}");
    }

    #[test]
    fn colour_only_when_asked_for() {
        let style = Style { width: 80, rows: 2, colour: true };
        let drawn = draw(&[disk()], style);
        assert!(drawn.contains("\x1b[48;5;88m\x1b[38;5;252mD\x1b[0m"), "{drawn:?}");
        assert!(drawn.contains("\n0-1 ") && drawn.contains("\n2-3 "), "{drawn:?}");
        assert!(!draw(&[disk()], Style { colour: false, ..style }).contains('\x1b'));
    }
}
