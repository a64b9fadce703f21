//! Traces: accesses in their order.

use crate::paths::{AnyPath, Paths, each, to_python};
use crate::work::{self, Interrupted};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::OsString;
use std::path::PathBuf;

/// The accesses of a program or a boot, in order.
#[pyclass(frozen, module = "seekless")]
pub(crate) struct Trace(seekless::Trace);

#[pymethods]
impl Trace {
    /// Loads a trace as `seekless record` and `seekless trace import` make it.
    #[staticmethod]
    fn load(py: Python<'_>, path: AnyPath) -> PyResult<Self> {
        work::run(py, Interrupted::IsLeft, move || seekless::Trace::load(&path)).map(Self)
    }

    /// A trace in which files are read from beginning to end, one after the other.
    #[staticmethod]
    fn of_paths(paths: Paths) -> Self {
        Self(seekless::Trace::of_paths(paths.into_vec()))
    }

    /// Several traces as one, in order of time; of accesses at the same time, those of the earlier
    /// trace come first.
    #[staticmethod]
    #[pyo3(signature = (*traces))]
    fn merge(py: Python<'_>, traces: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let traces = traces.iter().map(|trace| trace.extract::<Traces>());
        let traces = traces.collect::<PyResult<Vec<_>>>()?;
        work::run(py, Interrupted::IsLeft, move || {
            let mut all = Vec::new();
            for trace in traces {
                all.extend(trace.load()?);
            }
            Ok(seekless::Trace::merge(all))
        })
        .map(Self)
    }

    /// Stores it, compressed with zstd if the name ends in `.zst`. A file that is there is replaced
    /// when the trace is complete.
    fn save(&self, py: Python<'_>, path: AnyPath) -> PyResult<()> {
        work::detached(py, || self.0.save(&path))
    }

    /// The path of each access, in order.
    fn paths(&self) -> Vec<OsString> {
        self.0.paths().map(to_python).collect()
    }

    /// The number of accesses.
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __repr__(&self) -> String {
        format!("<seekless.Trace of {} accesses>", self.0.len())
    }
}

/// Traces as arguments: a `Trace`, the path of one, or several of either.
#[derive(Default)]
pub(crate) struct Traces(Vec<Given>);

enum Given {
    Trace(Box<seekless::Trace>),
    Path(PathBuf),
}

impl FromPyObject<'_, '_> for Traces {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let given = |item: &Bound<'_, PyAny>| -> PyResult<Given> {
            match item.cast::<Trace>() {
                Ok(trace) => Ok(Given::Trace(Box::new(trace.get().0.clone()))),
                Err(_) => Ok(Given::Path(item.extract::<AnyPath>()?.into_path())),
            }
        };
        let object = object.to_owned();
        if object.is_instance_of::<Trace>() {
            return Ok(Self(vec![given(&object)?]));
        }
        each(&object, given).map(Self)
    }
}

impl Traces {
    /// The traces, of which some are in files.
    pub(crate) fn load(self) -> Result<Vec<seekless::Trace>, seekless::Error> {
        let load = |given| match given {
            Given::Trace(trace) => Ok(*trace),
            Given::Path(path) => seekless::Trace::load(path),
        };
        self.0.into_iter().map(load).collect()
    }

    /// The traces as one.
    pub(crate) fn merged(self) -> Result<seekless::Trace, seekless::Error> {
        let mut traces = self.load()?;
        match traces.len() {
            0 => Err(seekless::Error::usage("no trace")),
            1 => Ok(traces.remove(0)),
            _ => Ok(seekless::Trace::merge(traces)),
        }
    }
}
