//! Reading an image, and where on the disk its pieces lie.

use crate::{Attr, FileKind, FsError, Xattr};
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino, Lbn};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// The shape of a file system, fixed while it is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// The format's name: `ext2`, `ext3`, `ext4`.
    pub format: &'static str,
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks in the volume.
    pub blocks: u64,
    /// Blocks not in use.
    pub free_blocks: u64,
    /// Blocks in a group (the last may have fewer).
    pub blocks_per_group: u64,
    /// The first block of group 0.
    pub first_block: BlockNo,
    /// Groups in the volume.
    pub groups: u32,
    /// Inodes in the volume.
    pub inodes: u32,
    /// Inodes not in use.
    pub free_inodes: u32,
    /// Inodes in a group.
    pub inodes_per_group: u32,
    /// Bytes in an inode.
    pub inode_size: u32,
    /// Blocks allocated together (1 without clusters).
    pub cluster_blocks: u32,
    /// Volume label.
    pub label: Vec<u8>,
    /// Volume UUID.
    pub uuid: [u8; 16],
    /// Feature names, as the format's own tools print them.
    pub features: Vec<String>,
}

impl Geometry {
    /// The UUID in the usual form, in groups of 8, 4, 4, 4 and 12 digits.
    #[must_use]
    pub fn uuid_text(&self) -> String {
        let digit = |(at, byte): (usize, &u8)| {
            let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            format!("{dash}{byte:02x}")
        };
        self.uuid.iter().enumerate().map(digit).collect()
    }
}

/// A directory entry as a listing gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEntry<'a> {
    /// The name's bytes; need not be UTF-8. Encrypted names are raw.
    pub name: &'a [u8],
    /// What it names.
    pub ino: Ino,
    /// The kind, where the entry records it.
    pub kind: Option<FileKind>,
    /// Where a listing goes on after this entry.
    pub cookie: u64,
}

/// A run of a file's blocks that lies in one run on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// First logical block.
    pub lbn: Lbn,
    /// Where it lies.
    pub extent: Extent,
    /// Allocated but never written: reads as zeros.
    pub unwritten: bool,
}

/// A block that holds part of a file's block map: an indirect block or a node
/// of an extent tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexBlock {
    /// Where it lies.
    pub block: BlockNo,
    /// The first logical block it maps.
    pub first: Lbn,
    /// The last logical block it may map, inclusive.
    pub last: Lbn,
    /// Steps from the inode: 1 for a block the inode points to.
    pub depth: u8,
}

/// Where all of a file's blocks lie.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BlockMap {
    /// Data, in logical order; what is not covered is a hole.
    pub runs: Vec<Mapping>,
    /// The blocks that hold the map itself, parents before children.
    pub index: Vec<IndexBlock>,
    /// The separate block of extended attributes, if any.
    pub xattr_block: Option<BlockNo>,
    /// Inodes that hold large attribute values.
    pub xattr_inodes: Vec<Ino>,
}

impl BlockMap {
    /// The physical run that holds logical block `lbn`, and how many blocks of
    /// it follow from there. `None` in a hole.
    #[must_use]
    pub fn find(&self, lbn: Lbn) -> Option<Mapping> {
        let after = self.runs.partition_point(|run| run.lbn <= lbn);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let skip = lbn.saturating_since(run.lbn);
        if skip >= run.extent.len {
            return None;
        }
        Some(Mapping {
            lbn,
            extent: Extent::new(run.extent.start.saturating_add(skip), run.extent.len - skip),
            unwritten: run.unwritten,
        })
    }
}

/// Where an inode lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeLocation {
    /// The block of the inode table.
    pub block: BlockNo,
    /// The inode's first byte in that block.
    pub offset: u32,
    /// The whole table of its group.
    pub table: Extent,
    /// Blocks of the table that the kernel would read ahead for it never lie
    /// beyond this one: behind it the group's inodes are unused.
    pub used_end: BlockNo,
}

/// What a group holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupSummary {
    /// Which group.
    pub group: GroupNo,
    /// Its blocks.
    pub blocks: Extent,
    /// Blocks not in use.
    pub free_blocks: u64,
    /// Inodes not in use.
    pub free_inodes: u32,
    /// Directories whose inode lies here.
    pub directories: u32,
    /// Fixed metadata in the volume that belongs to this group: superblock and
    /// descriptor copies, bitmaps, inode table. With flexible groups it may lie
    /// in another group's blocks.
    pub metadata: Vec<Extent>,
    /// Free runs among its blocks, in order.
    pub free: Vec<Extent>,
}

/// An open image: attributes, contents, and where everything lies.
///
/// All calls take `&self` and may run on several threads. No call trusts the
/// image: time and memory are bounded by what the superblock's geometry and
/// the device's real length allow.
pub trait Inspect: Send + Sync {
    /// The shape of the file system.
    fn geometry(&self) -> &Geometry;

    /// The root directory.
    fn root(&self) -> Ino;

    /// A file's attributes.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when the inode is not sound or not in use.
    fn attr(&self, ino: Ino) -> Result<Attr, FsError>;

    /// A file's extended attributes, sorted by name.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when their storage is not sound.
    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>, FsError>;

    /// The same as a mount shows them to Linux, which knows ACLs by its own names and in its own
    /// form. By default, they are stored so.
    ///
    /// # Errors
    /// As [`Inspect::xattrs`].
    fn shown_xattrs(&self, ino: Ino) -> Result<Vec<Xattr>, FsError> {
        self.xattrs(ino)
    }

