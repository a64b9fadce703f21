//! Report of a relayout: moved blocks, blocks left where they are, and their requests.

use super::RelayoutArgs;
use crate::args::Global;
use crate::cmd::optimize::{tabulate, tell_gain};
use crate::say::say;
use seekless_layout::replay::Purpose;
use seekless_online::relayout::{Outcome, Row, Stop};
use seekless_report::table::{Figure, Table};
use seekless_units::{ByteLen, format_size};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

fn bytes_of(outcome: &Outcome, blocks: u64) -> ByteLen {
    ByteLen::new(blocks * outcome.block_size)
}

fn stopped(outcome: &Outcome) -> Option<&'static str> {
    outcome.stopped.map(Stop::name)
}

/// Blocks that are never moved: their name in JSON, their name in text, and their requests.
fn staying(outcome: &Outcome) -> impl Iterator<Item = (&'static str, &'static str, Row)> + '_ {
    let metadata = outcome.after.purposes.iter().filter(|(purpose, _)| purpose.is_metadata());
    let metadata = metadata.map(|(&purpose, &row)| {
        let (name, text) = match purpose {
            Purpose::Inode => ("inodes", "inodes"),
            Purpose::Directory => ("directories", "directories"),
            Purpose::Map => ("maps", "extent trees"),
            _ => ("attributes", "extended attributes"),
        };
        (name, text, row)
    });
    let files = outcome.after.staying.iter();
    metadata.chain(files.map(|(reason, row)| (reason.name(), reason.text(), *row)))
}

/// Seeks to file contents, before and after.
fn data_seeks(outcome: &Outcome) -> (u64, u64) {
    let of =
        |purposes: &BTreeMap<Purpose, Row>| purposes.get(&Purpose::Data).map_or(0, |row| row.seeks);
    (of(&outcome.before.purposes), of(&outcome.after.purposes))
}

/// Files with blocks that were not moved, by reason.
fn files_left(outcome: &Outcome) -> BTreeMap<&'static str, u64> {
    let mut files = BTreeMap::new();
    for reason in outcome.counts.reasons.values() {
        *files.entry(reason.name()).or_default() += 1;
    }
    files
}

pub(super) fn print(args: &RelayoutArgs, outcome: &Outcome, global: &Global) {
    let results = args.trace.iter().zip(&outcome.before.scores).zip(&outcome.after.scores);
    let (data_before, data_after) = data_seeks(outcome);
    let bytes = |blocks| bytes_of(outcome, blocks);
    if global.json {
        let traces: Vec<_> = results
            .map(|((path, before), after)| json!({"trace": path, "before": before, "after": after}))
            .collect();
        let stays: Map<String, Value> = staying(outcome)
            .map(|(name, _, Row { requests, bytes, seeks })| {
                let row = json!({ "requests": requests, "bytes": bytes, "seeks": seeks });
                (name.to_string(), row)
            })
            .collect();
        let report = json!({
            "traces": traces,
            "dry_run": args.dry_run,
            "data_seeks": { "before": data_before, "after": data_after },
            "touched_bytes": bytes(outcome.extents.hot).get(),
            "in_place_bytes": bytes(outcome.extents.in_place).get(),
            "moved_in_bytes": bytes(outcome.counts.moved_in).get(),
            "moved_out_bytes": bytes(outcome.counts.moved_out).get(),
            "left_bytes": bytes(outcome.extents.left).get(),
            "left_files": files_left(outcome),
            "stays": stays,
            "stopped": stopped(outcome),
        });
        say!("{report}");
        return;
    }
    let moved = outcome.counts.moved_in + outcome.counts.moved_out;
    for ((path, before), after) in results {
        tabulate(path, before, after, None, args.chunk);
        tell_gain(before, after, bytes(moved));
    }
    if global.quiet {
        return;
    }
    let mut table = Table::new(["requests", "bytes", "seeks"].map(String::from).to_vec(), false);
    for (_, name, Row { requests, bytes, seeks }) in staying(outcome) {
        let bytes = Figure::Bytes(ByteLen::new(bytes));
        table.push(name, vec![Figure::Count(requests), bytes, Figure::Count(seeks)]);
    }
    say!("\nWhat stays where it is, and what it costs:");
    say!("{}\n", table.text().trim_end());
    say!("Seeks for contents of files: {data_before} before, {data_after} after");
    let would = if args.dry_run { "would be " } else { "" };
    let size = |blocks| format_size(bytes(blocks));
    say!(
        "{}: {} accessed, {} of it in place; {} {would}moved in, {} {would}moved away",
        args.mount.display(),
        size(outcome.extents.hot),
        size(outcome.extents.in_place),
        size(outcome.counts.moved_in),
        size(outcome.counts.moved_out),
    );
    tell_left(outcome, &size(outcome.extents.left));
}

/// Prints the reason for which blocks were not moved.
fn tell_left(outcome: &Outcome, left: &str) {
    match outcome.stopped {
        Some(Stop::Budget) => say!("{left} stay where they are: --budget"),
        Some(Stop::Gain) => {
            say!("{left} stay where they are: too few seeks would be saved by moving them");
        }
        Some(Stop::Room) => say!("{left} stay where they are: too few blocks are free"),
        None if outcome.extents.left > 0 && !outcome.counts.reasons.is_empty() => {
            let mut files: BTreeMap<&str, u64> = BTreeMap::new();
            for reason in outcome.counts.reasons.values() {
                *files.entry(reason.text()).or_default() += 1;
            }
            let files: Vec<String> =
                files.iter().map(|(reason, count)| format!("{reason} ({count})")).collect();
            say!("{left} stay where they are: {}", files.join(", "));
        }
        None => {}
    }
}
