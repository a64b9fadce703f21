//! Orders of files in a walk of a tree.

use super::{Entry, NodeId, Tree};
use crate::FileKind;

/// Visits files and directories in the order in which a walk reads their blocks: a directory, its
/// other files in the order of `listing`, then its subdirectories likewise.
pub fn walk<'t>(
    tree: &'t Tree,
    listing: &dyn Fn(NodeId) -> &'t [Entry],
    mut visit: impl FnMut(NodeId),
) {
    let mut seen = vec![false; tree.nodes().len()];
    let mut stack = vec![NodeId::ROOT];
    while let Some(dir) = stack.pop() {
        visit(dir);
        let entries = listing(dir);
        for entry in entries {
            let node = tree.node(entry.node);
            if node.kind != FileKind::Directory && !seen[entry.node.index()] {
                seen[entry.node.index()] = true;
                visit(entry.node);
            }
        }
        let is_dir = |entry: &&Entry| tree.node(entry.node).kind == FileKind::Directory;
        stack.extend(entries.iter().rev().filter(is_dir).map(|entry| entry.node));
    }
}

/// The same files in the order in which such a walk accesses inodes: a directory's entries
/// together, including subdirectories, so that accessing every entry of a listing stays in one part
/// of the inode table.
#[must_use]
pub fn inode_walk<'t>(tree: &'t Tree, listing: &dyn Fn(NodeId) -> &'t [Entry]) -> Vec<NodeId> {
    let mut order = Vec::with_capacity(tree.nodes().len());
    let mut seen = vec![false; tree.nodes().len()];
    let mut add = |id: NodeId| {
        if !std::mem::replace(&mut seen[id.index()], true) {
            order.push(id);
        }
    };
    walk(tree, listing, |id| {
        add(id);
        if tree.node(id).kind == FileKind::Directory {
            listing(id).iter().for_each(|entry| add(entry.node));
        }
    });
    order
}
