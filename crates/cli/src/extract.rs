//! Copies files of an image into a directory of this machine.
//!
//! The image may be hostile. Every file is created relative to an open
//! directory that was itself created or opened without following symlinks, and
//! every name is checked, so nothing is ever written outside the destination.

mod incoming;

use crate::failure::Failure;
use crate::show;
use incoming::Incoming;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use seekless_device::Reflink;
use seekless_fs::acl::AclKind;
use seekless_fs::inspect::sorted_entries;
use seekless_fs::mapped::MappedContent;
use seekless_fs::source::Content;
use seekless_fs::{Attr, BlockMap, FileKind, Inspect, Xattr};
use seekless_images::ReflinkMode;
use seekless_images::output::input_file;
use seekless_images::targets::Cloning;
use seekless_units::{ByteLen, Ino};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;
/// Maximum number of warnings that are kept; more are only counted.
const WARNINGS: usize = 100;

/// Counts of a copy, and its warnings.
#[derive(Default, Debug)]
pub(crate) struct Summary {
    pub(crate) files: u64,
    pub(crate) directories: u64,
    /// Bytes of contents written, without holes.
    pub(crate) bytes: u64,
    /// Files that could not be written at all.
    pub(crate) skipped: u64,
    pub(crate) warnings: Vec<String>,
}

/// A copy of files from an image.
pub(crate) struct Extraction<'a> {
    image: &'a dyn Inspect,
    /// Device and inode number of the file that contains the image.
    image_file: Option<(u64, u64)>,
    top: OwnedFd,
    privileged: bool,
    /// Files with several names: the path of the first name written, relative to `top`.
    linked: HashMap<Ino, Vec<u8>>,
    /// Directories that were copied or are being copied.
    seen: HashSet<Ino>,
    buf: Vec<u8>,
    reflink: ReflinkMode,
    /// How contents are cloned to the file system of the files, once that was asked.
    cloning: Option<Option<Arc<Cloning>>>,
    summary: Summary,
}

/// A directory whose copy is in progress.
struct Open {
    fd: OwnedFd,
    /// Path relative to `top`, with a trailing slash unless it is empty.
    path: Vec<u8>,
    attr: Attr,
    xattrs: Vec<Xattr>,
    entries: std::vec::IntoIter<(Vec<u8>, Ino)>,
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn failed(path: &[u8], error: Errno) -> Failure {
    Failure::io(show::name(path), &error.into())
}

fn is_safe(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.iter().any(|b| matches!(b, b'/' | 0))
}

impl<'a> Extraction<'a> {
    /// A copy from an image, which lies in the file `path`, to the directory `top`.
    pub(crate) fn new(
        (image, path): (&'a dyn Inspect, &Path),
        top: &Path,
        reflink: ReflinkMode,
    ) -> Result<Self, Failure> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, top, flags, Mode::empty())
            .map_err(|error| Failure::io(top.display(), &error.into()))?;
        Ok(Self {
            image,
            image_file: input_file(path).metadata().ok().map(|meta| (meta.dev(), meta.ino())),
            top: fd,
            privileged: rustix::process::geteuid().is_root(),
            linked: HashMap::new(),
            seen: HashSet::new(),
            buf: vec![0; CHUNK],
            reflink,
            cloning: None,
            summary: Summary::default(),
        })
    }

    /// Ends the copy; `shown` is its name in errors.
    pub(crate) fn finish(self, shown: &Path) -> Result<Summary, Failure> {
        if let Some(Some(cloning)) = &self.cloning {
            cloning.finish(shown)?;
        }
        Ok(self.summary)
    }

    /// Copies a file or a directory tree to a name in `top`.
    pub(crate) fn copy(&mut self, ino: Ino, name: &[u8]) -> Result<(), Failure> {
        let top = self.top.try_clone().map_err(|error| Failure::io("destination", &error))?;
        if let Some(dir) = self.entry(top.as_fd(), b"", name, ino)? {
            self.descend(dir)?;
        }
        Ok(())
    }

    /// Copies the entries of a directory, and its attributes, to `top`.
    pub(crate) fn copy_contents(&mut self, ino: Ino) -> Result<(), Failure> {
        let fd = self.top.try_clone().map_err(|error| Failure::io("destination", &error))?;
        let dir = self.open_directory(fd, Vec::new(), ino, self.image.attr(ino)?)?;
        self.descend(dir)
    }

