//! `seekless relayout` on a mounted XFS, and its report.

use super::{RelayoutArgs, SEEK_BYTES};
use crate::args::Global;
use crate::cmd::optimize::warn_of_others;
use crate::failure::Failure;
use crate::interrupt::uninterrupted;
use crate::progress;
use crate::say::say;
use seekless_compose::traces;
use seekless_host::mounts::Mount;
use seekless_images::Progress;
use seekless_online::relayout::xfs::{XfsJob, XfsOutcome, XfsTarget};
use seekless_online::relayout::{Row, Stop};
use seekless_report::table::{Figure, Table};
use seekless_units::{ByteLen, format_size};
use serde_json::{Map, Value, json};
use signal_hook::iterator::Signals;
use std::process::ExitCode;

/// Whether it saves at least one seek for each [`SEEK_BYTES`] moved.
fn is_worth_it(moved: u64, before: u64, after: u64) -> bool {
    let saved = before.saturating_sub(after);
    saved > 0 && saved >= moved / SEEK_BYTES
}

pub(super) fn run(
    args: &RelayoutArgs,
    mount: Mount,
    signals: &mut Signals,
    global: &Global,
) -> Result<ExitCode, Failure> {
    let target = XfsTarget::new(&args.mount, mount)?;
    let traces = traces::load_all(&args.trace)?;
    let job = XfsJob {
        traces: &traces,
        storage: args.storage.with(args.chunk),
        budget: args.budget,
        is_worth_it: &is_worth_it,
    };
    let seen = job.look(&target)?;
    warn_of_others(&args.mount, &args.trace, &traces, &seen.replays);
    let outcome = if args.dry_run {
        job.foresee(&target, seen)?
    } else {
        let bar = progress::shown(global);
        let done = job.carry_out(&target, seen, &mut || uninterrupted(signals), &bar);
        bar.end();
        done.map_err(super::broken)?
    };
    if global.json {
        say!("{}", to_json(args, &outcome));
    } else {
        print(args, &outcome, global);
    }
    Ok(ExitCode::SUCCESS)
}

fn row(row: Row) -> Map<String, Value> {
    let Row { requests, bytes, seeks } = row;
    let fields = [("requests", requests), ("bytes", bytes), ("seeks", seeks)];
    fields.into_iter().map(|(name, value)| (name.to_string(), value.into())).collect()
}

fn to_json(args: &RelayoutArgs, outcome: &XfsOutcome) -> Value {
    let (before, after) = (&outcome.before, &outcome.after);
    let rows = args.trace.iter().zip(&before.traces).zip(&after.traces);
    let traces: Vec<Value> = rows
        .map(|((path, before), after)| {
            json!({ "trace": path, "before": row(*before), "after": row(*after) })
        })
        .collect();
    let stays: Map<String, Value> = after
        .staying
        .iter()
        .map(|(reason, (files, requests))| {
            let mut fields = row(*requests);
            fields.insert("files".into(), (*files).into());
            (reason.name().to_string(), fields.into())
        })
        .collect();
    let left: Map<String, Value> = outcome
        .left_files
        .iter()
        .map(|(reason, files)| (reason.name().to_string(), (*files).into()))
        .collect();
    json!({
        "file_system": "xfs",
        "traces": traces,
        "dry_run": args.dry_run,
        "data_seeks": { "before": before.seeks(), "after": after.seeks() },
        "data_runs": { "before": before.runs, "after": after.runs },
        "touched_bytes": outcome.hot,
        "in_place_bytes": outcome.in_place,
        "moved_in_bytes": outcome.moved,
        "moved_out_bytes": 0,
        "left_bytes": outcome.left,
        "left_files": left,
        "stays": stays,
        "stopped": outcome.stopped.map(Stop::name),
    })
}

fn print(args: &RelayoutArgs, outcome: &XfsOutcome, global: &Global) {
    let (before, after) = (&outcome.before, &outcome.after);
    for ((path, before), after) in args.trace.iter().zip(&before.traces).zip(&after.traces) {
        say!("{}", path.display());
        say!("  {:<28}{:>14}{:>14}", "contents of files", "before", "after");
        let rows = [
            ("requests", before.requests, after.requests),
            ("seeks", before.seeks, after.seeks),
            ("bytes", before.bytes, after.bytes),
        ];
        for (name, before, after) in rows {
            say!("  {name:<28}{before:>14}{after:>14}");
        }
    }
    if global.quiet {
        return;
    }
    if !after.staying.is_empty() {
        let columns = ["files", "requests", "bytes", "seeks"].map(String::from).to_vec();
        let mut table = Table::new(columns, false);
        for (reason, (files, row)) in &after.staying {
            let bytes = Figure::Bytes(ByteLen::new(row.bytes));
            let counts = [*files, row.requests].map(Figure::Count);
            let [files, requests] = counts;
            table.push(reason.text(), vec![files, requests, bytes, Figure::Count(row.seeks)]);
        }
        say!("\nWhat stays where it is, and what it costs:");
        say!("{}", table.text().trim_end());
    }
    say!("\nWhat directories and inodes cost is not known on XFS.");
    say!("On the disk the contents lie in {} runs before, {} after", before.runs, after.runs);
    let would = if args.dry_run { "would be " } else { "" };
    let size = |bytes| format_size(ByteLen::new(bytes));
    say!(
        "{}: {} accessed, {} of it in place; {} {would}moved together",
        args.mount.display(),
        size(outcome.hot),
        size(outcome.in_place),
        size(outcome.moved)
    );
    if args.dry_run && outcome.moved > 0 {
        say!("if as much is free in one run as is held at once; where, the kernel decides");
    }
    tell_left(outcome, &size(outcome.left));
}

/// Prints the reason for which blocks were not moved.
fn tell_left(outcome: &XfsOutcome, left: &str) {
    match outcome.stopped {
        Some(Stop::Budget) => say!("{left} stay where they are: --budget"),
        Some(Stop::Room) => say!("{left} stay where they are: too few blocks are free"),
        Some(Stop::Gain) => {
            say!("{left} stay where they are: too few seeks would be saved by moving them");
        }
        None if outcome.left > 0 => {
            let files: Vec<String> = outcome
                .left_files
                .iter()
                .map(|(reason, count)| format!("{} ({count})", reason.text()))
                .collect();
            say!("{left} stay where they are: {}", files.join(", "));
        }
        None => {}
    }
}
