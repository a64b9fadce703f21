//! A tree under change.

use super::AmendError;
use super::extra::ExtraFiles;
use crate::layered::{self, NODE_BITS};
use crate::options::TreeOptions;
use crate::tar::AddError;
use crate::unpack::Unpacker;
use seekless_fs::acl::{Acl, AclKind};
use seekless_fs::source::Source;
use seekless_fs::tree::{NewPayload, Node, NodeAttr, NodeId, Payload, Tree};
use seekless_fs::{FileKind, FsError, Xattr};
use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::path::Path;
use std::sync::Arc;

/// The name of a layer, and its files.
pub(super) type NamedLayer = (String, Arc<dyn Source + Send>);

/// The number of the layer with the contents of added files.
const EXTRA: u64 = 1;

/// The tree of a source, which can be changed.
pub(super) struct Edit {
    unpacker: Unpacker,
    source: Arc<dyn Source + Send>,
    extra: ExtraFiles,
}

/// The contents of a file that is added.
pub(super) enum NewContent<'a> {
    /// None: an empty file.
    Empty,
    /// Those of a regular file of the host, whose metadata these are.
    Host(&'a Path, &'a Metadata),
}

/// Names that are kept.
#[derive(Default)]
pub(super) struct Kept {
    /// Names by directory.
    names: HashMap<NodeId, HashSet<Vec<u8>>>,
    /// The directories above them.
    dirs: HashSet<NodeId>,
}

impl Edit {
    pub(super) fn of(
        source: Arc<dyn Source + Send>,
        options: &TreeOptions,
    ) -> Result<Self, AmendError> {
        // All other options were applied when the source was opened.
        let limits = TreeOptions { clamp_mtime: options.clamp_mtime, ..TreeOptions::default() };
        let mut unpacker = Unpacker::new(limits);
        layered::add_layer(&mut unpacker, 0, source.as_ref(), &mut Vec::new())?;
        Ok(Self { unpacker, source, extra: ExtraFiles::new() })
    }

    /// The file at a path, found as by [`Unpacker::find`].
    pub(super) fn find(&self, path: &[u8]) -> Result<Option<NodeId>, AddError> {
        self.unpacker.find(path)
    }

    /// The directory at a path; symlinks are followed, also at its end.
    pub(super) fn directory(&self, path: &[u8]) -> Option<NodeId> {
        self.unpacker.directory(path)
    }

    /// A file.
    pub(super) fn node(&mut self, node: NodeId) -> Node {
        *self.unpacker.builder().node(node)
    }

    /// The target of a symlink.
    pub(super) fn target(&mut self, node: NodeId) -> Vec<u8> {
        self.unpacker.builder().target(node).to_vec()
    }

    /// The attributes of a file.
    pub(super) fn attr(&mut self, node: NodeId) -> NodeAttr {
        self.unpacker.builder().attr(node)
    }

    /// Replaces the attributes of a file; its kind stays. Its access control list follows the mode.
    pub(super) fn set_attr(&mut self, node: NodeId, mut attr: NodeAttr) -> Result<(), FsError> {
        self.unpacker.options().apply(&mut attr)?;
        let (builder, perm) = (self.unpacker.builder(), attr.perm);
        let changes_mode = builder.node(node).perm != perm;
        builder.set_attr(node, attr);
        if changes_mode {
            let xattrs = with_mode(builder.xattrs(node).to_vec(), perm);
            builder.set_xattrs(node, xattrs)?;
        }
        Ok(())
    }

    /// Sets one extended attribute of a file.
    pub(super) fn set_xattr(&mut self, node: NodeId, xattr: Xattr) -> Result<(), FsError> {
        let others = self.unpacker.builder().xattrs(node).iter().filter(|it| it.name != xattr.name);
        let xattrs = others.cloned().chain([xattr.clone()]).collect();
        self.unpacker.builder().set_xattrs(node, xattrs)
    }

    /// The extended attributes of a file.
    pub(super) fn xattrs(&mut self, node: NodeId) -> Vec<Xattr> {
        self.unpacker.builder().xattrs(node).to_vec()
    }

    /// Adds a file at a path, or replaces the file there. One that replaces a file of the same kind
    /// has its extended attributes.
    pub(super) fn add(
        &mut self,
        path: &[u8],
        attr: NodeAttr,
        payload: NewPayload<'_>,
    ) -> Result<(), AddError> {
        let xattrs = match self.find(path)? {
            Some(old) if self.node(old).kind == attr.kind => with_mode(self.xattrs(old), attr.perm),
            _ => Vec::new(),
        };
        self.unpacker.add(path, attr, payload, xattrs)
    }

