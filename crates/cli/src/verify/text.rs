//! Predicted and counted figures as tables.

use super::{Verified, VerifyArgs, Wanted, ratio};
use crate::say::say;
use crate::scoring;
use seekless_capture::verify::{ComparedCost, Cost, Difference, NamedRequest, Outcome};
use seekless_report::table::{Figure, Table};
use seekless_units::{ByteLen, format_size};
use std::fmt::Write;

/// Prints the figures of an image, with its name if `named`.
pub(super) fn show(one: &Verified<'_>, args: &VerifyArgs, wanted: &Wanted<'_>, named: bool) {
    let Verified { scored, comparison, difference } = one;
    // The name of the counted side.
    let counted = match comparison.outcome {
        Outcome::Replay { .. } => "kernel",
        Outcome::Program(_) => "program",
    };
    if named {
        say!("{}:", scored.name);
    }
    let several = comparison.runs.len() > 1;
    let mut columns = vec!["predicted", counted];
    columns.extend(several.then_some(["min", "max"]).into_iter().flatten());
    columns.push("off by");
    let mut table = Table::new(columns.into_iter().map(String::from).collect(), false);
    for (row, spread) in comparison.figures.iter().zip(&comparison.spread) {
        let figure = |value| figure(&row.name, value);
        let mut figures = vec![figure(row.predicted), figure(row.counted)];
        if several {
            figures.extend([figure(spread.min), figure(spread.max)]);
        }
        let percent = row.percent();
        let is_finite = percent.is_finite();
        figures.push(if is_finite { Figure::Percent(percent) } else { Figure::Missing });
        table.push(row.name.as_str(), figures);
    }
    let release = seekless_host::kernel_release();
    say!("{}\nLinux {release}", table.text().trim_end());
    if let Outcome::Program(_) = comparison.outcome {
        let runs = match comparison.runs.len() {
            1 => "one cold run".into(),
            runs => format!("medians of {runs} cold runs"),
        };
        let machine = wanted.model.machine();
        say!(
            "{runs}, read_ahead_kb {}, max_sectors_kb {}, writes {}",
            machine.read_ahead.get() >> 10,
            machine.max_request.get() >> 10,
            args.writes(),
        );
    }
    scoring::show_missing(scored);
    if let Some(difference) = difference {
        say!("\n{}", difference_text(difference, counted).trim_end());
    }
    if named {
        say!("");
    }
}

/// Prints the ratios between two images.
pub(super) fn show_change(a: &Verified<'_>, b: &Verified<'_>) {
    let names = [&a.scored.name, &b.scored.name].map(|name| format!("program, {name}"));
    let [first, second] = names;
    let columns = vec![first, second, "ratio".into(), "predicted".into()];
    let mut table = Table::new(columns, false);
    for (a, b) in a.comparison.figures.iter().zip(&b.comparison.figures) {
        let share = |before, after| match ratio(before, after) {
            ratio if ratio.is_finite() => Figure::Share(ratio),
            _ => Figure::Missing,
        };
        let figures = vec![
            figure(&a.name, a.counted),
            figure(&b.name, b.counted),
            share(a.counted, b.counted),
            share(a.predicted, b.predicted),
        ];
        table.push(a.name.as_str(), figures);
    }
    say!("{}", table.text().trim_end());
}

fn figure(name: &str, value: f64) -> Figure {
    match name {
        "metadata_share" => Figure::Share(value),
        _ => Figure::Count(value.round() as u64),
    }
}

/// The differences as text; `of` names the counted side.
fn difference_text(difference: &Difference, of: &str) -> String {
    let bytes = |bytes: u64| format_size(ByteLen::new(bytes));
    let mut text = format!(
        "blocks read by both: {}; only by the prediction: {}; only by the {of}: {}\n",
        bytes(difference.bytes_of_both),
        bytes(difference.bytes_predicted_only),
        bytes(difference.bytes_counted_only),
    );
    let shown = |request: &Option<NamedRequest>| match request {
        Some(NamedRequest { block, blocks, name }) => {
            format!("{blocks} blocks from {block}, {name}")
        }
        None => "nothing more".into(),
    };
    let _ = match (&difference.predicted, &difference.counted) {
        (None, None) => writeln!(text, "all {} requests are the same, in order", difference.alike),
        _ => writeln!(
            text,
            "the first {} requests are the same; then\n  predicted: {}\n  {of}: {}",
            difference.alike,
            shown(&difference.predicted),
            shown(&difference.counted),
        ),
    };
    let _ = write!(text, "\nby what the blocks are used for:\n{}", table(&difference.uses, of));
    if !difference.files.is_empty() {
        let _ = write!(text, "\nwhere they differ the most:\n{}", table(&difference.files, of));
    }
    text
}

fn table(places: &[ComparedCost], of: &str) -> String {
    let columns = ["requests predicted", of, "seeks predicted", of, "bytes predicted", of];
    let columns = columns.map(String::from).to_vec();
    let mut table = Table::new(columns, false);
    for ComparedCost { name, predicted, counted } in places {
        let bytes = |cost: &Cost| Figure::Bytes(ByteLen::new(cost.bytes));
        let figures = vec![
            Figure::Count(predicted.requests),
            Figure::Count(counted.requests),
            Figure::Count(predicted.seeks),
            Figure::Count(counted.seeks),
            bytes(predicted),
            bytes(counted),
        ];
        table.push(name.as_str(), figures);
    }
    table.text()
}
