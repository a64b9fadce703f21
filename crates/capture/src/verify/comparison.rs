//! Figures of a prediction beside those of measured requests.

use super::attached::Requests;
use super::difference::{Difference, Owner, difference};
use super::kernel_replay::TraceReplay;
use super::program::ProgramRun;
use super::spread::{Spread, spread, spread_of, typical};
use seekless_layout::replay::{Purpose, Request};
use seekless_layout::score::{self, Figures};
use seekless_report::disk::{Class, Usage};
use seekless_units::{ByteLen, Extent};
use std::collections::BTreeMap;
use std::process::ExitStatus;

/// Maximum number of processes named in a warning.
const NAMES_SHOWN: usize = 5;

/// A figure, predicted and counted.
#[derive(Clone, Debug)]
pub struct ComparedFigure {
    /// Name of the figure, as a key of JSON.
    pub name: String,
    /// The figure of the prediction.
    pub predicted: f64,
    /// The figure of the kernel's requests; the median if there are several runs.
    pub counted: f64,
}

impl ComparedFigure {
    /// Error of the prediction, in percent of the counted figure; infinite or very large if that is
    /// 0.
    #[must_use]
    pub fn percent(&self) -> f64 {
        if self.predicted == self.counted {
            return 0.0;
        }
        (self.predicted - self.counted) / self.counted.max(f64::MIN_POSITIVE) * 100.0
    }
}

/// The figures that a tolerance applies to, with their names.
pub(super) fn values(figures: &Figures) -> Vec<(String, f64)> {
    let mut values = vec![
        ("requests".into(), figures.requests as f64),
        ("seeks".into(), figures.seeks as f64),
        ("metadata_share".into(), figures.metadata_share()),
        ("bytes".into(), figures.bytes as f64),
    ];
    let chunks = figures.chunks.iter();
    values.extend(chunks.map(|(size, chunks)| (format!("chunks_{size}"), *chunks as f64)));
    values
}

/// Pairs the predicted with the counted figures, which are in the same order.
fn pairs(
    predicted: impl IntoIterator<Item = (String, f64)>,
    counted: &[Spread],
) -> impl Iterator<Item = ComparedFigure> {
    predicted.into_iter().zip(counted).map(|((name, predicted), figure)| ComparedFigure {
        name,
        predicted,
        counted: figure.median,
    })
}

/// The requests that the score predicts for an image.
#[derive(Clone, Copy)]
pub struct Prediction<'a> {
    /// The requests, in order.
    pub requests: &'a [Request],
    /// Use of the blocks of the image.
    pub usage: &'a Usage,
    /// Bytes of a block of the image.
    pub block_size: u64,
    /// Sizes of the chunks to count.
    pub chunks: &'a [ByteLen],
}

/// Requests that were measured on an image.
pub struct Measured {
    /// The requests of each run: one run for a trace, several for a program.
    pub runs: Vec<Requests>,
    /// Other results of the runs.
    pub outcome: Outcome,
}

impl From<TraceReplay> for Measured {
    fn from(replay: TraceReplay) -> Self {
        let TraceReplay { requests, failed } = replay;
        Self { runs: vec![requests], outcome: Outcome::Replay { failed } }
    }
}

impl From<Vec<ProgramRun>> for Measured {
    fn from(runs: Vec<ProgramRun>) -> Self {
        let apart = |run: ProgramRun| (run.requests, (run.status, run.left));
        let (runs, ends) = runs.into_iter().map(apart).unzip();
        Self { runs, outcome: Outcome::Program(ends) }
    }
}

/// Results of the runs other than their requests.
pub enum Outcome {
    /// The kernel replayed a trace.
    Replay {
        /// Number of events of the trace that failed.
        failed: u64,
    },
    /// A program was run: its status in each run, and the names of the processes that it left
    /// behind.
    Program(Vec<(ExitStatus, Vec<String>)>),
}

/// A measured run.
pub struct MeasuredRun {
    /// Totals of the requests.
    pub figures: Figures,
    /// The requests, in order.
    pub requests: Requests,
}

