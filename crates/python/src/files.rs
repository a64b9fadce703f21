//! The files of an image.

use crate::records::{repr, to_dict};
use crate::work::{self, Interrupted};
use crate::{errors, paths};
use pyo3::exceptions::{PyMemoryError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use seekless::{Kind, Time};
use serde::Serialize;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

/// The shape of a file system.
#[pyclass(frozen, get_all, module = "seekless")]
#[derive(Serialize)]
pub(crate) struct Volume {
    /// `ext4`, `ufs2`, `fat32` ...
    format: &'static str,
    /// The label, as far as it is text.
    label: String,
    /// The UUID; zeros where the format has none.
    uuid: String,
    /// Bytes in a block.
    block_size: u32,
    /// Blocks in the volume.
    blocks: u64,
    /// Blocks not in use.
    free_blocks: u64,
    /// Inodes in the volume; 0 for FAT.
    inodes: u32,
    /// Inodes not in use.
    free_inodes: u32,
    /// Features, as the format's own tools name them.
    features: Vec<String>,
}

impl From<seekless::Volume> for Volume {
    fn from(volume: seekless::Volume) -> Self {
        Self {
            format: volume.format,
            label: volume.label,
            uuid: volume.uuid,
            block_size: volume.block_size,
            blocks: volume.blocks,
            free_blocks: volume.free_blocks,
            inodes: volume.inodes,
            free_inodes: volume.free_inodes,
            features: volume.features,
        }
    }
}

#[pymethods]
impl Volume {
    /// The same as a dictionary.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_dict(py, self)
    }

    fn __repr__(&self) -> String {
        repr("Volume", self)
    }
}

/// The attributes of a file.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Metadata {
    /// `regular`, `directory`, `symlink`, `char-device`, `block-device`, `fifo` or `socket`.
    kind: &'static str,
    /// The inode's number.
    inode: u32,
    /// Permission bits, with set-user-id and sticky bits.
    mode: u16,
    /// Owner.
    uid: u32,
    /// Group.
    gid: u32,
    /// Names that lead to it.
    links: u32,
    /// Bytes of its contents.
    size: u64,
    /// Bytes that it occupies on the disk.
    occupied: u64,
    /// Major and minor number of a device; zeros for other files.
    device: (u32, u32),
    /// When it was read last, in nanoseconds since 1970.
    accessed_ns: i128,
    /// When its contents were changed, in nanoseconds since 1970.
    modified_ns: i128,
    /// When its inode was changed, in nanoseconds since 1970.
    changed_ns: i128,
}

impl From<&seekless::Metadata> for Metadata {
    fn from(found: &seekless::Metadata) -> Self {
        Self {
            kind: match found.kind {
                Kind::Regular => "regular",
                Kind::Directory => "directory",
                Kind::Symlink => "symlink",
                Kind::CharDevice => "char-device",
                Kind::BlockDevice => "block-device",
                Kind::Fifo => "fifo",
                Kind::Socket => "socket",
            },
            inode: found.inode,
            mode: found.mode,
            uid: found.uid,
            gid: found.gid,
            links: found.links,
            size: found.len,
            occupied: found.occupied,
            device: found.device,
            accessed_ns: nanoseconds(found.accessed),
            modified_ns: nanoseconds(found.modified),
            changed_ns: nanoseconds(found.changed),
        }
    }
}

fn nanoseconds(time: Time) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}

#[pymethods]
impl Metadata {
    /// Whether it is a regular file.
    fn is_file(&self) -> bool {
        self.kind == "regular"
    }

    /// Whether it is a directory.
    fn is_dir(&self) -> bool {
        self.kind == "directory"
    }

    /// Whether it is a symlink.
    fn is_symlink(&self) -> bool {
        self.kind == "symlink"
    }

    /// The same as a dictionary.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_dict(py, self)
    }

    fn __repr__(&self) -> String {
        repr("Metadata", self)
    }
}

/// A file by a name.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its path from the root, which has none: `etc/passwd`.
    path: OsString,
    /// Its attributes.
    metadata: Metadata,
}

#[pymethods]
impl Entry {
    /// The last part of its path.
    #[getter]
    fn name(&self) -> OsString {
        let path: &std::path::Path = self.path.as_ref();
        path.file_name().unwrap_or_default().to_owned()
    }

    fn __repr__(&self) -> String {
        format!("Entry({:?}, {})", self.path, repr("Metadata", &self.metadata))
    }
}

/// The files below a directory, from `Image.walk`.
#[pyclass(frozen, module = "seekless")]
pub(crate) struct Walk(Mutex<seekless::Walk>);

impl Walk {
    pub(crate) fn new(walk: seekless::Walk) -> Self {
        Self(Mutex::new(walk))
    }
}

#[pymethods]
impl Walk {
    fn __iter__(walk: PyRef<'_, Self>) -> PyRef<'_, Self> {
        walk
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Entry>> {
        let step = || self.0.lock().unwrap_or_else(PoisonError::into_inner).next();
        let found = py.detach(step).transpose().map_err(|error| errors::raise(py, &error))?;
        Ok(found.map(|entry| Entry {
            path: paths::to_python(&entry.path),
            metadata: Metadata::from(&entry.metadata),
        }))
    }
}

/// Least number of bytes whose read can be interrupted.
const INTERRUPTIBLE: usize = 4 << 20;

/// A regular file of an image that is read in parts. Threads may share it.
#[pyclass(frozen, module = "seekless")]
pub(crate) struct File(Arc<seekless::File>);

impl File {
    pub(crate) fn new(file: seekless::File) -> Self {
        Self(Arc::new(file))
    }
}

#[pymethods]
impl File {
    /// Its attributes.
    #[getter]
    fn metadata(&self) -> Metadata {
        Metadata::from(self.0.metadata())
    }

    /// At most `size` bytes from byte `offset` on: less at the end of the file only.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        size: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let left = self.0.metadata().len.saturating_sub(offset);
        let size = usize::try_from(size.min(left));
        let size = size.map_err(|_| PyOverflowError::new_err("too many bytes for memory"))?;
        let mut part = Vec::new();
        let reserved = part.try_reserve_exact(size);
        reserved.map_err(|_| PyMemoryError::new_err(format!("{size} bytes")))?;
        let file = self.0.clone();
        let read = move || {
            part.resize(size, 0);
            let len = file.read_at(offset, &mut part)?;
            part.truncate(len);
            Ok(part)
        };
        // A thread that can be left behind costs more than a short read.
        let part = if size < INTERRUPTIBLE {
            work::detached(py, read)?
        } else {
            work::run(py, Interrupted::IsLeft, read)?
        };
        Ok(PyBytes::new(py, &part))
    }
}