    /// Copies a directory tree depth first, with a stack instead of recursion.
    fn descend(&mut self, dir: Open) -> Result<(), Failure> {
        let mut stack = vec![dir];
        while let Some(dir) = stack.last_mut() {
            if let Some((name, ino)) = dir.entries.next() {
                let path = dir.path.clone();
                if let Some(below) = self.entry(dir.fd.as_fd(), &path, &name, ino)? {
                    stack.push(below);
                }
            } else if let Some(dir) = stack.pop() {
                // Last: writing into a directory changes its times.
                self.set_attributes(dir.fd.as_fd(), &dir.path, &dir.attr, &dir.xattrs)?;
            }
        }
        Ok(())
    }

    fn warn(&mut self, path: &[u8], what: impl std::fmt::Display) {
        if self.summary.warnings.len() < WARNINGS {
            self.summary.warnings.push(format!("{}: {what}", show::name(path)));
        }
    }

    fn skip(&mut self, path: &[u8], what: impl std::fmt::Display) {
        self.summary.skipped += 1;
        self.warn(path, what);
    }

    /// Copies an entry. A directory is created, and returned for its contents to be copied.
    fn entry(
        &mut self,
        dir: BorrowedFd<'_>,
        above: &[u8],
        name: &[u8],
        ino: Ino,
    ) -> Result<Option<Open>, Failure> {
        let path = [above, name].concat();
        if !is_safe(name) {
            self.skip(&path, "not a valid file name");
            return Ok(None);
        }
        let attr = self.image.attr(ino)?;
        if attr.kind == FileKind::Directory {
            return self.make_directory(dir, path, name, attr);
        }
        let os_name = OsStr::from_bytes(name);
        if self.is_image(dir, os_name) {
            self.skip(&path, "is the image itself in the destination");
            return Ok(None);
        }
        if let Some(first) = self.linked.get(&ino).filter(|_| attr.nlink > 1) {
            let first = OsStr::from_bytes(first);
            let link = |to: &OsStr| rustix::fs::linkat(&self.top, first, dir, to, AtFlags::empty());
            let linked = Incoming::other(dir, os_name, link).and_then(Incoming::finish);
            linked.map_err(|error| failed(&path, error))?;
            return Ok(None);
        }
        if self.make_file(dir, &path, os_name, &attr)? {
            self.summary.files += 1;
            if attr.nlink > 1 {
                self.linked.insert(ino, path);
            }
        }
        Ok(None)
    }

    /// Whether the image lies in a file of this name.
    fn is_image(&self, dir: BorrowedFd<'_>, name: &OsStr) -> bool {
        let there = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        there.is_ok_and(|there| Some((there.st_dev, there.st_ino)) == self.image_file)
    }

    fn make_directory(
        &mut self,
        dir: BorrowedFd<'_>,
        path: Vec<u8>,
        name: &[u8],
        attr: Attr,
    ) -> Result<Option<Open>, Failure> {
        if self.seen.contains(&attr.ino) {
            self.skip(&path, "a directory that appears in more than one place");
            return Ok(None);
        }
        let name = OsStr::from_bytes(name);
        match rustix::fs::mkdirat(dir, name, Mode::from(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(&path, error)),
        }
        let fd = rustix::fs::openat(dir, name, DIRECTORY, Mode::empty())
            .map_err(|error| failed(&path, error))?;
        let ino = attr.ino;
        self.open_directory(fd, [&path[..], b"/"].concat(), ino, attr).map(Some)
    }

    fn open_directory(
        &mut self,
        fd: OwnedFd,
        path: Vec<u8>,
        ino: Ino,
        attr: Attr,
    ) -> Result<Open, Failure> {
        self.seen.insert(ino);
        self.summary.directories += 1;
        let entries = sorted_entries(self.image, ino)?.into_iter();
        Ok(Open { fd, path, attr, xattrs: self.image.shown_xattrs(ino)?, entries })
    }

