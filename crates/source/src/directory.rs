//! A directory of the running system as a source.
//!
//! The walk proceeds level by level; the directories of a level are listed on all cores. Access,
//! change and creation times are not recorded: they change without the contents changing, so two
//! builds of the same directory would differ. All of a file's times are its `mtime`. The extended
//! attributes recorded are those that a disk format can store: `user`, `trusted`, `security` and
//! POSIX ACLs.

mod walk;

use crate::options::{MetadataCalls, TreeOptions};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use seekless_device::HostRange;
use seekless_fs::FsError;
use seekless_fs::source::{Content, Segment, Source};
use seekless_fs::tree::{NodeId, Payload, Tree};
use std::path::Path;

/// A walked directory, open for reading its files.
#[derive(Debug)]
pub struct DirectorySource {
    root: OwnedFd,
    tree: Tree,
}

impl DirectorySource {
    /// Walks a directory, or the target of a symlink.
    ///
    /// # Errors
    /// [`FsError::Io`] with the path of the unreadable file; [`FsError::SourceChanged`] when a file
    /// vanishes during the walk.
    pub fn open(path: &Path, options: &TreeOptions) -> Result<Self, FsError> {
        let shown = || path.display().to_string();
        if let MetadataCalls::Impossible(library) = options.calls {
            let what = format!(
                "{}: a static program does not see what {library} shows of a directory \
                 (use a dynamically linked one, or an archive made under {library})",
                shown()
            );
            return Err(FsError::Unsupported(what));
        }
        let root = rustix::fs::open(path, DIRECTORY & !OFlags::NOFOLLOW, Mode::empty())
            .map_err(|error| FsError::io(shown(), error.into()))?;
        // Attributes are read through it, whatever the length of a path.
        if let Err(error) = Path::new("/proc/self/fd").metadata() {
            return Err(FsError::io("/proc/self/fd (is /proc mounted?)", error));
        }
        let tree = walk::walk(root.as_fd(), path, options)?;
        Ok(Self { root, tree })
    }

    fn open_file(&self, node: NodeId) -> Result<OwnedFd, FsError> {
        if !matches!(self.tree.node(node).payload, Payload::Content(_)) {
            let path = self.tree.shown_path(node);
            return Err(FsError::Invalid(format!("{path}: not a regular file")));
        }
        let mut buf = [0; PATH_BUF];
        let opened = match self.tree.path_in(node, &mut buf) {
            Some(path) => open_at(self.root.as_fd(), path, FILE),
            None => open_at(self.root.as_fd(), &self.tree.path(node), FILE),
        };
        opened.map_err(|error| match error {
            Errno::NOENT | Errno::LOOP | Errno::NOTDIR => self.changed(node),
            error => FsError::io(self.tree.shown_path(node), error.into()),
        })
    }

    /// The error for a failed read: the file was replaced, or the system's error.
    fn read_failed(&self, file: BorrowedFd<'_>, node: NodeId, error: Errno) -> FsError {
        match self.check(file, node) {
            Err(changed) => changed,
            Ok(()) => FsError::io(self.tree.shown_path(node), error.into()),
        }
    }

    /// Checks that an open file is still the walked one.
    fn check(&self, file: BorrowedFd<'_>, node: NodeId) -> Result<(), FsError> {
        let stat = rustix::fs::fstat(file)
            .map_err(|error| FsError::io(self.tree.shown_path(node), error.into()))?;
        match self.tree.node(node).payload {
            Payload::Content(key) if content_key(&stat) | SPARSE == key | SPARSE => Ok(()),
            _ => Err(self.changed(node)),
        }
    }

    fn changed(&self, node: NodeId) -> FsError {
        FsError::SourceChanged(self.tree.shown_path(node))
    }
}

impl Source for DirectorySource {
    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn segments(&self, node: NodeId) -> Result<Vec<Segment>, FsError> {
        let size = self.tree.node(node).size;
        let sparse =
            matches!(self.tree.node(node).payload, Payload::Content(key) if key & SPARSE != 0);
        if size == 0 {
            return Ok(Vec::new());
        }
        if !sparse {
            return Ok(vec![Segment { offset: 0, len: size }]);
        }
        let file = self.open_file(node)?;
        let segments = data_segments(file.as_fd(), size)
            .map_err(|error| self.read_failed(file.as_fd(), node, error))?;
        self.check(file.as_fd(), node)?;
        Ok(segments)
    }

