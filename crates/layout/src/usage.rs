//! The use of each block of an image, found by a walk over its groups and its tree.

use seekless_fs::inspect::sorted_entries;
use seekless_fs::{BlockMap, Corruption, FileKind, Fixed, FixedKind, FsError, Inspect, Location};
use seekless_units::{BlockNo, Extent, GroupNo, Ino};
use std::collections::HashSet;

/// Maximum length of a path, in bytes; a longer one is shortened at its beginning.
const PATH_MAX: usize = 4096;

/// The use of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Use {
    /// Superblocks and descriptors, and copies of them.
    Superblock,
    /// Bitmaps; heads of cylinder groups.
    Bitmap,
    /// Inode tables.
    Inodes,
    /// File allocation tables.
    AllocationTable,
    /// Maps of files: indirect blocks, and nodes of extent trees.
    Map,
    /// Extended attributes.
    Attributes,
    /// Contents of directories.
    Directory,
    /// Contents of files; targets of symlinks.
    Contents,
    /// In use, but not by a file with a name: a journal, quota files.
    Internal,
    /// Free.
    Free,
    /// Not of the file system: a boot block, further partitions, room behind its end.
    Outside,
}

impl Use {
    /// All of them, fixed structures first.
    pub const ALL: [Self; 11] = [
        Self::Superblock,
        Self::Bitmap,
        Self::Inodes,
        Self::AllocationTable,
        Self::Map,
        Self::Attributes,
        Self::Directory,
        Self::Contents,
        Self::Internal,
        Self::Free,
        Self::Outside,
    ];

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblocks and descriptors",
            Self::Bitmap => "bitmaps",
            Self::Inodes => "inode tables",
            Self::AllocationTable => "file allocation tables",
            Self::Map => "maps of files",
            Self::Attributes => "extended attributes",
            Self::Directory => "directories",
            Self::Contents => "contents of files",
            Self::Internal => "journal and other internal files",
            Self::Free => "free blocks",
            Self::Outside => "outside the file system",
        }
    }

    /// Whether it is metadata, apart from directories.
    #[must_use]
    pub const fn is_metadata(self) -> bool {
        matches!(
            self,
            Self::Superblock
                | Self::Bitmap
                | Self::Inodes
                | Self::AllocationTable
                | Self::Map
                | Self::Attributes
        )
    }
}

impl From<FixedKind> for Use {
    fn from(kind: FixedKind) -> Self {
        match kind {
            FixedKind::Superblock => Self::Superblock,
            FixedKind::Bitmap => Self::Bitmap,
            FixedKind::Inodes => Self::Inodes,
            FixedKind::AllocationTable => Self::AllocationTable,
        }
    }
}

/// The blocks that the groups of an image cover.
#[must_use]
pub fn whole(image: &dyn Inspect) -> Extent {
    let shape = image.geometry();
    Extent::new(shape.first_block, BlockNo::new(shape.blocks).saturating_since(shape.first_block))
}

/// The uses of the blocks of an image, in no order: fixed metadata and free blocks by the summaries
/// of groups, directories and files by a walk of the tree. Blocks in none of the runs are
/// [`Use::Internal`]. In a damaged image runs may overlap.
///
/// # Errors
/// [`FsError::Corrupt`]; [`FsError::Device`].
pub fn classify(image: &dyn Inspect) -> Result<Vec<(Extent, Use)>, FsError> {
    let mut claims = Claims::new(image, None);
    for group in 0..image.geometry().groups {
        let group = image.group(GroupNo::new(group))?;
        let fixed = group.metadata.into_iter().map(|Fixed { extent, kind }| (extent, kind.into()));
        claims.runs.extend(fixed.chain(group.free.into_iter().map(|run| (run, Use::Free))));
    }
    claims.tree()?;
    Ok(claims.runs)
}

/// The file or directory that each block belongs to; blocks of maps and attributes belong to their
/// file.
#[derive(Debug, Default)]
pub struct Owners {
    /// Sorted by block; each with an index into `names`.
    runs: Vec<(Extent, u32)>,
    names: Vec<Vec<u8>>,
}

