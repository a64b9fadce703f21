//! Several images.

use crate::image::Image;
use crate::paths::{AnyPath, Paths, to_python};
use crate::records::repr;
use crate::work::{self, Interrupted};
use pyo3::prelude::*;
use seekless::Change;
use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// An image that is open, or its path.
pub(crate) enum ImageOrPath {
    Image(Arc<seekless::Image>),
    Path(PathBuf),
}

impl ImageOrPath {
    fn open(self) -> Result<Arc<seekless::Image>, seekless::Error> {
        match self {
            Self::Image(image) => Ok(image),
            Self::Path(path) => seekless::open(path).map(Arc::new),
        }
    }
}

impl FromPyObject<'_, '_> for ImageOrPath {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match object.cast::<Image>() {
            Ok(image) => Ok(Self::Image(image.get().shared())),
            Err(_) => Ok(Self::Path(object.extract::<AnyPath>()?.into_path())),
        }
    }
}

/// The files in which the second of two images differs from the first, sorted by path. Places on the
/// disk, numbers of inodes and times of access are not compared.
#[pyfunction]
pub(crate) fn compare(
    py: Python<'_>,
    old: ImageOrPath,
    new: ImageOrPath,
) -> PyResult<Vec<Difference>> {
    let found = work::run(py, Interrupted::IsLeft, move || {
        seekless::compare(old.open()?.as_ref(), new.open()?.as_ref())
    })?;
    let word = |change| match change {
        Change::Added => "added",
        Change::Removed => "removed",
        Change::Kind => "kind",
        Change::Contents => "contents",
        Change::Metadata => "metadata",
        _ => "other",
    };
    let difference = |it: seekless::Difference| Difference {
        path: to_python(&it.path),
        change: word(it.change),
    };
    Ok(found.into_iter().map(difference).collect())
}

/// A file in which two images differ.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(PartialEq, Eq)]
pub(crate) struct Difference {
    /// The file, by its path from the root: `etc/passwd`.
    path: OsString,
    /// `added`, `removed`, `kind`, `contents` or `metadata`.
    change: &'static str,
}

#[pymethods]
impl Difference {
    fn __repr__(&self) -> String {
        format!("Difference({:?}, {:?})", self.path, self.change)
    }
}

/// The aligned chunks of `chunk` bytes, a multiple of 4096, that each of several images has and those
/// before it lack.
#[pyfunction]
#[pyo3(signature = (images, *, chunk=524_288))]
pub(crate) fn sharing(py: Python<'_>, images: Paths, chunk: u64) -> PyResult<Vec<Chunks>> {
    let images = images.into_vec();
    let found = work::run(py, Interrupted::IsLeft, move || seekless::sharing(&images, chunk))?;
    let chunks =
        |it: seekless::Chunks| Chunks { chunks: it.chunks, new: it.new, new_bytes: it.new_bytes };
    Ok(found.into_iter().map(chunks).collect())
}

/// The chunks of an image among others.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(PartialEq, Eq, Serialize)]
pub(crate) struct Chunks {
    /// Different chunks of the image that are not all zeros.
    chunks: u64,
    /// Those that none of the images before it has.
    new: u64,
    /// Bytes of the new ones.
    new_bytes: u64,
}

#[pymethods]
impl Chunks {
    fn __repr__(&self) -> String {
        repr("Chunks", self)
    }
}
