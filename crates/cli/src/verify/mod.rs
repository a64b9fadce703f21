//! Compares the score's prediction with the requests of a kernel that replays the trace or runs the
//! program.

mod again;
mod log;
mod parting;
mod perform;
mod program;
mod replay;
mod report;
mod spread;
mod stand;

pub(crate) use perform::Stage;
pub(crate) use report::{VerifyArgs, Wanted, verify};
pub(crate) use stand::Subject;

use seekless_layout::score::Figures;

/// A figure, predicted and counted.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    pub(crate) name: String,
    pub(crate) predicted: f64,
    pub(crate) counted: f64,
}

impl Compared {
    /// Error of the prediction, in percent of the counted figure.
    pub(crate) fn percent(&self) -> f64 {
        if self.predicted == self.counted {
            return 0.0;
        }
        (self.predicted - self.counted) / self.counted.max(f64::MIN_POSITIVE) * 100.0
    }
}

/// The figures that `--tolerance` applies to, with their names.
fn values(figures: &Figures) -> Vec<(String, f64)> {
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

/// Pairs the predicted with the counted figures. Both sides must have the same sizes of chunks.
fn compare(predicted: &Figures, counted: impl IntoIterator<Item = f64>) -> Vec<Compared> {
    let both = values(predicted).into_iter().zip(counted);
    both.map(|((name, predicted), counted)| Compared { name, predicted, counted }).collect()
}
