//! Building a tree entry by entry, in any order.

use super::store::Store;
use super::{Entry, NewPayload, Node, NodeAttr, NodeId, Payload, Tree, check_name};
use crate::attr::{FileKind, Xattr, inode_flag};
use crate::error::FsError;
use hashbrown::HashTable;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

/// The entries of a [`TreeBuilder`] at one moment: later changes do not change it.
#[derive(Debug, Default)]
pub struct Listing {
    /// Sorted by directory and name.
    entries: Vec<Entry>,
}

impl Listing {
    /// The entries of a directory, sorted by name; their names are
    /// [`TreeBuilder::name`]'s. Empty for other files.
    #[must_use]
    pub fn of(&self, dir: NodeId) -> &[Entry] {
        let from = self.entries.partition_point(|entry| entry.parent < dir);
        let len = self.entries[from..].partition_point(|entry| entry.parent == dir);
        &self.entries[from..from + len]
    }
}

/// Builds a [`Tree`] in any order, by (directory, name). Adding an existing name replaces it, as
/// unpacking an archive does.
#[derive(Debug)]
pub struct TreeBuilder {
    nodes: Vec<Node>,
    entries: Vec<Entry>,
    store: Store,
    /// Indices in `entries`, found by (directory, name).
    index: HashTable<u32>,
    hasher: RandomState,
    /// The changes of names, if they are recorded.
    changes: Option<Changes>,
}

/// Changes of names since [`TreeBuilder::begin_changes`].
#[derive(Debug, Default)]
struct Changes {
    /// The number of entries then: entries of larger indices are new.
    begin: usize,
    /// Entries that were there then and are not any more, with the directories they were in.
    removed: Vec<Entry>,
    /// Indices of the entries of files that have had several, without the first. Those from before
    /// [`Changes::begin`] stay.
    further: HashMap<NodeId, Vec<u32>>,
}

const REMOVED: NodeId = NodeId(u32::MAX);

fn name_of<'a>(bytes: &'a [u8], entry: &Entry) -> &'a [u8] {
    let at = entry.name as usize;
    &bytes[at..at + usize::from(entry.name_len)]
}

impl TreeBuilder {
    /// Creates a tree with an empty root directory.
    #[must_use]
    pub fn new(root: NodeAttr) -> Self {
        let mut builder = Self {
            nodes: Vec::new(),
            entries: Vec::new(),
            store: Store::new(),
            index: HashTable::new(),
            hasher: RandomState::new(),
            changes: None,
        };
        builder.nodes.push(Node {
            payload: Payload::None,
            size: 0,
            mtime: root.mtime,
            uid: root.uid,
            gid: root.gid,
            names: 0,
            times: builder.store.times(root.times),
            xattrs: 0,
            first_entry: u32::MAX,
            flags: root.flags & inode_flag::KEPT,
            perm: root.perm & 0o7777,
            kind: root.kind,
        });
        builder
    }

    /// Accepts names with slashes and zero bytes too, and targets with zero bytes, as encrypted
    /// directories have them: for trees that are only listed.
    #[must_use]
    pub fn with_raw_names(mut self) -> Self {
        self.store.raw_names = true;
        self
    }

    /// Records changes of names: [`removed`](Self::removed), [`names_of`](Self::names_of) and
    /// [`is_new`](Self::is_new) can be used.
    #[must_use]
    pub fn recording_changes(mut self) -> Self {
        debug_assert!(self.entries.is_empty(), "all names are recorded");
        self.changes = Some(Changes::default());
        self
    }

    /// Forgets the changes recorded before: later ones are relative to the present names.
    pub fn begin_changes(&mut self) {
        if let Some(changes) = &mut self.changes {
            changes.begin = self.entries.len();
            changes.removed.clear();
        }
    }

    /// The entries that were removed or replaced since [`begin_changes`](Self::begin_changes) and
    /// were there at that time, in the order of their removal. Entries in a removed directory are
    /// not among them.
    #[must_use]
    pub fn removed(&self) -> &[Entry] {
        self.changes.as_ref().map_or(&[], |changes| &changes.removed)
    }

