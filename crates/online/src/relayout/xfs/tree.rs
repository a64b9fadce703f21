//! The tree of a mounted volume for a replay: names and attributes by system calls, and the
//! locations of contents by FIEMAP.
//!
//! The locations of directories and inodes are unknown, so only a replay's requests for contents
//! are meaningful here.

use super::reason::XfsReason;
use rustix::fs::{Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use seekless_fs::{
    Attr, BlockMap, DeviceNumber, DirEntry, FileKind, FsError, Geometry, GroupSummary,
    InodeLocation, Inspect, Mapping, Timestamp, Xattr,
};
use seekless_host::fiemap::{self, MappedExtent, flag};
use seekless_host::xfs;
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino, Lbn};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The root directory's number here.
const ROOT: Ino = Ino::new(1);

/// Mode bits that a change of contents clears.
const SET_ID: u32 = 0o6000;

/// The layout of a file: the map of its contents, and the reason why they stay, if any.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileLayout {
    pub(crate) map: BlockMap,
    pub(crate) stays: Option<XfsReason>,
}

/// A file with its number in this tree: inode numbers of XFS have more bits than those of a replay.
struct Node {
    /// Path from the root of the mount.
    path: PathBuf,
    /// The volume's inode number.
    real: u64,
    attr: Attr,
}

#[derive(Default)]
struct CachedTree {
    nodes: Vec<Node>,
    by_real: HashMap<u64, Ino>,
    found: HashMap<Ino, Arc<FileLayout>>,
}

/// A mounted tree. Results of queries are cached.
pub(crate) struct MountedTree {
    root: File,
    device: u64,
    geometry: Geometry,
    running: BTreeSet<u64>,
    known: Mutex<CachedTree>,
}

impl MountedTree {
    /// The tree whose root directory is `root`; `running` contains the inode numbers of running
    /// programs.
    ///
    /// # Errors
    /// The system call's error.
    pub(crate) fn new(
        root: &File,
        shape: xfs::Geometry,
        running: BTreeSet<u64>,
    ) -> io::Result<Self> {
        let root = root.try_clone()?;
        let stat = rustix::fs::fstat(&root)?;
        let geometry = Geometry {
            format: "xfs",
            block_size: shape.block_size,
            blocks: shape.blocks,
            free_blocks: 0,
            blocks_per_group: u64::from(shape.ag_blocks),
            first_block: BlockNo::ZERO,
            groups: 0,
            inodes: u32::MAX,
            free_inodes: 0,
            inodes_per_group: 0,
            inode_size: shape.inode_size,
            cluster_blocks: 1,
            label: Vec::new(),
            uuid: [0; 16],
            features: Vec::new(),
        };
        let known = Mutex::new(CachedTree::default());
        let tree = Self { root, device: stat.st_dev, geometry, running, known };
        tree.number(PathBuf::new(), &stat);
        Ok(tree)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, CachedTree> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a file, a new one if it has none; `None` for an invalid kind of file.
    fn number(&self, path: PathBuf, stat: &Stat) -> Option<Ino> {
        let mut known = self.known();
        if let Some(ino) = known.by_real.get(&stat.st_ino) {
            return Some(*ino);
        }
        let ino = Ino::new(u32::try_from(known.nodes.len()).ok()?.checked_add(1)?);
        let attr = attr_of(ino, stat)?;
        known.nodes.push(Node { path, real: stat.st_ino, attr });
        known.by_real.insert(stat.st_ino, ino);
        Some(ino)
    }

    fn node<T>(&self, ino: Ino, of: impl FnOnce(&Node) -> T) -> Result<T, FsError> {
        let known = self.known();
        let node =
            usize::try_from(ino.get()).ok().and_then(|at| known.nodes.get(at.checked_sub(1)?));
        node.map(of).ok_or_else(|| FsError::NotFound(format!("file {ino}")))
    }

    /// In bytes.
    pub(crate) fn block_size(&self) -> u64 {
        self.geometry.block_size.into()
    }

    /// The volume's inode number of a file.
    pub(crate) fn real(&self, ino: Ino) -> u64 {
        self.node(ino, |node| node.real).unwrap_or(0)
    }

    /// The path of a file, from the root of the mount.
    pub(crate) fn path(&self, ino: Ino) -> PathBuf {
        self.node(ino, |node| node.path.clone()).unwrap_or_default()
    }

    /// Opens the file at a path, on this volume and without following symlinks.
    pub(crate) fn open_path(&self, path: &Path, flags: OFlags) -> Result<File, Errno> {
        let name = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        let flags = flags | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.root, name, flags, Mode::empty(), resolve).map(File::from)
    }

