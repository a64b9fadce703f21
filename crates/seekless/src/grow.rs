//! A UFS volume made larger.

use crate::{Error, Time};
use seekless_fs::growth;
use seekless_images::{Place, growth::grow, growth::plan};
use seekless_units::ByteLen;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Growth of a UFS image, as by growfs of FreeBSD: to the size of its file, device or partition, or to
/// [`Grow::size`]. The directory of a mount stands for the volume that this project has mounted on it
/// for changes, which grows while it is in use. A growth that was interrupted is completed, or taken back, by
/// [`Check::repair`](crate::Check::repair).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use seekless::{Build, Check, Format, Grow, Outcome};
///
/// # let work = tempfile::tempdir()?;
/// # let (tree, path) = (work.path().join("tree"), work.path().join("disk.ufs"));
/// # std::fs::create_dir(&tree)?;
/// Build::of([&tree]).format(Format::Ufs2).size(32 << 20).write(&path)?;
/// let grow = Grow::of(&path).size(96 << 20);
/// let planned = grow.plan()?;
/// assert_eq!(grow.run()?, planned);
/// assert_eq!((planned.bytes_before, planned.bytes), (32 << 20, 96 << 20));
/// assert_eq!(Check::of(&path).run()?.outcome, Outcome::Clean);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Grow {
    path: PathBuf,
    place: Place,
    size: Option<u64>,
    time: Option<Time>,
}

/// The growth of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Growth {
    /// Bytes of the volume before.
    pub bytes_before: u64,
    /// Bytes of the volume afterwards.
    pub bytes: u64,
    /// Cylinder groups before.
    pub groups_before: u32,
    /// Cylinder groups afterwards.
    pub groups: u32,
    /// Whether the summary of the cylinder groups moves, since it needs more space than it has.
    pub summary_moves: bool,
    /// Bytes at the end that stay unused: too few for a fragment, or for a further cylinder group.
    pub unused_bytes: u64,
}

impl From<growth::Growth> for Growth {
    fn from(growth: growth::Growth) -> Self {
        Self {
            bytes_before: growth.before.get(),
            bytes: growth.after.get(),
            groups_before: growth.groups_before,
            groups: growth.groups_after,
            summary_moves: growth.moves_summary,
            unused_bytes: growth.unused.get(),
        }
    }
}

impl Grow {
    /// Growth of the file system in an image file or block device, or of one that is mounted on a
    /// directory.
    pub fn of(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_path_buf(), place: Place::default(), size: None, time: None }
    }

    /// The partition that is meant, as in [`Open::partition`](crate::Open::partition).
    #[must_use]
    pub fn partition(mut self, partition: impl Into<String>) -> Self {
        self.place.partition = Some(partition.into());
        self
    }

    /// Bytes of the volume afterwards. A regular file that is shorter is extended by a hole.
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = Some(bytes);
        self
    }

    /// The time of changed structures, in place of the present. A volume in use has its own.
    #[must_use]
    pub fn time(mut self, time: Time) -> Self {
        self.time = Some(time);
        self
    }

    /// Computes the growth, and writes nothing.
    ///
    /// # Errors
    /// As [`Grow::run`].
    pub fn plan(&self) -> Result<Growth, Error> {
        plan(&self.path, &self.place, self.bytes()).map(Growth::from)
    }

    /// Makes the volume larger.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind) for a size that the volume cannot have,
    /// [`ErrorKind::NoSpace`](crate::ErrorKind) for one beyond its device or partition, or with no
    /// room for more, [`ErrorKind::Unsupported`](crate::ErrorKind) for another format and for a volume
    /// that cannot be changed, such as one with snapshots, [`ErrorKind::Corrupt`](crate::ErrorKind) for
    /// a damaged one. Nothing is written then. [`ErrorKind::System`](crate::ErrorKind).
    pub fn run(&self) -> Result<Growth, Error> {
        let now = self.time.map_or_else(seekless_serve::now, Time::into_timestamp);
        grow(&self.path, &self.place, self.bytes(), now).map(Growth::from)
    }

    fn bytes(&self) -> Option<ByteLen> {
        self.size.map(ByteLen::new)
    }
}
