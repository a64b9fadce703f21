//! Owners of inode numbers and of metadata blocks.

use seekless_fs::{FileKind, FixedKind, FsError, Inspect};
use seekless_units::{BlockNo, Extent, GroupNo, Ino, Lbn};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

/// More names on the way to the root than any path has.
const DEPTH_MAX: usize = 4096;

/// Whose inode numbers and blocks are whose.
#[derive(Clone, Debug, Default)]
pub struct Index {
    root: Option<Ino>,
    /// The first name that a walk met.
    names: HashMap<Ino, Named>,
    /// Metadata blocks, where the format tells.
    blocks: HashMap<BlockNo, Owner>,
    /// How many blocks directories have.
    lengths: HashMap<Ino, u64>,
    /// The inodes of a directory by the block of the table they lie in.
    children: HashMap<(Ino, BlockNo), Vec<Ino>>,
    /// Blocks that belong to no file, in order of place.
    placed: Vec<(Extent, Place)>,
    block_size: u32,
    /// Directories and groups that could not be read.
    pub unreadable: u64,
}

#[derive(Clone, Debug)]
struct Named {
    dir: Ino,
    name: Box<[u8]>,
    kind: FileKind,
    size: Option<u64>,
    table: Option<BlockNo>,
}

/// Whose a metadata block is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// A directory's.
    Directory(Ino, Lbn),
    /// An inode table's: the inodes in it that have names.
    Table(Vec<Ino>),
}

/// Parts of a volume that belong to no file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// An inode table.
    Table,
    /// Superblocks, descriptors, bitmaps.
    Fixed,
    /// Nothing.
    Free,
}

impl Index {
    /// Walks an image. Inodes and directories that cannot be read, because they are changed at the
    /// same time, are left out and counted.
    ///
    /// # Errors
    /// When not even the root can be read.
    pub fn of_image(image: &dyn Inspect) -> Result<Self, FsError> {
        let root = image.root();
        let mut index =
            Self { root: Some(root), block_size: image.geometry().block_size, ..Self::default() };
        index.place(image, root, root)?;
        index.place_groups(image);
        let mut seen = HashSet::from([root]);
        let mut todo = vec![root];
        while let Some(dir) = todo.pop() {
            match index.walk(image, dir, &mut seen) {
                Ok(below) => todo.extend(below),
                Err(error) if dir == root => return Err(error),
                Err(_) => index.unreadable += 1,
            }
        }
        Ok(index)
    }

    /// Of a file system whose blocks are not known: only names. Each is an inode number, its path
    /// from the root, its kind and its size.
    #[must_use]
    pub fn of_names(
        root: Ino,
        block_size: u32,
        names: impl IntoIterator<Item = (Ino, Vec<u8>, FileKind, u64)>,
    ) -> Self {
        let mut index = Self { root: Some(root), block_size, ..Self::default() };
        for (ino, path, kind, size) in names {
            // The whole path stands for the name: its directory is the root.
            let name = path.strip_prefix(b"/").unwrap_or(&path).into();
            let named = Named { dir: root, name, kind, size: Some(size), table: None };
            index.names.entry(ino).or_insert(named);
        }
        index
    }

    /// Of names, each an inode, its directory, its kind and the block of the table that it lies in;
    /// and of directories with their first block and how many there are.
    #[cfg(test)]
    pub(super) fn of_parts(
        block_size: u32,
        names: &[(u32, u32, &str, FileKind, u64)],
        directories: &[(u32, u64, u64)],
    ) -> Self {
        let root = Some(Ino::new(2));
        let mut index = Self { root, block_size, ..Self::default() };
        for &(ino, dir, name, kind, table) in names {
            let (ino, dir, table) = (Ino::new(ino), Ino::new(dir), BlockNo::new(table));
            let name = name.as_bytes().into();
            index.names.insert(ino, Named { dir, name, kind, size: None, table: Some(table) });
            index.children.entry((dir, table)).or_default().push(ino);
            match index.blocks.entry(table).or_insert_with(|| Owner::Table(Vec::new())) {
                Owner::Table(inodes) => inodes.push(ino),
                Owner::Directory(..) => unreachable!("blocks are one or the other"),
            }
        }
        for &(dir, first, len) in directories {
            index.lengths.insert(Ino::new(dir), len);
            for at in 0..len {
                let owner = Owner::Directory(Ino::new(dir), Lbn::new(at));
                index.blocks.insert(BlockNo::new(first + at), owner);
            }
        }
        index
    }

