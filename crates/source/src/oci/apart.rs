//! The layers of an image, each as a tree of its own for overlayfs, which lays them over one another
//! when they are mounted.
//!
//! A layer's tree is the difference that its archive makes to the layers below, in the terms of
//! `Documentation/filesystems/overlayfs.rst`: a name that it hides is a character device 0:0, a
//! directory whose lower entries it hides has an attribute `opaque`. Since overlayfs takes all
//! attributes of a directory from the uppermost layer that has it, directories without an entry in
//! the archive have those of the layers below. A file that gets a further name (hard link) in a
//! layer above its own is copied into that layer with all its names, as overlayfs does on `link` with
//! `index=on`.

use super::stack::{LayerArchive, Layers, Stack};
use super::store::Section;
use crate::archive::{ArchiveSource, Contents};
use crate::options::{Notices, TreeOptions};
use crate::tar::{self, Emptiness};
use crate::unpack::{Unpacked, Unpacker};
use rayon::prelude::*;
use seekless_fs::source::Source;
use seekless_fs::tree::{Entry, NewPayload, NodeAttr, NodeId, Payload, Tree, TreeBuilder};
use seekless_fs::{DeviceNumber, FileKind, FsError, Timestamp, Xattr};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The form of whiteouts: what a layer hides of those below.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Whiteouts {
    /// Those of overlayfs: character devices 0:0, and `trusted.overlay.opaque`.
    #[default]
    Overlay,
    /// Those of overlayfs with the mount option `userxattr`: `user.overlay.opaque`.
    OverlayUser,
    /// The archive's own: files `.wh.NAME`, as if each archive were read alone.
    Keep,
}

impl Whiteouts {
    /// The prefix of overlayfs' own attributes; `None` without overlayfs.
    pub(super) fn prefix(self) -> Option<&'static [u8]> {
        match self {
            Self::Overlay => Some(b"trusted.overlay."),
            Self::OverlayUser => Some(b"user.overlay."),
            Self::Keep => None,
        }
    }
}

/// A layer of a container image.
pub struct ApartLayer {
    /// Its files.
    pub source: Arc<dyn Source + Send>,
    /// The SHA-256 of its archive, not compressed, in hexadecimal.
    pub diff_id: String,
    /// The SHA-256 of its archive as the image has it, compressed or not, in hexadecimal.
    pub digest: String,
}

/// A container image, layer by layer.
pub struct Apart {
    /// The layers, the lowest first.
    pub layers: Vec<ApartLayer>,
    /// All layers over one another.
    pub whole: Arc<dyn Source + Send>,
}

/// Lower directories that overlayfs takes at most (`OVL_MAX_STACK` in Linux,
/// `fs/overlayfs/params.h`).
const LAYERS_MAX: usize = 500;

impl Layers {
    /// Each layer as a tree of its own. Notices were given when the whole was read. `name` is the
    /// image's in errors.
    ///
    /// # Errors
    /// As for archives; [`FsError::Container`] for an archive that does not match its diff ID in the
    /// image's configuration; [`FsError::Unsupported`] for a device that is a whiteout to overlayfs,
    /// and for more layers than it takes; with [`Whiteouts::Keep`], for hard links to files of layers
    /// below.
    pub(crate) fn apart(
        self,
        name: &str,
        options: &TreeOptions,
        whiteouts: Whiteouts,
    ) -> Result<Apart, FsError> {
        let Self { archives, whole, diff_ids: told } = self;
        if whiteouts != Whiteouts::Keep && archives.len() > LAYERS_MAX {
            let count = archives.len();
            let what = format!("{count} layers, of which overlayfs takes {LAYERS_MAX} at most");
            return Err(FsError::Unsupported(format!("{name}: {what}")));
        }
        let diff_ids: Vec<String> = archives.par_iter().map(diff_id).collect::<Result<_, _>>()?;
        for (nth, told) in told?.iter().flatten().enumerate() {
            check_diff_id(&archives[nth].name, &diff_ids[nth], told)?;
        }
        let silent = TreeOptions { notices: Notices(|_| {}), ..options.clone() };
        let sources: Vec<ArchiveSource> = match whiteouts.prefix() {
            Some(prefix) => differences(&archives, &silent, prefix)?,
            None => {
                let alone = |layer: &LayerArchive| alone(layer.clone(), &silent);
                archives.iter().map(alone).collect::<Result<_, _>>()?
            }
        };
        debug_assert_eq!(sources.len(), archives.len(), "a tree for each layer");
        let parts = archives.into_iter().zip(sources).zip(diff_ids);
        let layers = parts.map(|((layer, source), diff_id)| ApartLayer {
            source: Arc::new(source),
            diff_id,
            digest: layer.digest,
        });
        Ok(Apart { layers: layers.collect(), whole: Arc::new(*whole) })
    }
}

