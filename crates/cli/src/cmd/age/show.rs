//! Prints the result of a run as text or JSON, and plots it.

use super::{Outcome, Run};
use seekless_fs::format::OpenOptions;
use seekless_images::Place;

use crate::failure::Failure;
use crate::say::say;
use crate::written::{Written, is_same};
use seekless_fs::inspect::files_in;
use seekless_fs::{FsError, Inspect};
use seekless_images::output::Output;
use seekless_lab::age::{End, Sample};
use seekless_report::curves::{self, Chart, Curve};
use seekless_report::sections::{self, Section};
use seekless_report::table::grouped;
use seekless_units::{ByteLen, GroupNo, format_size};
use serde::Serialize;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Free extents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct FreeExtents {
    /// Number of extents.
    count: u64,
    bytes: u64,
    /// Length of the longest, in bytes.
    largest: u64,
}

impl FreeExtents {
    /// Free extents of an image; they end at group boundaries.
    pub(super) fn of(image: &dyn Inspect) -> Result<Self, FsError> {
        let unit = u64::from(image.geometry().block_size);
        let mut all = Self::default();
        for group in 0..image.geometry().groups {
            for run in image.group(GroupNo::new(group))?.free {
                let bytes = run.len * unit;
                all.count += 1;
                all.bytes += bytes;
                all.largest = all.largest.max(bytes);
            }
        }
        Ok(all)
    }

    fn text(&self) -> String {
        let size = |bytes: u64| format_size(ByteLen::new(bytes & !1023));
        let mean = self.bytes.checked_div(self.count).unwrap_or(0);
        format!("{} of {}, longest {}", grouped(self.count), size(mean), size(self.largest))
    }
}

/// A plot to be written.
pub(super) struct Plot {
    path: PathBuf,
    html: bool,
    output: Output,
}

impl Plot {
    /// Creates the file, which must be none of `others`, the files that are read or written.
    pub(super) fn new(path: &Path, others: &[&Path]) -> Result<Self, Failure> {
        let shown = path.display();
        let html = match path.extension().and_then(|ending| ending.to_str()) {
            Some("html" | "htm") => true,
            Some("svg") => false,
            _ => {
                return Err(Failure::usage(format!("{shown}: the name must end in .svg or .html")));
            }
        };
        if others.iter().any(|other| is_same(path, other)) {
            let what = "the plot would overwrite the image";
            return Err(Failure::usage(format!("--plot {shown}: {what}")));
        }
        Ok(Self { path: path.into(), html, output: Output::create(path, true, others)? })
    }

    pub(super) fn write(
        self,
        run: &Run<'_>,
        subject: &Path,
        outcome: &Outcome,
    ) -> Result<(), Failure> {
        let charts = charts(&outcome.aged.samples);
        let text = if self.html {
            let title = format!("{}: {}", subject.display(), run.profile.name);
            let part = |chart: &Chart| Section {
                title: chart.title.clone(),
                note: String::new(),
                body: curves::html(chart),
            };
            let parts: Vec<Section> = charts.iter().map(part).collect();
            sections::html(&title, &said(run, outcome), &[], &parts)
        } else {
            curves::svg(&charts)
        };
        let io = |error: std::io::Error| Failure::io(self.path.display(), &error);
        self.output.file()?.write_all(text.as_bytes()).map_err(io)?;
        Ok(self.output.finish()?)
    }
}

fn charts(samples: &[Sample]) -> Vec<Chart> {
    let curve = |label: &str, value: &dyn Fn(&Sample) -> Option<f64>| {
        let point = |sample: &Sample| Some((sample.operations as f64, value(sample)?));
        Curve { label: label.into(), points: samples.iter().filter_map(point).collect() }
    };
    let chart = |title: &str, most, curves| Chart {
        title: title.into(),
        across: "operations".into(),
        most,
        curves,
    };
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    vec![
        chart(
            "Layout score and fullness",
            Some(1.0),
            vec![
                curve("layout score", &|sample| sample.layout_score),
                curve("fullness", &|sample| Some(sample.fullness)),
            ],
        ),
        chart(
            "Extents per file",
            None,
            vec![curve("extents per file", &|sample| sample.extents_per_file)],
        ),
        chart(
            "From one file to the next in its directory, MiB",
            None,
            vec![curve("spread", &|sample| sample.directory_spread.map(mebibytes))],
        ),
        chart(
            "Files and directories",
            None,
            vec![
                curve("files", &|sample| Some(sample.files as f64)),
                curve("directories", &|sample| Some(sample.directories as f64)),
            ],
        ),
    ]
}

/// The run in one line.
fn said(run: &Run<'_>, outcome: &Outcome) -> String {
    let last = outcome.aged.samples.last();
    let (operations, days) = last.map_or((0, 0.0), |last| (last.operations, last.days));
    let ended = match outcome.aged.end {
        End::Done => "",
        End::Interrupted => ", interrupted",
        End::NoRoom => ", then no space left",
    };
    let (name, seed) = (&run.profile.name, run.args.seed);
    format!(
        "{name}, seed {seed}: {} operations in {days:.1} virtual days{ended}",
        grouped(operations)
    )
}

