//! Container images of registries, as sources.

use seekless_fs::FsError;
use seekless_images::{Error, Progress, Unwatched};
pub use seekless_registry::Access;
use seekless_registry::{Part, Reference, RegistryError, RemoteImage, SCHEME};
use seekless_source::oci::{Blob, OpenRemote, Remote};
use seekless_units::ByteLen;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How sources named `docker://...` are fetched.
#[derive(Clone)]
pub struct Registries {
    /// How registries are reached, and where images are kept; `None` refuses such sources.
    pub access: Option<Access>,
    /// Is notified of the bytes of layers that come.
    pub progress: Arc<dyn Progress>,
}

impl Default for Registries {
    fn default() -> Self {
        Self { access: None, progress: Arc::new(Unwatched) }
    }
}

impl fmt::Debug for Registries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registries").field("access", &self.access).finish_non_exhaustive()
    }
}

/// The name of an image in a registry, if a source is one; a name that is not valid is an error.
pub(crate) fn name(path: &Path) -> Option<Result<Reference, Error>> {
    let text = path.to_str().filter(|text| text.starts_with(SCHEME))?;
    Some(text.parse().map_err(|error| match error {
        RegistryError::Unsupported(_) => Error::from(in_source(text, error)),
        error => Error::usage(error.to_string()),
    }))
}

/// Whether a source is the name of an image in a registry.
pub(crate) fn is_name(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with(SCHEME))
}

impl OpenRemote for Registries {
    fn open(&self, name: &Path) -> Option<Result<Arc<dyn Remote>, FsError>> {
        let text = name.to_str().filter(|text| text.starts_with(SCHEME))?;
        let open = || {
            let Some(access) = &self.access else {
                let what = "no directory for a cache of images of registries is known";
                return Err(FsError::Invalid(format!("{text}: {what}")));
            };
            let failed = |error| in_source(text, error);
            let reference: Reference = text.parse().map_err(failed)?;
            let image = RemoteImage::find(&reference, access).map_err(failed)?;
            let (name, progress) = (text.to_string(), self.progress.clone());
            let counted = Mutex::default();
            let arriving: Arc<dyn Remote> = Arc::new(Arriving { image, name, progress, counted });
            Ok(arriving)
        };
        Some(open())
    }
}

/// An image on its way.
struct Arriving {
    image: RemoteImage,
    name: String,
    progress: Arc<dyn Progress>,
    /// The layers whose bytes are counted.
    counted: Mutex<HashSet<String>>,
}

impl Arriving {
    fn counted(&self) -> MutexGuard<'_, HashSet<String>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remote for Arriving {
    fn dir(&self) -> &Path {
        self.image.dir()
    }

    fn root(&self) -> Blob {
        let Part { sha256, len, media_type } = self.image.root().clone();
        Blob { sha256, len, media_type }
    }

    fn announce(&self, parts: &[Blob]) {
        let mut counted = self.counted();
        let new = parts.iter().filter(|part| counted.insert(part.sha256.clone()));
        // A manifest may claim anything.
        let total = new.fold(0u64, |sum, part| sum.saturating_add(part.len));
        self.progress.begin(ByteLen::new(total));
    }

    fn fetch(&self, part: &Blob) -> Result<(), FsError> {
        let is_counted = self.counted().contains(&part.sha256);
        let Blob { sha256, len, media_type } = part.clone();
        let came = |bytes| {
            if is_counted {
                self.progress.advance(ByteLen::new(bytes));
            }
        };
        let fetched = self.image.fetch(&Part { sha256, len, media_type }, &came);
        fetched.map_err(|error| in_source(&self.name, error))
    }

    fn complete(&self) -> Result<(), FsError> {
        self.image.keep().map_err(|error| in_source(&self.name, error))
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.progress.end();
    }
}

/// The error of a source.
fn in_source(name: &str, error: RegistryError) -> FsError {
    match error {
        RegistryError::Reference(what) => FsError::Invalid(what),
        RegistryError::Damaged(what) => FsError::Container { name: name.into(), what },
        RegistryError::Unsupported(what) => FsError::Unsupported(format!("{name}: {what}")),
        RegistryError::Answer(what) => FsError::io(name, io::Error::other(what)),
        RegistryError::Io { subject, source } => FsError::io(subject, source),
    }
}
