//! Results as an HTML page.

use super::show::{counts, heat_maps, in_words, order_in_words, published_counts};
use super::summary;
use seekless_lab::cells::{self, Cell, Side, agreement};
use seekless_lab::experiment::Experiment;
use seekless_lab::ranking::orders;
use seekless_lab::run::{Phase, Run, RunId, VERSION};
use seekless_lab::seekplot::SeekPlot;
use seekless_report::bars::{DotChart, DotRow, Group, Value};
use seekless_report::heat;
use seekless_report::sections::{self, Section};
use seekless_report::seekplot::{self, Bin, Plot};
use seekless_report::table::{Figure, Table, escape, grouped};
use seekless_units::{ByteLen, Nanos, SECTOR};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Maximum bytes of all pictures of requests; beyond, they are drawn coarser.
const PICTURES: usize = 6_000_000;
/// Maximum factor of coarseness.
const COARSEST: u32 = 8;
/// Maximum number of groups of bars that are shown unfolded.
const UNFOLDED: usize = 8;

/// The page.
pub(super) fn page(experiment: &Experiment, runs: &[Run]) -> String {
    let cells = cells::cells(experiment, runs);
    let section = |title: &str, note: String, body| Section { title: title.into(), note, body };
    let maps = heat_maps(experiment, &cells);
    let across = experiment.workloads.first().map_or(1, |workload| workload.phases().len());
    let map = if maps.is_empty() { String::new() } else { wide(&heat::svg(&maps, across)) };
    let found =
        agreement(&cells).map(|found| format!(": {}", in_words(&found))).unwrap_or_default();
    let named = "named by workload, system, discipline and phase";
    let sections = [
        section(
            "Summary",
            "By phase and discipline, over all workloads and systems.".into(),
            wide(&summary::html(experiment, &cells)),
        ),
        section("Sweep", "Seconds; green is the best value of a map.".into(), map),
        section("Speed-up", format!("Old time over new time{found}."), speedups(&cells)),
        section(
            "Time",
            "Seconds until the commands of a phase completed.".into(),
            times(experiment, &cells),
        ),
        section("Published", ranked(experiment, &cells), published(&cells)),
        section(
            "Seek plots",
            format!("Time and place of each request on the drive; {named}."),
            pictures(&cells, runs),
        ),
        section(
            "Counts",
            format!("Counts until all data was on the disk; {named}, then policy."),
            wide(&counts(&cells).html()),
        ),
    ];
    sections::html(&experiment.name, &experiment.summary, &facts(experiment, runs), &sections)
}

/// Caption of the figures, with the number of pairs in the published order.
fn ranked(experiment: &Experiment, cells: &[Cell]) -> String {
    let orders = orders(experiment, cells);
    let words = orders.iter().map(|order| format!(" {}.", order_in_words(order)));
    format!("Measured and published figures.{}", words.collect::<String>())
}

fn wide(html: &str) -> String {
    format!("<div class=\"wide\">{html}</div>\n")
}

/// The runs of the page, and the sources of the published figures.
fn facts(experiment: &Experiment, runs: &[Run]) -> Vec<String> {
    let count =
        |of: fn(&RunId) -> u64| runs.iter().map(|run| of(&run.id)).collect::<BTreeSet<_>>().len();
    let (seeds, repetitions) = (count(|id| id.seed), count(|id| id.repetition));
    let digest = runs.first().map_or("", |run| &run.digest);
    let mut facts = vec![format!(
        "{} runs; seeds: {seeds}; repetitions: {repetitions}; seekless {VERSION}, file {digest}",
        runs.len()
    )];
    facts.extend(experiment.sources.iter().map(|source| format!("Source: {source}")));
    facts
}

/// Consecutive cells of one workload on one system.
fn groups(cells: &[Cell]) -> impl Iterator<Item = (String, &[Cell])> {
    let together = |a: &Cell, b: &Cell| (&a.workload, &a.system) == (&b.workload, &b.system);
    let name = |cell: &Cell| format!("{}/{}", cell.workload, cell.system);
    cells.chunk_by(together).map(move |cells| (name(&cells[0]), cells))
}

fn chart(
    cells: &[Cell],
    series: Vec<String>,
    base: Option<f64>,
    values: impl Fn(&Cell) -> Vec<Option<Value>>,
) -> String {
    let row = |cell: &Cell| {
        let values = values(cell);
        let label = format!("{}/{}", cell.discipline, cell.phase);
        values.iter().any(Option::is_some).then_some(DotRow { label, values })
    };
    let group = |(label, cells): (String, &[Cell])| {
        let rows: Vec<DotRow> = cells.iter().filter_map(row).collect();
        (!rows.is_empty()).then_some(Group { label, rows })
    };
    let groups: Vec<Group> = groups(cells).filter_map(group).collect();
    let folded = groups.len() > UNFOLDED;
    DotChart { series, base, groups, folded }.html()
}

fn speedups(cells: &[Cell]) -> String {
    chart(cells, vec!["speed-up".into()], Some(1.0), |cell| {
        let published = cell.published_speedup();
        vec![cell.speedup().map(|value| Value { value, range: None, published })]
    })
}

fn times(experiment: &Experiment, cells: &[Cell]) -> String {
    let policies: Vec<String> = experiment.policies.iter().map(|policy| policy.0.clone()).collect();
    chart(cells, policies.clone(), None, |cell| {
        policies.iter().map(|policy| seconds(cell, policy)).collect()
    })
}

