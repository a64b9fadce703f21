//! Results as text, as JSON, and as a drawing.

use crate::args::Global;
use crate::say::say;
use seekless_lab::cells::{self, Agreement, Cell, agreement};
use seekless_lab::experiment::Experiment;
use seekless_lab::grids::{Grid, grids};
use seekless_lab::ranking::{Order, orders};
use seekless_lab::run::Run;
use seekless_report::heat::{self, Heat};
use seekless_report::table::{Figure, Table};
use seekless_units::ByteLen;

/// Prints the results.
pub(super) fn results(experiment: &Experiment, runs: &[Run], global: &Global) {
    let cells = cells::cells(experiment, runs);
    if global.json {
        say!("{}", cells::json(experiment, &cells));
        return;
    }
    let maps = heat_maps(experiment, &cells);
    if !maps.is_empty() {
        maps.iter().for_each(|map| say!("{}", map.text()));
        return;
    }
    let (compared, alone): (Vec<Cell>, Vec<Cell>) =
        cells.iter().cloned().partition(|cell| cell.speedup().is_some());
    if !compared.is_empty() {
        say!("{}", speedups(&compared).trim_end());
    }
    if compared.is_empty() || alone.iter().any(|cell| cell.published.is_some()) {
        say!("{}", against_published(&alone).trim_end());
    }
    if let Some(found) = agreement(&cells) {
        say!("\n{}", in_words(&found));
    }
    orders(experiment, &cells).iter().for_each(|order| say!("\n{}", order_in_words(order)));
    say!("\n{}", counts(&cells).text().trim_end());
}

pub(super) fn order_in_words(order: &Order) -> String {
    let Order { phase, policy, pairs, same, others } = order;
    let mut text = format!(
        "{phase}, {policy} policy of each cell: {same} of {pairs} pairs are in the published order"
    );
    for (at, (fast, slow)) in others.iter().enumerate() {
        let before = if at == 0 { "; not " } else { ", " };
        text.push_str(&format!("{before}{fast} before {slow}"));
    }
    text
}

pub(super) fn in_words(found: &Agreement) -> String {
    let rank = found.spearman.map_or("-".into(), |rank| format!("{rank:.3}"));
    format!(
        "the new policy is faster in {} of {} cells; {} within a factor of 2 of the published \
         speed-up; Spearman's rank correlation {rank}",
        found.new_is_faster, found.cells, found.within_factor_2
    )
}

fn number(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.2}"))
}

/// Old and new, measured and published, side by side.
fn speedups(cells: &[Cell]) -> String {
    let header = ["cell", "old s", "new s", "speed-up", "published", "old s", "new s", "ratio"];
    let mut lines = vec![header.map(String::from)];
    for cell in cells.iter().filter(|cell| cell.speedup().is_some()) {
        let side = |at: usize| cell.sides.get(at).map(|side| side.seconds);
        let published = cell.published.as_ref();
        let theirs = cell.published_speedup();
        lines.push([
            cell.name(),
            number(side(0)),
            number(side(cell.sides.len() - 1)),
            number(cell.speedup()),
            number(theirs),
            number(published.and_then(|p| p.old_s)),
            number(published.and_then(|p| p.new_s)),
            number(cell.speedup().zip(theirs).map(|(ours, theirs)| ours / theirs)),
        ]);
    }
    aligned(&lines)
}

/// Counts of a cell for which a published figure exists: name, measured and published.
pub(super) fn published_counts(cell: &Cell) -> Vec<(&'static str, Figure, Figure)> {
    let (Some(side), Some(published)) = (cell.sides.first(), &cell.published) else {
        return Vec::new();
    };
    let counts = &side.counts;
    let disk = &counts.disk;
    let requests = disk.reads + disk.sync_writes + disk.async_writes;
    let pairs = [
        ("sync writes", disk.sync_writes, published.sync_writes),
        ("async writes", disk.async_writes, published.async_writes),
        ("requests", requests, published.requests),
        ("max_limit_hit", counts.max_limit_hit, published.max_limit_hit),
        ("rush_requests", counts.rush_requests, published.rush_requests),
    ];
    let known = pairs.into_iter().filter_map(|(what, ours, theirs)| Some((what, ours, theirs?)));
    known.map(|(what, ours, theirs)| (what, Figure::Count(ours), Figure::Count(theirs))).collect()
}

/// Counts of writes beside those published.
fn against_published(cells: &[Cell]) -> String {
    let header = ["cell", "what", "measured", "published"];
    let mut lines = vec![header.map(String::from)];
    for cell in cells {
        let (Some(side), Some(published)) = (cell.sides.first(), &cell.published) else { continue };
        for (what, ours, theirs) in published_counts(cell) {
            lines.push([cell.name(), what.into(), ours.text(), theirs.text()]);
        }
        if let Some(theirs) = published.new_s {
            let ours = number(Some(side.seconds));
            lines.push([cell.name(), "seconds".into(), ours, number(Some(theirs))]);
        }
    }
    aligned(&lines)
}

/// The first column to the left, the others to the right.
pub(super) fn aligned<const N: usize>(lines: &[[String; N]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let mut shown = format!("{:<width$}", line[0], width = widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            shown.push_str(&format!("  {cell:>width$}"));
        }
        text.push_str(shown.trim_end());
        text.push('\n');
    }
    text
}

/// Counters, a row for each cell and policy.
pub(super) fn counts(cells: &[Cell]) -> Table {
    let columns = [
        "reads",
        "sync writes",
        "async writes",
        "seeks",
        "seek distance",
        "written",
        "busy",
        "processor",
        "time",
    ];
    let mut table = Table::new(columns.map(String::from).to_vec(), false);
    for cell in cells {
        for side in &cell.sides {
            let disk = &side.counts.disk;
            let figures = vec![
                Figure::Count(disk.reads),
                Figure::Count(disk.sync_writes),
                Figure::Count(disk.async_writes),
                Figure::Count(disk.seeks),
                Figure::Bytes(whole_mebibytes(disk.seek_bytes)),
                Figure::Bytes(whole_mebibytes(disk.written_bytes)),
                Figure::Seconds(disk.busy_ns as f64 / 1e9),
                Figure::Seconds(side.counts.cpu_ns as f64 / 1e9),
                Figure::Seconds(side.seconds),
            ];
            table.push(format!("{}/{}", cell.name(), side.policy), figures);
        }
    }
    table
}

fn whole_mebibytes(bytes: u64) -> ByteLen {
    ByteLen::new(bytes >> 20 << 20)
}

/// Heat maps of a sweep over two keys; empty without a sweep.
pub(super) fn heat_maps(experiment: &Experiment, cells: &[Cell]) -> Vec<Heat> {
    let map = |grid: Grid| Heat {
        title: format!("{}, s", grid.name),
        columns: grid.columns,
        rows: grid.rows,
        values: grid.seconds,
    };
    grids(experiment, cells).into_iter().map(map).collect()
}

/// The maps of a sweep as an SVG drawing, a row for each workload.
pub(super) fn drawing(experiment: &Experiment, runs: &[Run]) -> Option<String> {
    let cells = cells::cells(experiment, runs);
    let maps = heat_maps(experiment, &cells);
    let across = experiment.workloads.first().map_or(1, |workload| workload.phases().len());
    (!maps.is_empty()).then(|| heat::svg(&maps, across))
}
