//! Changes to a whole tree, by the files that describe them.

use seekless_images::{Error, ErrorKind};
pub use seekless_source::{ManifestRole, TableSyntax};

use seekless_source::{
    AmendError, Amendments, DeviceTable, FileContexts, Labels, ListError, Manifest,
};
use std::path::PathBuf;

/// The changes that are wanted, with the files that describe them.
#[derive(Clone, Debug, Default)]
pub struct WantedAmendments {
    /// A manifest of `mtree(5)`, and its role.
    pub manifest: Option<(PathBuf, ManifestRole)>,
    /// Tables of devices and permissions.
    pub tables: Vec<(PathBuf, TableSyntax)>,
    /// Every name of a file with several becomes a file of its own.
    pub hard_dereference: bool,
    /// SELinux contexts by path, as a `file_contexts` of a policy.
    pub file_contexts: Option<PathBuf>,
    /// Path of the tree's root in the system that mounts it, for the contexts.
    pub mount_point: String,
}

impl WantedAmendments {
    /// Reads the files. `has_lost_and_found` tells whether the format makes a `lost+found`.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for a malformed line, [`ErrorKind::Unsupported`] for one that needs
    /// something that is not supported, [`ErrorKind::System`] for a file that cannot be read,
    /// [`ErrorKind::Usage`] for a mount point that is not an absolute path.
    pub fn read(&self, has_lost_and_found: bool) -> Result<Amendments, Error> {
        let mount_point = self.mount_point.trim_end_matches('/');
        if !mount_point.is_empty() && !mount_point.starts_with('/') {
            return Err(Error::usage(format!("{mount_point}: a mount point is an absolute path")));
        }
        let labels = |contexts| Labels {
            contexts,
            mount_point: mount_point.as_bytes().to_vec(),
            has_lost_and_found,
        };
        let contexts = self.file_contexts.as_deref().map(FileContexts::read).transpose();
        let manifest = self.manifest.as_ref();
        let manifest = manifest.map(|(path, role)| Ok((Manifest::read(path)?, *role))).transpose();
        let tables = self.tables.iter().map(|(path, syntax)| DeviceTable::read(path, *syntax));
        Ok(Amendments {
            excludes: None,
            manifest: manifest.map_err(list_error)?,
            tables: tables.collect::<Result<_, _>>().map_err(list_error)?,
            hard_dereference: self.hard_dereference,
            labels: contexts.map_err(list_error)?.map(labels),
        })
    }
}

fn list_error(error: ListError) -> Error {
    match error {
        ListError::Io { path, error } => Error::io(path.display(), &error),
        ListError::Line { .. } => Error::new(ErrorKind::Corrupt, error.to_string()),
        ListError::Unsupported { .. } => Error::new(ErrorKind::Unsupported, error.to_string()),
    }
}

pub(crate) fn amend_error(error: AmendError) -> Error {
    match error {
        AmendError::List(error) => list_error(error),
        AmendError::Fs(error) => Error::from(error),
    }
}
