//! The score's prediction set against what a kernel asks a disk for.

mod observe;
mod perform;

pub(crate) use observe::{Observation, observe};

use seekless_layout::score::Figures;
use serde_json::{Value, json};

/// A figure, predicted and counted.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    pub(crate) name: String,
    pub(crate) predicted: f64,
    pub(crate) counted: f64,
}

impl Compared {
    /// How far the prediction is off, in percent of what was counted.
    pub(crate) fn percent(&self) -> f64 {
        if self.predicted == self.counted {
            return 0.0;
        }
        (self.predicted - self.counted) / self.counted.max(f64::MIN_POSITIVE) * 100.0
    }
}

/// Both sides of every figure that is held to a bound.
pub(crate) fn compare(predicted: &Figures, counted: &Figures) -> Vec<Compared> {
    let row = |name: &str, predicted: f64, counted: f64| Compared {
        name: name.into(),
        predicted,
        counted,
    };
    let mut rows = vec![
        row("requests", predicted.requests as f64, counted.requests as f64),
        row("seeks", predicted.seeks as f64, counted.seeks as f64),
        row("metadata_share", predicted.metadata_share(), counted.metadata_share()),
        row("bytes", predicted.bytes as f64, counted.bytes as f64),
    ];
    for (size, chunks) in &predicted.chunks {
        let other = counted.chunks.get(size).copied().unwrap_or(0);
        rows.push(row(&format!("chunks_{size}"), *chunks as f64, other as f64));
    }
    rows
}

/// The comparison as an object.
pub(crate) fn as_json(predicted: &Figures, observation: &Observation, tolerance: f64) -> Value {
    let rows = compare(predicted, &observation.figures);
    let differences: serde_json::Map<String, Value> =
        rows.iter().map(|row| (row.name.clone(), json!(row.percent()))).collect();
    json!({
        "predicted": predicted,
        "kernel": observation.figures,
        "difference_percent": differences,
        "tolerance_percent": tolerance,
        "within": rows.iter().all(|row| row.percent().abs() <= tolerance),
        "kernel_release": observation.release,
        "failed": observation.failed,
    })
}
