//! Images laid out again.

use crate::build::{reflink as reflink_of, storage as storage_of};
use crate::errors::raise;
use crate::paths::{AnyPath, Paths};
use crate::score::Figures;
use crate::trace::Traces;
use crate::work::{self, Interrupted, Watched};
use pyo3::prelude::*;
use seekless::{Optimize, Stop};

/// Writes an image whose blocks that traces read are stored together, in the order of first access. It
/// is the same file system, with the same UUID, label, features and contents.
///
/// The file appears when it is complete. `progress(done, total)` is called with bytes; an exception
/// in it, and KeyboardInterrupt, stop the work. The last call follows the completion. The parameters
/// are the options of `seekless optimize`.
#[pyfunction]
#[pyo3(signature = (
    image, output, *, trace, partition=None, chunk=524_288, storage="disk", like=Paths::default(),
    move_budget=0, reflink="auto", force=false, progress=None,
))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn optimize(
    py: Python<'_>,
    image: AnyPath,
    output: AnyPath,
    trace: Traces,
    partition: Option<String>,
    chunk: u64,
    storage: &str,
    like: Paths,
    move_budget: u64,
    reflink: &str,
    force: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Optimized> {
    let (stop, watched) = (Stop::new(), Watched::by(progress));
    let mut optimize = Optimize::of(image)
        .chunk(chunk)
        .laid_out_for(storage_of(storage).map_err(|error| raise(py, &error))?)
        .move_budget(move_budget)
        .reflink(reflink_of(reflink).map_err(|error| raise(py, &error))?)
        .progress(watched.observer())
        .stop(stop.clone());
    if let Some(partition) = partition {
        optimize = optimize.partition(partition);
    }
    optimize = like.into_vec().into_iter().fold(optimize, Optimize::like);
    if force {
        optimize = optimize.replace();
    }
    let optimized = work::run_watched(py, Interrupted::Stops(stop), &watched, move || {
        trace.load()?.into_iter().fold(optimize, Optimize::trace).write(output)
    })?;
    let gain = |gain: seekless::Gain| -> PyResult<Gain> {
        let (before, after) = (Figures::from(gain.before), Figures::from(gain.after));
        Ok(Gain { before: Py::new(py, before)?, after: Py::new(py, after)? })
    };
    let gains = optimized.traces.into_iter().map(|it| Py::new(py, gain(it)?));
    let other_runs = optimized.other_runs.into_iter().map(|run| {
        let seeks = (*run.seeks.start(), *run.seeks.end());
        let chunks = (*run.chunks.start(), *run.chunks.end());
        Py::new(py, OtherRun { recordings: run.recordings, seeks, chunks })
    });
    Ok(Optimized {
        traces: gains.collect::<PyResult<_>>()?,
        other_runs: other_runs.collect::<PyResult<_>>()?,
    })
}

/// The result of a rearrangement.
#[pyclass(frozen, get_all, module = "seekless")]
pub(crate) struct Optimized {
    /// Of each trace, in the order in which they were given.
    traces: Vec<Py<Gain>>,
    /// Of each command with several recordings, for ext images without bigalloc.
    other_runs: Vec<Py<OtherRun>>,
}

/// The cost of a trace on the old image and on the new one.
#[pyclass(frozen, get_all, module = "seekless")]
pub(crate) struct Gain {
    /// On the old image.
    before: Py<Figures>,
    /// On the new image.
    after: Py<Figures>,
}

/// The cost to expect of a run of a program that was not recorded, from the least to the most.
#[pyclass(frozen, get_all, module = "seekless")]
pub(crate) struct OtherRun {
    /// Indices of the recordings, in the order in which the traces were given.
    recordings: Vec<usize>,
    /// Seeks.
    seeks: (u64, u64),
    /// Chunks of a lazily fetched volume.
    chunks: (u64, u64),
}