/// The SHA-256 of a layer's decompressed archive.
fn diff_id(layer: &LayerArchive) -> Result<String, FsError> {
    let LayerArchive { archive, name, .. } = layer;
    let whole = Section::new(archive.file.clone(), archive.base, archive.len, name.clone());
    whole.sha256().map_err(|error| FsError::io(name, error))
}

/// Compares the digest of a layer's archive with the one of the image's configuration.
fn check_diff_id(layer: &str, found: &str, told: &str) -> Result<(), FsError> {
    match told.strip_prefix("sha256:") {
        None => Err(FsError::Unsupported(format!("digest {told}"))),
        Some(told) if told == found => Ok(()),
        Some(_) => {
            let what = format!("contents do not match the diff ID {told} of the configuration");
            Err(FsError::Container { name: layer.into(), what })
        }
    }
}

/// The files of a layer's archive as they are.
fn alone(layer: LayerArchive, options: &TreeOptions) -> Result<ArchiveSource, FsError> {
    let mut unpacker = Unpacker::new(options.clone());
    let mut contents = Contents::default();
    let layer = contents.add_archive(layer.archive, layer.name)?;
    tar::read_into(&mut unpacker, &mut contents, layer, Emptiness::Known, |_| true)?;
    Ok(ArchiveSource::new(unpacker.finish()?, contents))
}

/// The difference that each layer makes to those below.
fn differences(
    archives: &[LayerArchive],
    options: &TreeOptions,
    prefix: &[u8],
) -> Result<Vec<ArchiveSource>, FsError> {
    let mut stack = Stack::new(Unpacker::new(options.clone()).recording());
    let mut trees = Vec::with_capacity(archives.len());
    for (nth, layer) in archives.iter().enumerate() {
        stack.unpacker.builder().begin_changes();
        let opaque = stack.add(layer.clone())?;
        let root = stack.unpacker.root_attr()?;
        let (builder, touched) = (stack.unpacker.tree(), stack.unpacker.touched());
        let marks = Marks { prefix, layer: &layer.name };
        let found = Search::new(builder, &opaque, nth == 0).run(touched);
        trees.push(found.tree(builder, root, options, marks)?);
    }
    let contents = Arc::new(stack.contents);
    let unpacked = |tree| Unpacked { tree, implied: HashSet::new() };
    let source = |tree| ArchiveSource::new(unpacked(tree), contents.clone());
    Ok(trees.into_iter().map(source).collect())
}

/// How a layer's marks for overlayfs are written.
#[derive(Clone, Copy)]
pub(super) struct Marks<'a> {
    /// The prefix of overlayfs' attributes.
    pub(super) prefix: &'a [u8],
    /// The layer's name in messages.
    pub(super) layer: &'a str,
}

/// A directory of the stack that may be in the layer.
struct Dir {
    /// Its number in the stack's tree.
    node: NodeId,
    /// Where its parent is in the list of directories, and its name; `None` for the root.
    entry: Option<(usize, Entry)>,
    /// Whether entries of the layers below show through.
    is_merged: bool,
    /// Whether it hides the entries of a directory below.
    is_opaque: bool,
    /// Whether the layer has it.
    is_needed: bool,
}

/// The change that a layer makes to those below.
struct LayerChange {
    /// Directories of the stack, each behind its parent.
    dirs: Vec<Dir>,
    /// Names of files of the layer that are no directories, with the index of their directory.
    files: Vec<(usize, Entry)>,
    /// Names that the layer hides.
    hidden: Vec<(usize, Entry)>,
}

