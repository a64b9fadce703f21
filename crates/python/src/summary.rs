//! Summaries of traces, in files.

use crate::paths::{AnyPath, Paths};
use crate::records::repr;
use crate::work::{self, Interrupted};
use pyo3::prelude::*;
use seekless::Stop;
use serde::Serialize;

/// Summarizes traces of one machine in the file `output`, which takes the place of a trace and
/// contains only the events that a layout needs. Files of more `weight` come first in a layout.
#[pyfunction]
#[pyo3(signature = (traces, output, *, weight=1.0))]
pub(crate) fn summarize(
    py: Python<'_>,
    traces: Paths,
    output: AnyPath,
    weight: f64,
) -> PyResult<Summarized> {
    let (traces, stop) = (traces.into_vec(), Stop::new());
    let done = work::run(py, Interrupted::Stops(stop.clone()), move || {
        seekless::summarize_until(&stop, &traces, weight, &output)
    })?;
    Ok(done.into())
}

/// Adds up summaries in the file `output`, without ranges that fewer than `min_machines` machines
/// touched. The sum has the same bytes in whatever order and steps they are added.
#[pyfunction]
#[pyo3(signature = (summaries, output, *, min_machines=0))]
pub(crate) fn merge_summaries(
    py: Python<'_>,
    summaries: Paths,
    output: AnyPath,
    min_machines: u64,
) -> PyResult<Summarized> {
    let (summaries, stop) = (summaries.into_vec(), Stop::new());
    let done = work::run(py, Interrupted::Stops(stop.clone()), move || {
        seekless::merge_summaries_until(&stop, &summaries, min_machines, &output)
    })?;
    Ok(done.into())
}

/// The traces of a summary.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(PartialEq, Eq, Serialize)]
pub(crate) struct Summarized {
    /// The number of traces.
    traces: u64,
    /// The number of machines that they are of.
    machines: u64,
}

impl From<seekless::Summarized> for Summarized {
    fn from(done: seekless::Summarized) -> Self {
        Self { traces: done.traces, machines: done.machines }
    }
}

#[pymethods]
impl Summarized {
    fn __repr__(&self) -> String {
        repr("Summarized", self)
    }
}
