//! The files of an image, one after the other.

use crate::{Entry, Metadata};
use seekless_fs::inspect::sorted_entries;
use seekless_fs::{Attr, FileKind, FsError, Inspect};
use seekless_images::Error;
use seekless_units::Ino;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The files below a directory, from [`Image::walk_below`](crate::Image::walk_below): each directory
/// before its entries, names sorted. It ends at the first error.
pub struct Walk {
    image: PathBuf,
    inner: Arc<dyn Inspect>,
    entered: HashSet<Ino>,
    /// The next files, the last one first.
    pending: Vec<(PathBuf, Ino)>,
}

impl Walk {
    pub(crate) fn new(
        inner: Arc<dyn Inspect>,
        image: &Path,
        dir: &Path,
        ino: Ino,
    ) -> Result<Self, Error> {
        let mut walk = Self {
            image: image.to_path_buf(),
            inner,
            entered: HashSet::from([ino]),
            pending: Vec::new(),
        };
        walk.enter(&from_root(dir), ino)
            .map_err(|error| Error::from(error).about(image.display()))?;
        Ok(walk)
    }

    /// The same files with all of their attributes.
    pub(crate) fn with_attributes(
        mut self,
    ) -> impl Iterator<Item = Result<(PathBuf, Attr), Error>> {
        std::iter::from_fn(move || self.step())
    }

    fn enter(&mut self, dir: &Path, ino: Ino) -> Result<(), FsError> {
        let found = sorted_entries(self.inner.as_ref(), ino)?;
        let path = |(name, ino): (Vec<u8>, Ino)| (dir.join(OsStr::from_bytes(&name)), ino);
        self.pending.extend(found.into_iter().rev().map(path));
        Ok(())
    }

    fn step(&mut self) -> Option<Result<(PathBuf, Attr), Error>> {
        let (path, ino) = self.pending.pop()?;
        let attr = self.inner.attr(ino).and_then(|attr| {
            if attr.kind == FileKind::Directory && self.entered.insert(ino) {
                self.enter(&path, ino)?;
            }
            Ok(attr)
        });
        if attr.is_err() {
            self.pending.clear();
        }
        let about = |error| Error::from(error).about(self.image.display());
        Some(attr.map(|attr| (path, attr)).map_err(about))
    }
}

impl Iterator for Walk {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.step()?;
        Some(found.map(|(path, attr)| Entry { path, metadata: Metadata::from(&attr) }))
    }
}

/// A path from the root, without `.` and `..`.
fn from_root(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    plain
}
