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
    /// Path of the tree's root in the system that mounts it, for the contexts; the root by default.
    pub mount_point: Option<String>,
}

impl WantedAmendments {
    /// The files that describe the changes.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        let manifest = self.manifest.iter().map(|(path, _)| path.clone());
        let tables = self.tables.iter().map(|(path, _)| path.clone());
        let contexts = self.file_contexts.iter().flat_map(|path| FileContexts::files(path));
        manifest.chain(contexts).chain(tables)
    }

    /// Reads the files. `has_lost_and_found` tells whether the format makes a `lost+found`.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for a malformed line, [`ErrorKind::Unsupported`] for one that needs
    /// something that is not supported, [`ErrorKind::System`] for a file that cannot be read,
    /// [`ErrorKind::Usage`] for a mount point that is not an absolute path, or without contexts.
    pub fn read(&self, has_lost_and_found: bool) -> Result<Amendments, Error> {
        if self.mount_point.is_some() && self.file_contexts.is_none() {
            return Err(Error::usage("a mount point is for SELinux contexts by path"));
        }
        let mount_point = mount_point(self.mount_point.as_deref().unwrap_or("/"))?;
        let labels = |contexts| Labels { contexts, mount_point, has_lost_and_found };
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

/// A mount point as paths begin with it: without a slash at its end.
fn mount_point(path: &str) -> Result<Vec<u8>, Error> {
    let names: Vec<&str> = path.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    if !path.starts_with('/') || names.contains(&"..") {
        let what = format!("{path}: a mount point is an absolute path without ..");
        return Err(Error::usage(what));
    }
    Ok(names.iter().flat_map(|name| ["/", name]).collect::<String>().into_bytes())
}

pub(crate) fn list_error(error: ListError) -> Error {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_is_what_paths_begin_with() {
        for (path, wanted) in [("/", ""), ("//usr//./lib/", "/usr/lib"), ("/srv", "/srv")] {
            assert_eq!(mount_point(path).unwrap(), wanted.as_bytes(), "{path}");
        }
        for path in ["", "srv", "/usr/../srv", "./srv"] {
            assert_eq!(mount_point(path).unwrap_err().kind(), ErrorKind::Usage, "{path}");
        }
        let alone = WantedAmendments { mount_point: Some("/".into()), ..Default::default() };
        assert_eq!(alone.read(true).unwrap_err().kind(), ErrorKind::Usage);
    }
}
