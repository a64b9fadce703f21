//! Use of each block of an image, found by a walk over groups and tree.

use seekless_fs::inspect::sorted_entries;
use seekless_fs::{BlockMap, Corruption, FileKind, FsError, Inspect, Location};
use seekless_report::disk::{Class, Usage};
use seekless_units::{BlockNo, Extent, GroupNo, Ino};
use std::collections::HashSet;

/// Maximum length of a path, in bytes; a longer one is shortened at its beginning.
const PATH_MAX: usize = 4096;

/// The range of blocks that the groups cover.
pub(crate) fn whole(image: &dyn Inspect) -> Extent {
    let shape = image.geometry();
    Extent::new(shape.first_block, BlockNo::new(shape.blocks).saturating_since(shape.first_block))
}

/// Classifies every block: fixed metadata and free blocks by the groups' summaries, directories and
/// files by a walk of the tree; the others are internal.
pub(crate) fn classify(image: &dyn Inspect) -> Result<Usage, FsError> {
    let mut walk = Walk { image, runs: Vec::new(), seen: HashSet::new(), owners: None };
    for group in 0..image.geometry().groups {
        let group = image.group(GroupNo::new(group))?;
        let metadata = group.metadata.into_iter().map(|run| (run, Class::Metadata));
        walk.runs.extend(metadata.chain(group.free.into_iter().map(|run| (run, Class::Free))));
    }
    walk.tree()?;
    Ok(Usage::new(whole(image), walk.runs))
}

/// The file or directory that each block belongs to; blocks of maps and attributes belong to their
/// file.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// Sorted by block; each with an index into `names`.
    runs: Vec<(Extent, u32)>,
    names: Vec<Vec<u8>>,
}

impl Owners {
    /// Takes runs in any order.
    pub(crate) fn new(mut runs: Vec<(Extent, u32)>, names: Vec<Vec<u8>>) -> Self {
        runs.sort_unstable();
        Self { runs, names }
    }

    /// The path of the file or directory that a block belongs to.
    pub(crate) fn of(&self, block: BlockNo) -> Option<&[u8]> {
        let after = self.runs.partition_point(|(run, _)| run.start <= block);
        let (run, name) = self.runs.get(after.checked_sub(1)?)?;
        let name = usize::try_from(*name).ok()?;
        if block < run.end() { self.names.get(name).map(Vec::as_slice) } else { None }
    }
}

/// Finds the owners of all blocks of files and directories. A file with several names gets the
/// first one found.
pub(crate) fn owners(image: &dyn Inspect) -> Result<Owners, FsError> {
    let owners = Some(Owners::default());
    let mut walk = Walk { image, runs: Vec::new(), seen: HashSet::new(), owners };
    walk.tree()?;
    let Owners { runs, names } = walk.owners.unwrap_or_default();
    Ok(Owners::new(runs, names))
}

struct Walk<'a> {
    image: &'a dyn Inspect,
    runs: Vec<(Extent, Class)>,
    seen: HashSet<Ino>,
    /// Collected if the caller wants them.
    owners: Option<Owners>,
}

impl Walk<'_> {
    fn tree(&mut self) -> Result<(), FsError> {
        let root = self.image.root();
        self.seen.insert(root);
        let mut pending = vec![(root, Vec::new())];
        while let Some((dir, path)) = pending.pop() {
            self.file(dir, Class::Directory, if path.is_empty() { b"/" } else { &path })?;
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
                    self.file(ino, Class::Data, &path)?;
                }
            }
        }
        Ok(())
    }

    /// Claims the blocks of a file, and of its map and attributes.
    fn file(&mut self, ino: Ino, class: Class, path: &[u8]) -> Result<(), FsError> {
        let from = self.runs.len();
        self.claim(ino, class)?;
        if let Some(owners) = &mut self.owners {
            let number = u32::try_from(owners.names.len()).unwrap_or(u32::MAX);
            let claimed = self.runs.iter().skip(from);
            owners.runs.extend(claimed.map(|(run, _)| (*run, number)));
            owners.names.push(path.to_vec());
        }
        Ok(())
    }

    fn claim(&mut self, ino: Ino, class: Class) -> Result<(), FsError> {
        let map = self.image.block_map(ino)?;
        for &holder in &map.xattr_inodes {
            if self.seen.insert(holder) {
                let values = self.image.block_map(holder)?;
                self.blocks(&values, Class::Metadata);
            }
        }
        self.blocks(&map, class);
        // In a sound image no run is empty and no block belongs to two files, so that runs never
        // outnumber blocks. The limit is twice that.
        let (runs, limit) = (self.runs.len() as u64, self.image.geometry().blocks);
        if runs > limit * 2 {
            let kind = Corruption::Range { field: "runs of blocks in use", value: runs, limit };
            return Err(FsError::corrupt(kind, Location::of("block map").in_inode(ino)));
        }
        Ok(())
    }

    fn blocks(&mut self, map: &BlockMap, class: Class) {
        self.runs.extend(map.runs.iter().map(|run| (run.extent, class)));
        let index = map.index.iter().map(|index| index.block);
        let overhead = index.chain(map.xattr_block).map(|block| Extent::new(block, 1));
        self.runs.extend(overhead.map(|run| (run, Class::Metadata)));
    }
}