    /// Opens a regular file for reading, if it still exists. Its times stay.
    ///
    /// # Errors
    /// `ESTALE` when another file has its name now; other errors of the system calls.
    pub(crate) fn open(&self, ino: Ino) -> Result<File, Errno> {
        let (path, real) =
            self.node(ino, |node| (node.path.clone(), node.real)).map_err(|_| Errno::STALE)?;
        let file = self.open_path(&path, OFlags::RDONLY | OFlags::NOATIME | OFlags::NONBLOCK)?;
        let stat = rustix::fs::fstat(&file)?;
        let is_it = (stat.st_dev, stat.st_ino) == (self.device, real);
        if is_it { Ok(file) } else { Err(Errno::STALE) }
    }

    /// The location of a file's contents, and whether they can be moved.
    pub(crate) fn found(&self, ino: Ino) -> Arc<FileLayout> {
        if let Some(found) = self.known().found.get(&ino) {
            return found.clone();
        }
        // Searches without the lock, so that other threads can use the cache.
        let found = Arc::new(self.find(ino));
        self.known().found.insert(ino, found.clone());
        found
    }

    fn find(&self, ino: Ino) -> FileLayout {
        let is_regular = self.node(ino, |node| node.attr.kind == FileKind::Regular);
        if !is_regular.unwrap_or(false) {
            return FileLayout::default();
        }
        let stays = |reason| FileLayout { map: BlockMap::default(), stays: Some(reason) };
        let file = match self.open(ino) {
            Ok(file) => file,
            Err(Errno::WOULDBLOCK) => return stays(XfsReason::Busy),
            Err(_) => return stays(XfsReason::Changed),
        };
        let (Ok(flags), Ok(stat)) = (xfs::flags_of(&file), rustix::fs::fstat(&file)) else {
            return stays(XfsReason::Changed);
        };
        if flags.realtime {
            return stays(XfsReason::Realtime);
        }
        let Ok(extents) = fiemap::extents_of(&file, 0, u64::MAX) else {
            return stays(XfsReason::Changed);
        };
        let reason = if flags.protected {
            Some(XfsReason::Protected)
        } else if flags.dax {
            Some(XfsReason::Dax)
        } else if stat.st_mode & SET_ID != 0 || has_capabilities(&file) {
            Some(XfsReason::Privileged)
        } else if self.running.contains(&stat.st_ino) {
            Some(XfsReason::Running)
        } else if extents.iter().any(|extent| extent.flags & flag::SHARED != 0) {
            Some(XfsReason::Shared)
        } else {
            None
        };
        let bs = u64::from(self.geometry.block_size);
        let runs = extents.iter().filter_map(|extent| mapping(extent, bs)).collect();
        FileLayout { map: BlockMap { runs, ..BlockMap::default() }, stays: reason }
    }
}

/// Converts an extent to a run of a file's blocks.
fn mapping(extent: &MappedExtent, block_size: u64) -> Option<Mapping> {
    let extent = Some(extent).filter(|extent| extent.flags & flag::NOWHERE == 0)?;
    let start = BlockNo::new(extent.physical / block_size);
    Some(Mapping {
        lbn: Lbn::new(extent.logical / block_size),
        extent: Extent::new(start, extent.len / block_size),
        unwritten: extent.flags & flag::UNWRITTEN != 0,
    })
}

