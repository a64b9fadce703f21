//! A whole directory tree in compact form: about 110 bytes a file, so that a
//! million files fit in the memory a build may use.

use crate::FsError;
use crate::attr::{DeviceNumber, FileKind, Timestamp, Xattr};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// A file of a [`Tree`]: hard links lead to the same one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(u32);

impl NodeId {
    /// The root directory.
    pub const ROOT: Self = Self(0);

    /// The node with this place in [`Tree::nodes`].
    #[must_use]
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The place in [`Tree::nodes`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a node carries besides its attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// Nothing: directories, FIFOs, sockets.
    None,
    /// A regular file; the source's own key to its contents.
    Content(u64),
    /// A symlink; the target, in the tree's store of bytes.
    Target(ByteRef),
    /// A device node.
    Device(DeviceNumber),
}

/// A byte string in the tree's store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteRef {
    offset: u32,
    len: u16,
}

/// Times other than the last change of contents; most sources do not have
/// them, so they are kept beside the nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OtherTimes {
    /// Last read.
    pub atime: Timestamp,
    /// Inode last changed.
    pub ctime: Timestamp,
    /// Created.
    pub crtime: Timestamp,
}

/// A file, without its names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// Contents, target or device number.
    pub payload: Payload,
    /// Length in bytes of a regular file or symlink; 0 for the rest.
    pub size: u64,
    /// Contents last changed.
    pub mtime: Timestamp,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that lead here.
    pub names: u32,
    times: u32,
    xattrs: u32,
    /// The entry that first named it, [`u32::MAX`] for the root.
    first_entry: u32,
    /// Permission, set-id and sticky bits.
    pub perm: u16,
    /// What it is.
    pub kind: FileKind,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The directory.
    pub parent: NodeId,
    /// What is named.
    pub node: NodeId,
    name: u32,
    name_len: u8,
}

/// A finished tree. Node 0 is the root directory.
#[derive(Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    entries: Vec<Entry>,
    /// For node i, its entries are `entries[children[i]..children[i + 1]]`.
    children: Vec<u32>,
    bytes: Vec<u8>,
    times: Vec<OtherTimes>,
    xattrs: Vec<Vec<Xattr>>,
}

impl Tree {
    /// All files; [`NodeId`]s index it. A node that is no directory's child
    /// any more never appears.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// One file.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Every id, in order.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// A directory's entries, sorted by the bytes of their names. Empty for
    /// anything else.
    #[must_use]
    pub fn children(&self, dir: NodeId) -> &[Entry] {
        let (from, to) = (self.children[dir.index()], self.children[dir.index() + 1]);
        &self.entries[from as usize..to as usize]
    }

    /// An entry's name.
    #[must_use]
    pub fn name(&self, entry: &Entry) -> &[u8] {
        let at = entry.name as usize;
        &self.bytes[at..at + usize::from(entry.name_len)]
    }

    /// The entry `name` of a directory.
    #[must_use]
    pub fn child(&self, dir: NodeId, name: &[u8]) -> Option<&Entry> {
        let children = self.children(dir);
        let at = children.binary_search_by(|entry| self.name(entry).cmp(name)).ok()?;
        children.get(at)
    }

    /// A symlink's target; empty for anything else.
    #[must_use]
    pub fn target(&self, node: &Node) -> &[u8] {
        match node.payload {
            Payload::Target(at) => {
                &self.bytes[at.offset as usize..at.offset as usize + usize::from(at.len)]
            }
            _ => &[],
        }
    }

    /// A file's extended attributes, sorted by name.
    #[must_use]
    pub fn xattrs(&self, node: &Node) -> &[Xattr] {
        &self.xattrs[node.xattrs as usize]
    }

    /// A number that is equal for two nodes with equal attribute sets, below
    /// [`Tree::xattr_sets`]; 0 is the empty set.
    #[must_use]
    pub fn xattr_set(&self, node: &Node) -> usize {
        node.xattrs as usize
    }

    /// How many different sets of extended attributes there are.
    #[must_use]
    pub fn xattr_sets(&self) -> usize {
        self.xattrs.len()
    }

    /// The other times; where the source has none, all are `mtime`.
    #[must_use]
    pub fn other_times(&self, node: &Node) -> OtherTimes {
        match node.times.checked_sub(1) {
            Some(at) => self.times[at as usize],
            None => OtherTimes { atime: node.mtime, ctime: node.mtime, crtime: node.mtime },
        }
    }

