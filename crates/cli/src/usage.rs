//! What the blocks of an image are used for: a walk over groups and tree.

use crate::cmd::ls::entries;
use seekless_fs::{BlockMap, Corruption, FileKind, FsError, Inspect, Location};
use seekless_report::disk::{Class, Usage};
use seekless_units::{BlockNo, Extent, GroupNo, Ino};
use std::collections::HashSet;

/// The blocks of an image that lie in groups.
pub(crate) fn whole(image: &dyn Inspect) -> Extent {
    let shape = image.geometry();
    Extent::new(shape.first_block, BlockNo::new(shape.blocks).saturating_since(shape.first_block))
}

/// Classifies every block: fixed metadata and free blocks by the groups'
/// summaries, directories and files by the tree; the rest is internal.
pub(crate) fn classify(image: &dyn Inspect) -> Result<Usage, FsError> {
    let mut walk = Walk { image, runs: Vec::new(), seen: HashSet::new() };
    for group in 0..image.geometry().groups {
        let group = image.group(GroupNo::new(group))?;
        let metadata = group.metadata.into_iter().map(|run| (run, Class::Metadata));
        walk.runs.extend(metadata.chain(group.free.into_iter().map(|run| (run, Class::Free))));
    }
    walk.tree()?;
    Ok(Usage::new(whole(image), walk.runs))
}

struct Walk<'a> {
    image: &'a dyn Inspect,
    runs: Vec<(Extent, Class)>,
    seen: HashSet<Ino>,
}

impl Walk<'_> {
    fn tree(&mut self) -> Result<(), FsError> {
        let root = self.image.root();
        self.seen.insert(root);
        let mut pending = vec![root];
        while let Some(dir) = pending.pop() {
            self.file(dir, Class::Directory)?;
            for (_, ino) in entries(self.image, dir)? {
                if !self.seen.insert(ino) {
                    continue;
                }
                if self.image.attr(ino)?.kind == FileKind::Directory {
                    pending.push(ino);
                } else {
                    self.file(ino, Class::Data)?;
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, ino: Ino, class: Class) -> Result<(), FsError> {
        let map = self.image.block_map(ino)?;
        for &holder in &map.xattr_inodes {
            if self.seen.insert(holder) {
                let values = self.image.block_map(holder)?;
                self.blocks(&values, Class::Metadata);
            }
        }
        self.blocks(&map, class);
        // Of a sound image no run is empty or in two files: more runs than
        // blocks are those of files that share what they must not.
        let (runs, limit) = (self.runs.len() as u64, self.image.geometry().blocks);
        if runs > limit.saturating_mul(2) {
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
