//! A source's tree as objects of a volume, and the losses on the way.

use super::base::BaseVolume;
use super::objects::{Object, Objects};
use super::older::OlderDirectory;
use super::options::{LossCounts, Losses};
use super::slots::{NewFile, directory, refusal};
use seekless_fs::source::Source;
use seekless_fs::term::{Term, Text};
use seekless_fs::tree::{Entry, NodeId, Tree};
use seekless_fs::{FileKind, FsError};
use seekless_units::Ino;
use std::collections::HashMap;

/// Most bytes of a file.
const LONGEST: u64 = u32::MAX as u64;

/// The objects of a tree, with their contents in its source.
pub(super) struct SourceObjects<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) objects: Objects,
    /// The node with an object's contents: objects are numbered like the tree's nodes, and further
    /// names of files follow these.
    pub(super) nodes: Vec<NodeId>,
    /// The paths of further names of files.
    pub(super) further: Vec<Vec<u8>>,
    pub(super) lost: LossCounts,
}

impl<'a> SourceObjects<'a> {
    /// The entries of directories of the older volume keep their slots and short names.
    pub(super) fn new(
        source: &'a dyn Source,
        losses: Losses,
        base: Option<&'a BaseVolume>,
    ) -> Result<Self, FsError> {
        let tree = source.tree();
        let all = vec![Object::default(); tree.nodes().len()];
        let objects = Objects { all, ..Objects::default() };
        let (nodes, further) = (tree.ids().collect(), Vec::new());
        let mut content = Self { source, objects, nodes, further, lost: LossCounts::default() };
        let mut reader = ObjectReader { tree, losses, base, older: HashMap::new() };
        if let Some(base) = base {
            reader.older.insert(NodeId::ROOT, base.root());
        }
        let root = &mut content.objects.all[0];
        (root.is_dir, root.is_kept) = (true, true);
        reader.attributes(NodeId::ROOT, &mut content.lost)?;
        let mut pending = vec![NodeId::ROOT];
        while let Some(dir) = pending.pop() {
            reader.directory(dir, &mut content, &mut pending)?;
        }
        Ok(content)
    }
}

impl SourceObjects<'_> {
    /// Refuses directories with too many entries for the format.
    pub(super) fn check_directories(&mut self) -> Result<(), FsError> {
        let Self { source, objects, nodes, .. } = self;
        let tree = source.tree();
        let shown = |at: usize| {
            let own = tree.nodes().len();
            tree.shown_path(nodes[if at < own { at } else { 0 }])
        };
        objects.check_directories(&shown)
    }
}

struct ObjectReader<'a> {
    tree: &'a Tree,
    losses: Losses,
    base: Option<&'a BaseVolume>,
    /// The directories of the older volume that have the same path.
    older: HashMap<NodeId, Ino>,
}