    /// The present entries of a file, in the order in which they were added. Without recorded
    /// changes only the first.
    #[must_use]
    pub fn names_of(&self, node: NodeId) -> Vec<Entry> {
        let further = self.changes.as_ref().and_then(|changes| changes.further.get(&node));
        let all =
            [self.node(node).first_entry].into_iter().chain(further.into_iter().flatten().copied());
        let entries = all.filter_map(|at| self.entries.get(at as usize));
        entries.filter(|entry| entry.parent != REMOVED).copied().collect()
    }

    /// Whether the present entry of a directory was added since
    /// [`begin_changes`](Self::begin_changes). Not for the root, which has none.
    #[must_use]
    pub fn is_new(&self, dir: NodeId) -> bool {
        let begin = self.changes.as_ref().map_or(0, |changes| changes.begin);
        self.node(dir).first_entry as usize >= begin
    }

    fn find(&self, parent: NodeId, name: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one((parent, name));
        self.index.find(hash, |&at| self.is(at, parent, name)).copied()
    }

    fn is(&self, at: u32, parent: NodeId, name: &[u8]) -> bool {
        let entry = &self.entries[at as usize];
        entry.parent == parent && name_of(&self.store.bytes, entry) == name
    }

    /// The node `name` of a directory, if it exists.
    #[must_use]
    pub fn child(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        self.find(parent, name).map(|at| self.entries[at as usize].node)
    }

    /// A node added earlier.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The entries as they are now.
    #[must_use]
    pub fn listing(&self) -> Listing {
        let is_there = |entry: &&Entry| entry.parent != REMOVED;
        let mut entries: Vec<Entry> = self.entries.iter().filter(is_there).copied().collect();
        entries.sort_unstable_by(|a, b| {
            a.parent.cmp(&b.parent).then_with(|| self.name(a).cmp(self.name(b)))
        });
        Listing { entries }
    }

    /// The name of an entry that this builder has or had.
    #[must_use]
    pub fn name(&self, entry: &Entry) -> &[u8] {
        name_of(&self.store.bytes, entry)
    }

    /// Adds a file. An existing entry of that name is replaced, but a directory added over a
    /// directory keeps the entries and takes the new attributes.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a name that is empty, `.`, `..`, longer than
    /// 255 bytes or contains a slash or a zero byte, or a link target that
    /// is empty or longer than 4095 bytes.
    pub fn add(
        &mut self,
        parent: NodeId,
        name: &[u8],
        attr: NodeAttr,
        payload: NewPayload<'_>,
    ) -> Result<NodeId, FsError> {
        if attr.kind == FileKind::Directory
            && let Some(id) = self.child(parent, name)
            && self.node(id).kind == FileKind::Directory
        {
            self.set_attr(id, attr);
            return Ok(id);
        }
        if self.nodes.len() >= (u32::MAX - 1) as usize {
            return Err(FsError::NoSpace("more than 4 billion files".into()));
        }
        check_name(name, self.store.raw_names)?;
        let mut node = self.store.node(name, attr, payload)?;
        let id = NodeId(self.nodes.len() as u32);
        node.first_entry = self.link(parent, name, id)?;
        node.names = 1;
        self.nodes.push(node);
        Ok(id)
    }