/// The search for the change, beginning with the files that the layer's archive touched: it takes
/// no longer for a small layer on top of many files.
struct Search<'a> {
    builder: &'a TreeBuilder,
    /// Directories whose lower entries the archive hides.
    opaque: &'a HashSet<NodeId>,
    /// Entries of the stack without the layer, by directory and name, where it has others or none.
    before: HashMap<(NodeId, &'a [u8]), NodeId>,
    /// Directories in `found`; `None` for those below a removed name.
    indices: HashMap<NodeId, Option<usize>>,
    found: LayerChange,
}

impl<'a> Search<'a> {
    /// `builder` has all layers up to this one, and records the changes that it makes.
    fn new(builder: &'a TreeBuilder, opaque: &'a HashSet<NodeId>, is_lowest: bool) -> Self {
        let root = Dir {
            node: NodeId::ROOT,
            entry: None,
            is_merged: !is_lowest,
            is_opaque: false,
            is_needed: true,
        };
        let before = builder.removed().iter();
        let before = before.map(|old| ((old.parent, builder.name(old)), old.node)).collect();
        let indices = HashMap::from([(NodeId::ROOT, Some(0))]);
        let found = LayerChange { dirs: vec![root], files: Vec::new(), hidden: Vec::new() };
        Self { builder, opaque, before, indices, found }
    }

    /// Finds the change of a layer that touched these files.
    fn run(mut self, touched: &HashSet<NodeId>) -> LayerChange {
        let builder = self.builder;
        // In an order that does not depend on the sets'.
        let mut nodes: Vec<NodeId> = touched.union(self.opaque).copied().collect();
        nodes.sort_unstable();
        for node in nodes {
            if builder.node(node).kind == FileKind::Directory {
                if let Some(at) = self.dir(node) {
                    self.found.dirs[at].is_needed |= touched.contains(&node);
                }
                continue;
            }
            for entry in builder.names_of(node) {
                if let Some(at) = self.dir(entry.parent) {
                    self.found.files.push((at, entry));
                }
            }
        }
        for old in builder.removed() {
            if builder.child(old.parent, builder.name(old)).is_some() {
                continue;
            }
            if let Some(at) = self.dir(old.parent).filter(|&at| self.found.dirs[at].is_merged) {
                self.found.hidden.push((at, *old));
            }
        }
        let LayerChange { dirs, files, hidden } = &mut self.found;
        for (dir, _) in files.iter().chain(hidden.iter()) {
            dirs[*dir].is_needed = true;
        }
        for at in (1..dirs.len()).rev() {
            if let (true, Some((parent, _))) = (dirs[at].is_needed, dirs[at].entry) {
                dirs[parent].is_needed = true;
            }
        }
        self.found
    }

    /// The index of a directory, which is added behind its parents. `None` if it is not in the stack
    /// any more.
    fn dir(&mut self, node: NodeId) -> Option<usize> {
        let mut missing = Vec::new();
        let mut at = node;
        let mut parent = loop {
            if let Some(&known) = self.indices.get(&at) {
                break known;
            }
            // A directory has one name.
            match self.builder.names_of(at).first() {
                Some(entry) => {
                    missing.push(*entry);
                    at = entry.parent;
                }
                None => {
                    self.indices.insert(at, None);
                    break None;
                }
            }
        };
        for entry in missing.into_iter().rev() {
            parent = parent.map(|parent| self.add(parent, entry));
            self.indices.insert(entry.node, parent);
        }
        parent
    }

    /// Adds a directory with this entry in another one. Returns its index.
    fn add(&mut self, parent: usize, entry: Entry) -> usize {
        let builder = self.builder;
        let is_old = !builder.is_new(entry.node);
        let before = || self.before.get(&(entry.parent, builder.name(&entry))).copied();
        let old = if is_old { Some(entry.node) } else { before() };
        let old = old.filter(|_| self.found.dirs[parent].is_merged);
        // A directory of another number was removed and made again.
        let hides = old.is_some_and(|old| {
            let is_dir = builder.node(old).kind == FileKind::Directory;
            is_dir && (old != entry.node || self.opaque.contains(&entry.node))
        });
        self.found.dirs.push(Dir {
            node: entry.node,
            entry: Some((parent, entry)),
            is_merged: old == Some(entry.node) && !hides,
            is_opaque: hides,
            is_needed: hides,
        });
        self.found.dirs.len() - 1
    }
}

