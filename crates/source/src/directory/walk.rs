//! The parallel walk.

use super::{DIRECTORY, PATH_PIECE, content_key, open_at};
use crate::options::{MetadataCalls, TreeOptions};
use crate::tar::is_kept;
use rayon::prelude::*;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, RawDir, Stat};
use rustix::io::Errno;
use seekless_fs::tree::{NAME_MAX, NewPayload, NodeAttr, NodeId, OrderedBuilder, Tree};
use seekless_fs::{DeviceNumber, FileKind, FsError, Timestamp, Xattr};
use std::collections::HashMap;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Number of directories listed before their entries are added to the tree: enough to keep all
/// cores busy, few enough to need little memory besides the tree.
const BATCH: usize = 96;

/// Number of entries of one directory examined by one thread at a time.
const SLICE: usize = 512;

/// Walks the tree below `root`.
pub(super) fn walk(
    root: BorrowedFd<'_>,
    path: &Path,
    options: &TreeOptions,
) -> Result<Tree, FsError> {
    let io = |error: Errno| FsError::io(path.display().to_string(), error.into());
    let mut stat = rustix::fs::fstat(root).map_err(io)?;
    as_shown(options, &proc_path(root, b"."), &mut stat).map_err(io)?;
    let mut attr = node_attr(&stat, FileKind::Directory);
    options.apply_to_root(&mut attr)?;
    let mut xattrs = Vec::new();
    read_xattrs(options, &proc_path(root, b"."), &mut xattrs).map_err(io)?;
    options.apply_to_xattrs(&mut xattrs)?;
    let walk = DirectoryWalk { root, path, options, device: stat.st_dev };
    let mut tree = Assembly {
        builder: OrderedBuilder::new(attr, xattrs)?,
        links: HashMap::new(),
        next: vec![Directory { node: NodeId::ROOT, path: Box::default() }],
    };
    while !tree.next.is_empty() {
        let level = std::mem::take(&mut tree.next);
        for batch in level.chunks(BATCH) {
            let listings: Vec<DirectoryListing> =
                batch.par_iter().map(|dir| walk.list(&dir.path)).collect::<Result<_, _>>()?;
            for (dir, listing) in batch.iter().zip(listings) {
                tree.enter(&walk, dir, listing)?;
            }
        }
    }
    Ok(tree.builder.finish())
}

/// The common parameters of a walk through a directory tree.
struct DirectoryWalk<'a> {
    root: BorrowedFd<'a>,
    path: &'a Path,
    options: &'a TreeOptions,
    device: u64,
}

/// A directory that is in the tree but not yet listed.
struct Directory {
    node: NodeId,
    path: Box<[u8]>,
}

/// An entry of a directory that the walk examined.
struct WalkEntry {
    name: NameRef,
    stat: Stat,
    kind: FileKind,
    target: Box<[u8]>,
    xattrs: Vec<Xattr>,
}

/// A name in a listing's store, terminated by a zero byte.
#[derive(Clone, Copy)]
struct NameRef {
    start: u32,
    len: u8,
}

#[derive(Default)]
struct DirectoryListing {
    names: Vec<u8>,
    found: Vec<WalkEntry>,
}