    /// Adds a regular file, with contents that the source does not have.
    pub(super) fn add_file(
        &mut self,
        path: &[u8],
        mut attr: NodeAttr,
        content: NewContent<'_>,
    ) -> Result<(), AddError> {
        let number = match content {
            NewContent::Empty => {
                attr.size = 0;
                self.extra.add_empty()
            }
            NewContent::Host(file, found) => {
                attr.size = found.len();
                self.extra.add_host(file, found)
            }
        };
        let number = u64::try_from(number.index()).unwrap_or(u64::MAX);
        let key = EXTRA << NODE_BITS | number;
        self.add(path, NodeAttr { kind: FileKind::Regular, ..attr }, NewPayload::Content(key))
    }

    /// The contents of a regular file of at most `limit` bytes; `None` for any other.
    pub(super) fn read(&mut self, path: &[u8], limit: u64) -> Result<Option<Vec<u8>>, FsError> {
        let Ok(Some(node)) = self.find(path) else { return Ok(None) };
        let Node { payload, size, .. } = self.node(node);
        let (Payload::Content(_), true) = (payload, size <= limit) else { return Ok(None) };
        let mut bytes = vec![0; usize::try_from(size).unwrap_or_default()];
        self.with_content(payload, |source, node| source.open(node)?.read_at(0, &mut bytes))?;
        Ok(Some(bytes))
    }

    /// Calls a function with the layer of a regular file's contents, and its node there.
    pub(super) fn with_content<T>(
        &self,
        payload: Payload,
        read: impl FnOnce(&dyn Source, NodeId) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let Payload::Content(key) = payload else {
            return Err(FsError::Invalid("not a regular file".into()));
        };
        let node = NodeId::new(u32::try_from(key & ((1 << NODE_BITS) - 1)).unwrap_or(u32::MAX));
        match key >> NODE_BITS {
            EXTRA => read(&self.extra, node),
            _ => read(self.source.as_ref(), node),
        }
    }

    /// Adds another name for a file.
    pub(super) fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), AddError> {
        let found = self.find(target)?;
        let attr = self.attr(found.unwrap_or(NodeId::ROOT));
        self.unpacker.link(path, target, attr)
    }

    /// Removes all names but those that are kept.
    pub(super) fn keep_only(&mut self, kept: &Kept) {
        let Kept { names, dirs } = kept;
        let is_kept = |dir, name: &[u8], node| {
            dirs.contains(&node) || names.get(&dir).is_some_and(|names| names.contains(name))
        };
        self.unpacker.builder().retain(is_kept);
    }

    /// Adds the name at a path, if it exists, to those that are kept, with the directories above it
    /// and the symlinks on the way.
    pub(super) fn keep(&mut self, path: &[u8], kept: &mut Kept) {
        let mut rest = path;
        while !rest.is_empty() {
            let slash = rest.iter().rposition(|&byte| byte == b'/');
            let (above, name) = match slash {
                Some(at) => (rest.get(..at), rest.get(at + 1..)),
                None => (None, Some(rest)),
            };
            let (above, name) = (above.unwrap_or_default(), name.unwrap_or_default());
            if let Some(mut dir) = self.directory(above) {
                if !kept.names.entry(dir).or_default().insert(name.to_vec()) {
                    return;
                }
                while dir != NodeId::ROOT && kept.dirs.insert(dir) {
                    dir = self.unpacker.builder().parent(dir);
                }
            }
            rest = above;
        }
    }

    /// Removes directories without entries that are condemned by their paths, those below others
    /// first.
    pub(super) fn remove_empty(&mut self, condemned: impl Fn(&[u8]) -> bool) {
        self.unpacker.builder().remove_empty(condemned);
    }

    /// The files below a directory, itself included.
    pub(super) fn below(&mut self, dir: NodeId) -> Vec<NodeId> {
        self.unpacker.builder().below(dir)
    }

    /// Makes each name of a file with several a file of its own.
    pub(super) fn split_links(&mut self) -> Result<(), FsError> {
        self.unpacker.builder().split_links()
    }

    pub(super) fn finish(self) -> Result<(Vec<NamedLayer>, Tree), FsError> {
        let layers = [self.source, Arc::new(self.extra)];
        let layers = layers.map(|layer| (String::new(), layer)).to_vec();
        Ok((layers, self.unpacker.finish()?.tree))
    }
}

/// Extended attributes of a file whose mode changes: entries of an access control list that
/// correspond to the mode change with it, as by chmod(2).
fn with_mode(mut xattrs: Vec<Xattr>, perm: u16) -> Vec<Xattr> {
    for xattr in &mut xattrs {
        if AclKind::of(&xattr.name) == Some(AclKind::Access)
            && let Ok(Some(mut list)) = Acl::parse(&xattr.value)
        {
            list.chmod(perm);
            xattr.value = list.encode();
        }
    }
    xattrs
}
