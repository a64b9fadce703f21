//! A file of an image that is read in parts.

use crate::Metadata;
use seekless_fs::{Attr, FileKind, Inspect};
use seekless_images::{Error, ErrorKind};
use seekless_units::{ByteLen, Ino};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A regular file of an image, from [`Image::file`](crate::Image::file). Threads may share it.
pub struct File {
    image: PathBuf,
    inner: Arc<dyn Inspect>,
    ino: Ino,
    metadata: Metadata,
}

impl File {
    pub(crate) fn new(
        inner: Arc<dyn Inspect>,
        image: &Path,
        path: &Path,
        attr: &Attr,
    ) -> Result<Self, Error> {
        if attr.kind != FileKind::Regular {
            let what = format!("{}: not a regular file", path.display());
            return Err(Error::new(ErrorKind::Unsupported, what).about(image.display()));
        }
        let metadata = Metadata::from(attr);
        Ok(Self { image: image.to_path_buf(), inner, ino: attr.ino, metadata })
    }

    /// Its attributes.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Reads from a byte on, and returns how much of `buf` was filled: less than all at the end of
    /// the file only. Holes are zeros.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`], [`ErrorKind::System`].
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let read = self.inner.read(self.ino, ByteLen::new(offset), buf);
        read.map_err(|error| Error::from(error).about(self.image.display()))
    }
}
