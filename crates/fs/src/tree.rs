//! A whole directory tree in compact form: about 110 bytes per file, so that a million files fit in
//! a build's memory limit.

use crate::attr::{DeviceNumber, FileKind, Timestamp, Xattr};
use crate::error::FsError;

mod builder;
mod ordered;
mod store;
mod walk;

pub use builder::{Listing, TreeBuilder};
pub use ordered::OrderedBuilder;
pub use walk::{inode_walk, walk};

use store::Store;

/// A file of a [`Tree`]: hard links refer to the same one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(u32);

impl NodeId {
    /// The root directory.
    pub const ROOT: Self = Self(0);

    /// The node at an index of [`Tree::nodes`].
    #[must_use]
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The index in [`Tree::nodes`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The data of a node besides its attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// Nothing: directories, FIFOs, sockets.
    None,
    /// A regular file; the source's own key of its contents.
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

/// Times other than the modification time of the contents. Most sources lack them, so they are
/// stored outside of the nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OtherTimes {
    /// Access time.
    pub atime: Timestamp,
    /// Change time of the inode.
    pub ctime: Timestamp,
    /// Creation time.
    pub crtime: Timestamp,
}

/// A file, without its names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// Contents, target or device number.
    pub payload: Payload,
    /// Length in bytes of a regular file or symlink; 0 for the rest.
    pub size: u64,
    /// Modification time of the contents.
    pub mtime: Timestamp,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub names: u32,
    times: u32,
    xattrs: u32,
    /// Index of the entry that first named it, [`u32::MAX`] for the root.
    first_entry: u32,
    /// Flags of [`inode_flag::KEPT`](crate::inode_flag::KEPT).
    pub flags: u32,
    /// Permission, set-id and sticky bits.
    pub perm: u16,
    /// Kind of the file.
    pub kind: FileKind,
}

impl Node {
    /// The attributes with which an equal node is added to another tree.
    #[must_use]
    pub fn attr(&self, times: Option<OtherTimes>) -> NodeAttr {
        NodeAttr {
            kind: self.kind,
            perm: self.perm,
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            mtime: self.mtime,
            times,
            flags: self.flags,
        }
    }
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The directory.
    pub parent: NodeId,
    /// The file.
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
    /// All files; [`NodeId`]s index it. Nodes without a name are not included.
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

    /// A directory's entries, sorted by the bytes of their names. Empty for other files.
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

    /// A symlink's target; empty for other files.
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

    /// The index of the node's attribute set, below [`Tree::xattr_sets`], equal for nodes with
    /// equal sets; 0 is the empty set.
    #[must_use]
    pub fn xattr_set(&self, node: &Node) -> usize {
        node.xattrs as usize
    }

    /// Number of distinct sets of extended attributes.
    #[must_use]
    pub fn xattr_sets(&self) -> usize {
        self.xattrs.len()
    }

    /// Replaces extended attributes: `change` returns those that a node has from now on, or `None`
    /// for those that it has already.
    ///
    /// # Errors
    /// As [`TreeBuilder::set_xattrs`].
    pub fn change_xattrs(
        &mut self,
        mut change: impl FnMut(&Self, NodeId) -> Option<Vec<Xattr>>,
    ) -> Result<(), FsError> {
        let mut store = Store::with_xattrs(&self.xattrs);
        let mut changed = Vec::new();
        for id in self.ids() {
            if let Some(xattrs) = change(self, id) {
                changed.push((id, store.xattrs(xattrs)?));
            }
        }
        for (id, set) in changed {
            self.nodes[id.index()].xattrs = set;
        }
        self.xattrs = store.xattrs;
        Ok(())
    }

    /// The other times; if the source has none, all are `mtime`.
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

    /// The path of a node's first name, placed at the end of `buf`; `None` if it does not fit. For
    /// callers that cannot afford an allocation per file.
    #[must_use]
    pub fn path_in<'a>(&self, id: NodeId, buf: &'a mut [u8]) -> Option<&'a [u8]> {
        let mut from = buf.len();
        let mut at = id;
        while let Some(entry) = self.entries.get(self.node(at).first_entry as usize) {
            if from < buf.len() {
                from = from.checked_sub(1)?;
                buf[from] = b'/';
            }
            let name = self.name(entry);
            let to = from;
            from = from.checked_sub(name.len())?;
            buf[from..to].copy_from_slice(name);
            at = entry.parent;
        }
        Some(&buf[from..])
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
    /// Kind of the file.
    pub kind: FileKind,
    /// Permission, set-id and sticky bits.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length of a regular file; ignored for the rest.
    pub size: u64,
    /// Modification time of the contents.
    pub mtime: Timestamp,
    /// The other times, if the source has them.
    pub times: Option<OtherTimes>,
    /// Flags as in `lsattr`; flags outside of [`inode_flag::KEPT`](crate::inode_flag::KEPT) are
    /// ignored.
    pub flags: u32,
}

/// Maximum length of an entry's name in bytes, in every supported format.
pub const NAME_MAX: usize = 255;

/// The payload of a node to be added.
#[derive(Clone, Copy, Debug)]
pub enum NewPayload<'a> {
    /// Nothing.
    None,
    /// A regular file; the source's key of its contents.
    Content(u64),
    /// A symlink's target.
    Target(&'a [u8]),
    /// A device's number.
    Device(DeviceNumber),
}

