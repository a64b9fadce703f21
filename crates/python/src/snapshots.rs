//! The snapshots of a UFS volume.

use crate::paths::{AnyPath, Paths, to_python};
use crate::work::{self, Interrupted};
use pyo3::prelude::*;
use std::ffi::OsString;

/// The snapshots of a UFS image, or of a volume that seekless has mounted. `open` takes
/// `IMAGE@SNAPSHOT` for the state that a snapshot has kept.
///
/// A change is completed before KeyboardInterrupt is raised.
#[pyclass(frozen, module = "seekless")]
pub(crate) struct Snapshots(seekless::Snapshots);

#[pymethods]
impl Snapshots {
    #[new]
    #[pyo3(signature = (image, *, partition=None))]
    fn new(image: AnyPath, partition: Option<String>) -> Self {
        let snapshots = seekless::Snapshots::of(image);
        Self(match partition {
            Some(partition) => snapshots.partition(partition),
            None => snapshots,
        })
    }

    /// Lists the snapshots, oldest first.
    fn list(&self, py: Python<'_>) -> PyResult<Vec<Snapshot>> {
        let snapshots = self.0.clone();
        let found = work::run(py, Interrupted::IsLeft, move || snapshots.list())?;
        Ok(found.into_iter().map(Snapshot::from).collect())
    }

    /// Takes a snapshot, and returns its inode.
    fn take(&self, py: Python<'_>, name: AnyPath) -> PyResult<u32> {
        let snapshots = self.0.clone();
        work::run(py, Interrupted::Completes, move || snapshots.take(name))
    }

    /// Removes snapshots, and returns their number.
    fn remove(&self, py: Python<'_>, names: Paths) -> PyResult<u64> {
        let snapshots = self.0.clone();
        let names = names.into_vec();
        work::run(py, Interrupted::Completes, move || snapshots.remove(names))
    }

    /// Removes all snapshots, and returns their number.
    fn remove_all(&self, py: Python<'_>) -> PyResult<u64> {
        let snapshots = self.0.clone();
        work::run(py, Interrupted::Completes, move || snapshots.remove_all())
    }
}

/// A snapshot of a volume.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Inode of the file.
    inode: u32,
    /// Path of the file; `None` if no directory has it.
    path: Option<OsString>,
    /// When it was taken, in seconds since 1970.
    made: i64,
    /// Bytes of the volume that only the file takes.
    held_bytes: u64,
}

impl From<seekless::Snapshot> for Snapshot {
    fn from(snapshot: seekless::Snapshot) -> Self {
        Self {
            inode: snapshot.inode,
            path: snapshot.path.as_deref().map(to_python),
            made: snapshot.made,
            held_bytes: snapshot.held_bytes,
        }
    }
}

#[pymethods]
impl Snapshot {
    fn __repr__(&self) -> String {
        format!("Snapshot(inode={}, path={:?}, made={})", self.inode, self.path, self.made)
    }
}
