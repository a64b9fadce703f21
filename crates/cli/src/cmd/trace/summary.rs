//! Summaries of traces: made, added up and shown.

use crate::args::{Global, some_size};
use crate::failure::Failure;
use crate::show::{json_bytes, name};
use crate::source::temp_dir;
use crate::written::Written;
use clap::Args;
use seekless_compose::traces::summary::{self, MergeLimits};
use seekless_images::Stop;
use seekless_images::output::NO_INPUTS;
use seekless_summary::{Header, Touched, UNIT, weight_of};
use seekless_units::ByteLen;
use serde_json::json;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
pub(super) struct SummarizeArgs {
    /// Traces of one machine
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Weight of each of these traces, beside the 1 of others: files of more weight come first
    #[arg(long, value_name = "NUMBER", value_parser = parse_weight, default_value = "1")]
    weight: u64,
    /// Halve the weight for each of these periods of --age
    #[arg(long, value_name = "TIME", value_parser = parse_period, requires = "age")]
    half_life: Option<u64>,
    /// Age of the traces
    #[arg(long, value_name = "TIME", value_parser = parse_period, requires = "half_life")]
    age: Option<u64>,
    /// Output file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// How summaries are merged.
#[derive(Args, Debug)]
pub(super) struct MergeOptions {
    /// Memory for sorting and adding up; more is kept in temporary files
    #[arg(long, value_name = "SIZE", value_parser = some_size, default_value = "512M")]
    pub(super) memory: ByteLen,
    /// Of summaries: leave out ranges that fewer machines touched
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(super) min_machines: u64,
}

fn parse_weight(text: &str) -> Result<u64, String> {
    let weight: f64 = text.parse().map_err(|_| "not a number")?;
    weight_of(weight).ok_or_else(|| "a weight is between 0 and 1000000".into())
}

/// A number of hours, days or weeks, in hours.
fn parse_period(text: &str) -> Result<u64, String> {
    let units = [('h', 1), ('d', 24), ('w', 7 * 24)];
    let hours = units.iter().find_map(|&(unit, hours)| {
        text.strip_suffix(unit)?.parse::<u32>().ok().map(|number| u64::from(number) * hours)
    });
    hours.ok_or_else(|| "a number with h, d or w, such as 30d".into())
}

/// A weight after some time. Between two halvings it falls in a line, so that whole numbers suffice.
fn aged(weight: u64, age: u64, half_life: u64) -> u64 {
    let halvings = u32::try_from(age / half_life).unwrap_or(u32::MAX);
    let weight = weight.checked_shr(halvings).unwrap_or(0);
    let rest = u128::from(age % half_life);
    let lost = u128::from(weight) * rest / (2 * u128::from(half_life));
    weight - u64::try_from(lost).expect("less than half of the weight")
}

pub(super) fn summarize(args: &SummarizeArgs, global: &Global) -> Result<(), Failure> {
    let weight = match (args.half_life, args.age) {
        (Some(0), _) => return Err(Failure::usage("--half-life must not be 0")),
        (Some(half_life), Some(age)) => aged(args.weight, age, half_life),
        _ => args.weight,
    };
    let traces: Vec<(PathBuf, u64)> =
        args.traces.iter().map(|path| (path.clone(), weight)).collect();
    let (header, rows) = summary::summarize(&traces, &args.output, &Stop::new())?;
    tell(&args.output, &header, global, |written| written.with("rows", rows as u64));
    Ok(())
}

pub(super) fn merge(
    summaries: &[PathBuf],
    args: &MergeOptions,
    output: Option<&Path>,
    global: &Global,
) -> Result<(), Failure> {
    let Some(output) = output else {
        return Err(Failure::usage("a merge of summaries needs an output file (-o)"));
    };
    let temp_dir = temp_dir();
    let limits = MergeLimits { memory: args.memory, temp_dir: &temp_dir };
    let header = summary::add_up(summaries, args.min_machines, limits, output, &Stop::new())?;
    tell(output, &header, global, |written| written);
    Ok(())
}

fn tell(output: &Path, header: &Header, global: &Global, more: impl FnOnce(Written) -> Written) {
    let written = Written::file(output).with("traces", header.traces);
    more(written.with("machines", header.machines)).tell(global);
}

/// Shows the rows of a summary, in the order to lay out by.
pub(super) fn show(path: &Path, global: &Global) -> Result<(), Failure> {
    let summary = summary::read(path)?;
    super::write_to(None, NO_INPUTS, |out| {
        if !global.json {
            writeln!(
                out,
                "{:>9} {:>9} {:>9} {:>4} {:>4} {:>4} {:<15} {:<8} path",
                "traces", "machines", "weight", "10%", "50%", "90%", "process", "op"
            )?;
        }
        summary.touched().iter().try_for_each(|row| show_row(row, out, global.json))
    })
}

fn show_row(row: &Touched<'_>, out: &mut dyn Write, as_json: bool) -> io::Result<()> {
    let weight = row.weight as f64 / UNIT as f64;
    let [early, median, late] = row.quantiles;
    let process =
        if row.process.is_empty() { "-".into() } else { format!("{}#{}", row.process, row.number) };
    if as_json {
        let line = json!({
            "path": json_bytes(row.path), "op": row.op, "missing": row.missing,
            "fetched": row.fetched, "offset": row.offset, "length": row.length,
            "traces": row.traces, "machines": row.machines, "weight": weight,
            "place": [early, median, late], "process": process,
        });
        return writeln!(out, "{line}");
    }
    let (path, op) = (name(row.path), name(row.op.as_bytes()));
    let process = name(process.as_bytes());
    write!(
        out,
        "{:>9} {:>9} {weight:>9.2} {early:>4} {median:>4} {late:>4} {process:<15} {op:<8} {path}",
        row.traces, row.machines
    )?;
    match row.length {
        Some(length) => write!(out, " {}+{length}", row.offset)?,
        None if row.op == "read" => write!(out, " {}+all", row.offset)?,
        None => {}
    }
    writeln!(out, "{}", if row.missing { " (missing)" } else { "" })
}

/// Whether the inputs of a merge are summaries.
pub(super) fn all_are_summaries(paths: &[PathBuf]) -> Result<bool, Failure> {
    let mut of_summaries = 0;
    for path in paths {
        of_summaries += usize::from(summary::is_summary(path)?);
    }
    if of_summaries > 0 && of_summaries < paths.len() {
        let failure = Failure::usage("traces and summaries cannot be merged with each other");
        return Err(failure.hint("make a summary of the traces: seekless trace summarize"));
    }
    Ok(of_summaries > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_halve() {
        assert_eq!(parse_weight("1"), Ok(UNIT));
        assert_eq!(parse_weight("0.5"), Ok(UNIT / 2));
        assert!(parse_weight("-1").is_err() && parse_weight("NaN").is_err());
        assert_eq!([parse_period("2d"), parse_period("1w")], [Ok(48), Ok(168)]);
        assert!(parse_period("d").is_err() && parse_period("5").is_err());
        let ages = [0, 24, 36, 48, 72, 24 * 200].map(|age| aged(UNIT, age, 24));
        assert_eq!(ages, [UNIT, UNIT / 2, UNIT * 3 / 8, UNIT / 4, UNIT / 8, 0]);
    }
}
