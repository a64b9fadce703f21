//! Images whose parts come into a layout directory when they are wanted.

use oci_spec::image::Descriptor;
use seekless_fs::FsError;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A part of an image: a manifest, a configuration or a layer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blob {
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
    /// Its length in bytes.
    pub len: u64,
    /// Its type.
    pub media_type: String,
}

impl Blob {
    pub(super) fn of(descriptor: &Descriptor) -> Self {
        Self {
            sha256: descriptor.digest().digest().into(),
            len: descriptor.size(),
            media_type: descriptor.media_type().to_string(),
        }
    }
}

/// Opens images by names that are no paths, such as those of registries.
pub trait OpenRemote: fmt::Debug + Send + Sync {
    /// The image of a name; `None` for a path.
    ///
    /// # Errors
    /// [`FsError`] if it cannot be reached.
    fn open(&self, name: &Path) -> Option<Result<Arc<dyn Remote>, FsError>>;
}

/// An image whose parts come into an OCI layout directory.
pub trait Remote: Send + Sync {
    /// The directory.
    fn dir(&self) -> &Path;

    /// The manifest or index that all other parts are found by.
    fn root(&self) -> Blob;

    /// These parts will be fetched; others may be there already.
    fn announce(&self, parts: &[Blob]);

    /// Brings a part into the directory, its length and digest verified. Called from several threads
    /// at once.
    ///
    /// # Errors
    /// [`FsError::Container`] if it is not as announced, or if it cannot be fetched.
    fn fetch(&self, part: &Blob) -> Result<(), FsError>;

    /// All parts of the image are there.
    ///
    /// # Errors
    /// [`FsError::Io`].
    fn complete(&self) -> Result<(), FsError>;
}