/// Whether a program has capabilities, which any change of its contents removes.
fn has_capabilities(file: &File) -> bool {
    let mut value = [0; 64];
    match rustix::fs::fgetxattr(file, c"security.capability", &mut value[..]) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => false,
        // Also if this cannot be determined.
        _ => true,
    }
}

fn attr_of(ino: Ino, stat: &Stat) -> Option<Attr> {
    let mode = u16::try_from(stat.st_mode & 0o177_777).ok()?;
    let none = Timestamp::default();
    Some(Attr {
        ino,
        kind: FileKind::from_mode(mode)?,
        perm: mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        size: u64::try_from(stat.st_size).ok()?,
        sectors: u64::try_from(stat.st_blocks).ok()?,
        // A replay uses no times.
        atime: none,
        mtime: none,
        ctime: none,
        crtime: None,
        device: DeviceNumber::default(),
        generation: 0,
        flags: 0,
        project: 0,
    })
}

/// A mounted tree in which some files have other locations.
pub(crate) struct View<'a> {
    pub(crate) tree: &'a MountedTree,
    pub(crate) moved: HashMap<Ino, Vec<Mapping>>,
}

impl Inspect for View<'_> {
    fn geometry(&self) -> &Geometry {
        &self.tree.geometry
    }

    fn root(&self) -> Ino {
        ROOT
    }

    fn attr(&self, ino: Ino) -> Result<Attr, FsError> {
        self.tree.node(ino, |node| node.attr.clone())
    }

    fn xattrs(&self, _: Ino) -> Result<Vec<Xattr>, FsError> {
        Ok(Vec::new())
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        let path = self.tree.path(ino);
        let target = self
            .tree
            .open_path(&path, OFlags::PATH | OFlags::NOFOLLOW)
            .and_then(|link| rustix::fs::readlinkat(&link, c"", Vec::new()));
        // A removed symlink has no target.
        Ok(target.map(|target| target.into_bytes()).unwrap_or_default())
    }

    /// Replays read the heads of programs, which tell the parts that are executed.
    fn read(&self, ino: Ino, offset: ByteLen, buf: &mut [u8]) -> Result<usize, FsError> {
        let file = self.tree.open(ino).map_err(io::Error::from);
        let read = file.and_then(|file| file.read_at(buf, offset.get()));
        read.map_err(|error| FsError::io(self.tree.path(ino).display().to_string(), error))
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        let path = self.tree.path(dir).join(OsStr::from_bytes(name));
        let found = self.tree.open_path(&path, OFlags::PATH | OFlags::NOFOLLOW);
        // Unreachable files do not exist here: names that are too long, another file system mounted
        // there.
        let stat = found.and_then(|file| rustix::fs::fstat(&file));
        let stat = stat.ok().filter(|stat| stat.st_dev == self.tree.device);
        Ok(stat.and_then(|stat| self.tree.number(path, &stat)))
    }

    fn read_dir(
        &self,
        _: Ino,
        _: u64,
        _: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        Ok(())
    }

    fn block_map(&self, ino: Ino) -> Result<BlockMap, FsError> {
        let mut map = self.tree.found(ino).map.clone();
        if let Some(runs) = self.moved.get(&ino) {
            map.runs.clone_from(runs);
        }
        Ok(map)
    }

    fn inode_location(&self, _: Ino) -> Result<InodeLocation, FsError> {
        let (block, table) = (BlockNo::ZERO, Extent::new(BlockNo::ZERO, 0));
        Ok(InodeLocation { block, offset: 0, table, used_end: block })
    }

    fn lookup_blocks(&self, _: Ino, _: &[u8]) -> Result<Vec<Lbn>, FsError> {
        Ok(Vec::new())
    }

    fn unindexed_blocks(&self, _: Ino) -> Result<Option<Vec<Lbn>>, FsError> {
        Ok(None)
    }

    fn listing_blocks(&self, _: Ino) -> Result<Vec<Lbn>, FsError> {
        Ok(Vec::new())
    }

    fn group(&self, _: GroupNo) -> Result<GroupSummary, FsError> {
        Err(FsError::Unsupported("groups of a mounted volume".into()))
    }
}
