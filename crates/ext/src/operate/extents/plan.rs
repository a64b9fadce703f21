//! Plans the nodes on a path after a change of its leaf, and writes them.

use super::Tree;
use super::nodes::{ENTRY, NodeEntry, changed, is_whole, node_bytes, shown, split_at};
use super::path::{ExtentPath, TreeNode};
use crate::encode::mapping::{IN_INODE, fan_out};
use crate::extent::{header, root_frame};
use crate::ondisk::{EXTENT_MAX_DEPTH, IBlock};
use seekless_cache::{ChangeId, Kind, Piece, Role};
use seekless_fs::field::{byte, index, low32, wide};
use seekless_fs::{FileKind, FsError, Mapping};
use seekless_units::{BlockNo, Extent};

/// The kind of change of a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeafChange {
    /// Extents are appended behind all others: full nodes stay full.
    Appended,
    /// Extents are inserted between others.
    Inserted,
    /// Extents are cut off at its end, and with them all behind its path.
    Cut,
}

/// A new node of the tree.
struct NewNode {
    at: BlockNo,
    bitmap: ChangeId,
    bytes: Vec<u8>,
}

/// A node of the tree that is rewritten in place.
struct NodeRewrite {
    at: BlockNo,
    old: Vec<u8>,
    new: Vec<u8>,
}

/// The planned change of a tree.
#[derive(Default)]
pub(super) struct Plan {
    made: Vec<NewNode>,
    /// From the bottom up.
    patches: Vec<NodeRewrite>,
    /// Blocks that leave the tree.
    pub(super) left: Vec<BlockNo>,
    root: Option<IBlock>,
    cuts: bool,
}

/// The inode's part in the change of a tree.
pub(super) struct Put<'a> {
    pub(super) role: Role,
    /// Changes that must be on the disk before.
    pub(super) after: &'a [ChangeId],
    /// The new length of the file.
    pub(super) size: u64,
    /// Blocks of contents that are added, and removed.
    pub(super) more: u64,
    pub(super) fewer: u64,
}

/// The changes that a plan was written as.
pub(super) struct Applied {
    /// The change of the inode, which waits for all others.
    pub(super) inode: ChangeId,
    /// Those of blocks of the tree that changed in place.
    pub(super) nodes: Vec<ChangeId>,
}

