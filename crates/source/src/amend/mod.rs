//! Changes to a whole tree, after its sources were laid over one another: names of files that only
//! they have, attributes by path, and SELinux contexts.
//!
//! - `edit`: the tree under change; `extra`: contents that its source does not have
//! - `labels`: SELinux contexts
//! - `table`: tables of devices and permissions; `capability`: capabilities in them
//! - `mtree`: manifests
//! - `owners`: owners by name

mod capability;
mod edit;
mod extra;
mod labels;
mod mtree;
mod owners;
mod table;

pub use labels::Labels;
pub use mtree::{Manifest, ManifestRole};
pub use table::{DeviceTable, TableSyntax};

use crate::excludes::Excludes;
use crate::layered::LayeredSource;
use crate::list::ListError;
use crate::options::TreeOptions;
use crate::tar::AddError;
use edit::Edit;
use seekless_fs::FsError;
use seekless_fs::source::Source;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Changes to a tree, in the order in which they are made.
#[derive(Clone, Debug, Default)]
pub struct Amendments {
    /// Directories that these patterns leave out are removed if nothing below them was kept.
    pub excludes: Option<Excludes>,
    /// A manifest.
    pub manifest: Option<(Manifest, ManifestRole)>,
    /// Tables of devices and permissions.
    pub tables: Vec<DeviceTable>,
    /// Every name of a file with several becomes a file of its own.
    pub hard_dereference: bool,
    /// SELinux contexts.
    pub labels: Option<Labels>,
}

impl Amendments {
    /// Whether nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.needs_whole()
            && self.excludes.is_none()
            && !self.hard_dereference
            && self.labels.is_none()
    }

    /// Whether a change may need files that only the whole of several layers has.
    #[must_use]
    pub fn needs_whole(&self) -> bool {
        self.manifest.is_some() || !self.tables.is_empty()
    }

    /// The regular files of the host from which contents are read.
    pub fn host_files(&self) -> impl Iterator<Item = PathBuf> {
        self.manifest.iter().flat_map(|(manifest, role)| manifest.host_files(*role))
    }

    /// Changes the tree of a source. The times of changed files are limited as `options` say.
    ///
    /// # Errors
    /// [`AmendError::List`] with the line that cannot be followed; errors of the source.
    pub fn apply(
        &self,
        source: Arc<dyn Source + Send>,
        options: &TreeOptions,
    ) -> Result<Arc<dyn Source + Send>, AmendError> {
        if self.is_empty() {
            return Ok(source);
        }
        let mut edit = Edit::of(source, options)?;
        if let Some(excludes) = &self.excludes {
            edit.remove_empty(|path| excludes.leaves_out(path, true));
        }
        if let Some((manifest, role)) = &self.manifest {
            manifest.apply(&mut edit, *role, options.notices)?;
        }
        for table in &self.tables {
            table.apply(&mut edit)?;
        }
        if self.hard_dereference {
            edit.split_links()?;
        }
        if let Some(labels) = &self.labels {
            labels.add_lost_and_found(&mut edit)?;
        }
        let (layers, mut tree) = edit.finish()?;
        if let Some(labels) = &self.labels {
            labels.apply(&mut tree, options.notices)?;
        }
        Ok(Arc::new(LayeredSource::from_parts(layers, tree)))
    }
}

/// An error of a change.
#[derive(Debug)]
pub enum AmendError {
    /// A line of a list cannot be followed.
    List(ListError),
    /// The tree cannot be changed, or its source cannot be read.
    Fs(FsError),
}

impl fmt::Display for AmendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(error) => error.fmt(f),
            Self::Fs(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AmendError {}

impl From<ListError> for AmendError {
    fn from(error: ListError) -> Self {
        Self::List(error)
    }
}

impl From<FsError> for AmendError {
    fn from(error: FsError) -> Self {
        Self::Fs(error)
    }
}

impl From<AddError> for AmendError {
    fn from(error: AddError) -> Self {
        Self::Fs(match error {
            AddError::Fs(error) => error,
            AddError::Fault(fault) => FsError::Invalid(fault.to_string()),
        })
    }
}