pub(super) fn report(run: &Run<'_>, subject: &Path, outcome: &Outcome) -> Result<(), Failure> {
    // The image of an interrupted run is no output.
    let output = run.args.output.as_deref().filter(|_| outcome.aged.end != End::Interrupted);
    let written = output.map(|path| aged_copy(path, &run.args.place.place())).transpose()?;
    if run.global.json {
        let mut value = as_json(run, subject, outcome);
        if let Some(written) = written {
            value["written"] = written.fields().clone().into();
        }
        say!("{value}");
        return Ok(());
    }
    say!("{}: {}", subject.display(), said(run, outcome));
    for (what, value) in rows(run, outcome) {
        say!("  {what:<18}{value}");
    }
    if let Some(written) = written {
        written.tell_text(run.global);
    }
    Ok(())
}

fn aged_copy(path: &Path, place: &Place) -> Result<Written, Failure> {
    let plain = OpenOptions { ignore_checksums: false, skip_journal: false };
    let files = files_in(seekless_images::open(path, place, plain)?.as_ref());
    Written::image_in(
        path,
        place,
        files.map_err(|error| Failure::from(error).about(path.display()))?,
    )
}

fn rows(run: &Run<'_>, outcome: &Outcome) -> Vec<(&'static str, String)> {
    let Outcome { aged, free, .. } = outcome;
    let Some(last) = aged.samples.last() else { return Vec::new() };
    let scores: Vec<f64> = aged.samples.iter().filter_map(|sample| sample.layout_score).collect();
    let mut rows = vec![
        ("files", format!("{} in {} directories", grouped(last.files), grouped(last.directories))),
        ("fullness", fullness(run, outcome, last)),
    ];
    if let (Some(first), Some(score)) = (scores.first(), last.layout_score) {
        let curve = curves::sparkline(&scores, 40);
        rows.push(("layout score", format!("{score:.3}, from {first:.3}  {curve}")));
    }
    if let Some(extents) = last.extents_per_file {
        rows.push(("extents per file", format!("{extents:.2}")));
    }
    if let Some(spread) = last.directory_spread {
        let spread = format_size(ByteLen::new(spread & !1023));
        rows.push(("next file", format!("{spread} further, in the same directory, on average")));
    }
    if let Some([before, after]) = free {
        rows.push(("free extents", format!("{}; before: {}", after.text(), before.text())));
    }
    rows.extend(what_was_done(outcome, last));
    rows
}

fn what_was_done(outcome: &Outcome, last: &Sample) -> Vec<(&'static str, String)> {
    let (tally, took) = (&outcome.aged.tally, outcome.took.as_secs_f64());
    let done = format!(
        "{} created, {} appended to, {} renamed, {} deleted; {} written",
        grouped(tally.created),
        grouped(tally.appended),
        grouped(tally.renamed),
        grouped(tally.deleted),
        format_size(ByteLen::new(tally.bytes_written & !1023)),
    );
    let room = format!(
        "{} files deleted early, {} operations failed at first",
        grouped(tally.early_deaths),
        grouped(tally.no_space)
    );
    let rate = grouped((last.operations as f64 / took.max(1e-9)) as u64);
    let took = format!("{took:.1} s, {rate} a second");
    let mut rows = vec![("done", done)];
    if tally.truncated + tally.linked + tally.links_left_out > 0 {
        let mut more =
            format!("{} truncated, {} hard links", grouped(tally.truncated), grouped(tally.linked));
        if tally.links_left_out > 0 {
            more.push_str(&format!(" ({} left out: none here)", grouped(tally.links_left_out)));
        }
        rows.push(("and", more));
    }
    rows.extend([("out of space", room), ("took", took)]);
    rows
}

fn fullness(run: &Run<'_>, outcome: &Outcome, last: &Sample) -> String {
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let now = percent(last.fullness);
    match (outcome.aged.reached, outcome.aged.held) {
        (Some(reached), Some((low, high))) => format!(
            "{now}; reached after {} operations, then {} to {}",
            grouped(reached),
            percent(low),
            percent(high)
        ),
        _ => format!("{now}; {} was not reached", percent(run.args.fullness)),
    }
}

fn as_json(run: &Run<'_>, subject: &Path, outcome: &Outcome) -> serde_json::Value {
    let Outcome { aged, free, .. } = outcome;
    json!({
        "subject": subject.to_string_lossy(),
        "profile": run.profile.name,
        "seed": run.args.seed,
        "fullness": run.args.fullness,
        "end": aged.end,
        "reached": aged.reached,
        "held": aged.held.map(|(low, high)| json!({ "low": low, "high": high })),
        "tally": aged.tally,
        "free_extents": free.map(|[before, after]| json!({ "before": before, "after": after })),
        "samples": aged.samples,
    })
}