fn check_name(name: &[u8], raw: bool) -> Result<(), FsError> {
    let bad = |why: &str| {
        Err(FsError::Invalid(format!("name {:?}: {why}", String::from_utf8_lossy(name))))
    };
    match name {
        b"" | b"." | b".." => bad("not a valid name for an entry"),
        _ if name.len() > NAME_MAX => bad("longer than 255 bytes"),
        _ if !raw && name.iter().any(|&byte| byte == b'/' || byte == 0) => {
            bad("contains a slash or a zero byte")
        }
        _ => Ok(()),
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
            flags: 0,
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
    fn a_listing_stays_as_it_was() {
        let mut builder = TreeBuilder::new(attr(FileKind::Directory));
        let dir = attr(FileKind::Directory);
        let below = builder.add(NodeId::ROOT, b"d", dir, NewPayload::None).unwrap();
        let file = attr(FileKind::Regular);
        for name in [b"b", b"a"] {
            builder.add(below, name, file, NewPayload::Content(0)).unwrap();
        }
        let before = builder.listing();
        builder.remove(below, b"a");
        builder.add(NodeId::ROOT, b"c", file, NewPayload::Content(0)).unwrap();
        let names = |listing: &Listing, dir| -> Vec<Vec<u8>> {
            listing.of(dir).iter().map(|entry| builder.name(entry).to_vec()).collect()
        };
        assert_eq!(names(&before, NodeId::ROOT), [b"d"]);
        assert_eq!(names(&before, below), [b"a", b"b"]);
        let after = builder.listing();
        assert_eq!(names(&after, NodeId::ROOT), [b"c", b"d"]);
        assert_eq!(names(&after, below), [b"b"]);
        assert!(after.of(after.of(below)[0].node).is_empty());
    }

    #[test]
    fn changes_of_names_are_recorded() {
        let mut builder = TreeBuilder::new(attr(FileKind::Directory)).recording_changes();
        let (dir, file) = (attr(FileKind::Directory), attr(FileKind::Regular));
        let old = builder.add(NodeId::ROOT, b"old", dir, NewPayload::None).unwrap();
        let linked = builder.add(old, b"a", file, NewPayload::Content(1)).unwrap();
        builder.add_link(old, b"b", linked).unwrap();
        builder.add(old, b"c", file, NewPayload::Content(2)).unwrap();
        assert!(builder.removed().is_empty() && builder.is_new(old), "all is new");
        builder.begin_changes();
        assert!(!builder.is_new(old));
        builder.remove(old, b"a");
        builder.add(old, b"c", file, NewPayload::Content(3)).unwrap();
        builder.add(old, b"d", file, NewPayload::Content(4)).unwrap();
        builder.remove(old, b"d");
        let new = builder.add(NodeId::ROOT, b"new", dir, NewPayload::None).unwrap();
        builder.add_link(new, b"e", linked).unwrap();
        let names = |entries: &[Entry]| -> Vec<(NodeId, Vec<u8>)> {
            entries.iter().map(|it| (it.parent, builder.name(it).to_vec())).collect()
        };
        // An entry that came and went is none of them.
        assert_eq!(names(builder.removed()), [(old, b"a".to_vec()), (old, b"c".to_vec())]);
        assert_eq!(names(&builder.names_of(linked)), [(old, b"b".to_vec()), (new, b"e".to_vec())]);
        assert!(builder.is_new(new) && !builder.is_new(old));
        builder.begin_changes();
        assert!(builder.removed().is_empty() && !builder.is_new(new));
    }

    #[test]
    fn names_of_a_file_become_files_and_attributes_change() {
        let mut builder = TreeBuilder::new(attr(FileKind::Directory));
        let content = NewPayload::Content(1);
        let file = builder.add(NodeId::ROOT, b"a", attr(FileKind::Regular), content).unwrap();
        builder.add_link(NodeId::ROOT, b"b", file).unwrap();
        builder.add_link(NodeId::ROOT, b"c", file).unwrap();
        let note = Xattr { name: b"user.a".to_vec(), value: b"1".to_vec() };
        builder.set_xattrs(file, vec![note.clone()]).unwrap();
        assert_eq!((builder.attr(file).size, builder.attr(file).kind), (3, FileKind::Regular));
        builder.split_links().unwrap();
        let mut tree = builder.finish();
        assert_eq!((tree.nodes().len(), names(&tree, NodeId::ROOT).len()), (4, 3));
        for name in [b"a", b"b", b"c"] {
            let node = tree.node(tree.resolve(name).unwrap());
            assert_eq!((node.names, node.payload), (1, Payload::Content(1)));
            assert_eq!(tree.xattrs(node), std::slice::from_ref(&note));
        }
        let other = Xattr { name: b"user.b".to_vec(), value: b"2".to_vec() };
        let b = tree.resolve(b"b").unwrap();
        tree.change_xattrs(|_, id| (id == b).then(|| vec![other.clone()])).unwrap();
        assert_eq!(tree.xattrs(tree.node(b)), [other]);
        let a = tree.node(tree.resolve(b"a").unwrap());
        assert_eq!((tree.xattrs(a), tree.xattr_sets()), (&[note][..], 3));
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
