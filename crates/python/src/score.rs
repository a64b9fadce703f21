//! The cost of traces.

use crate::errors::raise;
use crate::image::place;
use crate::paths::{AnyPath, Sizes, to_python};
use crate::records::{repr, to_dict};
use crate::trace::Traces;
use crate::work::{self, Interrupted};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict};
use seekless::{Error, Purpose, Replay, Store};
use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The names of the purposes of requests; columns contain their indices.
const PURPOSES: [(Purpose, &str); 6] = [
    (Purpose::Inode, "inode"),
    (Purpose::Directory, "directory"),
    (Purpose::Map, "map"),
    (Purpose::Attribute, "attribute"),
    (Purpose::Data, "data"),
    (Purpose::Device, "device"),
];

/// The cost of a trace on an image: as `Image.score`, of an image by its path.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
#[pyo3(signature = (image, trace, *, chunk=Sizes::of(524_288), store=None, partition=None, offset=None, ignore_checksums=false))]
pub(crate) fn score(
    py: Python<'_>,
    image: AnyPath,
    trace: Traces,
    chunk: Sizes,
    store: Option<&str>,
    partition: Option<String>,
    offset: Option<u64>,
    ignore_checksums: bool,
) -> PyResult<Py<Score>> {
    let open = place(partition, offset, ignore_checksums);
    Score::of(py, trace, (chunk, store), move || open.open(image))
}

/// Figures of a trace on an image.
#[pyclass(frozen, subclass, eq, module = "seekless")]
#[derive(Clone, PartialEq)]
pub(crate) struct Figures(seekless::Score);

impl From<seekless::Score> for Figures {
    fn from(score: seekless::Score) -> Self {
        Self(score)
    }
}

#[pymethods]
impl Figures {
    /// Requests to the disk.
    #[getter]
    fn request_count(&self) -> u64 {
        self.0.requests
    }

    /// Those for inodes, directories, maps and attributes.
    #[getter]
    fn metadata_requests(&self) -> u64 {
        self.0.metadata_requests
    }

    /// Those for file contents.
    #[getter]
    fn data_requests(&self) -> u64 {
        self.0.data_requests
    }

    /// Bytes read.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Bytes that the trace itself needs, in whole blocks, read-ahead not counted.
    #[getter]
    fn touched_bytes(&self) -> u64 {
        self.0.touched_bytes
    }

    /// Requests that do not begin where the one before ended.
    #[getter]
    fn seeks(&self) -> u64 {
        self.0.seeks
    }

    /// Sum of the distances of all seeks.
    #[getter]
    fn seek_distance_bytes(&self) -> u64 {
        self.0.seek_distance_bytes
    }

    /// The seeks where processes that run at the same time read in the order of the trace.
    #[getter]
    fn recorded_order_seeks(&self) -> u64 {
        self.0.recorded_order.seeks
    }

    /// Distinct chunks touched, by the chunk's size in bytes.
    #[getter]
    fn chunks(&self) -> BTreeMap<u64, u64> {
        self.0.chunks.clone()
    }

    /// The fewest chunks of that size that can contain the distinct blocks read.
    #[getter]
    fn chunks_floor(&self) -> BTreeMap<u64, u64> {
        self.0.chunks_floor.clone()
    }

    /// Of the blocks of the files that were read, the share that lies right behind the file's block
    /// before; 1 when no file has two blocks.
    #[getter]
    fn layout_score(&self) -> f64 {
        self.0.layout_score
    }

    /// Of the blocks read, the share that lies right behind the block read before.
    #[getter]
    fn dynamic_layout_score(&self) -> f64 {
        self.0.dynamic_layout_score
    }

    /// Paths in the trace but not in the image.
    #[getter]
    fn missing(&self) -> Vec<String> {
        self.0.missing.clone()
    }

    /// The same files fetched whole and in disk order before anything runs.
    #[getter]
    fn prefetch(&self) -> Prefetch {
        let prefetch = &self.0.prefetch;
        Prefetch {
            requests: prefetch.requests,
            seeks: prefetch.seeks,
            bytes: prefetch.bytes,
            chunks: prefetch.chunks.clone(),
        }
    }

