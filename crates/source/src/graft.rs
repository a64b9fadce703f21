//! Parts of a source under other paths, as the tree of a partition of its own.

use crate::layered::{LayeredSource, attr, payload};
use crate::options::TreeOptions;
use crate::tar::AddError;
use crate::unpack::{SYMLINKS_MAX, Unpacker, missing_directory};
use seekless_fs::source::Source;
use seekless_fs::tree::{NewPayload, NodeId, Tree};
use seekless_fs::{FileKind, FsError};
use std::collections::HashMap;
use std::sync::Arc;

/// A part of a source, and its path in the new tree. Paths have no leading slash; the empty one is
/// the root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Graft {
    /// The file or directory in the source.
    pub from: Vec<u8>,
    /// Its new path. A directory merges with one that is there.
    pub to: Vec<u8>,
}

impl Graft {
    /// The new path of a path of the source, if it lies in the part.
    ///
    /// ```
    /// use seekless_source::Graft;
    ///
    /// let graft = Graft { from: b"usr".into(), to: b"".into() };
    /// assert_eq!(graft.moved(b"usr/bin/sh"), Some(b"bin/sh".to_vec()));
    /// assert_eq!(graft.moved(b"usr"), Some(b"".to_vec()));
    /// assert_eq!(graft.moved(b"usrlocal"), None);
    /// ```
    #[must_use]
    pub fn moved(&self, path: &[u8]) -> Option<Vec<u8>> {
        let below = match self.from.as_slice() {
            b"" => path,
            from => match path.strip_prefix(from)? {
                b"" => b"",
                below => below.strip_prefix(b"/")?,
            },
        };
        Some(joined(&self.to, below))
    }
}

/// A tree of parts of `source`, one after the other, and of empty `directories` (root's, mode 0755)
/// where nothing is. Files with several names in a part keep them. The first directory that the
/// parts have for the root gives it its attributes. `name` is the source's in errors.
///
/// # Errors
/// [`FsError::NotFound`] for a part that is not in the source; [`FsError::Invalid`] for a directory
/// that is needed in place of another file.
pub fn graft(
    source: Arc<dyn Source + Send>,
    name: &str,
    parts: &[Graft],
    directories: &[Vec<u8>],
) -> Result<LayeredSource, FsError> {
    let mut unpacker = Unpacker::new(TreeOptions::default());
    let fault = |error| match error {
        AddError::Fault(fault) => FsError::Invalid(format!("{name}: {fault}")),
        AddError::Fs(error) => error,
    };
    let tree = source.tree();
    for part in parts {
        let shown = || format!("{name}: /{}", String::from_utf8_lossy(&part.from));
        let node = follow(tree, &part.from).ok_or_else(|| FsError::NotFound(shown()))?;
        add(&mut unpacker, tree, node, &part.to).map_err(fault)?;
    }
    for path in directories {
        if unpacker.kind(path).map_err(fault)? != Some(FileKind::Directory) {
            let attr = missing_directory(tree.node(NodeId::ROOT).mtime);
            unpacker.add(path, attr, NewPayload::None, Vec::new()).map_err(fault)?;
        }
    }
    let tree = unpacker.finish()?.tree;
    Ok(LayeredSource::from_parts(vec![(name.into(), source)], tree))
}

/// Adds a file and all below it.
fn add(unpacker: &mut Unpacker, tree: &Tree, from: NodeId, to: &[u8]) -> Result<(), AddError> {
    // The first path of files that have several.
    let mut named: HashMap<NodeId, Vec<u8>> = HashMap::new();
    let mut pending = vec![(from, to.to_vec())];
    while let Some((id, path)) = pending.pop() {
        let node = tree.node(id);
        if let Some(first) = named.get(&id) {
            unpacker.link(&path, first, attr(tree, node))?;
            continue;
        }
        let payload = payload(tree, node, 0, id);
        unpacker.add(&path, attr(tree, node), payload, tree.xattrs(node).to_vec())?;
        if node.kind == FileKind::Directory {
            let below = tree.children(id).iter().rev();
            pending.extend(below.map(|entry| (entry.node, joined(&path, tree.name(entry)))));
        } else if node.names > 1 {
            named.insert(id, path);
        }
    }
    Ok(())
}

/// The file at a path, with symlinks followed within the tree, also at its end.
fn follow(tree: &Tree, path: &[u8]) -> Option<NodeId> {
    let names = |path: &[u8]| -> Vec<Vec<u8>> {
        path.split(|&byte| byte == b'/').rev().map(<[u8]>::to_vec).collect()
    };
    let (mut at, mut hops) = (NodeId::ROOT, 0);
    let mut rest = names(path);
    while let Some(name) = rest.pop() {
        match name.as_slice() {
            b"" | b"." => {}
            b".." => at = tree.parent(at),
            name => {
                let found = tree.child(at, name)?.node;
                let node = tree.node(found);
                if node.kind != FileKind::Symlink {
                    at = found;
                    continue;
                }
                hops += 1;
                if hops > SYMLINKS_MAX {
                    return None;
                }
                let target = tree.target(node);
                if target.starts_with(b"/") {
                    at = NodeId::ROOT;
                }
                rest.extend(names(target));
            }
        }
    }
    Some(at)
}

fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match (dir, name) {
        (dir, b"") => dir.to_vec(),
        (b"", name) => name.to_vec(),
        (dir, name) => [dir, b"/", name].concat(),
    }
}
