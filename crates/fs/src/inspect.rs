//! Reading an image, and the locations of its parts on the disk.

use crate::operate::StatVfs;
use crate::{Attr, FileKind, FsError, Xattr};
use seekless_device::BlockDevice;
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino, Lbn};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// The geometry of a file system, fixed while it is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// The format's name: `ext2`, `ext3`, `ext4`.
    pub format: &'static str,
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks in the volume.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Blocks in a group (the last may have fewer).
    pub blocks_per_group: u64,
    /// The first block of group 0.
    pub first_block: BlockNo,
    /// Groups in the volume.
    pub groups: u32,
    /// Inodes in the volume.
    pub inodes: u32,
    /// Free inodes.
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

/// Bytes in the longest name of the supported formats, as Linux has it.
const NAME_MAX: u32 = 255;

impl Geometry {
    /// Space and inodes, with all blocks of the volume.
    #[must_use]
    pub fn space(&self) -> StatVfs {
        StatVfs {
            block_size: self.block_size,
            file_block: self.block_size,
            blocks: self.blocks,
            free: self.free_blocks,
            available: self.free_blocks,
            inodes: u64::from(self.inodes),
            free_inodes: u64::from(self.free_inodes),
            name_max: NAME_MAX,
        }
    }

    /// The UUID in the usual form, in groups of 8, 4, 4, 4 and 12 digits.
    #[must_use]
    pub fn uuid_text(&self) -> String {
        uuid_text(&self.uuid)
    }
}

/// A UUID in the usual form, in groups of 8, 4, 4, 4 and 12 digits.
///
/// ```
/// let text = seekless_fs::inspect::uuid_text(&[0xAB; 16]);
/// assert_eq!(text, "abababab-abab-abab-abab-abababababab");
/// ```
#[must_use]
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let digit = |(at, byte): (usize, &u8)| {
        let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
        format!("{dash}{byte:02x}")
    };
    uuid.iter().enumerate().map(digit).collect()
}

/// A directory entry in a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEntry<'a> {
    /// The name's bytes; need not be UTF-8. Encrypted names are raw.
    pub name: &'a [u8],
    /// The inode it refers to.
    pub ino: Ino,
    /// The kind, if the entry records it.
    pub kind: Option<FileKind>,
    /// Position for continuing a listing after this entry.
    pub cookie: u64,
}

/// A run of a file's blocks that is contiguous on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// First logical block.
    pub lbn: Lbn,
    /// Physical blocks.
    pub extent: Extent,
    /// Allocated but never written: reads as zeros.
    pub unwritten: bool,
}

/// A block of a file's block map: an indirect block or a node of an extent tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexBlock {
    /// Its first physical block.
    pub block: BlockNo,
    /// Physical blocks that it occupies: 1, and on UFS the fragments of a block.
    pub len: u64,
    /// The first logical block it maps.
    pub first: Lbn,
    /// The last logical block it may map, inclusive.
    pub last: Lbn,
    /// Steps from the inode: 1 for a block the inode points to.
    pub depth: u8,
}

/// The physical locations of all of a file's blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BlockMap {
    /// Data, in logical order; ranges not covered are holes.
    pub runs: Vec<Mapping>,
    /// The blocks of the map itself, parents before children.
    pub index: Vec<IndexBlock>,
    /// The separate block of extended attributes, if any.
    pub xattr_block: Option<BlockNo>,
    /// Inodes that contain large attribute values.
    pub xattr_inodes: Vec<Ino>,
}

impl BlockMap {
    /// The run from logical block `lbn` on to the end of its physical run. `None` in a hole.
    #[must_use]
    pub fn find(&self, lbn: Lbn) -> Option<Mapping> {
        let after = self.runs.partition_point(|run| run.lbn <= lbn);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let skip = lbn - run.lbn;
        if skip >= run.extent.len {
            return None;
        }
        Some(Mapping {
            lbn,
            extent: Extent::new(run.extent.start + skip, run.extent.len - skip),
            unwritten: run.unwritten,
        })
    }
}

/// The location of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeLocation {
    /// The block of the inode table.
    pub block: BlockNo,
    /// The inode's first byte in that block.
    pub offset: u32,
    /// The whole table of its group.
    pub table: Extent,
    /// The kernel's read-ahead of the table stops at this block: the inodes behind it are unused.
    pub used_end: BlockNo,
}

/// Fixed metadata of a volume, by their structures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FixedKind {
    /// The superblock or boot sector, its further parts (descriptors of groups, summaries, room
    /// that is kept for them), and copies of these.
    Superblock,
    /// Bitmaps of blocks and inodes; heads of cylinder groups, which contain them.
    Bitmap,
    /// Inode tables.
    Inodes,
    /// File allocation tables.
    AllocationTable,
}

/// Blocks of fixed metadata.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fixed {
    /// The blocks.
    pub extent: Extent,
    /// Their structure.
    pub kind: FixedKind,
}