impl DirectoryWalk<'_> {
    fn shown(&self, dir: &[u8], name: &[u8]) -> String {
        self.path.join(Path::new(os_str(dir))).join(os_str(name)).display().to_string()
    }

    fn failed(&self, dir: &[u8], name: &[u8], error: Errno) -> FsError {
        match error {
            Errno::NOENT => FsError::SourceChanged(self.shown(dir, name)),
            error => FsError::io(self.shown(dir, name), error.into()),
        }
    }

    /// Lists a directory and examines every entry, sorted by name.
    fn list(&self, dir: &[u8]) -> Result<DirectoryListing, FsError> {
        let at: &[u8] = if dir.is_empty() { b"." } else { dir };
        let fd = open_at(self.root, at, DIRECTORY).map_err(|e| self.failed(dir, b"", e))?;
        let (names, mut refs) = read_names(&fd).map_err(|e| self.failed(dir, b"", e))?;
        refs.sort_unstable_by(|a, b| name_in(&names, *a).cmp(name_in(&names, *b)));
        let slice = |refs: &[NameRef]| -> Result<Vec<WalkEntry>, FsError> {
            let mut prefix = self.xattr_prefix(dir, fd.as_fd());
            refs.iter()
                .filter_map(|&name| self.examine(dir, &fd, &mut prefix, &names, name).transpose())
                .collect()
        };
        let found = if refs.len() <= SLICE {
            slice(&refs)?
        } else {
            let parts: Vec<Vec<WalkEntry>> =
                refs.par_chunks(SLICE).map(slice).collect::<Result<_, _>>()?;
            parts.into_iter().flatten().collect()
        };
        Ok(DirectoryListing { names, found })
    }

    /// A path of the directory that ends in a slash. Before Linux 6.13 there are no calls for the
    /// extended attributes of a symlink or an unreadable file by directory and name. A path through
    /// `/proc` works for any length, but costs twice as much as the whole path.
    fn xattr_prefix(&self, dir: &[u8], fd: BorrowedFd<'_>) -> Vec<u8> {
        let root = self.path.as_os_str().as_encoded_bytes();
        if root.len() + dir.len() + NAME_MAX + 3 > PATH_PIECE {
            return proc_path(fd, b"");
        }
        let mut prefix = [root, b"/", dir].concat();
        if !dir.is_empty() {
            prefix.push(b'/');
        }
        prefix
    }

    /// Examines one entry; `None` if it is excluded. `prefix` is the path of the directory, reused
    /// between calls.
    fn examine(
        &self,
        dir: &[u8],
        fd: &OwnedFd,
        prefix: &mut Vec<u8>,
        names: &[u8],
        name: NameRef,
    ) -> Result<Option<WalkEntry>, FsError> {
        let bytes = name_in(names, name);
        let failed = |error| self.failed(dir, bytes, error);
        let mut stat = rustix::fs::statat(fd, c_name(names, name), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(failed)?;
        let kept = prefix.len();
        prefix.extend_from_slice(bytes);
        let shown = as_shown(self.options, prefix, &mut stat);
        prefix.truncate(kept);
        shown.map_err(failed)?;
        let kind = FileKind::from_mode(stat.st_mode as u16).ok_or_else(|| {
            FsError::Unsupported(format!("{}: unknown file type", self.shown(dir, bytes)))
        })?;
        let excludes = &self.options.excludes;
        if !excludes.is_empty() && excludes.matches(&join(dir, bytes), kind == FileKind::Directory)
        {
            return Ok(None);
        }
        let target = if kind == FileKind::Symlink {
            let target = rustix::fs::readlinkat(fd, c_name(names, name), Vec::new());
            target.map_err(failed)?.into_bytes().into_boxed_slice()
        } else {
            Box::default()
        };
        prefix.extend_from_slice(bytes);
        let mut xattrs = Vec::new();
        let read = read_xattrs(self.options, prefix, &mut xattrs);
        prefix.truncate(kept);
        read.map_err(failed)?;
        self.options.apply_to_xattrs(&mut xattrs)?;
        Ok(Some(WalkEntry { name, stat, kind, target, xattrs }))
    }
}

/// The tree under construction.
struct Assembly {
    builder: OrderedBuilder,
    /// Files with several names, by device and inode.
    links: HashMap<(u64, u64), NodeId>,
    next: Vec<Directory>,
}

