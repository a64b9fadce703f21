//! Predicted and counted figures as JSON.

use super::{Verified, VerifyArgs, Wanted, ratio};
use crate::scoring;
use seekless_capture::verify::{ComparedFigure, Comparison, MeasuredRun, Outcome, Spread};
use serde_json::{Map, Value, json};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The comparison of an image.
pub(super) fn of(one: &Verified<'_>, args: &VerifyArgs, wanted: &Wanted<'_>) -> Value {
    let Verified { scored, comparison, difference } = one;
    let figures = &comparison.figures;
    let differences: Map<String, Value> =
        figures.iter().map(|row| (row.name.clone(), json!(row.percent()))).collect();
    let mut value = json!({
        "image": scored.name,
        "predicted": comparison.predicted,
        "difference_percent": differences,
        "tolerance_percent": args.tolerance,
        "within": comparison.is_within(args.tolerance),
        "kernel_release": seekless_host::kernel_release(),
        "missing": scored.score.missing,
    });
    for row in figures.iter().filter(|row| row.name.starts_with(scoring::TIME_ON)) {
        value["predicted"][&row.name] = json!(row.predicted);
    }
    match &comparison.outcome {
        Outcome::Replay { failed } => {
            value["failed"] = json!(failed);
            value["kernel"] = json!(comparison.runs.first().map(|run| &run.figures));
        }
        Outcome::Program(ends) => {
            let run = |(run, (status, left)): (&MeasuredRun, &(ExitStatus, _))| {
                let mut value = json!(run.figures);
                value["exit_code"] = json!(status.code());
                value["signal"] = json!(status.signal());
                value["left_running"] = json!(left);
                value
            };
            let machine = wanted.model.machine();
            value["program"] = spread(&comparison.spread);
            value["runs"] = comparison.runs.iter().zip(ends).map(run).collect();
            value["read_ahead_kb"] = json!(machine.read_ahead.get() >> 10);
            value["max_sectors_kb"] = json!(machine.max_request.get() >> 10);
            value["writes"] = json!(args.writes());
            value["chroot"] = json!(args.chroot);
        }
    }
    if let Some(difference) = difference {
        value["parting"] = json!(difference);
    }
    value
}

/// Medians and ranges by name.
fn spread(spread: &[Spread]) -> Value {
    let one = |spread: &Spread| {
        let value = json!({ "median": spread.median, "min": spread.min, "max": spread.max });
        (spread.name.clone(), value)
    };
    spread.iter().map(one).collect::<Map<_, _>>().into()
}

/// Ratios of the figures of two images.
pub(super) fn change(a: &Comparison, b: &Comparison) -> Value {
    let one = |(a, b): (&ComparedFigure, &ComparedFigure)| {
        let predicted = ratio(a.predicted, b.predicted);
        let program = ratio(a.counted, b.counted);
        (a.name.clone(), json!({ "predicted": predicted, "program": program }))
    };
    a.figures.iter().zip(&b.figures).map(one).collect::<Map<_, _>>().into()
}
