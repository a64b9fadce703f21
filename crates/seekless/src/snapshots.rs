//! The snapshots of a UFS volume.

use crate::{Error, Time};
use seekless_fs::format::OpenOptions;
use seekless_fs::snapshot::SnapshotFile;
use seekless_images::{Place, snapshot};
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The snapshots of a UFS image, or of a volume that seekless has mounted: files in which the volume
/// keeps its own state of an earlier moment, in the format of FreeBSD. [`open()`](crate::open()) and
/// all else that reads an image takes `IMAGE@SNAPSHOT` for that state. The name of a snapshot is its
/// path in the volume, or its name in `/.snap`.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use seekless::{Build, Format, Snapshots};
///
/// # let work = tempfile::tempdir()?;
/// # let (tree, path) = (work.path().join("tree"), work.path().join("disk.ufs"));
/// # std::fs::create_dir(&tree)?;
/// std::fs::write(tree.join("file"), "text")?;
/// Build::of([&tree]).format(Format::Ufs2).size(64 << 20).write(&path)?;
/// let snapshots = Snapshots::of(&path);
/// let inode = snapshots.take("daily")?;
/// snapshots.take("/weekly")?;
///
/// let listed = snapshots.list()?;
/// assert_eq!(listed[0].inode, inode);
/// assert_eq!(listed[1].path.as_deref(), Some("/weekly".as_ref()));
/// let then = seekless::open(format!("{}@daily", path.display()))?;
/// assert_eq!(then.read("/file")?, b"text");
///
/// snapshots.remove(["daily"])?;
/// assert_eq!(snapshots.list()?.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Snapshots {
    path: PathBuf,
    place: Place,
    time: Option<Time>,
}

/// A snapshot of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// Inode of the file.
    pub inode: u32,
    /// Path of the file; `None` if no directory has it, or none that the caller may read.
    pub path: Option<PathBuf>,
    /// When it was taken, in seconds since 1970.
    pub made: i64,
    /// Bytes of the volume that only the file takes.
    pub held_bytes: u64,
}

impl From<SnapshotFile> for Snapshot {
    fn from(found: SnapshotFile) -> Self {
        Self {
            inode: found.ino.get(),
            path: found.path.map(|path| PathBuf::from(OsString::from_vec(path))),
            made: found.made,
            held_bytes: found.held.get(),
        }
    }
}

impl Snapshots {
    /// The snapshots of an image file or block device, or of the volume that is mounted on a
    /// directory.
    pub fn of(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_path_buf(), place: Place::default(), time: None }
    }

    /// The partition that is meant, as in [`Open::partition`](crate::Open::partition).
    #[must_use]
    pub fn partition(mut self, partition: impl Into<String>) -> Self {
        self.place.partition = Some(partition.into());
        self
    }

    /// The time of new snapshots and of changed directories, in place of the present. A mounted volume
    /// always uses the present.
    #[must_use]
    pub fn time(mut self, time: Time) -> Self {
        self.time = Some(time);
        self
    }

    /// Lists the snapshots, oldest first. Of a mounted volume, which must be mounted for changes, the
    /// directories are searched for their paths.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind) for a format without snapshots,
    /// [`ErrorKind::Corrupt`](crate::ErrorKind), [`ErrorKind::System`](crate::ErrorKind).
    pub fn list(&self) -> Result<Vec<Snapshot>, Error> {
        let found = match self.path.is_dir() {
            true => snapshot::list_mounted(&self.path)?,
            false => snapshot::list(&self.path, &self.place, OpenOptions::default())?,
        };
        Ok(found.into_iter().map(Snapshot::from).collect())
    }

    /// Takes a snapshot, and returns its inode. An image must be in order and not in use. While a volume
    /// is mounted, programs may go on writing.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind) for a name that is taken and for a directory that is not
    /// there, [`ErrorKind::NoSpace`](crate::ErrorKind) if there is no room, or twenty snapshots,
    /// [`ErrorKind::Unsupported`](crate::ErrorKind) for a volume that cannot be changed,
    /// [`ErrorKind::System`](crate::ErrorKind), also for callers who may not.
    pub fn take(&self, name: impl AsRef<Path>) -> Result<u32, Error> {
        let name = name.as_ref().as_os_str().as_bytes();
        let ino = match self.path.is_dir() {
            true => snapshot::take_mounted(&self.path, name)?,
            false => snapshot::take(&self.path, &self.place, name, self.now())?,
        };
        Ok(ino.get())
    }

    /// Removes snapshots, and returns their number. The others stay as they are. An image must be in
    /// order and not in use. While a volume is mounted, programs may go on writing.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind) for a file that is no snapshot,
    /// [`ErrorKind::Unsupported`](crate::ErrorKind) for a volume that cannot be changed,
    /// [`ErrorKind::NoSpace`](crate::ErrorKind) if there is no room for copies that the others may
    /// need, [`ErrorKind::System`](crate::ErrorKind), also for callers who may not, and for a snapshot
    /// of a mounted volume that somebody has open.
    pub fn remove<N: AsRef<Path>>(&self, names: impl IntoIterator<Item = N>) -> Result<u64, Error> {
        let names = names.into_iter();
        let names: Vec<Vec<u8>> =
            names.map(|name| name.as_ref().as_os_str().as_bytes().to_vec()).collect();
        self.remove_some(Some(&names))
    }

    /// Removes all snapshots, and returns their number.
    ///
    /// # Errors
    /// As [`Snapshots::remove`]; [`ErrorKind::Unsupported`](crate::ErrorKind) for a snapshot without a
    /// name.
    pub fn remove_all(&self) -> Result<u64, Error> {
        self.remove_some(None)
    }

    fn remove_some(&self, names: Option<&[Vec<u8>]>) -> Result<u64, Error> {
        match self.path.is_dir() {
            true => snapshot::remove_mounted(&self.path, names),
            false => snapshot::remove(&self.path, &self.place, names, self.now()),
        }
    }

    fn now(&self) -> seekless_fs::Timestamp {
        self.time.map_or_else(seekless_serve::now, Time::into_timestamp)
    }
}
