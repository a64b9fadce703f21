//! The path from the root of a tree to a leaf, and lookups in it.

use super::Tree;
use crate::bmap::{EVERYTHING, MappedRuns};
use crate::extent::{
    ChildNode, Frame, NodeEntries, entries, header, root_frame, tail_len, walk_in,
};
use crate::operate::map::{Around, Core, Near};
use crate::operate::maps::FileMaps;
use seekless_fs::field::{index, invalid};
use seekless_fs::{FsError, Location, Mapping};
use seekless_live::BlockState;
use seekless_units::{BlockNo, Extent, Ino};
use std::ops::Range;
use std::sync::Arc;

/// A node of an extent tree, as in memory.
pub(super) struct TreeNode {
    /// Its block; the root has none.
    pub(super) at: Option<BlockNo>,
    /// Most entries it takes.
    pub(super) most: usize,
    pub(super) bytes: Vec<u8>,
}

/// An index node on the path to a leaf.
pub(super) struct IndexNode {
    pub(super) node: TreeNode,
    pub(super) children: Vec<ChildNode>,
    /// The one on the path.
    pub(super) slot: usize,
}

/// The path to a leaf (`struct ext4_ext_path`).
pub(super) struct ExtentPath {
    /// From the root.
    pub(super) steps: Vec<IndexNode>,
    pub(super) node: TreeNode,
    /// Logical blocks that the leaf may map.
    pub(super) covers: Range<u64>,
    pub(super) leaf: Vec<Mapping>,
}

impl ExtentPath {
    /// The blocks on it.
    pub(super) fn blocks(&self) -> impl Iterator<Item = BlockNo> {
        self.steps.iter().map(|step| &step.node).chain([&self.node]).filter_map(|node| node.at)
    }

    /// The block that lies in front of one of the file, as far as the leaf contains it
    /// (`ext4_ext_find_goal` of `fs/ext4/extents.c`).
    pub(super) fn in_front_of(&self, lbn: u64) -> Option<BlockNo> {
        let next = self.leaf.partition_point(|run| run.lbn.get() <= lbn);
        if let Some(run) = next.checked_sub(1).and_then(|at| self.leaf.get(at)) {
            debug_assert!(lbn >= run.lbn.get() + run.extent.len, "{lbn} is in a hole");
            let by = lbn - run.lbn.get() - 1;
            return Some(run.extent.start + by);
        }
        let run = self.leaf.get(next)?;
        let by = run.lbn.get() - lbn + 1;
        run.extent.start.get().checked_sub(by).map(BlockNo::new)
    }

    /// The neighbours of an unmapped block in the file, before and behind it, as far as the leaf
    /// contains them.
    pub(super) fn around(&self, lbn: u64) -> Around {
        let next = self.leaf.partition_point(|run| run.lbn.get() <= lbn);
        let front = next.checked_sub(1).and_then(|at| self.leaf.get(at));
        let left = front.map(|run| {
            let last = run.extent.len - 1;
            (run.lbn.get() + last, run.extent.start + last)
        });
        let right = self.leaf.get(next).map(|run| (run.lbn.get(), run.extent.start));
        Around { left, right }
    }
}