    /// Takes in a directory and gives those in it.
    fn walk(
        &mut self,
        image: &dyn Inspect,
        dir: Ino,
        seen: &mut HashSet<Ino>,
    ) -> Result<Vec<Ino>, FsError> {
        for run in image.block_map(dir)?.runs {
            *self.lengths.entry(dir).or_default() += run.extent.len;
            for at in 0..run.extent.len {
                let lbn = run.lbn + at;
                self.blocks.insert(run.extent.start + at, Owner::Directory(dir, lbn));
            }
        }
        let mut entries = Vec::new();
        image.read_dir(dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                entries.push((entry.ino, entry.name.into(), entry.kind));
            }
            ControlFlow::Continue(())
        })?;
        let mut below = Vec::new();
        for (ino, name, kind) in entries {
            // A name that leads nowhere now is not there.
            let Ok(kind) = kind.map_or_else(|| image.attr(ino).map(|attr| attr.kind), Ok) else {
                continue;
            };
            let named = Named { dir, name, kind, size: None, table: None };
            self.names.entry(ino).or_insert(named);
            if self.place(image, dir, ino).is_err() {
                self.unreadable += 1;
            } else if kind == FileKind::Directory && seen.insert(ino) {
                below.push(ino);
            }
        }
        Ok(below)
    }

    /// Notes where an inode lies.
    fn place(&mut self, image: &dyn Inspect, dir: Ino, ino: Ino) -> Result<(), FsError> {
        let block = image.inode_location(ino)?.block;
        self.children.entry((dir, block)).or_default().push(ino);
        let owner = self.blocks.entry(block).or_insert_with(|| Owner::Table(Vec::new()));
        if let Owner::Table(inodes) = owner {
            inodes.push(ino);
        }
        if let Some(named) = self.names.get_mut(&ino) {
            named.table = Some(block);
        }
        Ok(())
    }

    /// Notes the blocks of groups that belong to no file. A group that cannot be read has none.
    fn place_groups(&mut self, image: &dyn Inspect) {
        // In front of the first group lies the boot block.
        let boot = Extent::new(BlockNo::ZERO, image.geometry().first_block.get());
        let mut placed = vec![(boot, Place::Fixed)];
        for group in (0..image.geometry().groups).map(GroupNo::new) {
            let Ok(summary) = image.group(group) else {
                self.unreadable += 1;
                continue;
            };
            placed.extend(summary.metadata.into_iter().map(|it| match it.kind {
                FixedKind::Inodes => (it.extent, Place::Table),
                _ => (it.extent, Place::Fixed),
            }));
            placed.extend(summary.free.into_iter().map(|extent| (extent, Place::Free)));
        }
        placed.retain(|(extent, _)| extent.len > 0);
        placed.sort_by_key(|(extent, _)| extent.start);
        self.placed = placed;
    }

    /// Blocks that belong to no file, in order of place.
    pub(super) fn placed(&self) -> &[(Extent, Place)] {
        &self.placed
    }

    /// Of a request the parts that are of no file and of no inode table, joined where
    /// they follow each other; with `free` those that are not in use as well.
    pub(super) fn fixed_in(&self, request: Extent, free: bool) -> Vec<Extent> {
        let from = self.placed.partition_point(|(extent, _)| extent.end() <= request.start);
        let mut parts: Vec<Extent> = Vec::new();
        for &(extent, place) in &self.placed[from..] {
            if extent.start >= request.end() {
                break;
            }
            if place == Place::Table || place == Place::Free && !free {
                continue;
            }
            let start = extent.start.max(request.start);
            let part = Extent::new(start, extent.end().min(request.end()).saturating_since(start));
            match parts.last_mut() {
                Some(last) if last.end() == part.start => last.len += part.len,
                _ => parts.push(part),
            }
        }
        parts
    }

    /// A file's path from the root of the file system, if it has one.
    #[must_use]
    pub fn path(&self, ino: Ino) -> Option<Vec<u8>> {
        let root = self.root?;
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = ino;
        while at != root {
            let named = self.names.get(&at)?;
            names.push(&named.name);
            at = named.dir;
            if names.len() > DEPTH_MAX {
                return None;
            }
        }
        names.reverse();
        Some([b"/", names.join(&b'/').as_slice()].concat())
    }

    /// All inodes that have names, by number, with their kinds.
    pub(super) fn inodes(&self) -> Vec<(Ino, FileKind)> {
        let named = self.names.iter().map(|(&ino, named)| (ino, named.kind));
        let root = self.root.filter(|root| !self.names.contains_key(root));
        let root = root.map(|root| (root, FileKind::Directory));
        let mut all: Vec<(Ino, FileKind)> = named.chain(root).collect();
        all.sort_unstable_by_key(|(ino, _)| *ino);
        all
    }

    /// The directory of a file's name.
    pub(super) fn parent(&self, ino: Ino) -> Option<Ino> {
        self.name(ino).map(|(dir, _)| dir)
    }

    /// The directory of a file's name, and the name in it.
    pub(super) fn name(&self, ino: Ino) -> Option<(Ino, &[u8])> {
        self.names.get(&ino).map(|named| (named.dir, &*named.name))
    }

    /// A file's kind.
    #[must_use]
    pub fn kind(&self, ino: Ino) -> Option<FileKind> {
        if Some(ino) == self.root {
            return Some(FileKind::Directory);
        }
        self.names.get(&ino).map(|named| named.kind)
    }

    /// A file's size in bytes where the walk has seen it.
    #[must_use]
    pub fn size(&self, ino: Ino) -> Option<u64> {
        self.names.get(&ino).and_then(|named| named.size)
    }

    /// Bytes in a block.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    pub(super) fn owner(&self, block: BlockNo) -> Option<&Owner> {
        self.blocks.get(&block)
    }

    /// How many blocks a directory has; zero where that is not known.
    pub(super) fn blocks_of(&self, dir: Ino) -> u64 {
        self.lengths.get(&dir).copied().unwrap_or(0)
    }

    /// The inodes of a directory that lie in a block of an inode table.
    pub(super) fn children(&self, dir: Ino, block: BlockNo) -> &[Ino] {
        self.children.get(&(dir, block)).map_or(&[], Vec::as_slice)
    }

    /// Whether an inode lies in that block.
    pub(super) fn lies_in(&self, ino: Ino, block: BlockNo) -> bool {
        self.names.get(&ino).is_some_and(|named| named.table == Some(block))
    }
}
