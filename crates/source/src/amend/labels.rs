//! SELinux contexts of all files of a tree.

use super::AmendError;
use super::edit::Edit;
use crate::contexts::{FileContexts, SELINUX};
use crate::list::shown;
use crate::options::Notices;
use seekless_fs::tree::{NewPayload, NodeAttr, NodeId, Tree};
use seekless_fs::{FileKind, FsError, Xattr};
use std::collections::HashMap;

/// The contexts of a tree.
#[derive(Clone, Debug)]
pub struct Labels {
    /// Contexts by path.
    pub contexts: FileContexts,
    /// Path of the tree's root in the system that mounts it, without a slash at its end.
    pub mount_point: Vec<u8>,
    /// The format makes a `lost+found`, which needs a context too.
    pub has_lost_and_found: bool,
}

/// A directory that a format adds to the root.
const LOST_AND_FOUND: &[u8] = b"lost+found";

impl Labels {
    /// The context of a path of the tree, relative to its root.
    fn of(&self, path: &[u8], kind: FileKind) -> Option<&[u8]> {
        let whole = match (path, self.mount_point.as_slice()) {
            (b"", b"") => b"/".to_vec(),
            (b"", mount_point) => mount_point.to_vec(),
            (path, mount_point) => [mount_point, b"/", path].concat(),
        };
        self.contexts.of(&whole, kind)
    }

    /// Adds the directory that the format would make, so that it can have a context.
    pub(super) fn add_lost_and_found(&self, edit: &mut Edit) -> Result<(), AmendError> {
        if !self.has_lost_and_found
            || edit.find(LOST_AND_FOUND)?.is_some()
            || self.of(LOST_AND_FOUND, FileKind::Directory).is_none()
        {
            return Ok(());
        }
        let root = edit.attr(NodeId::ROOT);
        let attr = NodeAttr { perm: 0o700, uid: 0, gid: 0, times: None, flags: 0, ..root };
        Ok(edit.add(LOST_AND_FOUND, attr, NewPayload::None)?)
    }

    /// Gives every file its context. A file with several names has that of the first that has one.
    pub(super) fn apply(&self, tree: &mut Tree, notices: Notices) -> Result<(), FsError> {
        let linked = self.of_linked(tree, notices);
        tree.change_xattrs(|tree, id| {
            let node = tree.node(id);
            let context = match node.names {
                0 | 1 => self.of(&tree.path(id), node.kind)?,
                _ => linked.get(&id)?,
            };
            let others = tree.xattrs(node).iter().filter(|xattr| xattr.name != SELINUX);
            // As setfiles writes it: the kernel stores the value as it is.
            let value = [context, b"\0"].concat();
            let own = Xattr { name: SELINUX.to_vec(), value };
            Some(others.cloned().chain([own]).collect())
        })
    }

    /// The contexts of files with several names. Warns of those whose names have different ones.
    fn of_linked(&self, tree: &Tree, notices: Notices) -> HashMap<NodeId, &[u8]> {
        let mut linked: HashMap<NodeId, (Vec<u8>, &[u8])> = HashMap::new();
        for dir in tree.ids() {
            for entry in tree.children(dir) {
                let node = tree.node(entry.node);
                if node.names < 2 {
                    continue;
                }
                let above = tree.path(dir);
                let path = match above.as_slice() {
                    b"" => tree.name(entry).to_vec(),
                    above => [above, b"/", tree.name(entry)].concat(),
                };
                let Some(context) = self.of(&path, node.kind) else { continue };
                let (first, known) = linked.entry(entry.node).or_insert((path.clone(), context));
                if *known != context {
                    let [first, path, context] = [first.as_slice(), &path, context].map(shown);
                    notices.tell(&format!(
                        "{path}: is another name of {first}, whose context it has instead of \
                         {context}"
                    ));
                }
            }
        }
        linked.into_iter().map(|(node, (_, context))| (node, context)).collect()
    }
}