    /// The same as a dictionary, as in the JSON of `seekless score`: `requests` is their number.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_dict(py, &self.0)
    }

    fn __repr__(&self) -> String {
        repr("Score", &self.0)
    }
}

/// The cost of plain prefetch of the files of a trace.
#[pyclass(frozen, get_all, module = "seekless")]
pub(crate) struct Prefetch {
    /// Requests, neighbours joined.
    requests: u64,
    /// All but the first are seeks.
    seeks: u64,
    /// Bytes read.
    bytes: u64,
    /// Distinct chunks touched, by the chunk's size in bytes.
    chunks: BTreeMap<u64, u64>,
}

/// The cost of a trace on an image, from `score`: figures, and the requests that they count.
#[pyclass(frozen, extends = Figures, module = "seekless")]
pub(crate) struct Score {
    requests: Requests,
    stored_bytes: Option<BTreeMap<u64, u64>>,
}

impl Score {
    /// Opens the image and replays the traces in a thread.
    pub(crate) fn of<I: Borrow<seekless::Image>>(
        py: Python<'_>,
        trace: Traces,
        (chunk, store): (Sizes, Option<&str>),
        open: impl FnOnce() -> Result<I, Error> + Send + 'static,
    ) -> PyResult<Py<Self>> {
        let store: Option<Store> =
            store.map(str::parse).transpose().map_err(|error| raise(py, &error))?;
        let (replay, stored_bytes) = work::run(py, Interrupted::IsLeft, move || {
            let (image, chunk) = (open()?, chunk.as_slice());
            let image: &seekless::Image = image.borrow();
            let replay = image.replay(&trace.merged()?, chunk)?;
            let of_store = |store| image.stored_bytes(&replay.requests, chunk, store);
            let stored_bytes = store.map(of_store).transpose()?;
            Ok((replay, stored_bytes))
        })?;
        let Replay { score, requests, .. } = replay;
        let own = Self { requests: Requests(Arc::from(requests)), stored_bytes };
        Py::new(py, PyClassInitializer::from(Figures(score)).add_subclass(own))
    }
}

#[pymethods]
impl Score {
    /// The requests to the disk, in their order.
    fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// The bytes that the store sends for the chunks that are fetched, by the chunk's size in bytes;
    /// none without a store.
    #[getter]
    fn stored_bytes(&self) -> Option<BTreeMap<u64, u64>> {
        self.stored_bytes.clone()
    }

    /// The requests as a `pyarrow.Table`, whose numbers are not copied.
    fn to_arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.requests.to_arrow(py)
    }
}

/// Requests to a disk: a sequence of `Request`, and a table with a column for each of its fields.
#[pyclass(frozen, sequence, module = "seekless")]
#[derive(Clone)]
pub(crate) struct Requests(Arc<[seekless::Request]>);

#[pymethods]
impl Requests {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __iter__(&self) -> RequestIterator {
        RequestIterator { requests: self.0.clone(), next: AtomicUsize::new(0) }
    }

    fn __getitem__(&self, index: isize) -> PyResult<Request> {
        // As in a list, negative numbers count from the end.
        let index = match usize::try_from(index) {
            Ok(index) => Some(index),
            Err(_) => self.__len__().checked_sub(index.unsigned_abs()),
        };
        let found = index.and_then(|index| self.0.get(index)).map(Request::from);
        found.ok_or_else(|| PyIndexError::new_err("no such request"))
    }

    /// The requests as a `pyarrow.Table`, whose numbers are not copied.
    fn to_arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static TABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        TABLE.import(py, "seekless._arrow", "table")?.call1((self.columns(py)?,))
    }

    /// The table for libraries that take Arrow's stream of C structures: polars, pandas, DuckDB.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.to_arrow(py)?.call_method1("__arrow_c_stream__", (requested_schema,))
    }

    fn __repr__(&self) -> String {
        format!("<seekless.Requests: {}>", self.0.len())
    }
}