impl ObjectReader<'_> {
    /// Names the children of a directory.
    fn directory(
        &mut self,
        dir: NodeId,
        content: &mut SourceObjects<'_>,
        pending: &mut Vec<NodeId>,
    ) -> Result<(), FsError> {
        let tree = self.tree;
        let mut kept: Vec<(&Entry, u32)> = Vec::new();
        for entry in tree.children(dir) {
            if !self.is_kept(dir, entry, &mut content.lost)? {
                continue;
            }
            let node = tree.node(entry.node);
            let object = self.object(dir, entry, content)?;
            if node.kind == FileKind::Directory {
                pending.push(entry.node);
            }
            kept.push((entry, object));
        }
        let named: Vec<NewFile<'_>> = kept
            .iter()
            .map(|(entry, _)| {
                let node = tree.node(entry.node);
                NewFile {
                    name: tree.name(entry),
                    is_dir: node.kind == FileKind::Directory,
                    is_read_only: node.perm & 0o222 == 0,
                    flags: node.flags,
                    size: node.size,
                    times: tree.other_times(node),
                    mtime: node.mtime,
                }
            })
            .collect();
        let older = self.older_directory(dir)?;
        for (entry, _) in &kept {
            if let Some(ino) = older.subdirectory(tree.name(entry)) {
                self.older.insert(entry.node, ino);
            }
        }
        let entries = directory(&named, &older, &tree.shown_path(dir))?;
        for ((_, object), entry) in kept.iter().zip(entries) {
            let object = &mut content.objects.all[*object as usize];
            (object.slots, object.first_slot) = (entry.slots, entry.first_slot);
            object.parent = dir.index() as u32;
        }
        content.objects.all[dir.index()].children = kept.iter().map(|&(_, at)| at).collect();
        Ok(())
    }

    /// The names of a directory in the older volume.
    fn older_directory(&self, dir: NodeId) -> Result<OlderDirectory, FsError> {
        match (self.base, self.older.get(&dir)) {
            (Some(base), Some(&ino)) => base.directory(ino),
            _ => Ok(OlderDirectory::default()),
        }
    }

    /// The object of a name: the node's own, or another if that has a name already.
    fn object(
        &self,
        dir: NodeId,
        entry: &Entry,
        content: &mut SourceObjects<'_>,
    ) -> Result<u32, FsError> {
        let node = self.tree.node(entry.node);
        let object = Object {
            is_dir: node.kind == FileKind::Directory,
            is_kept: true,
            size: if node.kind == FileKind::Directory { 0 } else { node.size },
            ..Object::default()
        };
        let at = entry.node.index();
        if content.objects.all[at].is_kept {
            let first = || self.tree.shown_path(entry.node);
            lose(self.losses.links, &mut content.lost.links, || {
                Text::from(format!("{}: {} names, ", first(), node.names))
                    .then(Term::Drop)
                    .then(" links makes each a file")
            })?;
            content.objects.all.push(object);
            content.nodes.push(entry.node);
            content.further.push([&self.tree.path(dir)[..], b"/", self.tree.name(entry)].concat());
            let objects = content.objects.all.len();
            debug_assert_eq!(content.nodes.len(), objects, "each object has its node");
            return Ok(content.objects.all.len() as u32 - 1);
        }
        content.objects.all[at] = object;
        self.attributes(entry.node, &mut content.lost)?;
        Ok(at as u32)
    }

    /// Whether a name is kept on the volume.
    fn is_kept(&self, dir: NodeId, entry: &Entry, lost: &mut LossCounts) -> Result<bool, FsError> {
        let tree = self.tree;
        let node = tree.node(entry.node);
        let shown = || {
            let path = [&tree.path(dir)[..], b"/", tree.name(entry)].concat();
            String::from_utf8_lossy(path.strip_prefix(b"/").unwrap_or(&path)).into_owned()
        };
        if let Some(why) = refusal(tree.name(entry)) {
            let all = self.below(entry.node);
            lose(self.losses.names, &mut 0, || {
                Text::from(format!("{}: {why}; ", shown()))
                    .then(Term::Drop)
                    .then(" names leaves it out")
            })?;
            lost.names += all;
            return Ok(false);
        }
        match node.kind {
            FileKind::Regular | FileKind::Directory => {}
            FileKind::Symlink => {
                lose(self.losses.symlinks, &mut lost.symlinks, || {
                    Text::from(format!("{}: FAT has no symlinks; ", shown()))
                        .then(Term::Drop)
                        .then(" symlinks leaves it out")
                })?;
                return Ok(false);
            }
            kind => {
                let what = match kind {
                    FileKind::Fifo => "FIFOs",
                    FileKind::Socket => "sockets",
                    _ => "device nodes",
                };
                lose(self.losses.devices, &mut lost.devices, || {
                    Text::from(format!("{}: FAT has no {what}; ", shown()))
                        .then(Term::Drop)
                        .then(" devices leaves it out")
                })?;
                return Ok(false);
            }
        }
        if node.kind == FileKind::Regular && node.size > LONGEST {
            return Err(FsError::NoSpace(format!(
                "{}: {} bytes exceed the maximum file size ({LONGEST})",
                shown(),
                node.size
            )));
        }
        Ok(true)
    }

    /// The number of files below a name, itself included.
    fn below(&self, top: NodeId) -> u64 {
        let (mut count, mut pending) = (0, vec![top]);
        while let Some(node) = pending.pop() {
            count += 1;
            pending.extend(self.tree.children(node).iter().map(|entry| entry.node));
        }
        count
    }

    /// Refuses or counts the losses of a file.
    fn attributes(&self, id: NodeId, lost: &mut LossCounts) -> Result<(), FsError> {
        let node = self.tree.node(id);
        let shown = || self.tree.shown_path(id);
        if (node.uid, node.gid) != (0, 0) {
            lose(self.losses.owners, &mut lost.owners, || {
                let (path, uid, gid) = (shown(), node.uid, node.gid);
                Text::from(format!("{path}: owner {uid}:{gid}: FAT has no owners; "))
                    .then(Term::Drop)
                    .then(" owners drops them, ")
                    .then(Term::Owner)
                    .then(" 0:0 changes them")
            })?;
        }
        let modes: [u16; 2] = match node.kind {
            FileKind::Directory => [0o755, 0o555],
            _ => [0o644, 0o444],
        };
        if !modes.contains(&node.perm) {
            lose(self.losses.modes, &mut lost.modes, || {
                let (path, perm, [usual, read_only]) = (shown(), node.perm, modes);
                Text::from(format!(
                    "{path}: mode {perm:04o}: FAT has only {usual:04o} and {read_only:04o} \
                     (read-only); "
                ))
                .then(Term::Drop)
                .then(" modes drops others")
            })?;
        }
        if !self.tree.xattrs(node).is_empty() {
            lose(self.losses.xattrs, &mut lost.xattrs, || {
                Text::from(format!("{}: FAT has no extended attributes; ", shown()))
                    .then(Term::Drop)
                    .then(" xattrs drops them")
            })?;
        }
        Ok(())
    }
}

/// Counts a permitted loss, and refuses any other.
fn lose(allowed: bool, count: &mut u64, why: impl FnOnce() -> Text) -> Result<(), FsError> {
    if !allowed {
        return Err(FsError::Refused(Text::from("unsupported: ").then(why())));
    }
    *count += 1;
    Ok(())
}
