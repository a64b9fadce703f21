//! Images and the files to which they refer.

use crate::disk::Disk;
use crate::error::Qcow2Error;
use crate::header::{Backing, DataFile, Image};
use crate::is_image;
use seekless_device::{BlockDevice, FileDevice};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Maximum number of files in a chain of references.
const DEPTH: usize = 32;

/// Advice in the error for a reference to an unsupported file.
const HINT: &str = "only files beside the image are read; qemu-img convert makes one image of all";

/// Opens the file at a path for reading: the disk in a qcow2 image, or another file or device as it
/// is.
///
/// # Errors
/// [`Qcow2Error`].
pub fn open(path: &Path) -> Result<Arc<dyn BlockDevice>, Qcow2Error> {
    let file: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::open(path).map_err(|source| opening(path, source))?);
    if !is_image(file.as_ref()) {
        return Ok(file);
    }
    let mut chain = Chain { files: Vec::new() };
    chain.enter(path)?;
    chain.disk(path, file)
}

fn opening(path: &Path, source: std::io::Error) -> Qcow2Error {
    Qcow2Error::Open { path: path.into(), source }
}

impl Disk {
    /// The disk in an image that refers to no other file.
    ///
    /// # Errors
    /// [`Qcow2Error`]; also for an image that refers to others.
    pub fn alone(file: Arc<dyn BlockDevice>) -> Result<Self, Qcow2Error> {
        let image = Image::read(file.as_ref())?;
        if image.backing.is_some() || image.data_file.is_some() {
            let why = "the qcow2 image refers to another file";
            return Err(Qcow2Error::Unsupported(why.into()));
        }
        Ok(Self::new(image, file, None, None)?)
    }
}

/// The chain of files up to one that refers to no other.
struct Chain {
    /// Device and inode number of each.
    files: Vec<(u64, u64)>,
}

impl Chain {
    /// Records that a file is read; refuses one that is already in the chain.
    fn enter(&mut self, path: &Path) -> Result<Metadata, Qcow2Error> {
        let found = path.metadata().map_err(|source| opening(path, source))?;
        let identity = (found.dev(), found.ino());
        let refused =
            |why: &str| Err(Qcow2Error::Unsupported(format!("{}: {why}", path.display())));
        if self.files.contains(&identity) {
            return refused("the qcow2 image is a backing file of itself");
        }
        if self.files.len() >= DEPTH {
            return refused("more than 32 backing files below one another");
        }
        debug_assert!(self.files.len() < DEPTH, "a chain is short");
        self.files.push(identity);
        Ok(found)
    }

    /// The disk in an image that was entered.
    fn disk(
        &mut self,
        path: &Path,
        file: Arc<dyn BlockDevice>,
    ) -> Result<Arc<dyn BlockDevice>, Qcow2Error> {
        let image = Image::read(file.as_ref())?;
        let data_file = match &image.data_file {
            Some(DataFile { name: Some(name) }) => Some(self.plain(&beside(path, name)?)?),
            Some(DataFile { name: None }) => {
                let why = "the qcow2 image does not name its external data file (qemu-img convert \
                           takes it as an option)";
                return Err(Qcow2Error::Unsupported(why.into()));
            }
            None => None,
        };
        let backing = match &image.backing {
            Some(backing) => Some(self.backing(path, backing)?),
            None => None,
        };
        Ok(Arc::new(Disk::new(image, file, data_file, backing)?))
    }

    /// A file without a format.
    fn plain(&mut self, path: &Path) -> Result<Arc<dyn BlockDevice>, Qcow2Error> {
        let kind = self.enter(path)?.file_type();
        // Opening other kinds of files may block.
        if !kind.is_file() && !kind.is_block_device() {
            let why = format!("{}: neither a file nor a block device", path.display());
            return Err(Qcow2Error::Unsupported(why));
        }
        Ok(Arc::new(FileDevice::open(path).map_err(|source| opening(path, source))?))
    }

    /// The backing file of an image. Old images lack its format, which is then detected by the
    /// beginning of the file.
    fn backing(
        &mut self,
        path: &Path,
        backing: &Backing,
    ) -> Result<Arc<dyn BlockDevice>, Qcow2Error> {
        let is_qcow2 = match backing.format.as_deref() {
            None => None,
            Some("raw") => Some(false),
            Some("qcow2") => Some(true),
            Some(other) => {
                let name = &backing.name;
                let why = format!("a backing file ({name}) of the format {other} ({HINT})");
                return Err(Qcow2Error::Unsupported(why));
            }
        };
        let path = beside(path, &backing.name)?;
        let file = self.plain(&path)?;
        match is_qcow2.unwrap_or_else(|| is_image(file.as_ref())) {
            true => self.disk(&path, file),
            false => Ok(file),
        }
    }
}

/// The path of a file to which an image refers: one in the image's own directory, or below. Other
/// names, such as those of protocols, are refused: an image from elsewhere could name files that
/// are not meant to be read.
fn beside(image: &Path, name: &str) -> Result<PathBuf, Qcow2Error> {
    let plain = name.strip_prefix("file:").unwrap_or(name);
    let relative = Path::new(plain);
    let is_below = relative
        .components()
        .all(|component| matches!(component, Component::Normal(_) | Component::CurDir));
    // A colon before any slash ends the name of a protocol.
    let has_protocol = plain.split('/').next().is_some_and(|first| first.contains(':'));
    if !is_below || has_protocol || plain.is_empty() {
        return Err(Qcow2Error::Unsupported(format!(
            "the qcow2 image refers to {name:?} ({HINT})"
        )));
    }
    // The target of a link has its files beside itself.
    let whole = image.canonicalize().map_err(|source| opening(image, source))?;
    Ok(whole.parent().unwrap_or(Path::new(".")).join(relative))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        std::fs::write(&image, []).unwrap();
        for name in ["/etc/shadow", "../x", "a/../../x", "nbd://host/x", "json:{}", "fd:0", ""] {
            assert!(beside(&image, name).is_err(), "{name}");
        }
        let dir = dir.path().canonicalize().unwrap();
        for (name, path) in [("x", "x"), ("./d/x", "d/x"), ("file:x", "x"), ("d/a:b", "d/a:b")] {
            assert_eq!(beside(&image, name).unwrap(), dir.join(path), "{name}");
        }
    }
}