/// An image's prediction, and the measurements of a kernel.
pub struct Comparison {
    /// Totals of the predicted requests.
    pub predicted: Figures,
    /// The predicted requests, in order.
    pub extents: Vec<Extent>,
    /// The measured runs, in order.
    pub runs: Vec<MeasuredRun>,
    /// The figures of both sides.
    pub figures: Vec<ComparedFigure>,
    /// Medians and ranges of the measured figures, in the order of `figures`.
    pub spread: Vec<Spread>,
    /// Other results of the runs.
    pub outcome: Outcome,
    block_size: u64,
}

impl Comparison {
    /// Counts the figures of both sides. A request is for metadata if most of its blocks have
    /// another use than the contents of files.
    #[must_use]
    pub fn new(prediction: &Prediction<'_>, measured: Measured) -> Self {
        let Prediction { requests: replayed, usage, block_size, chunks } = *prediction;
        // A read of the device has the class of its blocks, as the kernel's requests do.
        let counts_as_metadata = |request: &Request| match request.purpose {
            Purpose::Device => usage.most_of(request.extent) != Class::Data,
            purpose => purpose.is_metadata(),
        };
        let classed = replayed.iter().map(|request| (request.extent, counts_as_metadata(request)));
        let predicted = score::figures(classed, block_size, chunks);
        let run = |requests: Requests| {
            let counted = requests.iter().map(|(extent, class)| (*extent, *class != Class::Data));
            MeasuredRun { figures: score::figures(counted, block_size, chunks), requests }
        };
        let Measured { runs, outcome } = measured;
        let runs: Vec<MeasuredRun> = runs.into_iter().map(run).collect();
        let spread = spread(runs.iter().map(|run| &run.figures));
        let figures = pairs(values(&predicted), &spread).collect();
        let extents = replayed.iter().map(|request| request.extent).collect();
        Self { predicted, extents, runs, figures, spread, outcome, block_size }
    }

    /// Adds figures that the caller has computed: names with values for the prediction, and for
    /// each run in the same order.
    pub fn add(&mut self, predicted: Vec<(String, f64)>, runs: &[Vec<(String, f64)>]) {
        debug_assert_eq!(runs.len(), self.runs.len(), "each run has the figures");
        let more = spread_of(runs);
        self.figures.extend(pairs(predicted, &more));
        self.spread.extend(more);
    }

    /// Whether each figure of the prediction differs by at most `percent` percent.
    #[must_use]
    pub fn is_within(&self, percent: f64) -> bool {
        self.figures.iter().all(|figure| figure.percent().abs() <= percent)
    }

    /// Compares the predicted requests with those of the run whose number of requests is nearest to
    /// the median.
    #[must_use]
    pub fn difference(&self, usage: &Usage, owner: Owner<'_>) -> Difference {
        let predicted: Requests =
            self.extents.iter().map(|&extent| (extent, usage.most_of(extent))).collect();
        let run = typical(self.runs.iter().map(|run| &run.figures));
        let counted = self.runs.get(run).map_or(&[][..], |run| &run.requests);
        difference(&predicted, counted, owner, self.block_size)
    }

    /// Warns of failed events, failed programs and processes left behind; `name` is the image.
    pub fn warn(&self, name: &str) {
        match &self.outcome {
            Outcome::Replay { failed: 0 } => {}
            Outcome::Replay { failed } => {
                tracing::warn!("{failed} events could not be replayed on the mount");
            }
            Outcome::Program(ends) => warn_of_program(name, ends),
        }
    }
}

fn warn_of_program(name: &str, ends: &[(ExitStatus, Vec<String>)]) {
    let mut failed: BTreeMap<String, u64> = BTreeMap::new();
    for (status, _) in ends.iter().filter(|(status, _)| !status.success()) {
        *failed.entry(status.to_string()).or_default() += 1;
    }
    for (status, count) in failed {
        tracing::warn!(
            "{name}: the command ended with {status} in {count} of {} runs; \
             these are counted all the same",
            ends.len()
        );
    }
    let left = ends.iter().enumerate().filter(|(_, (_, left))| !left.is_empty());
    for (run, (_, left)) in left {
        let shown = &left[..left.len().min(NAMES_SHOWN)];
        let more = if left.len() > shown.len() { ", ..." } else { "" };
        let names = shown.join(", ") + more;
        let (run, count) = (run + 1, left.len());
        tracing::warn!(
            "{name}: run {run} left processes running ({count}: {names}); \
             they were killed, and their requests after its end are not counted"
        );
    }
}
