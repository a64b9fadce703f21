//! Paths of the form `IMAGE@SNAPSHOT`.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The image and the snapshot that a path names; `None` if there is a file of that path, or no
/// image before an `@`.
#[must_use]
pub fn split(path: &Path) -> Option<(PathBuf, Vec<u8>)> {
    if path.symlink_metadata().is_ok() {
        return None;
    }
    let bytes = path.as_os_str().as_bytes();
    // The longest path of an image: its name may have an @, too.
    let ats = (0..bytes.len()).rev().filter(|&at| bytes[at] == b'@');
    let mut images = ats.map(|at| (Path::new(OsStr::from_bytes(&bytes[..at])), &bytes[at + 1..]));
    let is_image = |path: &Path| path.metadata().is_ok_and(|it| !it.is_dir());
    let (image, name) = images.find(|(image, name)| !name.is_empty() && is_image(image))?;
    Some((image.to_path_buf(), name.to_vec()))
}

/// The file or device that has the image of a path, whether it names a snapshot or not.
#[must_use]
pub fn file_of(path: &Path) -> Cow<'_, Path> {
    match split(path) {
        Some((image, _)) => Cow::Owned(image),
        None => Cow::Borrowed(path),
    }
}
