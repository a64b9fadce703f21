//! UFS volumes made larger.

use crate::paths::AnyPath;
use crate::records::repr;
use crate::work::{self, Interrupted};
use pyo3::prelude::*;
use seekless::Grow;
use serde::Serialize;

/// Makes a UFS volume larger, as growfs of FreeBSD: to the size of its file, device or partition, or to
/// `size`. The directory of a mount stands for the volume in use there. `dry_run` computes the growth, and writes nothing.
///
/// A growth is completed before KeyboardInterrupt is raised.
#[pyfunction]
#[pyo3(signature = (image, *, size=None, partition=None, dry_run=false))]
pub(crate) fn grow(
    py: Python<'_>,
    image: AnyPath,
    size: Option<u64>,
    partition: Option<String>,
    dry_run: bool,
) -> PyResult<Growth> {
    let mut grow = Grow::of(image);
    if let Some(size) = size {
        grow = grow.size(size);
    }
    if let Some(partition) = partition {
        grow = grow.partition(partition);
    }
    let growth = if dry_run {
        work::run(py, Interrupted::IsLeft, move || grow.plan())
    } else {
        work::run(py, Interrupted::Completes, move || grow.run())
    }?;
    Ok(Growth {
        bytes_before: growth.bytes_before,
        bytes: growth.bytes,
        groups_before: growth.groups_before,
        groups: growth.groups,
        summary_moves: growth.summary_moves,
        unused_bytes: growth.unused_bytes,
    })
}

/// The growth of a volume.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(PartialEq, Eq, Serialize)]
pub(crate) struct Growth {
    /// Bytes of the volume before.
    bytes_before: u64,
    /// Bytes of the volume afterwards.
    bytes: u64,
    /// Cylinder groups before.
    groups_before: u32,
    /// Cylinder groups afterwards.
    groups: u32,
    /// Whether the summary of the cylinder groups moves.
    summary_moves: bool,
    /// Bytes at the end that stay unused.
    unused_bytes: u64,
}

#[pymethods]
impl Growth {
    fn __repr__(&self) -> String {
        repr("Growth", self)
    }
}
