//! Images that are read.

use crate::files::{File, Metadata, Volume, Walk};
use crate::paths::{AnyPath, Sizes, to_python};
use crate::score::Score;
use crate::trace::Traces;
use crate::work::{self, Interrupted};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict};
use std::ffi::OsString;
use std::sync::Arc;

/// How an image is opened.
pub(crate) fn place(
    partition: Option<String>,
    offset: Option<u64>,
    ignore_checksums: bool,
) -> seekless::Open {
    let mut open = seekless::Open::default();
    if let Some(partition) = partition {
        open = open.partition(partition);
    }
    if let Some(offset) = offset {
        open = open.offset(offset);
    }
    if ignore_checksums { open.ignore_checksums() } else { open }
}

/// Opens an image of ext2/3/4, UFS1/2 or FAT for reading: a file, the disk in a qcow2 image, or a
/// block device. A journal that was not replayed is replayed in memory.
///
/// `partition` is a number, name or UUID, the label of a file system, or `root`; `offset` the byte
/// that the file system begins with.
#[pyfunction]
#[pyo3(signature = (path, *, partition=None, offset=None, ignore_checksums=false, skip_journal=false))]
pub(crate) fn open(
    py: Python<'_>,
    path: AnyPath,
    partition: Option<String>,
    offset: Option<u64>,
    ignore_checksums: bool,
    skip_journal: bool,
) -> PyResult<Image> {
    let open = place(partition, offset, ignore_checksums);
    let open = if skip_journal { open.skip_journal() } else { open };
    work::run(py, Interrupted::IsLeft, move || open.open(path)).map(|image| Image(Arc::new(image)))
}

/// An image that is read, from `open`. Threads may share it.
#[pyclass(frozen, module = "seekless")]
pub(crate) struct Image(Arc<seekless::Image>);

impl Image {
    pub(crate) fn shared(&self) -> Arc<seekless::Image> {
        self.0.clone()
    }
}

#[pymethods]
impl Image {
    /// Where the image is.
    #[getter]
    fn path(&self) -> OsString {
        to_python(self.0.path())
    }

    /// The shape of the file system.
    #[getter]
    fn volume(&self) -> Volume {
        self.0.volume().into()
    }

    /// The attributes of a file. Symlinks are not followed, here and below.
    fn stat(&self, py: Python<'_>, path: AnyPath) -> PyResult<Metadata> {
        let found = work::detached(py, || self.0.metadata(&path))?;
        Ok(Metadata::from(&found))
    }

    /// Whether there is a file of this path.
    fn exists(&self, py: Python<'_>, path: AnyPath) -> PyResult<bool> {
        const MISSING: [i32; 2] = [2, 20];
        match py.detach(|| self.0.metadata(&path)) {
            Ok(_) => Ok(true),
            Err(error) if error.os_error().is_some_and(|code| MISSING.contains(&code)) => Ok(false),
            Err(error) => Err(crate::errors::raise(py, &error)),
        }
    }

    /// The contents of a file; of a symlink, its target.
    fn read<'py>(&self, py: Python<'py>, path: AnyPath) -> PyResult<Bound<'py, PyBytes>> {
        let image = self.shared();
        let contents = work::run(py, Interrupted::IsLeft, move || image.read(path))?;
        Ok(PyBytes::new(py, &contents))
    }

    /// A regular file that is read in parts.
    fn file(&self, py: Python<'_>, path: AnyPath) -> PyResult<File> {
        work::detached(py, || self.0.file(&path)).map(File::new)
    }

    /// Opens a regular file as a binary file object, which is read and not written.
    fn open<'py>(&self, py: Python<'py>, path: AnyPath) -> PyResult<Bound<'py, PyAny>> {
        static READER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let name = to_python(path.as_ref());
        let file = self.file(py, path)?;
        READER.import(py, "seekless._files", "reader")?.call1((file, name))
    }

    /// The target of a symlink.
    fn readlink(&self, py: Python<'_>, path: AnyPath) -> PyResult<OsString> {
        work::detached(py, || self.0.read_link(&path)).map(|target| target.into_os_string())
    }

    /// The extended attributes of a file by their names.
    fn xattrs<'py>(&self, py: Python<'py>, path: AnyPath) -> PyResult<Bound<'py, PyDict>> {
        let found = work::detached(py, || self.0.xattrs(&path))?;
        let all = PyDict::new(py);
        for (name, value) in found {
            all.set_item(name, PyBytes::new(py, &value))?;
        }
        Ok(all)
    }

    /// The names in a directory, sorted.
    fn list(&self, py: Python<'_>, path: AnyPath) -> PyResult<Vec<OsString>> {
        work::detached(py, || self.0.list(&path))
    }

    /// The files below a directory, each directory before its entries, names sorted.
    #[pyo3(signature = (path=None))]
    fn walk(&self, py: Python<'_>, path: Option<AnyPath>) -> PyResult<Walk> {
        let path = path.map(AnyPath::into_path).unwrap_or_default();
        work::detached(py, || self.0.walk_below(path)).map(Walk::new)
    }

    /// The cost of a trace on the image from a cold start, under a model of Linux' page cache and
    /// read-ahead. Several traces are replayed together, in order of time. Chunks are counted in
    /// each of the sizes in `chunk`, in bytes. With `store`, `stored_bytes` of the result has the
    /// bytes that a store of chunks sends for them: `zstd`, `zstd:LEVEL` or `none`.
    #[pyo3(signature = (trace, *, chunk=Sizes::of(524_288), store=None))]
    fn score(
        &self,
        py: Python<'_>,
        trace: Traces,
        chunk: Sizes,
        store: Option<&str>,
    ) -> PyResult<Py<Score>> {
        let image = self.shared();
        Score::of(py, trace, (chunk, store), move || Ok(image))
    }

    fn __repr__(&self) -> String {
        format!("<seekless.Image {:?}>", self.0.path())
    }
}