impl Tree<'_> {
    /// Plans the nodes above a leaf for its new extents. Blocks are allocated, and nothing is
    /// changed; on failure they are given back.
    pub(super) fn plan(
        &mut self,
        path: &ExtentPath,
        leaf: &[Mapping],
        how: LeafChange,
    ) -> Result<Plan, FsError> {
        let mut plan = Plan { cuts: how == LeafChange::Cut, ..Plan::default() };
        match self.work_out(path, leaf, how, &mut plan) {
            Ok(()) => Ok(plan),
            Err(error) => {
                let runs: Vec<Extent> =
                    plan.made.iter().map(|made| Extent::new(made.at, 1)).collect();
                self.maps.space().give(self.core, &runs)?;
                Err(error)
            }
        }
    }

    fn work_out(
        &mut self,
        path: &ExtentPath,
        leaf: &[Mapping],
        how: LeafChange,
        plan: &mut Plan,
    ) -> Result<(), FsError> {
        debug_assert!(
            how != LeafChange::Cut || leaf.len() <= path.leaf.len(),
            "a cut adds no extents"
        );
        let mut entries: Vec<NodeEntry> = leaf.iter().map(NodeEntry::run).collect();
        if let [only] = path.steps.as_slice()
            && let ([_], Some(at)) = (only.children.as_slice(), path.node.at)
            && entries.len() <= only.node.most
        {
            // All fit in the inode (`ext4_ext_try_to_merge_up`).
            plan.left.push(at);
            return self.work_out_root(&only.node, entries, 0, plan);
        }
        let is_directory = self.node()?.kind == FileKind::Directory;
        let copies = self.maps.rules().shadows && how != LeafChange::Cut;
        let (mut node, mut depth, mut at_end) = (&path.node, 0u16, how != LeafChange::Inserted);
        for step in path.steps.iter().rev() {
            let Some(at) = node.at else { break };
            let key = step.children.get(step.slot).map(|child| low32(child.covers.start));
            let alone = entries.len() <= node.most && entries.first().map(|entry| entry.key) == key;
            let new = alone.then(|| node_bytes(node.bytes.clone(), &entries, node.most, depth));
            let mut below: Vec<NodeEntry> = Vec::new();
            match new {
                Some(new)
                    if !copies || new == node.bytes || !is_directory && is_whole(node, &new) =>
                {
                    below.extend(key.map(|key| NodeEntry::node(key, at)));
                    if new != node.bytes {
                        plan.patches.push(NodeRewrite { at, old: node.bytes.clone(), new });
                    }
                }
                _ if entries.is_empty() || copies => plan.left.push(at),
                _ => {
                    // The block keeps the first entries, and the rest go to others.
                    let kept = split_at(entries.len(), node.most, at_end);
                    let rest = entries.split_off(kept);
                    let new = node_bytes(node.bytes.clone(), &entries, node.most, depth);
                    plan.patches.push(NodeRewrite { at, old: node.bytes.clone(), new });
                    below.extend(entries.first().map(|entry| NodeEntry::node(entry.key, at)));
                    entries = rest;
                }
            }
            if below.is_empty() || !alone {
                self.make_nodes(entries, (depth, at_end, at), plan, &mut below)?;
            }
            entries = step
                .children
                .iter()
                .map(|child| NodeEntry::node(low32(child.covers.start), child.block))
                .collect();
            at_end = step.slot + 1 == entries.len();
            entries.splice(step.slot..=step.slot, below);
            node = &step.node;
            depth += 1;
        }
        debug_assert!(node.at.is_none(), "the first node of a way is the root");
        self.work_out_root(node, entries, depth, plan)
    }

    /// Plans the root, which gets another level below it when it is full.
    fn work_out_root(
        &mut self,
        node: &TreeNode,
        mut entries: Vec<NodeEntry>,
        mut depth: u16,
        plan: &mut Plan,
    ) -> Result<(), FsError> {
        while entries.len() > node.most {
            if depth >= EXTENT_MAX_DEPTH {
                return Err(FsError::TooLarge(format!("the extent tree of inode {}", self.ino)));
            }
            let near = plan.made.last().map_or(BlockNo::ZERO, |made| made.at);
            let mut above = Vec::new();
            self.make_nodes(entries, (depth, true, near), plan, &mut above)?;
            entries = above;
            depth += 1;
        }
        debug_assert!(plan.root.is_none(), "the root is planned once, as the last node");
        debug_assert!(depth <= EXTENT_MAX_DEPTH, "a tree of {depth} levels");
        if entries.is_empty() {
            depth = 0;
        }
        let new = node_bytes(node.bytes.clone(), &entries, node.most, depth);
        if new != node.bytes {
            let mut root = IBlock::default();
            root.0.iter_mut().zip(&new).for_each(|(to, &from)| *to = from);
            plan.root = Some(root);
        }
        Ok(())
    }

    /// Makes new nodes for entries, and an entry for each of them in the node above.
    fn make_nodes(
        &mut self,
        mut entries: Vec<NodeEntry>,
        (depth, at_end, near): (u16, bool, BlockNo),
        plan: &mut Plan,
        above: &mut Vec<NodeEntry>,
    ) -> Result<(), FsError> {
        let most = index(fan_out(self.maps.layout().sb().block_size));
        let near = Some(near).filter(|&near| near != BlockNo::ZERO);
        while let Some(first) = entries.first().copied() {
            let rest = entries.split_off(split_at(entries.len(), most, at_end));
            let lbn = u64::from(first.key);
            let (at, bitmap) = self.maps.space().take_block(self.core, self.ino, lbn, near)?;
            let bytes = vec![0; self.maps.layout().block_len()];
            let bytes = node_bytes(bytes, &entries, most, depth);
            debug_assert!(
                plan.made.iter().all(|made| made.at != at),
                "block {at} is taken for one node"
            );
            plan.made.push(NewNode { at, bitmap, bytes });
            above.push(NodeEntry::node(first.key, at));
            entries = rest;
        }
        Ok(())
    }

    /// Writes a plan from the bottom up; blocks that leave the tree are not yet freed.
    pub(super) fn apply(&mut self, plan: &Plan, put: &Put<'_>) -> Result<Applied, FsError> {
        debug_assert!(!plan.cuts || plan.made.is_empty(), "a cut takes no space");
        debug_assert!(
            plan.made.is_empty() || plan.root.is_some() || !plan.patches.is_empty(),
            "something leads to the new nodes"
        );
        debug_assert!(
            plan.patches.iter().all(|patch| !plan.left.contains(&patch.at)),
            "a node that leaves the tree is not rewritten"
        );
        let len = self.maps.layout().block_len();
        let mut waits = put.after.to_vec();
        for made in &plan.made {
            let mut bytes = made.bytes.clone();
            self.maps.sums().seal_node(self.core, self.ino, &mut bytes)?;
            let ((), init) =
                self.core.cache.changes().fill(made.at, len, Role::IndirectInit, |to| {
                    to.copy_from_slice(&bytes);
                    Ok(())
                })?;
            self.core.note_unsettled(self.ino, Extent::new(made.at, 1));
            waits.extend([made.bitmap, init]);
        }
        let mut nodes = Vec::new();
        for patch in &plan.patches {
            self.patch(patch, plan, &waits, &mut nodes)?;
        }
        let more = self.sectors(put.more + wide(plan.made.len()));
        let fewer = self.sectors(put.fewer + wide(plan.left.len()));
        let left: Vec<Extent> = plan.left.iter().map(|&at| Extent::new(at, 1)).collect();
        self.core.forget_unsettled(self.ino, &left);
        let node = self.node()?;
        node.sectors = (node.sectors + more).saturating_sub(fewer);
        node.size = put.size;
        node.map.near = None;
        if let Some(root) = plan.root {
            node.map.root = root;
        }
        // The number of a block that replaces another is there before that one is freed.
        let role = match put.role {
            Role::PointerSet if plan.root.is_none() => Role::Attributes,
            Role::PointerSet if !plan.left.is_empty() => Role::PointerMove,
            role => role,
        };
        waits.extend(&nodes);
        let inode = self.put_map(role, &waits)?;
        Ok(Applied { inode, nodes })
    }

    /// As [`Tree::apply`], and frees the blocks that leave the tree.
    pub(super) fn apply_and_free(
        &mut self,
        plan: &Plan,
        put: &Put<'_>,
    ) -> Result<ChangeId, FsError> {
        debug_assert!(!plan.cuts, "a cut frees the blocks of nodes with those of contents");
        let applied = self.apply(plan, put)?;
        let left: seekless_live::Runs = plan.left.iter().map(|&at| Extent::new(at, 1)).collect();
        let mut first = applied.nodes;
        first.push(applied.inode);
        self.core.defer_free(&first, Kind::FreeFragments, left);
        Ok(applied.inode)
    }

    /// Changes a node in place: entries past the old header before the header, and in a cut the
    /// header before its entries.
    fn patch(
        &mut self,
        patch: &NodeRewrite,
        plan: &Plan,
        after: &[ChangeId],
        done: &mut Vec<ChangeId>,
    ) -> Result<(), FsError> {
        let (old, new) = (shown(&patch.old), shown(&patch.new));
        let len = patch.new.len();
        debug_assert_eq!(len, patch.old.len(), "a node keeps its length");
        debug_assert!(old <= len && new <= len, "the entries lie in the node");
        let parts = match new > old {
            true => [old..len, 0..old],
            false if plan.cuts => [0..ENTRY, ENTRY..len],
            // Entries that move up must not be there twice: one write.
            false => [0..len, len..len],
        };
        let role = match (plan.cuts, new == old && plan.left.is_empty() && plan.made.is_empty()) {
            (true, _) => Role::IndirectClear,
            // Alone, and within one sector: it may be late.
            (false, true) => Role::IndirectSet,
            (false, false) => Role::IndirectInit,
        };
        for part in parts {
            let changed = changed(&patch.old, &patch.new, part);
            let Some(bytes) = patch.new.get(changed.clone()).filter(|bytes| !bytes.is_empty())
            else {
                continue;
            };
            let piece = Piece { offset: byte(changed.start), bytes };
            self.maps.sums().claim_node(self.core, self.ino, patch.at)?;
            done.push(self.core.cache.changes().change(patch.at, &[piece], role, after)?);
        }
        self.core.note_unsettled(self.ino, Extent::new(patch.at, 1));
        Ok(())
    }

    /// The most new nodes when `blocks` blocks in `runs` holes get a place, each with an extent of
    /// its own.
    pub(crate) fn most_nodes(&mut self, runs: u64, blocks: u64) -> Result<u64, FsError> {
        let root = self.node()?.map.root;
        let frame = root_frame(&root.0, self.ino)?;
        let used = header(&root.0, root.0.len(), frame.place)?.eh_entries.get();
        let half = fan_out(self.maps.layout().sb().block_size) / 2;
        Ok(most_nodes(u64::from(frame.depth), u64::from(used), half, (runs, blocks)))
    }
}

