//! Prints the results of boots as text and JSON.

use crate::args::Global;
use crate::cmd::lab::show::aligned;
use crate::say::say;
use seekless_lab::boots::BootExperiment;
use seekless_lab::boots::outcome::{Boot, BootCell, as_json, cells, steps};
use seekless_report::table::grouped;

/// Prints the results.
pub(super) fn results(experiment: &BootExperiment, boots: &[Boot], global: &Global) {
    let cells = cells(experiment, boots);
    if global.json {
        say!("{}", as_json(experiment, &cells, boots));
        return;
    }
    say!("{}", table(&cells).trim_end());
    for (from, to, theirs, ours) in steps(&cells) {
        let agrees = (theirs - 1.0).signum() == (ours - 1.0).signum();
        let word = if agrees { "same direction" } else { "the other direction" };
        say!("{from} to {to}: {ours:.2} of the time, published {theirs:.2}: {word}");
    }
}

fn table(cells: &[BootCell]) -> String {
    let header = [
        "machine/state",
        "boot s",
        "from",
        "to",
        "I/O s",
        "of aged",
        "reads",
        "seeks",
        "GB sought",
        "MB",
        "published: boot s",
        "I/O s",
        "of aged",
    ];
    let mut lines = vec![header.map(String::from)];
    for cell in cells {
        let prefetch = if cell.prefetched { "+prefetch" } else { "" };
        let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
        let published = cell.published.as_ref();
        lines.push([
            format!("{}/{}{prefetch}", cell.machine, cell.state),
            number(Some(cell.boot_s[1])),
            number(Some(cell.boot_s[0])),
            number(Some(cell.boot_s[2])),
            number(Some(cell.io_s)),
            number(cell.io_of_aged),
            grouped(cell.reads),
            grouped(cell.seeks),
            format!("{:.1}", cell.seek_bytes as f64 / 1e9),
            format!("{:.1}", cell.read_bytes as f64 / 1e6),
            number(published.map(|one| one.boot_s)),
            number(published.and_then(|one| one.io_s)),
            number(cell.published_io_of_aged),
        ]);
    }
    aligned(&lines)
}