impl Requests {
    /// The columns as buffers: numbers of 64 bits in the machine's order, and for words indices of 32
    /// bits, with a bit for each that says whether there is one, and the words.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let numbers = |of: &dyn Fn(&seekless::Request) -> u64| {
            let bytes: Vec<u8> = self.0.iter().flat_map(|it| of(it).to_ne_bytes()).collect();
            PyBytes::new(py, &bytes)
        };
        let columns = PyDict::new(py);
        columns.set_item("offset", numbers(&|it| it.offset))?;
        columns.set_item("size", numbers(&|it| it.len))?;
        let purposes = PURPOSES.iter().map(|(_, word)| OsString::from(word)).collect();
        let purpose = |it: &seekless::Request| {
            PURPOSES.iter().position(|(purpose, _)| *purpose == it.purpose)
        };
        columns.set_item("purpose", self.words(py, purposes, purpose))?;
        columns.set_item("inode", numbers(&|it| it.inode.into()))?;
        let mut paths = Vec::new();
        let mut known: HashMap<&Path, usize> = HashMap::new();
        for path in self.0.iter().filter_map(|it| it.path.as_deref()) {
            known.entry(path).or_insert_with(|| {
                paths.push(to_python(path));
                paths.len() - 1
            });
        }
        let path = |it: &seekless::Request| known.get(it.path.as_deref()?).copied();
        columns.set_item("path", self.words(py, paths, path))?;
        columns.set_item("file_offset", numbers(&|it| it.file_offset))?;
        columns.set_item("access", numbers(&|it| it.access.try_into().unwrap_or(u64::MAX)))?;
        Ok(columns)
    }

    fn words<'py>(
        &self,
        py: Python<'py>,
        words: Vec<OsString>,
        index: impl Fn(&seekless::Request) -> Option<usize>,
    ) -> Words<'py> {
        let found: Vec<Option<i32>> =
            self.0.iter().map(|it| index(it).and_then(|index| i32::try_from(index).ok())).collect();
        let indices: Vec<u8> =
            found.iter().flat_map(|it| it.unwrap_or_default().to_ne_bytes()).collect();
        let bits = |eight: &[Option<i32>]| {
            eight.iter().rev().fold(0, |bits: u8, it| bits << 1 | u8::from(it.is_some()))
        };
        let are_there: Vec<u8> = found.chunks(8).map(bits).collect();
        (PyBytes::new(py, &indices), PyBytes::new(py, &are_there), words)
    }
}

/// A column of words: indices, which of them are there, and the words.
type Words<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Vec<OsString>);

/// The requests one after the other.
#[pyclass(frozen, module = "seekless")]
pub(crate) struct RequestIterator {
    requests: Arc<[seekless::Request]>,
    next: AtomicUsize,
}

#[pymethods]
impl RequestIterator {
    fn __iter__(iterator: PyRef<'_, Self>) -> PyRef<'_, Self> {
        iterator
    }

    fn __next__(&self) -> Option<Request> {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        self.requests.get(at).map(Request::from)
    }
}

/// A request to a disk.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(PartialEq, Eq)]
pub(crate) struct Request {
    /// The first byte, from the beginning of the file system.
    offset: u64,
    /// Bytes.
    size: u64,
    /// The purpose: `inode`, `directory`, `map`, `attribute`, `data` or `device`.
    purpose: &'static str,
    /// Inode of the file that it is for; the root directory where it is for none.
    inode: u32,
    /// Path of that file from the root, where the trace leads to it.
    path: Option<OsString>,
    /// Byte of the file that it begins with, for contents and directories.
    file_offset: u64,
    /// Index of the access in the trace that causes it.
    access: usize,
}

impl From<&seekless::Request> for Request {
    fn from(request: &seekless::Request) -> Self {
        let purpose = PURPOSES.iter().find(|(purpose, _)| *purpose == request.purpose);
        Self {
            offset: request.offset,
            size: request.len,
            purpose: purpose.map_or("", |(_, word)| word),
            inode: request.inode,
            path: request.path.as_deref().map(to_python),
            file_offset: request.file_offset,
            access: request.access,
        }
    }
}

#[pymethods]
impl Request {
    fn __repr__(&self) -> String {
        format!(
            "Request(offset={}, size={}, purpose={:?}, path={:?})",
            self.offset, self.size, self.purpose, self.path
        )
    }
}
