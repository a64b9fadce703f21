//! The files in which two images differ.

use crate::{Error, Image};
use seekless_fs::{Attr, FileKind, FsError};
use seekless_units::{ByteLen, Ino};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Bytes that are compared at once.
const PIECE: usize = 256 << 10;

/// A file in which two images differ.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// The file, by its path from the root: `etc/passwd`.
    pub path: PathBuf,
    /// How it differs.
    pub change: Change,
}

/// How a file differs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Change {
    /// Only the second image has it.
    Added,
    /// Only the first image has it.
    Removed,
    /// It is something else, such as a directory in place of a file.
    Kind,
    /// Its contents or the target of a symlink differ.
    Contents,
    /// Its mode, owner, device number, extended attributes or time of modification differ, its
    /// contents do not.
    Metadata,
}

/// The files in which the second of two images differs from the first, sorted by path. Places on
/// the disk, numbers of inodes and times of access are not compared, and neither is an empty
/// `lost+found` in the root.
///
/// # Errors
/// [`ErrorKind::Corrupt`](crate::ErrorKind) at the first damage, of the image by its path.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use seekless::{Build, Change, Format, compare};
///
/// let work = tempfile::tempdir()?;
/// let (tree, old, new) =
///     (work.path().join("tree"), work.path().join("old.img"), work.path().join("new.img"));
/// std::fs::create_dir(&tree)?;
/// std::fs::write(tree.join("a"), "old")?;
/// Build::of([&tree]).write(&old)?;
/// std::fs::write(tree.join("a"), "new")?;
/// std::fs::write(tree.join("b"), "")?;
/// Build::of([&tree]).format(Format::Ufs2).write(&new)?;
///
/// let found = compare(&seekless::open(&old)?, &seekless::open(&new)?)?;
/// let found: Vec<_> = found.iter().map(|it| (it.path.to_str().unwrap(), it.change)).collect();
/// assert_eq!(found, [("a", Change::Contents), ("b", Change::Added)]);
/// # Ok(())
/// # }
/// ```
pub fn compare(old: &Image, new: &Image) -> Result<Vec<Difference>, Error> {
    let (before, after) = (files(old)?, files(new)?);
    let mut found = Vec::new();
    for (path, attr) in &before {
        let change = match after.get(path) {
            None => Some(Change::Removed),
            Some(other) => difference((old, attr), (new, other))?,
        };
        found.extend(change.map(|change| Difference { path: path.clone(), change }));
    }
    for path in after.into_keys().filter(|path| !before.contains_key(path)) {
        found.push(Difference { path, change: Change::Added });
    }
    found.sort();
    Ok(found)
}

/// All files by their paths.
fn files(image: &Image) -> Result<BTreeMap<PathBuf, Attr>, Error> {
    let walk = image.walk_below("")?;
    let mut files = walk.with_attributes().collect::<Result<BTreeMap<PathBuf, Attr>, _>>()?;
    let kept = Path::new("lost+found");
    let is_empty = files.keys().filter(|path| path.starts_with(kept)).count() == 1;
    if is_empty && files.get(kept).is_some_and(|attr| attr.kind == FileKind::Directory) {
        files.remove(kept);
    }
    Ok(files)
}

fn difference(
    (old, before): (&Image, &Attr),
    (new, after): (&Image, &Attr),
) -> Result<Option<Change>, Error> {
    if before.kind != after.kind {
        return Ok(Some(Change::Kind));
    }
    let has_contents = matches!(before.kind, FileKind::Regular | FileKind::Symlink);
    if has_contents && (before.size != after.size || !is_same((old, before), (new, after))?) {
        return Ok(Some(Change::Contents));
    }
    let fields = |attr: &Attr| (attr.perm, attr.uid, attr.gid, attr.nlink, attr.device, attr.mtime);
    // The number of names of a directory is a matter of the format.
    let fields = |attr: &Attr| {
        let mut fields = fields(attr);
        if attr.kind == FileKind::Directory {
            fields.3 = 0;
        }
        fields
    };
    let xattrs =
        |image: &Image, ino: Ino| image.inspect().xattrs(ino).map_err(|error| image.about(error));
    let is_same =
        fields(before) == fields(after) && xattrs(old, before.ino)? == xattrs(new, after.ino)?;
    Ok((!is_same).then_some(Change::Metadata))
}

/// Whether two files of the same length have the same contents.
fn is_same((old, before): (&Image, &Attr), (new, after): (&Image, &Attr)) -> Result<bool, Error> {
    if before.kind == FileKind::Symlink {
        let target = |image: &Image, ino| image.contents(ino).map_err(|error| image.about(error));
        return Ok(target(old, before.ino)? == target(new, after.ino)?);
    }
    let (mut left, mut right) = (vec![0; PIECE], vec![0; PIECE]);
    let read = |image: &Image, ino, at, piece: &mut [u8]| -> Result<usize, Error> {
        let read: Result<usize, FsError> = image.inspect().read(ino, ByteLen::new(at), piece);
        read.map_err(|error| image.about(error))
    };
    let mut at = 0;
    loop {
        let len = read(old, before.ino, at, &mut left)?;
        let other = read(new, after.ino, at, &mut right)?;
        if left[..len] != right[..other] {
            return Ok(false);
        }
        if len < PIECE {
            return Ok(true);
        }
        at += len as u64;
    }
}