    fn open(&self, node: NodeId) -> Result<Box<dyn Content + '_>, FsError> {
        let file = self.open_file(node)?;
        Ok(Box::new(FileContent { file, source: self, node }))
    }
}

struct FileContent<'a> {
    file: OwnedFd,
    source: &'a DirectorySource,
    node: NodeId,
}

impl Content for FileContent<'_> {
    fn read_at(&mut self, mut offset: u64, mut buf: &mut [u8]) -> Result<(), FsError> {
        while !buf.is_empty() {
            match rustix::io::pread(&self.file, &mut *buf, offset) {
                Ok(0) => return Err(self.source.changed(self.node)),
                Ok(n) => {
                    offset += n as u64;
                    buf = &mut buf[n..];
                }
                Err(Errno::INTR) => {}
                Err(error) => {
                    return Err(self.source.read_failed(self.file.as_fd(), self.node, error));
                }
            }
        }
        Ok(())
    }

    fn host_range(&self, offset: u64, len: u64) -> Option<HostRange<'_>> {
        let rest = self.source.tree.node(self.node).size.checked_sub(offset)?;
        let len = len.min(rest);
        (len > 0).then(|| HostRange { file: self.file.as_fd(), offset, len })
    }

    fn verify(&mut self) -> Result<(), FsError> {
        self.source.check(self.file.as_fd(), self.node)
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
// NONBLOCK: if the file has become a FIFO meanwhile, opening it must not block.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NOCTTY)
    .union(OFlags::NONBLOCK);

/// Size of a stack buffer for paths, enough for nearly all files.
const PATH_BUF: usize = 1024;

/// Maximum length of a path passed to the system at once; `PATH_MAX` is 4096 with the zero byte.
const PATH_PIECE: usize = 4000;

/// Opens a path below `root` without changing its access time if that is permitted. Paths of any
/// length are followed in pieces.
fn open_at(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    if path.len() <= PATH_PIECE {
        let open = |flags| rustix::fs::openat(root, path, flags, Mode::empty());
        return match open(flags | OFlags::NOATIME) {
            Err(Errno::PERM) => open(flags),
            opened => opened,
        };
    }
    let slash = path[..PATH_PIECE].iter().rposition(|&byte| byte == b'/');
    let slash = slash.ok_or(Errno::NAMETOOLONG)?;
    let dir = open_at(root, &path[..slash], DIRECTORY)?;
    open_at(dir.as_fd(), &path[slash + 1..], flags)
}

/// Flag in a key: the file has fewer blocks than its size needs.
const SPARSE: u64 = 1;

/// Identifies a file and its version by one number: a hash of device, inode, size and modification
/// time, with a flag for possible holes. So a million files need no table beside the tree.
fn content_key(stat: &rustix::fs::Stat) -> u64 {
    let fields =
        [stat.st_dev, stat.st_ino, stat.st_size as u64, stat.st_mtime as u64, stat.st_mtime_nsec];
    let hash = fields.iter().fold(0x5ee4_1e55_u64, |hash, &field| {
        let mixed = (hash ^ field).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    });
    let sparse = (stat.st_blocks as u64).saturating_mul(512) < stat.st_size as u64;
    (hash & !SPARSE) | u64::from(sparse)
}

/// The data segments of a file, as its file system reports them.
pub(crate) fn data_segments(file: BorrowedFd<'_>, size: u64) -> Result<Vec<Segment>, Errno> {
    let mut segments = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start.min(size),
            Err(Errno::NXIO) => break,
            // The file system does not support holes.
            Err(Errno::INVAL) => at,
            Err(error) => return Err(error),
        };
        let end = match rustix::fs::seek(file, SeekFrom::Hole(start)) {
            Ok(end) => end.min(size),
            Err(Errno::INVAL | Errno::NXIO) => size,
            Err(error) => return Err(error),
        };
        if end > start {
            segments.push(Segment { offset: start, len: end - start });
        }
        at = end.max(at + 1);
    }
    Ok(segments)
}
