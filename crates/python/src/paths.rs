//! Paths and lists of them as arguments.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A path: `str`, `bytes` or `os.PathLike`. Names that are not UTF-8 are `str` as of `os.fsdecode`.
pub(crate) struct AnyPath(PathBuf);

impl FromPyObject<'_, '_> for AnyPath {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let mut object = object.to_owned();
        if object.hasattr("__fspath__")? {
            object = object.call_method0("__fspath__")?;
        }
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self(OsStr::from_bytes(bytes.as_bytes()).into()));
        }
        Ok(Self(object.extract()?))
    }
}

impl AsRef<Path> for AnyPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl AnyPath {
    pub(crate) fn into_path(self) -> PathBuf {
        self.0
    }
}

/// A path, or several of them.
#[derive(Default)]
pub(crate) struct Paths(Vec<PathBuf>);

impl FromPyObject<'_, '_> for Paths {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let object = object.to_owned();
        each(&object, |item| Ok(item.extract::<AnyPath>()?.into_path())).map(Self)
    }
}

impl Paths {
    pub(crate) fn into_vec(self) -> Vec<PathBuf> {
        self.0
    }
}

/// A text, or several of them.
#[derive(Default)]
pub(crate) struct Texts(Vec<String>);

impl FromPyObject<'_, '_> for Texts {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let object = object.to_owned();
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(Self(vec![text.to_cow()?.into_owned()]));
        }
        Ok(Self(object.extract()?))
    }
}

impl Texts {
    pub(crate) fn into_vec(self) -> Vec<String> {
        self.0
    }
}

/// Converts a path, or each item of something that can be iterated.
pub(crate) fn each<T>(
    object: &Bound<'_, PyAny>,
    convert: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let is_one = object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyBytes>()
        || object.hasattr("__fspath__")?;
    if is_one {
        return Ok(vec![convert(object)?]);
    }
    let items = object.try_iter().map_err(|_| {
        PyTypeError::new_err(format!("a path or several are expected, not {}", object.get_type()))
    })?;
    items.map(|item| convert(&item?)).collect()
}

/// A path as Python has it.
pub(crate) fn to_python(path: &Path) -> OsString {
    path.as_os_str().to_owned()
}

/// A size in bytes, or several of them.
#[derive(Clone)]
pub(crate) struct Sizes(Vec<u64>);

impl FromPyObject<'_, '_> for Sizes {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match object.extract::<u64>() {
            Ok(size) => Ok(Self::of(size)),
            Err(error) => object.extract().map(Self).map_err(|_| error),
        }
    }
}

impl Sizes {
    pub(crate) fn of(size: u64) -> Self {
        Self(vec![size])
    }

    pub(crate) fn as_slice(&self) -> &[u64] {
        &self.0
    }
}