impl Tree<'_> {
    /// The path to the leaf for a block of the file, mapped or not.
    pub(super) fn path(&mut self, lbn: u64) -> Result<ExtentPath, FsError> {
        let root = self.node()?.map.root;
        let mut frame = root_frame(&root.0, self.ino)?;
        let mut steps = Vec::new();
        let (mut at, mut bytes) = (None, root.0.to_vec());
        loop {
            let tail = if at.is_some() { tail_len(self.maps.layout().sb()) } else { 0 };
            let header = header(&bytes, bytes.len() - tail, frame.place)?;
            if header.eh_max.get() == 0 {
                return Err(invalid("eh_max", 0, frame.place));
            }
            let found = entries(self.maps.layout().volume(), &bytes, &header, &frame)?;
            let node = TreeNode { at, most: index(header.eh_max.get()), bytes };
            let children = match found {
                NodeEntries::Leaf(leaf) => {
                    let leaf = leaf.into_vec();
                    return Ok(ExtentPath { steps, node, covers: frame.covers, leaf });
                }
                NodeEntries::Index(children) => children.into_vec(),
            };
            let slot = children.iter().rposition(|child| child.covers.start <= lbn).unwrap_or(0);
            let Some(child) = children.get(slot).cloned() else {
                return Err(invalid("eh_entries", 0, frame.place));
            };
            bytes = self.tree_block(child.block, frame.place)?;
            let place = Location::of("extent block").in_inode(self.ino).in_block(child.block);
            let depth = frame.depth - 1;
            frame = Frame { covers: child.covers, depth, place };
            at = Some(child.block);
            steps.push(IndexNode { node, children, slot });
        }
    }

    /// A block of the tree, which `place` points to.
    fn tree_block(&mut self, at: BlockNo, place: Location) -> Result<Vec<u8>, FsError> {
        self.maps.layout().check_data(Extent::new(at, 1), place)?;
        self.maps.sums().claim_node(self.core, self.ino, at)?;
        Ok(self.core.cache.blocks_mut().read(at, 0, self.maps.layout().block_len())?.to_vec())
    }

    /// The run or hole at a block of the file.
    pub(super) fn find(&mut self, lbn: u64) -> Result<Near, FsError> {
        if let Some(near) = &self.node()?.map.near
            && near.blocks.contains(&lbn)
        {
            return Ok(near.clone());
        }
        let path = self.path(lbn)?;
        let next = path.leaf.partition_point(|run| run.lbn.get() <= lbn);
        let before = next.checked_sub(1).and_then(|at| path.leaf.get(at));
        let end_of = |run: &Mapping| run.lbn.get() + run.extent.len;
        let near = match before.filter(|run| end_of(run) > lbn) {
            Some(run) => {
                self.maps
                    .layout()
                    .check_data(run.extent, Location::of("extent").in_inode(self.ino))?;
                let at = Some((run.extent.start, run.unwritten));
                Near { blocks: run.lbn.get()..end_of(run), at }
            }
            None => {
                let end = match path.leaf.get(next) {
                    Some(run) => run.lbn.get(),
                    None if lbn < path.covers.start => path.covers.start,
                    None => path.covers.end,
                };
                Near { blocks: before.map_or(lbn, end_of).min(lbn)..end, at: None }
            }
        };
        self.node()?.map.near = Some(near.clone());
        Ok(near)
    }

    /// The block on the disk of a block of the file, if it has contents.
    pub(crate) fn lookup_block(&mut self, lbn: u64) -> Result<Option<BlockNo>, FsError> {
        if lbn >= crate::extent::LOGICAL_BLOCKS {
            return Ok(None);
        }
        let found = self.find(lbn)?.at(lbn);
        Ok(found.filter(|&(_, unwritten)| !unwritten).map(|(at, _)| at))
    }

    /// Runs of the file in a range of its blocks, and the blocks of its tree on the
    /// way to them.
    pub(super) fn walk(
        &mut self,
        wanted: &Range<u64>,
    ) -> Result<(Vec<Mapping>, Vec<BlockNo>), FsError> {
        let root = self.node()?.map.root;
        let mut found = MappedRuns::new(self.maps.layout().sb().blocks, true);
        let (maps, core, ino) = (&*self.maps, &mut *self.core, self.ino);
        walk_in(maps.layout().volume(), (ino, &root.0), wanted, &mut found, &mut |at, place| {
            maps.layout().check_data(Extent::new(at, 1), place)?;
            maps.sums().claim_node(core, ino, at)?;
            let bytes = core.cache.blocks_mut().read(at, 0, maps.layout().block_len())?;
            Ok(Some(Arc::from(bytes)))
        })?;
        for run in &found.runs {
            maps.layout().check_data(run.extent, Location::of("extent").in_inode(ino))?;
        }
        let index = found.index.unwrap_or_default();
        Ok((found.runs, index.iter().map(|node| node.block).collect()))
    }

    /// The runs of a regular file's contents.
    pub(crate) fn mapped_runs(&mut self) -> Result<Vec<Mapping>, FsError> {
        Ok(self.walk(&EVERYTHING)?.0)
    }

    /// The runs of a file: contents and the blocks of its tree.
    pub(crate) fn runs_of(&mut self) -> Result<Vec<Extent>, FsError> {
        let (runs, tree) = self.walk(&EVERYTHING)?;
        let tree = tree.into_iter().map(|at| Extent::new(at, 1));
        Ok(runs.into_iter().map(|run| run.extent).chain(tree).collect())
    }

    /// The state of a block in the tree, and the end of the run with that state.
    pub(crate) fn state_of(&mut self, lbn: u64) -> Result<(BlockState, u64), FsError> {
        if lbn >= self.max_size().div_ceil(self.block().max(1)) {
            // There can be none: writing there fails elsewhere.
            return Ok((BlockState::Hole, u64::MAX));
        }
        let near = self.find(lbn)?;
        let stand = match near.at(lbn) {
            None => BlockState::Hole,
            Some((_, false)) => BlockState::Written,
            Some((_, true)) => BlockState::Unwritten,
        };
        Ok((stand, near.end()))
    }
}

/// As [`Format::unnoted`](seekless_live::Format::unnoted).
pub(crate) fn unnoted(maps: &FileMaps, core: &Core, ino: Ino, noted: &[Extent]) -> Option<BlockNo> {
    let node = core.nodes.get(&ino)?;
    let mut found = MappedRuns::new(maps.layout().sb().blocks, true);
    let len = maps.layout().block_len();
    let walked = walk_in(
        maps.layout().volume(),
        (ino, &node.map.root.0),
        &EVERYTHING,
        &mut found,
        &mut |at, _| Ok(core.cache.blocks().peek(at, 0, len).map(Arc::from)),
    );
    // Damage is reported elsewhere.
    walked.ok()?;
    let tree = found.index.unwrap_or_default().into_iter().map(|node| Extent::new(node.block, 1));
    let runs = found.runs.into_iter().map(|run| run.extent).chain(tree);
    runs.flat_map(|run| run.start.get()..run.end().get())
        .map(|at| Extent::new(BlockNo::new(at), 1))
        .filter(|at| !noted.iter().any(|run| run.overlaps(*at)))
        .filter(|at| core.cache.is_unsettled(*at))
        .map(|at| at.start)
        .min()
}