    /// A symlink's target.
    ///
    /// # Errors
    /// [`FsError::Invalid`] on anything else.
    fn read_link(&self, ino: Ino) -> Result<Vec<u8>, FsError>;

    /// Reads a file from `offset`; returns how many bytes of `buf` were
    /// filled, fewer than asked only at the end of the file. Holes are zeros.
    ///
    /// # Errors
    /// [`FsError::Invalid`] when it has no contents to read,
    /// [`FsError::Corrupt`] when its map is not sound.
    fn read(&self, ino: Ino, offset: ByteLen, buf: &mut [u8]) -> Result<usize, FsError>;

    /// Reads behind the end of a file sealed by fs-verity, where its hash tree lies; what no
    /// block holds is zeros.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for another file, [`FsError::Corrupt`] when its map is not sound.
    fn read_seal(&self, ino: Ino, _offset: ByteLen, _buf: &mut [u8]) -> Result<(), FsError> {
        Err(FsError::Invalid(format!("inode {ino} is not sealed by fs-verity")))
    }

    /// The inode a name leads to.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`]; [`FsError::Corrupt`].
    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError>;

    /// Visits the entries of a directory in disk order, `.` and `..` included,
    /// beginning after the entry whose cookie is given (0: from the start).
    ///
    /// # Errors
    /// [`FsError::NotDirectory`]; [`FsError::Corrupt`].
    fn read_dir(
        &self,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError>;

    /// Where a file's blocks lie; empty for a file whose contents lie in its
    /// inode.
    ///
    /// # Errors
    /// [`FsError::Corrupt`].
    fn block_map(&self, ino: Ino) -> Result<BlockMap, FsError>;

    /// Where an inode lies.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when there is no such inode.
    fn inode_location(&self, ino: Ino) -> Result<InodeLocation, FsError>;

    /// The logical blocks of a directory that a lookup of `name` reads, in
    /// order, whether or not the name is there.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`]; [`FsError::Corrupt`].
    fn lookup_blocks(&self, dir: Ino, name: &[u8]) -> Result<Vec<Lbn>, FsError>;

    /// The logical blocks of a directory that has no index, in which a name is
    /// searched for one by one; `None` when it has one, or lies in its inode.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`]; [`FsError::Corrupt`].
    fn unindexed_blocks(&self, dir: Ino) -> Result<Option<Vec<Lbn>>, FsError>;

    /// The logical blocks of a directory in the order a listing reads them.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`]; [`FsError::Corrupt`].
    fn listing_blocks(&self, dir: Ino) -> Result<Vec<Lbn>, FsError>;

    /// What a group holds.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when its bitmap cannot be trusted.
    fn group(&self, group: GroupNo) -> Result<GroupSummary, FsError>;
}

/// Follows a slash-separated path from the root without following symlinks.
/// Empty components and `.` are skipped; `..` goes up.
///
/// # Errors
/// [`FsError::NotFound`] with the part of the path that is missing, and
/// whatever the image gives.
pub fn resolve(image: &dyn Inspect, path: &[u8]) -> Result<Ino, FsError> {
    let mut stack = vec![image.root()];
    let mut walked = Vec::new();
    for component in path.split(|&byte| byte == b'/') {
        if component.is_empty() || component == b"." {
            continue;
        }
        if component == b".." {
            if stack.len() > 1 {
                stack.pop();
            }
            continue;
        }
        walked.push(b'/');
        walked.extend_from_slice(component);
        let shown = || String::from_utf8_lossy(&walked).into_owned();
        let here = stack.last().copied().unwrap_or(image.root());
        if image.attr(here)?.kind != FileKind::Directory {
            return Err(FsError::NotDirectory(shown()));
        }
        match image.lookup(here, component)? {
            Some(ino) => stack.push(ino),
            None => return Err(FsError::NotFound(shown())),
        }
    }
    Ok(stack.last().copied().unwrap_or(image.root()))
}

/// Files of all kinds in an image, the root included, each once. As in manifests, an
/// empty `lost+found` in the root is none.
///
/// # Errors
/// What the image gives.
pub fn files_in(image: &dyn Inspect) -> Result<u64, FsError> {
    let root = image.root();
    let mut seen = HashSet::from([root]);
    let mut pending: Vec<Ino> = vec![root];
    while let Some(dir) = pending.pop() {
        for (name, ino) in sorted_entries(image, dir)? {
            let is_new = !seen.contains(&ino);
            if is_new && image.attr(ino)?.kind == FileKind::Directory {
                if dir == root && name == b"lost+found" && sorted_entries(image, ino)?.is_empty() {
                    continue;
                }
                pending.push(ino);
            }
            seen.insert(ino);
        }
    }
    Ok(seen.len() as u64)
}

/// A directory's entries without `.` and `..`, sorted by name.
///
/// # Errors
/// Those of [`Inspect::read_dir`].
pub fn sorted_entries(image: &dyn Inspect, dir: Ino) -> Result<Vec<(Vec<u8>, Ino)>, FsError> {
    let mut found = Vec::new();
    image.read_dir(dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            found.push((entry.name.to_vec(), entry.ino));
        }
        ControlFlow::Continue(())
    })?;
    found.sort();
    Ok(found)
}
