//! Making room in indexed directories: leaves and nodes are split, the root is
//! moved a level down, a directory of one block gets an index (`do_split`,
//! `make_indexed_dir` of `fs/ext4/namei.c`).
//!
//! Steps that may fail for want of space come first: a block is appended with all names or children
//! that move there, and then the others lead to it.

use super::blocks::{blank_node, insert_child, put_children, put_levels, put_root};
use super::{DxFrame, DxPath, SplitChanges};
use crate::hash::name_hash;
use crate::htree::DxChild;
use crate::ondisk::{DX_NODE_ENTRIES_OFFSET, DxTail, flags, hash_version, incompat};
use crate::operate::directory::DirectoryBlocks;
use crate::operate::entries::Entries;
use seekless_fs::FsError;
use seekless_fs::field::{invalid, wide};
use seekless_live::{Codec, Entry};
use seekless_units::Lbn;

/// The length of `.`, and where `..` begins.
const DOT: usize = 12;

/// A name of a leaf: its place in it, and its hash.
#[derive(Clone, Copy)]
struct Hashed {
    hash: u32,
    at: usize,
    needed: usize,
}

/// Makes room in a directory.
pub(super) struct Splitter<'s, 'a> {
    blocks: &'s mut DirectoryBlocks<'a>,
    entries: Entries,
    made: &'s mut SplitChanges,
}

impl<'s, 'a> Splitter<'s, 'a> {
    /// Notes its changes in `made`.
    pub(super) fn of(
        blocks: &'s mut DirectoryBlocks<'a>,
        entries: Entries,
        made: &'s mut SplitChanges,
    ) -> Self {
        Self { blocks, entries, made }
    }

    /// Bytes at the end of a block of the index.
    fn index_tail(&self) -> usize {
        if self.blocks.layout().has_sums() { size_of::<DxTail>() } else { 0 }
    }

    /// Levels of nodes that an index may have below its root.
    fn most_levels(&self) -> u8 {
        if self.blocks.layout().sb().has_incompat(incompat::LARGEDIR) { 2 } else { 1 }
    }

    /// Gives a directory one more block; its number is returned.
    fn append_block(&mut self, bytes: &[u8]) -> Result<u64, FsError> {
        let lbn = self.blocks.count()?;
        let reached = self.blocks.append(bytes)?;
        self.made.reached.push(reached);
        debug_assert_eq!(self.blocks.count()?, lbn + 1, "a directory grows by one block");
        self.made.rewritten.push(lbn);
        Ok(lbn)
    }

    /// The names of a leaf in the order of their hashes.
    fn hashed_names(&self, leaf: &[u8], version: u8) -> Result<Vec<Hashed>, FsError> {
        let place = self.blocks.place();
        let mut names = Vec::new();
        for entry in self.entries.entries(leaf, place) {
            let entry = entry?;
            if entry.is_used() {
                let hash = name_hash(version, self.blocks.layout().sb().hash_seed(), entry.name);
                let hash = hash.unwrap_or_default().major;
                names.push(Hashed { hash, at: entry.at, needed: entry.needed });
            }
        }
        names.sort_by_key(|name| name.hash);
        Ok(names)
    }

    /// Moves the upper half of a leaf's names to a new leaf behind it.
    pub(super) fn split_leaf(&mut self, path: &DxPath) -> Result<(), FsError> {
        let Some(&parent) = path.steps.last() else {
            debug_assert!(false, "a path begins at the root");
            return Ok(());
        };
        let old = self.blocks.read(path.leaf_at)?.1.to_vec();
        let names = self.hashed_names(&old, path.version)?;
        let split = split_point(&names, old.len());
        let (Some(kept), Some(first)) =
            (split.checked_sub(1).and_then(|last| names.get(last)), names.get(split))
        else {
            // A leaf without room has many names.
            return Err(invalid("rec_len", wide(names.len()), self.blocks.place()));
        };
        let continued = u32::from(first.hash == kept.hash);
        let hash = first.hash | continued;
        let moved: Vec<usize> = names.iter().skip(split).map(|name| name.at).collect();
        let new = self.leaf_of(&old, |entry| moved.contains(&entry.at))?;
        let lbn = self.append_block(&new)?;
        let mut left = old;
        self.take_out(&mut left, &moved)?;
        self.blocks.edit((path.leaf, path.leaf_at), |bytes| bytes.copy_from_slice(&left))?;
        self.made.rewritten.push(path.leaf);
        let child = DxChild { hash, lbn: Lbn::new(lbn) };
        self.blocks.edit((parent.lbn, parent.at), |bytes| {
            insert_child(bytes, parent.branch, parent.chosen, child);
        })
    }

