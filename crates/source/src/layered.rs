//! Several sources laid over one another.
//!
//! The rules are those of a container image's layers: a file replaces any file of its path; a
//! directory replaces a file, but merges with a directory of its path, which takes its attributes.
//! Attributes that an archive lacks stay: a directory without an entry of its own leaves the one
//! below unchanged, and a symlink to a directory is followed.

use crate::options::TreeOptions;
use crate::tar::AddError;
use crate::unpack::Unpacker;
use seekless_fs::source::{Content, Sealed, Segment, Source};
use seekless_fs::tree::{NewPayload, Node, NodeAttr, NodeId, OtherTimes, Payload, Tree};
use seekless_fs::{FileKind, FsError};
use std::collections::HashMap;
use std::sync::Arc;

/// Sources laid over one another, the lowest first.
pub struct LayeredSource {
    layers: Vec<(String, Arc<dyn Source + Send>)>,
    tree: Tree,
    replaced_links: Vec<ReplacedLink>,
}

/// A symlink that a later source replaces with a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplacedLink {
    /// The name of the source.
    pub by: String,
    /// The symlink's path, without a leading slash.
    pub path: Vec<u8>,
}

/// Number of bits in a key for a node of a layer.
pub(crate) const NODE_BITS: u32 = 32;

impl LayeredSource {
    /// Lays sources over one another, each with its name for messages.
    ///
    /// # Errors
    /// [`FsError::Invalid`] when a directory is needed in place of another source's file;
    /// [`FsError::NoSpace`] for more files than a tree can contain.
    pub fn new(layers: Vec<(String, Arc<dyn Source + Send>)>) -> Result<Self, FsError> {
        let mut unpacker = Unpacker::new(TreeOptions::default());
        let mut replaced_links = Vec::new();
        for (number, (name, layer)) in layers.iter().enumerate() {
            let mut links = Vec::new();
            let added = add_layer(&mut unpacker, number, layer.as_ref(), &mut links);
            added.map_err(|error| match error {
                AddError::Fault(fault) => FsError::Invalid(format!("{name}: {fault}")),
                AddError::Fs(error) => error,
            })?;
            let replaced = |path| ReplacedLink { by: name.clone(), path };
            replaced_links.extend(links.into_iter().map(replaced));
        }
        let tree = unpacker.finish()?.tree;
        Ok(Self { layers, tree, replaced_links })
    }

    /// A tree whose contents are those of layers: each key has the number of a layer and a node there.
    pub(crate) fn from_parts(layers: Vec<(String, Arc<dyn Source + Send>)>, tree: Tree) -> Self {
        Self { layers, tree, replaced_links: Vec::new() }
    }

    /// Symlinks replaced by directories, which is rarely intended: if `/lib` leads to `/usr/lib`, a
    /// directory `/lib` hides all of that.
    #[must_use]
    pub fn replaced_links(&self) -> &[ReplacedLink] {
        &self.replaced_links
    }

    /// The layer of a regular file, and its node there.
    fn origin(&self, node: NodeId) -> Result<(&dyn Source, NodeId), FsError> {
        let key = match self.tree.node(node).payload {
            Payload::Content(key) => Some(key),
            _ => None,
        };
        let layer = key.and_then(|key| Some((self.layers.get((key >> NODE_BITS) as usize)?, key)));
        let Some(((_, layer), key)) = layer else {
            let path = self.tree.shown_path(node);
            return Err(FsError::Invalid(format!("{path}: not a regular file")));
        };
        Ok((layer.as_ref(), NodeId::new(key as u32)))
    }
}

impl Source for LayeredSource {
    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn segments(&self, node: NodeId) -> Result<Vec<Segment>, FsError> {
        let (layer, node) = self.origin(node)?;
        layer.segments(node)
    }

    fn sealed(&self, node: NodeId) -> Result<Option<Sealed>, FsError> {
        let (layer, node) = self.origin(node)?;
        layer.sealed(node)
    }

    fn open(&self, node: NodeId) -> Result<Box<dyn Content + '_>, FsError> {
        let (layer, node) = self.origin(node)?;
        layer.open(node)
    }
}

/// Adds a layer on top; records symlinks that directories replace.
pub(crate) fn add_layer(
    unpacker: &mut Unpacker,
    number: usize,
    layer: &dyn Source,
    replaced: &mut Vec<Vec<u8>>,
) -> Result<(), AddError> {
    let tree = layer.tree();
    // The first path of files that have several.
    let mut named: HashMap<NodeId, Vec<u8>> = HashMap::new();
    let is_lowest = number == 0;
    if is_lowest || !layer.is_implied(NodeId::ROOT) {
        let root = tree.node(NodeId::ROOT);
        unpacker.add(b"", attr(tree, root), NewPayload::None, tree.xattrs(root).to_vec())?;
    }
    let mut pending: Vec<(NodeId, Vec<u8>)> = vec![(NodeId::ROOT, Vec::new())];
    while let Some((dir, above)) = pending.pop() {
        for entry in tree.children(dir) {
            let name = tree.name(entry);
            let path =
                if above.is_empty() { name.to_vec() } else { [&above, &b"/"[..], name].concat() };
            let node = tree.node(entry.node);
            if let Some(first) = named.get(&entry.node) {
                unpacker.link(&path, first, attr(tree, node))?;
                continue;
            }
            let is_dir = node.kind == FileKind::Directory;
            let below = if is_dir && !is_lowest { unpacker.kind(&path)? } else { None };
            // If nothing is below, the layer's default attributes are better than none: they
            // include the requested owner.
            if below.is_none() || !layer.is_implied(entry.node) {
                if below == Some(FileKind::Symlink) {
                    replaced.push(path.clone());
                }
                let payload = payload(tree, node, number, entry.node);
                let xattrs = tree.xattrs(node).to_vec();
                unpacker.add(&path, attr(tree, node), payload, xattrs)?;
            }
            if is_dir {
                pending.push((entry.node, path));
            } else if node.names > 1 {
                named.insert(entry.node, path);
            }
        }
    }
    Ok(())
}

pub(crate) fn attr(tree: &Tree, node: &Node) -> NodeAttr {
    let times = tree.other_times(node);
    let none = OtherTimes { atime: node.mtime, ctime: node.mtime, crtime: node.mtime };
    node.attr((times != none).then_some(times))
}

pub(crate) fn payload<'t>(tree: &'t Tree, node: &Node, layer: usize, id: NodeId) -> NewPayload<'t> {
    match node.payload {
        Payload::None => NewPayload::None,
        Payload::Content(_) => NewPayload::Content((layer as u64) << NODE_BITS | id.index() as u64),
        Payload::Target(_) => NewPayload::Target(tree.target(node)),
        Payload::Device(number) => NewPayload::Device(number),
    }
}
