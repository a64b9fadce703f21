//! Touches of a trace on a tree that is not an image yet.

use crate::planner::{Part, Touch};
use crate::trace::{Events, Op};
use seekless_fs::FileKind;
use seekless_fs::plan::{ObjectId, Run};
use seekless_fs::tree::{NodeId, Tree};
use seekless_units::Lbn;
use std::collections::HashSet;

/// Symlinks followed before a path is given up, as the kernel.
const MAX_LINKS: usize = 40;

/// The touches of `events` on `tree`, for a format whose objects are numbered
/// like the tree's nodes: every directory on the way to a file whole, inodes,
/// and the ranges that were read. A path that is not in the tree touches its existing part.
///
/// Read-ahead is not modelled; a trace recorded with it has it in its reads.
#[must_use]
pub fn touches(events: &Events, tree: &Tree, block_size: u32) -> Vec<Touch> {
    let mut walk = Walk { tree, seen: HashSet::new(), touches: Vec::new() };
    for event in events.iter().filter(|event| *event.op != Op::Device) {
        let follow = !matches!(event.op, Op::Readlink | Op::Lookup | Op::Stat);
        let Some(node) = walk.path(event.path, follow) else { continue };
        match event.op {
            Op::Readdir => walk.directory(node),
            Op::Read | Op::Mmap | Op::Fault | Op::Exec => {
                let size = tree.node(node).size;
                let end = event.end().map_or(size, |end| end.min(size));
                walk.range(node, event.offset, end, u64::from(block_size));
            }
            _ => {}
        }
    }
    walk.touches
}

struct Walk<'a> {
    tree: &'a Tree,
    /// Nodes whose inode was touched, and directories that were read.
    seen: HashSet<(NodeId, bool)>,
    touches: Vec<Touch>,
}

impl Walk<'_> {
    fn touch(&mut self, node: NodeId, part: Part) {
        let object = ObjectId::new(node.index() as u32);
        self.touches.push(Touch { object, part });
    }

    fn inode(&mut self, node: NodeId) {
        if self.seen.insert((node, false)) {
            self.touch(node, Part::Inode);
        }
    }

    fn directory(&mut self, node: NodeId) {
        if self.tree.node(node).kind == FileKind::Directory && self.seen.insert((node, true)) {
            self.touch(node, Part::Blocks(Run { lbn: Lbn::ZERO, len: u64::from(u32::MAX) }));
        }
    }

    fn range(&mut self, node: NodeId, from: u64, to: u64, block_size: u64) {
        if from < to && self.tree.node(node).kind == FileKind::Regular {
            let first = from / block_size;
            let len = to.div_ceil(block_size) - first;
            self.touch(node, Part::Overhead);
            self.touch(node, Part::Blocks(Run { lbn: Lbn::new(first), len }));
        }
    }

    fn path(&mut self, path: &[u8], follow_last: bool) -> Option<NodeId> {
        let mut stack = vec![NodeId::ROOT];
        let mut rest = components(path);
        let mut links = 0;
        self.inode(NodeId::ROOT);
        while let Some(name) = rest.pop() {
            let &here = stack.last()?;
            if name == b".." {
                stack.truncate(stack.len().saturating_sub(1).max(1));
                continue;
            }
            self.directory(here);
            let node = self.tree.child(here, &name)?.node;
            self.inode(node);
            if self.tree.node(node).kind != FileKind::Symlink || (rest.is_empty() && !follow_last) {
                stack.push(node);
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return None;
            }
            let target = self.tree.target(self.tree.node(node));
            if target.starts_with(b"/") {
                stack.truncate(1);
            }
            rest.extend(components(target));
        }
        stack.last().copied()
    }
}

/// A path's components, last first; empty ones and `.` left out.
pub(crate) fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.rsplit(|&byte| byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .map(<[u8]>::to_vec)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Event;
    use seekless_fs::Timestamp;
    use seekless_fs::tree::{NewPayload, NodeAttr, TreeBuilder};
    use seekless_units::Nanos;

    fn attr(kind: FileKind) -> NodeAttr {
        let mtime = Timestamp::default();
        NodeAttr { kind, perm: 0o755, uid: 0, gid: 0, size: 10_000, mtime, times: None, flags: 0 }
    }

    #[test]
    fn a_path_through_a_link_touches_all_on_its_way() {
        let mut builder = TreeBuilder::new(attr(FileKind::Directory));
        let dir = attr(FileKind::Directory);
        let usr = builder.add(NodeId::ROOT, b"usr", dir, NewPayload::None).unwrap();
        let file = attr(FileKind::Regular);
        builder.add(usr, b"sh", file, NewPayload::Content(0)).unwrap();
        let link = attr(FileKind::Symlink);
        builder.add(NodeId::ROOT, b"bin", link, NewPayload::Target(b"/usr/")).unwrap();
        let tree = builder.finish();
        let read = Event::new(Nanos::ZERO, Op::Read, b"/bin/sh".to_vec()).on(5000, 100);
        let events = [read.clone(), read].into_iter().collect();
        let touches = touches(&events, &tree, 4096);
        let id = |path: &[u8]| ObjectId::new(tree.resolve(path).unwrap().index() as u32);
        let inodes: Vec<ObjectId> =
            touches.iter().filter(|t| t.part == Part::Inode).map(|t| t.object).collect();
        assert_eq!(inodes, [id(b"/"), id(b"/bin"), id(b"/usr"), id(b"/usr/sh")]);
        let block = Part::Blocks(Run { lbn: Lbn::new(1), len: 1 });
        assert!(touches.contains(&Touch { object: id(b"/usr/sh"), part: block }));
    }
}