    /// A leaf with some of another's names, packed.
    fn leaf_of(&self, from: &[u8], which: impl Fn(&Entry<'_>) -> bool) -> Result<Vec<u8>, FsError> {
        let mut leaf = vec![0; from.len()];
        self.entries.blank(&mut leaf);
        let end = leaf.len() - self.entries.tail;
        let (mut at, mut last) = (0usize, None);
        for entry in self.entries.entries(from, self.blocks.place()) {
            let entry = entry?;
            if entry.is_used() && which(&entry) {
                self.entries.put(&mut leaf, &Entry { at, len: entry.needed, ..entry });
                last = Some(at);
                at += entry.needed;
            }
        }
        debug_assert!(at <= end, "some names of a block fit in another");
        if let Some(last) = last {
            self.entries.put_len(&mut leaf, last, end - last);
        }
        Ok(leaf)
    }

    /// Takes names out of a leaf. The others stay where they are.
    fn take_out(&self, leaf: &mut [u8], gone: &[usize]) -> Result<(), FsError> {
        let old = leaf.to_vec();
        let mut kept: Vec<usize> = Vec::new();
        for entry in self.entries.entries(&old, self.blocks.place()) {
            let entry = entry?;
            if entry.is_used() && !gone.contains(&entry.at) {
                kept.push(entry.at);
            }
        }
        let end = leaf.len() - self.entries.tail;
        if kept.first() != Some(&0) {
            // The first entry is not used.
            if let Some(ino) = leaf.get_mut(..4) {
                ino.fill(0);
            }
            kept.insert(0, 0);
        }
        debug_assert!(kept.is_sorted(), "the entries that stay keep their order");
        let nexts: Vec<usize> = kept.iter().copied().skip(1).chain([end]).collect();
        for (&at, next) in kept.iter().zip(nexts) {
            self.entries.put_len(leaf, at, next - at);
        }
        Ok(())
    }

    /// Makes room for one more child in the lowest block of the index on a path, or takes one step
    /// towards that: the uppermost full block below one with room is split, or the root gets a
    /// level below it.
    pub(super) fn widen(&mut self, path: &DxPath) -> Result<(), FsError> {
        debug_assert_eq!(path.steps.len(), usize::from(path.levels) + 1, "a block for each level");
        let roomy = path.steps.iter().rposition(|step| !step.branch.is_full());
        match roomy {
            Some(above) => {
                let (Some(&parent), Some(&full)) =
                    (path.steps.get(above), path.steps.get(above + 1))
                else {
                    debug_assert!(false, "the lowest block was full");
                    return Ok(());
                };
                self.split_node(parent, full)
            }
            None if path.levels >= self.most_levels() => {
                Err(FsError::NoSpace("the index of the directory is full".into()))
            }
            None => self.add_level(path),
        }
    }

    fn children(&mut self, step: &DxFrame) -> Result<Vec<DxChild>, FsError> {
        let (_, bytes) = self.blocks.read(step.at)?;
        Ok((0..step.branch.count).map(|n| step.branch.child(bytes, n)).collect())
    }

    /// A new node with some children.
    fn node_of(&self, children: &[DxChild]) -> Vec<u8> {
        let (mut bytes, branch) = blank_node(self.blocks.layout().block_len(), self.index_tail());
        let all = bytes.len();
        self.entries.put_len(&mut bytes, 0, all);
        put_children(&mut bytes, branch, children);
        bytes
    }

    /// Moves the upper half of a node's children to a new node behind it.
    fn split_node(&mut self, parent: DxFrame, full: DxFrame) -> Result<(), FsError> {
        debug_assert!(full.branch.is_full() && !parent.branch.is_full(), "it makes room above");
        debug_assert_eq!(full.branch.offset, DX_NODE_ENTRIES_OFFSET, "the root is not split");
        let children = self.children(&full)?;
        let (left, right) = children.split_at(children.len() / 2);
        let (Some(first), false) = (right.first(), left.is_empty()) else {
            return Err(invalid("limit", wide(children.len()), self.blocks.place()));
        };
        let node = self.node_of(right);
        let lbn = self.append_block(&node)?;
        self.blocks.edit((full.lbn, full.at), |bytes| {
            put_children(bytes, full.branch, left);
        })?;
        let child = DxChild { hash: first.hash, lbn: Lbn::new(lbn) };
        self.blocks.edit((parent.lbn, parent.at), |bytes| {
            insert_child(bytes, parent.branch, parent.chosen, child);
        })
    }

    /// Moves the children of a full root to a node below it.
    fn add_level(&mut self, path: &DxPath) -> Result<(), FsError> {
        let Some(&root) = path.steps.first() else {
            debug_assert!(false, "a path begins at the root");
            return Ok(());
        };
        debug_assert!(root.branch.is_full(), "a root with room needs no level below it");
        let children = self.children(&root)?;
        let node = self.node_of(&children);
        let lbn = self.append_block(&node)?;
        self.blocks.edit((root.lbn, root.at), |bytes| {
            put_children(bytes, root.branch, &[DxChild { hash: 0, lbn: Lbn::new(lbn) }]);
            put_levels(bytes, path.levels + 1);
        })
    }

    /// Gives a directory of one block an index: its names move to a leaf. False if
    /// the block does not begin as it should, and then nothing is changed.
    pub(super) fn make_index(&mut self) -> Result<bool, FsError> {
        let version = self.blocks.layout().sb().raw.s_def_hash_version;
        if version > hash_version::TEA {
            return Ok(false);
        }
        let at = self.blocks.at(0)?;
        let old = self.blocks.read(at)?.1.to_vec();
        let mut dots = self.entries.entries(&old, self.blocks.place());
        let (Some(own), Some(above)) = (dots.next().transpose()?, dots.next().transpose()?) else {
            return Ok(false);
        };
        if own.name != b"." || above.name != b".." || above.at != DOT {
            return Ok(false);
        }
        drop(dots);
        let leaf = self.leaf_of(&old, |entry| entry.at > DOT)?;
        let lbn = self.append_block(&leaf)?;
        let mut root = old.clone();
        let branch = put_root(&mut root, version, self.index_tail());
        let rest = root.len() - DOT;
        self.entries.put_len(&mut root, DOT, rest);
        put_children(&mut root, branch, &[DxChild { hash: 0, lbn: Lbn::new(lbn) }]);
        self.blocks.edit((0, at), |bytes| bytes.copy_from_slice(&root))?;
        self.made.rewritten.push(0);
        self.blocks.node()?.flags |= flags::INDEX;
        self.blocks.put_rest()?;
        Ok(true)
    }
}

/// How many names stay: those that move take up to half a block, and are all from a hash on. Where
/// that would be all of them, half of them move.
fn split_point(names: &[Hashed], block: usize) -> usize {
    let half = block / 2;
    let (mut size, mut moved) = (0usize, 0usize);
    for name in names.iter().rev() {
        if size + name.needed / 2 > half {
            return names.len() - moved;
        }
        size += name.needed;
        moved += 1;
    }
    names.len() / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_block_goes_and_never_all() {
        let names = |count: usize, needed: usize| -> Vec<Hashed> {
            (0..count).map(|n| Hashed { hash: n as u32, at: n * needed, needed }).collect()
        };
        assert_eq!(split_point(&names(64, 16), 1024), 32);
        assert_eq!(split_point(&names(3, 264), 1024), 1);
        assert_eq!(split_point(&names(10, 16), 1024), 5, "less than half a block in all");
        assert_eq!(Entries::needed(1), DOT);
    }
}
