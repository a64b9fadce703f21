//! Layout lists: small files that stand for older images.

use crate::Error;
use seekless_compose::layout_list::ListRequest;
use seekless_fs::format::OpenOptions;
use seekless_images::{Output, Place};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A layout list of an ext, FAT or UFS image: its metadata, and digests of the contents of its files.
/// [`Build::like`](crate::Build::like) takes it in place of the image, and makes the same bytes.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use seekless::{Build, LayoutList};
///
/// # let work = tempfile::tempdir()?;
/// # let tree = work.path().join("tree");
/// # let [old, list, new, same] =
/// #     ["old.img", "old.layout", "new.img", "same.img"].map(|name| work.path().join(name));
/// # std::fs::create_dir(&tree)?;
/// # std::fs::write(tree.join("large"), vec![7; 1 << 20])?;
/// Build::of([&tree]).write(&old)?;
/// let listed = LayoutList::of(&old).write(&list)?;
/// assert!(listed.len < 100_000);
///
/// std::fs::write(tree.join("added"), "text")?;
/// Build::of([&tree]).like(&old).write(&new)?;
/// Build::of([&tree]).like(&list).write(&same)?;
/// assert_eq!(std::fs::read(&new)?, std::fs::read(&same)?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LayoutList {
    image: PathBuf,
    place: Place,
    replaces: bool,
}

/// A list that was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Listed {
    /// Bytes of the list.
    pub len: u64,
    /// Bytes of the image.
    pub image_len: u64,
    /// Files of the image, directories included.
    pub files: u64,
}

impl LayoutList {
    /// The list of an image file or block device.
    pub fn of(image: impl AsRef<Path>) -> Self {
        let image = image.as_ref().to_path_buf();
        Self { image, place: Place::default(), replaces: false }
    }

    /// The partition that is meant, as in [`Open::partition`](crate::Open::partition).
    #[must_use]
    pub fn partition(mut self, partition: impl Into<String>) -> Self {
        self.place.partition = Some(partition.into());
        self
    }

    /// Replaces a file that is there.
    #[must_use]
    pub fn replace(mut self) -> Self {
        self.replaces = true;
        self
    }

    /// Writes the list to a file, which appears when it is complete.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind) for an image that is damaged,
    /// [`ErrorKind::Unsupported`](crate::ErrorKind) for one of another format,
    /// [`ErrorKind::System`](crate::ErrorKind) also for a file that is there.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<Listed, Error> {
        let path = path.as_ref();
        let open = OpenOptions::default();
        let request = ListRequest { image: &self.image, place: &self.place, open, unit: None };
        let output = Output::create(path, self.replaces, [&self.image])?;
        let list = request.make()?;
        let written = output.file()?.write_all(&list.bytes);
        written.map_err(|error| Error::io(path.display(), &error))?;
        output.finish()?;
        let (len, image_len) = (list.bytes.len() as u64, list.volume_len.get());
        Ok(Listed { len, image_len, files: list.files })
    }
}