impl LayerChange {
    /// The layer's tree.
    fn tree(
        &self,
        builder: &TreeBuilder,
        root: NodeAttr,
        options: &TreeOptions,
        marks: Marks<'_>,
    ) -> Result<Tree, FsError> {
        let mut tree = TreeBuilder::new(root);
        let mut numbers = vec![NodeId::ROOT; self.dirs.len()];
        for (at, dir) in self.dirs.iter().enumerate().filter(|(_, dir)| dir.is_needed) {
            if let Some((parent, entry)) = &dir.entry {
                let (attr, name) = (builder.attr(dir.node), builder.name(entry));
                numbers[at] = tree.add(numbers[*parent], name, attr, NewPayload::None)?;
            }
            let mut xattrs = marks.escaped(builder.xattrs(dir.node));
            if dir.is_opaque {
                xattrs.push(marks.opaque());
            }
            tree.set_xattrs(numbers[at], xattrs)?;
        }
        let mut linked: HashMap<NodeId, NodeId> = HashMap::new();
        for (dir, entry) in &self.files {
            let name = builder.name(entry);
            if let Some(&first) = linked.get(&entry.node) {
                tree.add_link(numbers[*dir], name, first)?;
                continue;
            }
            let payload = match builder.node(entry.node).payload {
                Payload::None => NewPayload::None,
                Payload::Content(key) => NewPayload::Content(key),
                Payload::Target(_) => NewPayload::Target(builder.target(entry.node)),
                Payload::Device(number) => {
                    let kind = builder.node(entry.node).kind;
                    if kind == FileKind::CharDevice && number == WHITEOUT {
                        return Err(marks.refused(&self.path(builder, *dir, entry)));
                    }
                    NewPayload::Device(number)
                }
            };
            let node = tree.add(numbers[*dir], name, builder.attr(entry.node), payload)?;
            tree.set_xattrs(node, marks.escaped(builder.xattrs(entry.node)))?;
            linked.insert(entry.node, node);
        }
        for (dir, entry) in &self.hidden {
            let attr = whiteout_attr(builder.attr(self.dirs[*dir].node).mtime);
            let name = builder.name(entry);
            tree.add(numbers[*dir], name, attr, NewPayload::Device(WHITEOUT))?;
        }
        let excludes = &options.excludes;
        if !excludes.is_empty() {
            tree.exclude(|path, is_dir| excludes.matches(path, is_dir));
        }
        Ok(tree.finish())
    }

    /// The path of a name in a directory.
    fn path(&self, builder: &TreeBuilder, dir: usize, entry: &Entry) -> String {
        let mut names = vec![builder.name(entry)];
        let mut at = dir;
        while let Some((parent, entry)) = &self.dirs[at].entry {
            names.push(builder.name(entry));
            at = *parent;
        }
        names.reverse();
        String::from_utf8_lossy(&names.join(&b'/')).into_owned()
    }
}

/// The number of a character device that hides a name.
pub(super) const WHITEOUT: DeviceNumber = DeviceNumber { major: 0, minor: 0 };

/// The attributes of such a device.
pub(super) fn whiteout_attr(mtime: Timestamp) -> NodeAttr {
    let kind = FileKind::CharDevice;
    NodeAttr { kind, perm: 0, uid: 0, gid: 0, size: 0, mtime, times: None, flags: 0 }
}

impl Marks<'_> {
    /// The mark of a directory that hides the entries of a directory below.
    pub(super) fn opaque(self) -> Xattr {
        Xattr { name: [self.prefix, b"opaque"].concat(), value: b"y".to_vec() }
    }

    /// Attributes as they are stored so that overlayfs shows them: its own have its prefix twice,
    /// since others would be marks.
    pub(super) fn escaped(self, xattrs: &[Xattr]) -> Vec<Xattr> {
        let escaped = |xattr: &Xattr| match xattr.name.strip_prefix(self.prefix) {
            Some(rest) => {
                let name = [self.prefix, b"overlay.", rest].concat();
                Xattr { name, value: xattr.value.clone() }
            }
            None => xattr.clone(),
        };
        xattrs.iter().map(escaped).collect()
    }

    /// The error for a device that is a whiteout to overlayfs.
    pub(super) fn refused(self, path: &str) -> FsError {
        let what = "a character device 0:0, which overlayfs takes for a whiteout";
        FsError::Unsupported(format!("{}: {path}: {what}", self.layer))
    }
}