    /// The directory that (first) names a node; the root is its own parent.
    #[must_use]
    pub fn parent(&self, id: NodeId) -> NodeId {
        match self.entries.get(self.node(id).first_entry as usize) {
            Some(entry) => entry.parent,
            None => NodeId::ROOT,
        }
    }

    /// The path of a node's first name, without a leading slash; empty for the
    /// root.
    #[must_use]
    pub fn path(&self, id: NodeId) -> Vec<u8> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = id;
        while let Some(entry) = self.entries.get(self.node(at).first_entry as usize) {
            names.push(self.name(entry));
            at = entry.parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// The path for messages.
    #[must_use]
    pub fn shown_path(&self, id: NodeId) -> String {
        let path = self.path(id);
        if path.is_empty() { "/".into() } else { String::from_utf8_lossy(&path).into_owned() }
    }

    /// Follows a slash-separated path without following symlinks.
    #[must_use]
    pub fn resolve(&self, path: &[u8]) -> Option<NodeId> {
        let mut at = NodeId::ROOT;
        for component in path.split(|&byte| byte == b'/') {
            match component {
                b"" | b"." => {}
                b".." => at = self.parent(at),
                name => at = self.child(at, name)?.node,
            }
        }
        Some(at)
    }
}

/// Attributes of a node to be added.
#[derive(Clone, Copy, Debug)]
pub struct NodeAttr {
    /// What it is.
    pub kind: FileKind,
    /// Permission, set-id and sticky bits.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length of a regular file; ignored for the rest.
    pub size: u64,
    /// Contents last changed.
    pub mtime: Timestamp,
    /// The other times, if the source has them.
    pub times: Option<OtherTimes>,
}

/// Longest name of an entry, in bytes, on every format we know.
pub const NAME_MAX: usize = 255;

/// Puts a [`Tree`] together in any order, by (directory, name). Adding a name
/// that is there replaces it, as unpacking an archive does.
#[derive(Debug)]
pub struct TreeBuilder {
    nodes: Vec<Node>,
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    times: Vec<OtherTimes>,
    xattrs: Vec<Vec<Xattr>>,
    xattr_index: HashMap<Vec<Xattr>, u32>,
    /// (directory, name) to entry. Keyed by hash only; entries are compared.
    index: HashMap<u64, Vec<u32>, BuildIdentity>,
    hasher: RandomState,
}

const REMOVED: u32 = u32::MAX;

impl TreeBuilder {
    /// A tree of an empty root directory with these attributes.
    #[must_use]
    pub fn new(root: NodeAttr) -> Self {
        let mut builder = Self {
            nodes: Vec::new(),
            entries: Vec::new(),
            bytes: Vec::new(),
            times: Vec::new(),
            xattrs: vec![Vec::new()],
            xattr_index: HashMap::new(),
            index: HashMap::default(),
            hasher: RandomState::new(),
        };
        builder.push_node(root, Payload::None);
        builder
    }

    fn push_node(&mut self, attr: NodeAttr, payload: Payload) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        let times = self.store_times(attr);
        self.nodes.push(Node {
            payload,
            size: attr.size,
            mtime: attr.mtime,
            uid: attr.uid,
            gid: attr.gid,
            names: 0,
            times,
            xattrs: 0,
            first_entry: u32::MAX,
            perm: attr.perm & 0o7777,
            kind: attr.kind,
        });
        id
    }

    fn store_times(&mut self, attr: NodeAttr) -> u32 {
        match attr.times {
            Some(times) => {
                self.times.push(times);
                self.times.len() as u32
            }
            None => 0,
        }
    }

    fn store_bytes(&mut self, bytes: &[u8]) -> Result<u32, FsError> {
        let at = u32::try_from(self.bytes.len())
            .map_err(|_| FsError::NoSpace("names and link targets exceed 4 GiB".into()))?;
        self.bytes.extend_from_slice(bytes);
        Ok(at)
    }

    fn key(&self, parent: NodeId, name: &[u8]) -> u64 {
        self.hasher.hash_one((parent.0, name))
    }

    fn name(&self, entry: &Entry) -> &[u8] {
        let at = entry.name as usize;
        &self.bytes[at..at + usize::from(entry.name_len)]
    }

    fn find(&self, parent: NodeId, name: &[u8]) -> Option<u32> {
        let found = self.index.get(&self.key(parent, name))?;
        found.iter().copied().find(|&at| {
            let entry = &self.entries[at as usize];
            entry.parent == parent && self.name(entry) == name
        })
    }