/// As [`Tree::most_nodes`], for a tree of a depth with `used` entries in its root, whose nodes have
/// at least `half` entries after a split.
///
/// Extents that fill a hole go to one leaf, which is split in half once, and again after every
/// `half` entries; the same holds of the numbers of new nodes in the nodes above.
fn most_nodes(depth: u64, used: u64, half: u64, (runs, blocks): (u64, u64)) -> u64 {
    let half = half.max(2);
    let mut all = 0u64;
    let mut new = blocks;
    for _ in 0..depth {
        new = new.min(runs * 2 + new.div_ceil(half));
        all += new;
    }
    // The root's entries move to nodes of their own, until so few are left that they fit.
    let mut entries = used + new;
    while entries > IN_INODE {
        entries = entries.div_ceil(half) + 1;
        all += entries;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_nodes_as_the_worst_placement_takes() {
        // In the inode.
        assert_eq!(most_nodes(0, 0, 42, (1, 4)), 0);
        assert_eq!(most_nodes(0, 3, 42, (1, 1)), 0);
        // A leaf, and the one that it is split into.
        assert_eq!(most_nodes(0, 4, 42, (1, 1)), 2);
        assert_eq!(most_nodes(0, 0, 42, (1, 84)), 3);
        // More leaves than the root has room for.
        assert_eq!(most_nodes(0, 0, 42, (1, 420)), 11 + 2);
        // Leaves of a tree, each of which may be split.
        assert_eq!(most_nodes(1, 1, 42, (1, 1)), 1);
        assert_eq!(most_nodes(1, 1, 42, (1, 100)), 5 + 2);
        assert_eq!(most_nodes(1, 4, 42, (3, 3)), 3 + 2);
        assert_eq!(most_nodes(2, 1, 170, (1, 1)), 2);
    }
}