/// Seconds of a cell under a policy. Published times are for the first and the last policy only.
fn seconds(cell: &Cell, policy: &str) -> Option<Value> {
    let at = cell.sides.iter().position(|side| side.policy == policy)?;
    let published = cell.published.as_ref();
    let published = match (at, cell.sides.len()) {
        (0, 2..) => published.and_then(|p| p.old_s),
        (at, many) if at + 1 == many => published.and_then(|p| p.new_s),
        _ => None,
    };
    let Side { seconds: value, range_s, .. } = cell.sides[at];
    (value > 0.0).then_some(Value { value, range: Some(range_s), published })
}

/// Times and counts beside those published.
fn published(cells: &[Cell]) -> String {
    let columns = ["old", "published", "new", "published", "speed-up", "published"];
    let mut times = Table::new(columns.map(String::from).to_vec(), false);
    let mut counts = Table::new(vec!["measured".into(), "published".into()], false);
    for cell in cells {
        let Some(published) = &cell.published else { continue };
        let seconds = |s: Option<f64>| s.map_or(Figure::Missing, Figure::Seconds);
        let times_as = |x: Option<f64>| x.map_or(Figure::Missing, Figure::Share);
        if let [old, .., new] = cell.sides.as_slice()
            && [published.old_s, published.new_s, published.speedup].iter().any(Option::is_some)
        {
            times.push(
                cell.name(),
                vec![
                    Figure::Seconds(old.seconds),
                    seconds(published.old_s),
                    Figure::Seconds(new.seconds),
                    seconds(published.new_s),
                    times_as(cell.speedup()),
                    times_as(published.speedup),
                ],
            );
        }
        for (what, ours, theirs) in published_counts(cell) {
            counts.push(format!("{}: {what}", cell.name()), vec![ours, theirs]);
        }
    }
    let some =
        |table: &Table| if table.rows.is_empty() { String::new() } else { wide(&table.html()) };
    some(&times) + &some(&counts)
}

/// The pictures of all cells, coarser if they exceed [`PICTURES`].
fn pictures(cells: &[Cell], runs: &[Run]) -> String {
    let mut coarse = 1;
    loop {
        let html = all_pictures(cells, runs, coarse);
        if html.len() <= PICTURES || coarse >= COARSEST {
            return html;
        }
        coarse *= 2;
    }
}

fn all_pictures(cells: &[Cell], runs: &[Run], coarse: u32) -> String {
    let mut html = seekplot::legend();
    let many = groups(cells).count() > UNFOLDED;
    for (at, (name, cells)) in groups(cells).enumerate() {
        let open = if at == 0 || !many { " open" } else { "" };
        let _ =
            writeln!(html, "<details class=\"group\"{open}><summary>{}</summary>", escape(&name));
        for (within, cell) in cells.iter().enumerate() {
            let plots: Vec<Plot> =
                cell.sides.iter().filter_map(|side| plot(cell, side, runs)).collect();
            let open = if at + within == 0 { " open" } else { "" };
            let (summary, drawn) = (summary(cell), seekplot::side_by_side(&plots, coarse));
            let _ =
                writeln!(html, "<details{open}><summary>{summary}</summary>\n{drawn}</details>");
        }
        html.push_str("</details>\n");
    }
    html
}

/// Summary line of a cell: its name, its times and its speed-up.
fn summary(cell: &Cell) -> String {
    let name = format!("<b>{}/{}</b>", escape(&cell.discipline), escape(&cell.phase));
    let seconds: Vec<String> = cell.sides.iter().map(|s| format!("{:.2} s", s.seconds)).collect();
    let speedup = cell.speedup().map(|times| format!(": {times:.2} times as fast"));
    format!("{name} <small>{}{}</small>", seconds.join(" \u{2192} "), speedup.unwrap_or_default())
}

/// The picture of a cell's first run under a policy.
fn plot(cell: &Cell, side: &Side, runs: &[Run]) -> Option<Plot> {
    let all = cell.phases(&side.policy, runs);
    let (id, phase) = all.min_by_key(|(id, _)| (id.seed, id.repetition))?;
    let seed = if side.runs > 1 { format!(" (seed {})", id.seed) } else { String::new() };
    let disk = &phase.counts.disk;
    let note = format!(
        "{:.2} s{seed}; {} reads, {} synchronous writes, {} asynchronous; {} seeks",
        phase.seconds,
        grouped(disk.reads),
        grouped(disk.sync_writes),
        grouped(disk.async_writes),
        grouped(disk.seeks)
    );
    Some(Plot { label: side.policy.clone(), note, ..drawn(phase, &phase.plot) })
}

fn drawn(phase: &Phase, plot: &SeekPlot) -> Plot {
    let bin = |bin: &seekless_lab::seekplot::Bin| Bin {
        column: bin.column as u32,
        row: bin.row as u32,
        counts: bin.counts.map(u64::from),
    };
    Plot {
        label: String::new(),
        note: String::new(),
        column: plot.column(),
        rows: seekless_lab::seekplot::ROWS as u32,
        disk: ByteLen::new(plot.sectors() * SECTOR),
        commands: Nanos::new((phase.seconds * 1e9) as u64),
        bins: plot.bins().iter().map(bin).collect(),
    }
}