    /// The node `name` of a directory, if it is there.
    #[must_use]
    pub fn child(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        self.find(parent, name).map(|at| self.entries[at as usize].node)
    }

    /// A node added earlier.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Adds a file; an entry of that name is replaced, except that a directory
    /// over a directory keeps its entries and takes the new attributes.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a name that is empty, `.`, `..`, longer than
    /// [`NAME_MAX`] or contains a slash or a zero byte, or a link target that
    /// is empty or longer than 4095 bytes.
    pub fn add(
        &mut self,
        parent: NodeId,
        name: &[u8],
        attr: NodeAttr,
        payload: NewPayload<'_>,
    ) -> Result<NodeId, FsError> {
        if attr.kind == FileKind::Directory {
            if let Some(id) = self.child(parent, name) {
                if self.node(id).kind == FileKind::Directory {
                    self.set_attr(id, attr);
                    return Ok(id);
                }
            }
        }
        let mut attr = attr;
        let payload = match payload {
            NewPayload::None => Payload::None,
            NewPayload::Content(key) => Payload::Content(key),
            NewPayload::Device(number) => Payload::Device(number),
            NewPayload::Target(target) => {
                if target.is_empty() || target.len() > 4095 || target.contains(&0) {
                    return Err(FsError::Invalid(format!(
                        "symlink {}: target of {} bytes is not possible",
                        String::from_utf8_lossy(name),
                        target.len()
                    )));
                }
                attr.size = target.len() as u64;
                let offset = self.store_bytes(target)?;
                Payload::Target(ByteRef { offset, len: target.len() as u16 })
            }
        };
        if !matches!(attr.kind, FileKind::Regular | FileKind::Symlink) {
            attr.size = 0;
        }
        if self.nodes.len() >= (u32::MAX - 1) as usize {
            return Err(FsError::NoSpace("more than 4 billion files".into()));
        }
        let id = NodeId(self.nodes.len() as u32);
        self.link(parent, name, id)?;
        self.push_node(attr, payload);
        let entry = self.find(parent, name).unwrap_or(u32::MAX);
        let node = &mut self.nodes[id.index()];
        node.names = 1;
        node.first_entry = entry;
        Ok(id)
    }

    /// Adds another name for a file that is there; replaces what had the name.
    ///
    /// # Errors
    /// As [`TreeBuilder::add`]; [`FsError::Invalid`] when `node` is a directory.
    pub fn add_link(&mut self, parent: NodeId, name: &[u8], node: NodeId) -> Result<(), FsError> {
        if self.node(node).kind == FileKind::Directory {
            return Err(FsError::Invalid(format!(
                "{}: a directory cannot have two names",
                String::from_utf8_lossy(name)
            )));
        }
        if self.child(parent, name) == Some(node) {
            return Ok(());
        }
        self.link(parent, name, node)?;
        self.nodes[node.index()].names += 1;
        Ok(())
    }

    fn link(&mut self, parent: NodeId, name: &[u8], node: NodeId) -> Result<(), FsError> {
        check_name(name)?;
        self.remove(parent, name);
        let at = self.store_bytes(name)?;
        let entry = Entry { parent, node, name: at, name_len: name.len() as u8 };
        let key = self.key(parent, name);
        self.index.entry(key).or_default().push(self.entries.len() as u32);
        self.entries.push(entry);
        Ok(())
    }

    /// Takes a name away, with all that is below it; returns whether it was
    /// there.
    pub fn remove(&mut self, parent: NodeId, name: &[u8]) -> bool {
        let Some(at) = self.find(parent, name) else { return false };
        let key = self.key(parent, name);
        if let Some(slots) = self.index.get_mut(&key) {
            slots.retain(|&slot| slot != at);
        }
        let node = self.entries[at as usize].node;
        self.entries[at as usize].parent = NodeId(REMOVED);
        let node = &mut self.nodes[node.index()];
        node.names = node.names.saturating_sub(1);
        true
    }

    /// Takes away every entry of a directory for which `keep` says no.
    pub fn retain_children(&mut self, dir: NodeId, mut keep: impl FnMut(NodeId) -> bool) {
        let names: Vec<Vec<u8>> = self
            .entries
            .iter()
            .filter(|entry| entry.parent == dir && !keep(entry.node))
            .map(|entry| self.name(entry).to_vec())
            .collect();
        for name in names {
            self.remove(dir, &name);
        }
    }