    /// Creates a file that is no directory; false if that failed and the file is skipped.
    fn make_file(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &[u8],
        name: &OsStr,
        attr: &Attr,
    ) -> Result<bool, Failure> {
        let made = match attr.kind {
            FileKind::Regular => return self.make_regular(dir, path, name, attr).map(|()| true),
            FileKind::Symlink => {
                let target = self.image.read_link(attr.ino)?;
                let target = OsStr::from_bytes(&target);
                Incoming::other(dir, name, |to| rustix::fs::symlinkat(target, dir, to))
            }
            kind => {
                let (kind, mode) = (node_type(kind), Mode::from(0o600));
                let device = rustix::fs::makedev(attr.device.major, attr.device.minor);
                Incoming::other(dir, name, |to| rustix::fs::mknodat(dir, to, kind, mode, device))
            }
        };
        let made = match made {
            Ok(made) => made,
            Err(error) => {
                self.skip(path, std::io::Error::from(error));
                return Ok(false);
            }
        };
        self.set_node_attributes(dir, path, made.name_now(), attr)?;
        made.finish().map_err(|error| failed(path, error))?;
        Ok(true)
    }

    fn make_regular(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &[u8],
        name: &OsStr,
        attr: &Attr,
    ) -> Result<(), Failure> {
        let made = Incoming::regular(dir, name);
        let (file, made) = made.map_err(|error| failed(path, error))?;
        self.copy_contents_of(&file, path, attr)?;
        let xattrs = self.image.shown_xattrs(attr.ino)?;
        self.set_attributes(file.as_fd(), path, attr, &xattrs)?;
        made.finish().map_err(|error| failed(path, error))
    }

    /// Copies the contents of a file, except holes.
    fn copy_contents_of(&mut self, file: &File, path: &[u8], attr: &Attr) -> Result<(), Failure> {
        let io = |error: std::io::Error| Failure::io(show::name(path), &error);
        let map = self.image.contents_map(attr.ino)?;
        let cloning = self.cloning_of(file, path, attr)?;
        file.set_len(attr.size).map_err(io)?;
        let block = u64::from(self.image.geometry().block_size);
        let mut ranges: Vec<(u64, u64)> = map
            .runs
            .iter()
            .filter(|run| !run.unwritten)
            .map(|run| (run.lbn.get() * block, (run.lbn.get() + run.extent.len) * block))
            .collect();
        if map.runs.is_empty() && attr.size <= 1 << 16 {
            // Contents in the inode, or a small hole, which costs no more to copy.
            ranges.push((0, attr.size));
        }
        if let Some(cloning) = cloning {
            let file = file.try_clone().map_err(io)?;
            ranges = self.clone_ranges(Reflink::new(&cloning.target(file)), map, ranges, attr.size);
        }
        for (start, end) in ranges {
            let (mut at, end) = (start, end.min(attr.size));
            while at < end {
                let want = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
                let len = self.image.read(attr.ino, ByteLen::new(at), &mut self.buf[..want])?;
                if len == 0 {
                    break;
                }
                file.write_all_at(&self.buf[..len], at).map_err(io)?;
                at += len as u64;
                self.summary.bytes += len as u64;
            }
        }
        Ok(())
    }

    /// How contents of a new file, still empty, are cloned. Short files cost no system call.
    fn cloning_of(
        &mut self,
        file: &File,
        path: &[u8],
        attr: &Attr,
    ) -> Result<Option<Arc<Cloning>>, Failure> {
        if attr.size < Cloning::SHORTEST {
            return Ok(None);
        }
        if self.cloning.is_none() {
            let shown = show::name(path);
            self.cloning = Some(Cloning::begin(self.reflink, file, Path::new(&shown))?);
        }
        Ok(self.cloning.clone().flatten())
    }

    /// Clones whole blocks of these ranges of a file, and returns the ranges that are left.
    fn clone_ranges(
        &mut self,
        reflink: Reflink<'_>,
        map: BlockMap,
        ranges: Vec<(u64, u64)>,
        size: u64,
    ) -> Vec<(u64, u64)> {
        let Some(device) = self.image.contents() else {
            reflink.no_file();
            return ranges;
        };
        let content = MappedContent::new(map.runs, self.image.geometry().block_size, device);
        let mut left = Vec::new();
        for (start, end) in ranges {
            let end = end.min(size);
            let cloned = content.host_range(start, end - start.min(end)).and_then(|range| {
                // All of the range is one run.
                reflink.clone_range(range, ByteLen::new(start), 1)
            });
            match cloned {
                Some(cloned) => {
                    self.summary.bytes += cloned.end - cloned.start;
                    left.push((start, start + cloned.start));
                    left.push((start + cloned.end, end));
                }
                None => left.push((start, end)),
            }
        }
        left
    }

