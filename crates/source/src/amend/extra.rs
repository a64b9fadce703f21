//! Contents that are not those of the source: files of the host, and empty ones.

use crate::directory::data_segments;
use crate::list;
use rustix::fd::AsFd;
use seekless_device::HostRange;
use seekless_fs::source::{Content, EmptySource, Segment, Source};
use seekless_fs::tree::{NodeAttr, NodeId, Tree};
use seekless_fs::{FileKind, FsError, Timestamp};
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A layer of contents, whose nodes are numbered in the order in which they were added. Its tree is
/// empty: the names are those of the tree under change.
pub(super) struct ExtraFiles {
    files: Vec<ExtraFile>,
    empty: EmptySource,
}

enum ExtraFile {
    Empty,
    Host { path: PathBuf, version: Version },
}

/// Tells a file from a later one, or from itself after a change.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    size: u64,
    mtime: Timestamp,
}

impl Version {
    fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino(), size: found.len(), mtime: mtime_of(found) }
    }
}

/// The modification time of a file of the host.
pub(super) fn mtime_of(found: &Metadata) -> Timestamp {
    let nanos = u32::try_from(found.mtime_nsec()).unwrap_or_default();
    Timestamp { secs: found.mtime(), nanos }
}

impl ExtraFiles {
    pub(super) fn new() -> Self {
        let mtime = Timestamp::default();
        let kind = FileKind::Directory;
        let root =
            NodeAttr { kind, perm: 0, uid: 0, gid: 0, size: 0, mtime, times: None, flags: 0 };
        Self { files: Vec::new(), empty: EmptySource::new(root) }
    }

    /// Adds an empty file.
    pub(super) fn add_empty(&mut self) -> NodeId {
        self.add(ExtraFile::Empty)
    }

    /// Adds a regular file of the host, with its metadata.
    pub(super) fn add_host(&mut self, path: &Path, found: &Metadata) -> NodeId {
        self.add(ExtraFile::Host { path: path.to_path_buf(), version: Version::of(found) })
    }

    fn add(&mut self, file: ExtraFile) -> NodeId {
        let number = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        self.files.push(file);
        NodeId::new(number)
    }

    /// Opens a file of the host that has not changed; `None` for an empty file.
    fn open_host(&self, node: NodeId) -> Result<Option<HostContent<'_>>, FsError> {
        match self.files.get(node.index()) {
            Some(ExtraFile::Host { path, version }) => {
                let mut options = File::options();
                let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
                let file = options.read(true).custom_flags(nonblock).open(path);
                let file = file.map_err(|error| FsError::io(path.display().to_string(), error))?;
                let mut content = HostContent { file, path, version: *version };
                content.verify()?;
                Ok(Some(content))
            }
            Some(ExtraFile::Empty) => Ok(None),
            None => Err(FsError::NotFound("a file that was added".into())),
        }
    }
}

impl Source for ExtraFiles {
    fn tree(&self) -> &Tree {
        self.empty.tree()
    }

    fn segments(&self, node: NodeId) -> Result<Vec<Segment>, FsError> {
        let Some(content) = self.open_host(node)? else { return Ok(Vec::new()) };
        let found = data_segments(content.file.as_fd(), content.version.size);
        found.map_err(|error| FsError::io(content.path.display().to_string(), error.into()))
    }

    fn open(&self, node: NodeId) -> Result<Box<dyn Content + '_>, FsError> {
        Ok(match self.open_host(node)? {
            Some(content) => Box::new(content),
            None => Box::new(NoContent),
        })
    }
}

struct NoContent;

impl Content for NoContent {
    fn read_at(&mut self, _: u64, buf: &mut [u8]) -> Result<(), FsError> {
        if buf.is_empty() { Ok(()) } else { Err(FsError::SourceChanged("an empty file".into())) }
    }
}

struct HostContent<'a> {
    file: File,
    path: &'a Path,
    version: Version,
}

impl HostContent<'_> {
    fn changed(&self) -> FsError {
        FsError::SourceChanged(self.path.display().to_string())
    }
}

impl Content for HostContent<'_> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), FsError> {
        self.file.read_exact_at(buf, offset).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.changed(),
            _ => FsError::io(self.path.display().to_string(), error),
        })
    }

    fn host_range(&self, offset: u64, len: u64) -> Option<HostRange<'_>> {
        let len = len.min(self.version.size.checked_sub(offset)?);
        (len > 0).then(|| HostRange { file: self.file.as_fd(), offset, len })
    }

    fn verify(&mut self) -> Result<(), FsError> {
        let found = self.file.metadata();
        let found = found.map_err(|error| FsError::io(self.path.display().to_string(), error))?;
        if found.is_file() && Version::of(&found) == self.version {
            Ok(())
        } else {
            Err(self.changed())
        }
    }
}

/// The modification time of a list, for files that only it has.
pub(super) fn mtime_of_list(path: &Path) -> Result<Timestamp, list::ListError> {
    let found = std::fs::metadata(path);
    found
        .map(|found| mtime_of(&found))
        .map_err(|error| list::ListError::Io { path: path.to_path_buf(), error })
}