impl Assembly {
    /// Adds a directory's entries to the tree.
    fn enter(
        &mut self,
        walk: &DirectoryWalk<'_>,
        dir: &Directory,
        listing: DirectoryListing,
    ) -> Result<(), FsError> {
        self.builder.enter(dir.node)?;
        for found in listing.found {
            let name = name_in(&listing.names, found.name);
            self.add(walk, dir, name, found)?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        walk: &DirectoryWalk<'_>,
        dir: &Directory,
        name: &[u8],
        found: WalkEntry,
    ) -> Result<(), FsError> {
        let WalkEntry { stat, kind, target, xattrs, .. } = found;
        let identity = (stat.st_dev, stat.st_ino);
        let linked = stat.st_nlink > 1 && kind != FileKind::Directory;
        if linked && let Some(&node) = self.links.get(&identity) {
            return self.builder.add_link(name, node);
        }
        let mut attr = node_attr(&stat, kind);
        walk.options.apply(&mut attr)?;
        let payload = match kind {
            FileKind::Regular => NewPayload::Content(content_key(&stat)),
            FileKind::Symlink => NewPayload::Target(&target),
            FileKind::CharDevice | FileKind::BlockDevice => NewPayload::Device(DeviceNumber {
                major: rustix::fs::major(stat.st_rdev),
                minor: rustix::fs::minor(stat.st_rdev),
            }),
            _ => NewPayload::None,
        };
        let node = self.builder.add(name, attr, payload, xattrs)?;
        if linked {
            self.links.insert(identity, node);
        }
        let crosses = walk.options.one_file_system && stat.st_dev != walk.device;
        if kind == FileKind::Directory && !crosses {
            self.next.push(Directory { node, path: join(&dir.path, name).into() });
        }
        Ok(())
    }
}

fn node_attr(stat: &Stat, kind: FileKind) -> NodeAttr {
    NodeAttr {
        kind,
        perm: stat.st_mode as u16 & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: stat.st_size as u64,
        mtime: Timestamp { secs: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 },
        times: None,
        flags: 0,
    }
}

fn os_str(bytes: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

fn name_in(names: &[u8], name: NameRef) -> &[u8] {
    let start = name.start as usize;
    &names[start..start + usize::from(name.len)]
}

fn c_name(names: &[u8], name: NameRef) -> &CStr {
    let start = name.start as usize;
    let bytes = &names[start..=start + usize::from(name.len)];
    CStr::from_bytes_with_nul(bytes).unwrap_or(c"")
}

/// All names of a directory, each terminated by a zero byte.
fn read_names(dir: &OwnedFd) -> Result<(Vec<u8>, Vec<NameRef>), Errno> {
    let mut buf = [MaybeUninit::uninit(); 32 << 10];
    let mut entries = RawDir::new(dir, &mut buf);
    let (mut names, mut refs) = (Vec::new(), Vec::new());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let start = u32::try_from(names.len()).map_err(|_| Errno::OVERFLOW)?;
        let len = u8::try_from(name.to_bytes().len()).map_err(|_| Errno::NAMETOOLONG)?;
        refs.push(NameRef { start, len });
        names.extend_from_slice(name.to_bytes_with_nul());
    }
    Ok((names, refs))
}

/// A path of `name` in an open directory, whatever the length of the directory's own path.
fn proc_path(dir: BorrowedFd<'_>, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    path
}

/// Replaces kind, mode, owner and device number by those that libc reports, if the options say so.
/// Device, inode, size and times remain those of the system.
fn as_shown(options: &TreeOptions, path: &[u8], stat: &mut Stat) -> Result<(), Errno> {
    let MetadataCalls::Libc(_) = options.calls else { return Ok(()) };
    let found = std::fs::symlink_metadata(os_str(path)).map_err(errno)?;
    stat.st_mode = found.mode();
    stat.st_uid = found.uid();
    stat.st_gid = found.gid();
    stat.st_rdev = found.rdev();
    Ok(())
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn read_xattrs(options: &TreeOptions, path: &[u8], xattrs: &mut Vec<Xattr>) -> Result<(), Errno> {
    if let MetadataCalls::Libc(read) = options.calls {
        let found = read(path).map_err(errno)?.into_iter();
        let kept = found.filter(|(name, _)| is_kept(name));
        xattrs.extend(kept.map(|(name, value)| Xattr { name, value }));
        return Ok(());
    }
    let mut list = [MaybeUninit::<u8>::uninit(); 256];
    match rustix::fs::llistxattr(path, &mut list) {
        Ok(([], _)) => Ok(()),
        Ok((names, _)) => read_values(path, names, xattrs),
        Err(Errno::NOTSUP) => Ok(()),
        // 64 KiB is the system's limit.
        Err(Errno::RANGE) => {
            let mut list = vec![0; 64 << 10];
            let len = rustix::fs::llistxattr(path, &mut list[..])?;
            read_values(path, &list[..len], xattrs)
        }
        Err(error) => Err(error),
    }
}

fn read_values(path: &[u8], names: &[u8], xattrs: &mut Vec<Xattr>) -> Result<(), Errno> {
    for name in names.split(|&byte| byte == 0).filter(|name| is_kept(name)) {
        let len = rustix::fs::lgetxattr_query(path, name)?;
        let mut value = vec![0; len];
        if len > 0 {
            let got = rustix::fs::lgetxattr(path, name, &mut value[..])?;
            value.truncate(got);
        }
        xattrs.push(Xattr { name: name.to_vec(), value });
    }
    Ok(())
}