    /// Adds another name for an existing file; replaces an existing entry of that name.
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
        let at = self.link(parent, name, node)?;
        self.nodes[node.index()].names += 1;
        if let Some(changes) = &mut self.changes {
            changes.further.entry(node).or_default().push(at);
        }
        Ok(())
    }

    fn link(&mut self, parent: NodeId, name: &[u8], node: NodeId) -> Result<u32, FsError> {
        check_name(name, self.store.raw_names)?;
        self.remove(parent, name);
        let offset = self.store.bytes(name)?;
        let at = self.entries.len() as u32;
        self.entries.push(Entry { parent, node, name: offset, name_len: name.len() as u8 });
        let (entries, bytes, hasher) = (&self.entries, &self.store.bytes, &self.hasher);
        let hash = |&at: &u32| {
            let entry = &entries[at as usize];
            hasher.hash_one((entry.parent, name_of(bytes, entry)))
        };
        self.index.insert_unique(hash(&at), at, hash);
        Ok(at)
    }

    /// Removes a name, with everything below it. Returns whether it existed.
    pub fn remove(&mut self, parent: NodeId, name: &[u8]) -> bool {
        let hash = self.hasher.hash_one((parent, name));
        let (entries, bytes) = (&self.entries, &self.store.bytes);
        let found = self.index.find_entry(hash, |&at| {
            let entry = &entries[at as usize];
            entry.parent == parent && name_of(bytes, entry) == name
        });
        let Ok(found) = found else { return false };
        let (at, _) = found.remove();
        let entry = &mut self.entries[at as usize];
        if let Some(changes) = self.changes.as_mut().filter(|changes| (at as usize) < changes.begin)
        {
            changes.removed.push(*entry);
        }
        entry.parent = REMOVED;
        let node = &mut self.nodes[entry.node.index()];
        node.names -= 1;
        true
    }

    /// Removes every entry of the given directories.
    pub fn clear(&mut self, dirs: &HashSet<NodeId>) {
        self.remove_if(|entry, _| dirs.contains(&entry.parent));
    }

    /// Removes every entry of a directory for which `keep` returns false.
    pub fn retain_children(&mut self, dir: NodeId, mut keep: impl FnMut(NodeId) -> bool) {
        self.remove_if(|entry, _| entry.parent == dir && !keep(entry.node));
    }

    /// Removes every entry for which `keep` returns false, given its directory, name and node.
    pub fn retain(&mut self, mut keep: impl FnMut(NodeId, &[u8], NodeId) -> bool) {
        self.remove_if(|entry, name| !keep(entry.parent, name, entry.node));
    }

    fn remove_if(&mut self, mut condemned: impl FnMut(&Entry, &[u8]) -> bool) {
        for at in 0..self.entries.len() {
            let entry = self.entries[at];
            if entry.parent != REMOVED && condemned(&entry, name_of(&self.store.bytes, &entry)) {
                let name = name_of(&self.store.bytes, &entry).to_vec();
                self.remove(entry.parent, &name);
            }
        }
    }

    /// Removes every entry whose path, relative to the root, matches `excluded`, with everything
    /// below it. The second argument tells whether the entry is a directory. A file with another
    /// name keeps that name.
    pub fn exclude(&mut self, excluded: impl Fn(&[u8], bool) -> bool) {
        let mut doomed = Vec::new();
        for (at, entry) in self.entries.iter().enumerate() {
            if entry.parent == REMOVED {
                continue;
            }
            let is_dir = self.node(entry.node).kind == FileKind::Directory;
            if self.path(at as u32).is_some_and(|path| excluded(&path, is_dir)) {
                doomed.push(at as u32);
            }
        }
        for at in doomed {
            let entry = self.entries[at as usize];
            let name = name_of(&self.store.bytes, &entry).to_vec();
            self.remove(entry.parent, &name);
        }
    }

    /// Removes directories without entries whose path is `condemned`, those below others first.
    pub fn remove_empty(&mut self, condemned: impl Fn(&[u8]) -> bool) {
        let mut counts: HashMap<NodeId, u32> = HashMap::new();
        let mut dirs = Vec::new();
        for (at, entry) in self.entries.iter().enumerate() {
            let Some(path) = self.path(at as u32) else { continue };
            *counts.entry(entry.parent).or_default() += 1;
            if self.node(entry.node).kind == FileKind::Directory && condemned(&path) {
                dirs.push((path.split(|&byte| byte == b'/').count(), at));
            }
        }
        dirs.sort_unstable_by(|a, b| b.cmp(a));
        for (_, at) in dirs {
            let entry = self.entries[at];
            if counts.get(&entry.node).is_none_or(|count| *count == 0) {
                let name = name_of(&self.store.bytes, &entry).to_vec();
                self.remove(entry.parent, &name);
                counts.entry(entry.parent).and_modify(|count| *count -= 1);
            }
        }
    }

    /// The path of an entry; `None` if it is below a removed one.
    fn path(&self, at: u32) -> Option<Vec<u8>> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut entry = self.entries.get(at as usize)?;
        loop {
            if entry.parent == REMOVED {
                return None;
            }
            names.push(name_of(&self.store.bytes, entry));
            if entry.parent == NodeId::ROOT {
                break;
            }
            // A directory has one name only: that of the entry that created it.
            entry = self.entries.get(self.node(entry.parent).first_entry as usize)?;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    /// The parent of a directory; the root is its own parent.
    #[must_use]
    pub fn parent(&self, dir: NodeId) -> NodeId {
        match self.entries.get(self.node(dir).first_entry as usize) {
            Some(entry) if entry.parent != REMOVED => entry.parent,
            _ => NodeId::ROOT,
        }
    }

    /// A symlink's target; empty for other files.
    #[must_use]
    pub fn target(&self, id: NodeId) -> &[u8] {
        match self.node(id).payload {
            Payload::Target(at) => {
                let from = at.offset as usize;
                &self.store.bytes[from..from + usize::from(at.len)]
            }
            _ => &[],
        }
    }

    /// A node's attributes.
    #[must_use]
    pub fn attr(&self, id: NodeId) -> NodeAttr {
        let node = self.node(id);
        let times = node.times.checked_sub(1).and_then(|at| self.store.times.get(at as usize));
        node.attr(times.copied())
    }

    /// A directory and all files below it, each once; another file alone.
    #[must_use]
    pub fn below(&self, dir: NodeId) -> Vec<NodeId> {
        let mut children: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
        for entry in self.entries.iter().filter(|entry| entry.parent != REMOVED) {
            children.entry(entry.parent).or_default().push(entry.node);
        }
        let (mut found, mut seen) = (vec![dir], HashSet::from([dir]));
        let mut at = 0;
        while let Some(&node) = found.get(at) {
            at += 1;
            let below = children.get(&node).into_iter().flatten();
            found.extend(below.filter(|node| seen.insert(**node)));
        }
        found
    }

    /// Makes each name of a file with several a file of its own, with the same contents.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] for more files than a tree can contain.
    pub fn split_links(&mut self) -> Result<(), FsError> {
        for at in 0..self.entries.len() {
            let entry = self.entries[at];
            if entry.parent == REMOVED || self.node(entry.node).names < 2 {
                continue;
            }
            if self.nodes.len() >= (u32::MAX - 1) as usize {
                return Err(FsError::NoSpace("more than 4 billion files".into()));
            }
            let own = Node { names: 1, first_entry: at as u32, ..*self.node(entry.node) };
            self.nodes[entry.node.index()].names -= 1;
            self.entries[at].node = NodeId(self.nodes.len() as u32);
            self.nodes.push(own);
        }
        Ok(())
    }

    /// Replaces a node's attributes; kind, contents and names stay.
    pub fn set_attr(&mut self, id: NodeId, attr: NodeAttr) {
        let times = self.store.times(attr.times);
        let node = &mut self.nodes[id.index()];
        node.perm = attr.perm & 0o7777;
        node.uid = attr.uid;
        node.gid = attr.gid;
        node.mtime = attr.mtime;
        node.times = times;
        node.flags = attr.flags & inode_flag::KEPT;
    }

    /// Sets a node's extended attributes.
    ///
    /// # Errors
    /// [`FsError::Invalid`] when a name is longer than 255 bytes or lacks a namespace.
    pub fn set_xattrs(&mut self, id: NodeId, xattrs: Vec<Xattr>) -> Result<(), FsError> {
        self.nodes[id.index()].xattrs = self.store.xattrs(xattrs)?;
        Ok(())
    }

    /// The extended attributes of a node, sorted by name.
    #[must_use]
    pub fn xattrs(&self, id: NodeId) -> &[Xattr] {
        &self.store.xattrs[self.node(id).xattrs as usize]
    }

    /// Finishes the tree: nodes without names are dropped, entries are sorted by name, and node
    /// order depends only on the names.
    #[must_use]
    pub fn finish(self) -> Tree {
        self.finish_and_find(&HashSet::new()).0
    }

    /// Finishes the tree, and returns the new ids of the `wanted` nodes that are still in it.
    #[must_use]
    pub fn finish_and_find(self, wanted: &HashSet<NodeId>) -> (Tree, HashSet<NodeId>) {
        let Self { nodes, mut entries, store, index, .. } = self;
        drop(index);
        let Store { bytes, times, xattrs, .. } = store;
        entries.retain(|entry| entry.parent != REMOVED);
        entries.sort_unstable_by(|a, b| {
            let names = || name_of(&bytes, a).cmp(name_of(&bytes, b));
            a.parent.cmp(&b.parent).then_with(names)
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
        // The sort is stable, so entries of a directory stay sorted by name.
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
        let found = wanted.iter().map(|node| new_id[node.index()]);
        let found = found.filter(|&id| id != u32::MAX).map(NodeId).collect();
        let children = child_starts(&entries, nodes.len());
        (Tree { nodes, entries, children, bytes, times, xattrs }, found)
    }
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