/// Summary of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupSummary {
    /// Number of the group.
    pub group: GroupNo,
    /// Its blocks.
    pub blocks: Extent,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories whose inode is in this group.
    pub directories: u32,
    /// The fixed metadata of this group: superblock and descriptor copies, bitmaps, inode table.
    /// With flexible groups its blocks may be in another group.
    pub metadata: Vec<Fixed>,
    /// Free runs among its blocks, in order.
    pub free: Vec<Extent>,
}

/// An open image: attributes, contents, and the locations of all parts.
///
/// All calls take `&self` and may run on several threads. No call trusts the image: time and memory
/// are bounded by the superblock's geometry and the device's real length.
pub trait Inspect: Send + Sync {
    /// The geometry of the file system.
    fn geometry(&self) -> &Geometry;

    /// Space and inodes as `statvfs(3)` counts them. By default, of all blocks of the volume.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when metadata that are counted are not sound.
    fn space(&self) -> Result<StatVfs, FsError> {
        Ok(self.geometry().space())
    }

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

    /// The attributes in the names and encoding of a mounted Linux file system, for ACLs in
    /// particular. By default, they are stored so.
    ///
    /// # Errors
    /// As [`Inspect::xattrs`].
    fn shown_xattrs(&self, ino: Ino) -> Result<Vec<Xattr>, FsError> {
        self.xattrs(ino)
    }

    /// A symlink's target.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for other kinds of files.
    fn read_link(&self, ino: Ino) -> Result<Vec<u8>, FsError>;

    /// Reads a file from `offset`. Returns the number of bytes of `buf` that were filled, less than
    /// its length only at the end of the file. Holes are zeros.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a file without contents, [`FsError::Corrupt`] when its map is not
    /// sound.
    fn read(&self, ino: Ino, offset: ByteLen, buf: &mut [u8]) -> Result<usize, FsError>;

    /// Reads behind the end of a file sealed by fs-verity, where its hash tree is stored;
    /// unallocated ranges read as zeros.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for another file, [`FsError::Corrupt`] when its map is not sound.
    fn read_seal(&self, ino: Ino, _offset: ByteLen, _buf: &mut [u8]) -> Result<(), FsError> {
        Err(FsError::Invalid(format!("inode {ino} is not sealed by fs-verity")))
    }

    /// The inode of a name in a directory.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`]; [`FsError::Corrupt`].
    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError>;

    /// Visits the entries of a directory in disk order, including `.` and `..`, from the one after
    /// the entry with the given cookie (0: from the start).
    ///
    /// # Errors
    /// [`FsError::NotDirectory`]; [`FsError::Corrupt`].
    fn read_dir(
        &self,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError>;

    /// The physical locations of a file's blocks; empty for a file whose contents are in its inode.
    ///
    /// # Errors
    /// [`FsError::Corrupt`].
    fn block_map(&self, ino: Ino) -> Result<BlockMap, FsError>;

    /// Where a file's contents lie, as [`Inspect::block_map`] has it, with blocks that belong to
    /// other files. By default there are none.
    ///
    /// # Errors
    /// As [`Inspect::block_map`].
    fn contents_map(&self, ino: Ino) -> Result<BlockMap, FsError> {
        self.block_map(ino)
    }

    /// The location of an inode.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when there is no such inode.
    fn inode_location(&self, ino: Ino) -> Result<InodeLocation, FsError>;

    /// The logical blocks of a directory that a lookup of `name` reads, in order, whether or not
    /// the name exists.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`]; [`FsError::Corrupt`].
    fn lookup_blocks(&self, dir: Ino, name: &[u8]) -> Result<Vec<Lbn>, FsError>;

    /// The logical blocks of a directory without an index, which a lookup searches one by one;
    /// `None` for an indexed directory or one whose entries are in its inode.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`]; [`FsError::Corrupt`].
    fn unindexed_blocks(&self, dir: Ino) -> Result<Option<Vec<Lbn>>, FsError>;

    /// The logical blocks of a directory in the order a listing reads them.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`]; [`FsError::Corrupt`].
    fn listing_blocks(&self, dir: Ino) -> Result<Vec<Lbn>, FsError>;

    /// The summary of a group.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when its bitmap cannot be trusted.
    fn group(&self, group: GroupNo) -> Result<GroupSummary, FsError>;

    /// The device that has the contents of regular files in the blocks of
    /// [`block_map`](Inspect::block_map), as [`read`](Inspect::read) returns them. By default,
    /// contents are only read.
    fn contents(&self) -> Option<&dyn BlockDevice> {
        None
    }
}

/// Follows a slash-separated path from the root without following symlinks.
/// Empty components and `.` are skipped; `..` goes up.
///
/// # Errors
/// [`FsError::NotFound`] with the missing part of the path, and the image's errors.
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

/// Number of files of all kinds in an image, including the root, hard links counted once. As in
/// manifests, an empty `lost+found` in the root is not counted.
///
/// # Errors
/// The image's errors.
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
/// As [`Inspect::read_dir`].
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