impl Owners {
    /// Finds the owners of all blocks of files and directories. A file with several names gets the
    /// first one found.
    ///
    /// # Errors
    /// As [`classify`].
    pub fn of_image(image: &dyn Inspect) -> Result<Self, FsError> {
        let mut claims = Claims::new(image, Some(Self::default()));
        claims.tree()?;
        let Self { runs, names } = claims.owners.unwrap_or_default();
        Ok(Self::new(runs, names))
    }

    /// Takes runs in any order; each with the index of its owner in `names`.
    #[must_use]
    pub fn new(mut runs: Vec<(Extent, u32)>, names: Vec<Vec<u8>>) -> Self {
        runs.sort_unstable();
        Self { runs, names }
    }

    /// The path of the file or directory that a block belongs to.
    #[must_use]
    pub fn of(&self, block: BlockNo) -> Option<&[u8]> {
        let after = self.runs.partition_point(|(run, _)| run.start <= block);
        let (run, name) = self.runs.get(after.checked_sub(1)?)?;
        let name = usize::try_from(*name).ok()?;
        if block < run.end() { self.names.get(name).map(Vec::as_slice) } else { None }
    }
}

struct Claims<'a> {
    image: &'a dyn Inspect,
    runs: Vec<(Extent, Use)>,
    seen: HashSet<Ino>,
    /// Collected if the caller wants them.
    owners: Option<Owners>,
}

impl<'a> Claims<'a> {
    fn new(image: &'a dyn Inspect, owners: Option<Owners>) -> Self {
        Self { image, runs: Vec::new(), seen: HashSet::new(), owners }
    }

    fn tree(&mut self) -> Result<(), FsError> {
        let root = self.image.root();
        self.seen.insert(root);
        let mut pending = vec![(root, Vec::new())];
        while let Some((dir, path)) = pending.pop() {
            self.file(dir, Use::Directory, if path.is_empty() { b"/" } else { &path })?;
            for (name, ino) in sorted_entries(self.image, dir)? {
                if !self.seen.insert(ino) {
                    continue;
                }
                let path = match self.owners {
                    // A chain of nested directories may be as long as the image.
                    Some(_) if path.len() > PATH_MAX => [&b".../"[..], &name].concat(),
                    Some(_) => [&path[..], b"/", &name].concat(),
                    None => Vec::new(),
                };
                if self.image.attr(ino)?.kind == FileKind::Directory {
                    pending.push((ino, path));
                } else {
                    self.file(ino, Use::Contents, &path)?;
                }
            }
        }
        Ok(())
    }

    /// Claims the blocks of a file, and of its map and attributes.
    fn file(&mut self, ino: Ino, contents: Use, path: &[u8]) -> Result<(), FsError> {
        let from = self.runs.len();
        self.claim(ino, contents)?;
        if let Some(owners) = &mut self.owners {
            let number = u32::try_from(owners.names.len()).unwrap_or(u32::MAX);
            let claimed = self.runs.iter().skip(from);
            owners.runs.extend(claimed.map(|(run, _)| (*run, number)));
            owners.names.push(path.to_vec());
        }
        Ok(())
    }

    fn claim(&mut self, ino: Ino, contents: Use) -> Result<(), FsError> {
        let map = self.image.block_map(ino)?;
        for &holder in &map.xattr_inodes {
            if self.seen.insert(holder) {
                let values = self.image.block_map(holder)?;
                self.blocks(&values, Use::Attributes);
            }
        }
        self.blocks(&map, contents);
        // In a sound image no run is empty and no block belongs to two files, so that runs never
        // outnumber blocks. The limit is twice that.
        let (runs, limit) = (self.runs.len() as u64, self.image.geometry().blocks);
        if runs > limit * 2 {
            let kind = Corruption::Range { field: "runs of blocks in use", value: runs, limit };
            return Err(FsError::corrupt(kind, Location::of("block map").in_inode(ino)));
        }
        Ok(())
    }

    fn blocks(&mut self, map: &BlockMap, contents: Use) {
        let index = map.index.iter().map(|index| Extent::new(index.block, index.len));
        let attributes = map.xattr_block.map(|block| Extent::new(block, 1));
        self.runs.extend(map.runs.iter().map(|run| (run.extent, contents)));
        self.runs.extend(index.map(|run| (run, Use::Map)));
        self.runs.extend(attributes.map(|run| (run, Use::Attributes)));
    }
}