    /// Replaces a node's attributes; kind, contents and names stay.
    pub fn set_attr(&mut self, id: NodeId, attr: NodeAttr) {
        let times = self.store_times(attr);
        let node = &mut self.nodes[id.index()];
        node.perm = attr.perm & 0o7777;
        node.uid = attr.uid;
        node.gid = attr.gid;
        node.mtime = attr.mtime;
        node.times = times;
    }

    /// Sets a node's extended attributes.
    ///
    /// # Errors
    /// [`FsError::Invalid`] when a name is longer than 255 bytes or has no
    /// namespace.
    pub fn set_xattrs(&mut self, id: NodeId, mut xattrs: Vec<Xattr>) -> Result<(), FsError> {
        for xattr in &xattrs {
            if xattr.name.len() > 255 || !xattr.name.contains(&b'.') {
                return Err(FsError::Invalid(format!(
                    "extended attribute name {:?} is not possible",
                    String::from_utf8_lossy(&xattr.name)
                )));
            }
        }
        xattrs.sort();
        xattrs.dedup_by(|later, earlier| later.name == earlier.name);
        let set = if xattrs.is_empty() {
            0
        } else if let Some(&set) = self.xattr_index.get(&xattrs) {
            set
        } else {
            let set = self.xattrs.len() as u32;
            self.xattrs.push(xattrs.clone());
            self.xattr_index.insert(xattrs, set);
            set
        };
        self.nodes[id.index()].xattrs = set;
        Ok(())
    }

    /// The finished tree: what no name leads to any more is gone, entries are
    /// sorted by name, and node order depends only on the names.
    #[must_use]
    pub fn finish(self) -> Tree {
        let Self { nodes, mut entries, bytes, times, xattrs, index, xattr_index, .. } = self;
        drop((index, xattr_index));
        let name_of = |entry: &Entry| {
            let at = entry.name as usize;
            &bytes[at..at + usize::from(entry.name_len)]
        };
        entries.retain(|entry| entry.parent.0 != REMOVED);
        entries.sort_unstable_by(|a, b| {
            a.parent.cmp(&b.parent).then_with(|| name_of(a).cmp(name_of(b)))
        });
        let starts = child_starts(&entries, nodes.len());
        // Renumber breadth first from the root: reachable nodes only.
        let mut new_id = vec![u32::MAX; nodes.len()];
        let mut order: Vec<u32> = vec![0];
        new_id[0] = 0;
        let mut at = 0;
        while let Some(&old) = order.get(at) {
            at += 1;
            let (from, to) = (starts[old as usize] as usize, starts[old as usize + 1] as usize);
            for entry in &entries[from..to] {
                let slot = &mut new_id[entry.node.index()];
                if *slot == u32::MAX {
                    *slot = order.len() as u32;
                    order.push(entry.node.0);
                }
            }
        }
        entries.retain(|entry| new_id[entry.parent.index()] != u32::MAX);
        for entry in &mut entries {
            entry.parent = NodeId(new_id[entry.parent.index()]);
            entry.node = NodeId(new_id[entry.node.index()]);
        }
        // Within a directory the order by name stands: the sort is stable.
        entries.sort_by_key(|entry| entry.parent);
        let mut nodes: Vec<Node> = order.iter().map(|&old| nodes[old as usize]).collect();
        for node in &mut nodes {
            node.first_entry = u32::MAX;
            node.names = 0;
        }
        for (at, entry) in entries.iter().enumerate() {
            let node = &mut nodes[entry.node.index()];
            if node.names == 0 {
                node.first_entry = at as u32;
            }
            node.names += 1;
        }
        let children = child_starts(&entries, nodes.len());
        Tree { nodes, entries, children, bytes, times, xattrs }
    }
}

/// What a node to be added carries.
#[derive(Clone, Copy, Debug)]
pub enum NewPayload<'a> {
    /// Nothing.
    None,
    /// A regular file; the source's key to its contents.
    Content(u64),
    /// A symlink's target.
    Target(&'a [u8]),
    /// A device's number.
    Device(DeviceNumber),
}

fn child_starts(entries: &[Entry], nodes: usize) -> Vec<u32> {
    let mut starts = vec![0u32; nodes + 1];
    for entry in entries {
        starts[entry.parent.index() + 1] += 1;
    }
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    starts
}

