//! Layout lists: small files that stand for older images.

use crate::paths::AnyPath;
use crate::records::repr;
use crate::work::{self, Interrupted};
use pyo3::prelude::*;
use seekless::LayoutList;
use serde::Serialize;

/// Writes the layout list of an image, which `like=` of `build` and `optimize` takes in place of the
/// image.
#[pyfunction]
#[pyo3(signature = (image, output, *, partition=None, force=false))]
pub(crate) fn layout_list(
    py: Python<'_>,
    image: AnyPath,
    output: AnyPath,
    partition: Option<String>,
    force: bool,
) -> PyResult<Listed> {
    let mut list = LayoutList::of(image);
    if let Some(partition) = partition {
        list = list.partition(partition);
    }
    if force {
        list = list.replace();
    }
    let listed = work::run(py, Interrupted::Completes, move || list.write(output))?;
    Ok(Listed { size: listed.len, image_size: listed.image_len, files: listed.files })
}

/// A list that was made.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(PartialEq, Eq, Serialize)]
pub(crate) struct Listed {
    /// Bytes of the list.
    size: u64,
    /// Bytes of the image.
    image_size: u64,
    /// Files of the image, directories included.
    files: u64,
}

#[pymethods]
impl Listed {
    fn __repr__(&self) -> String {
        repr("Listed", self)
    }
}