    /// Sets owner first (that clears set-id bits), then mode, then times.
    fn set_attributes(
        &mut self,
        fd: BorrowedFd<'_>,
        path: &[u8],
        attr: &Attr,
        xattrs: &[Xattr],
    ) -> Result<(), Failure> {
        let fail = |error| failed(path, error);
        if self.privileged {
            let (uid, gid) = owner(attr);
            rustix::fs::fchown(fd, uid, gid).map_err(fail)?;
        }
        // Inherited ACLs of the destination would grant more than the mode of the file.
        for kind in not_among(xattrs) {
            let _ = rustix::fs::fremovexattr(fd, OsStr::from_bytes(kind.name()));
        }
        rustix::fs::fchmod(fd, Mode::from(u32::from(attr.perm))).map_err(fail)?;
        for xattr in xattrs {
            let name = OsStr::from_bytes(&xattr.name);
            if let Err(error) = rustix::fs::fsetxattr(fd, name, &xattr.value, XattrFlags::empty()) {
                let error = std::io::Error::from(error);
                self.warn(path, format!("{}: {error}", show::name(&xattr.name)));
            }
        }
        rustix::fs::futimens(fd, &times(attr)).map_err(fail)
    }

    /// Sets the attributes of files that must not be opened: symlinks and special files.
    fn set_node_attributes(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &[u8],
        name: &OsStr,
        attr: &Attr,
    ) -> Result<(), Failure> {
        let fail = |error| failed(path, error);
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        if self.privileged {
            let (uid, gid) = owner(attr);
            rustix::fs::chownat(dir, name, uid, gid, nofollow).map_err(fail)?;
        }
        let at = format!("/proc/self/fd/{}", dir.as_raw_fd());
        let at = Path::new(&at).join(name);
        let xattrs = self.image.shown_xattrs(attr.ino)?;
        if attr.kind != FileKind::Symlink {
            for kind in not_among(&xattrs) {
                let _ = rustix::fs::lremovexattr(&at, OsStr::from_bytes(kind.name()));
            }
            let mode = Mode::from(u32::from(attr.perm));
            rustix::fs::chmodat(dir, name, mode, AtFlags::empty()).map_err(fail)?;
        }
        for xattr in xattrs {
            let key = OsStr::from_bytes(&xattr.name);
            let set = rustix::fs::lsetxattr(&at, key, &xattr.value, XattrFlags::empty());
            if let Err(error) = set {
                let error = std::io::Error::from(error);
                self.warn(path, format!("{}: {error}", show::name(&xattr.name)));
            }
        }
        rustix::fs::utimensat(dir, name, &times(attr), nofollow).map_err(fail)
    }
}

fn owner(attr: &Attr) -> (Option<Uid>, Option<Gid>) {
    // The system calls take the largest number as "do not change".
    let uid = (attr.uid != u32::MAX).then(|| Uid::from_raw(attr.uid));
    let gid = (attr.gid != u32::MAX).then(|| Gid::from_raw(attr.gid));
    (uid, gid)
}

fn times(attr: &Attr) -> Timestamps {
    let spec = |time: seekless_fs::Timestamp| Timespec {
        tv_sec: time.secs,
        tv_nsec: i64::from(time.nanos),
    };
    Timestamps { last_access: spec(attr.atime), last_modification: spec(attr.mtime) }
}

fn node_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
    }
}

/// The kinds of ACLs that a file does not have.
fn not_among(xattrs: &[Xattr]) -> impl Iterator<Item = AclKind> {
    let has = |kind: AclKind| xattrs.iter().any(|xattr| xattr.name == kind.name());
    [AclKind::Access, AclKind::Default].into_iter().filter(move |&kind| !has(kind))
}