fn check_name(name: &[u8]) -> Result<(), FsError> {
    let bad = |why: &str| {
        Err(FsError::Invalid(format!("name {:?}: {why}", String::from_utf8_lossy(name))))
    };
    match name {
        b"" | b"." | b".." => bad("not a possible name for an entry"),
        _ if name.len() > NAME_MAX => bad("longer than 255 bytes"),
        _ if name.iter().any(|&byte| byte == b'/' || byte == 0) => {
            bad("contains a slash or a zero byte")
        }
        _ => Ok(()),
    }
}

/// Keys of the index are hashes already.
#[derive(Clone, Copy, Default, Debug)]
struct BuildIdentity;

impl BuildHasher for BuildIdentity {
    type Hasher = Identity;
    fn build_hasher(&self) -> Identity {
        Identity(0)
    }
}

struct Identity(u64);

impl std::hash::Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(kind: FileKind) -> NodeAttr {
        NodeAttr {
            kind,
            perm: 0o644,
            uid: 0,
            gid: 0,
            size: 3,
            mtime: Timestamp::default(),
            times: None,
        }
    }

    fn names(tree: &Tree, dir: NodeId) -> Vec<String> {
        let name = |entry| String::from_utf8_lossy(tree.name(entry)).into_owned();
        tree.children(dir).iter().map(name).collect()
    }

    #[test]
    fn entries_come_out_sorted_whatever_the_order_in() {
        let mut builder = TreeBuilder::new(attr(FileKind::Directory));
        for name in ["b", "a", "c"] {
            builder
                .add(NodeId::ROOT, name.as_bytes(), attr(FileKind::Regular), NewPayload::Content(0))
                .unwrap();
        }
        let tree = builder.finish();
        assert_eq!(names(&tree, NodeId::ROOT), ["a", "b", "c"]);
        assert_eq!(tree.path(tree.resolve(b"/b").unwrap()), b"b");
    }

    #[test]
    fn a_replaced_name_takes_its_subtree_along() {
        let mut builder = TreeBuilder::new(attr(FileKind::Directory));
        let dir =
            builder.add(NodeId::ROOT, b"d", attr(FileKind::Directory), NewPayload::None).unwrap();
        builder.add(dir, b"f", attr(FileKind::Regular), NewPayload::Content(1)).unwrap();
        builder.add(NodeId::ROOT, b"d", attr(FileKind::Regular), NewPayload::Content(2)).unwrap();
        let tree = builder.finish();
        assert_eq!(tree.nodes().len(), 2);
        assert_eq!(tree.node(NodeId::new(1)).payload, Payload::Content(2));
    }

    #[test]
    fn a_directory_over_a_directory_keeps_its_entries() {
        let mut builder = TreeBuilder::new(attr(FileKind::Directory));
        let dir =
            builder.add(NodeId::ROOT, b"d", attr(FileKind::Directory), NewPayload::None).unwrap();
        builder.add(dir, b"f", attr(FileKind::Regular), NewPayload::Content(1)).unwrap();
        let again = NodeAttr { perm: 0o700, ..attr(FileKind::Directory) };
        assert_eq!(builder.add(NodeId::ROOT, b"d", again, NewPayload::None).unwrap(), dir);
        let tree = builder.finish();
        assert_eq!(tree.nodes().len(), 3);
        assert_eq!(tree.node(tree.resolve(b"d").unwrap()).perm, 0o700);
    }

    #[test]
    fn hard_links_share_a_node_and_survive_the_first_names_removal() {
        let mut builder = TreeBuilder::new(attr(FileKind::Directory));
        let file = builder
            .add(NodeId::ROOT, b"a", attr(FileKind::Regular), NewPayload::Content(1))
            .unwrap();
        builder.add_link(NodeId::ROOT, b"b", file).unwrap();
        builder.remove(NodeId::ROOT, b"a");
        let tree = builder.finish();
        assert_eq!(names(&tree, NodeId::ROOT), ["b"]);
        let file = tree.resolve(b"b").unwrap();
        assert_eq!((tree.node(file).names, tree.path(file)), (1, b"b".to_vec()));
    }

    #[test]
    fn impossible_names_are_refused() {
        let mut builder = TreeBuilder::new(attr(FileKind::Directory));
        let long = [b'x'; 256];
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b", &long] {
            let added =
                builder.add(NodeId::ROOT, name, attr(FileKind::Regular), NewPayload::Content(0));
            assert!(matches!(added, Err(FsError::Invalid(_))), "{name:?}");
        }
    }

    #[test]
    fn a_file_takes_little_memory() {
        assert!(size_of::<Node>() <= 80, "{}", size_of::<Node>());
        assert!(size_of::<Entry>() <= 16);
    }
}
