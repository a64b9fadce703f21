//! Unpacking entries, given by path, into a tree.

use crate::options::TreeOptions;
use crate::tar::AddError;
use seekless_fs::acl::AclKind;
use seekless_fs::tree::{NewPayload, NodeAttr, NodeId, Tree, TreeBuilder};
use seekless_fs::{ArchiveFault, FileKind, FsError, Timestamp, Xattr};
use std::collections::HashSet;

/// Maximum number of symlinks followed on the way to one directory, as in the kernel.
pub(crate) const SYMLINKS_MAX: usize = 40;

/// A tree built like an unpacking program does: missing directories are created, symlinks on the
/// way are followed (within the tree), and a later entry replaces an earlier one.
pub(crate) struct Unpacker {
    builder: TreeBuilder,
    options: TreeOptions,
    root_known: bool,
    /// Directories created only because they have entries.
    implied: HashSet<NodeId>,
    /// The directory of the previous entry: the next is usually in it too.
    last: Option<(Vec<u8>, NodeId)>,
    /// Directories with an entry in the current archive.
    told: HashSet<NodeId>,
    /// Whether `touched` is kept.
    is_recording: bool,
    /// All files that the current archive has entries for, or needed as missing directories.
    touched: HashSet<NodeId>,
}

/// A finished tree.
#[derive(Debug)]
pub(crate) struct Unpacked {
    pub(crate) tree: Tree,
    /// Directories without an entry.
    pub(crate) implied: HashSet<NodeId>,
}

pub(crate) fn missing_directory(mtime: Timestamp) -> NodeAttr {
    let kind = FileKind::Directory;
    NodeAttr { kind, perm: 0o755, uid: 0, gid: 0, size: 0, mtime, times: None, flags: 0 }
}

impl Unpacker {
    pub(crate) fn new(options: TreeOptions) -> Self {
        let builder = TreeBuilder::new(missing_directory(Timestamp::default()));
        let implied = HashSet::from([NodeId::ROOT]);
        let told = HashSet::new();
        let touched = HashSet::new();
        let (root_known, is_recording) = (false, false);
        Self { builder, options, root_known, implied, last: None, told, is_recording, touched }
    }

    /// Records which files an archive touches, and which names change.
    pub(crate) fn recording(self) -> Self {
        Self { is_recording: true, builder: self.builder.recording_changes(), ..self }
    }

    /// The files that the current archive touched: it has entries or new names for them, or needed
    /// them as directories that were missing.
    pub(crate) fn touched(&self) -> &HashSet<NodeId> {
        debug_assert!(self.is_recording, "files that are touched are recorded");
        &self.touched
    }

    fn touch(&mut self, node: NodeId) {
        if self.is_recording {
            self.touched.insert(node);
        }
    }

    /// Begins the entries of another archive.
    pub(crate) fn begin_archive(&mut self) {
        self.told.clear();
        self.touched.clear();
    }

    /// Adds a file at a path without `.`, `..` or empty components.
    pub(crate) fn add(
        &mut self,
        path: &[u8],
        mut attr: NodeAttr,
        payload: NewPayload<'_>,
        mut xattrs: Vec<Xattr>,
    ) -> Result<(), AddError> {
        let mtime = attr.mtime;
        self.options.apply_to_xattrs(&mut xattrs)?;
        if path.is_empty() {
            if attr.kind != FileKind::Directory {
                return Err(ArchiveFault::Path(String::new()).into());
            }
            self.options.apply_to_root(&mut attr)?;
            self.root_known = true;
            self.implied.remove(&NodeId::ROOT);
            self.builder.set_attr(NodeId::ROOT, attr);
            self.touch(NodeId::ROOT);
            return self.set_xattrs(NodeId::ROOT, xattrs);
        }
        self.options.apply(&mut attr)?;
        let (parent, name) = self.parent(path, mtime)?;
        // A replaced entry may be on the way to the remembered directory.
        let stays =
            |node| self.builder.node(node).kind == attr.kind && attr.kind == FileKind::Directory;
        if self.builder.child(parent, name).is_some_and(|node| !stays(node)) {
            self.last = None;
        }
        let node = self.builder.add(parent, name, attr, payload)?;
        self.implied.remove(&node);
        self.touch(node);
        self.set_xattrs(node, xattrs)
    }

    /// Sets the extended attributes of an entry's file. A directory that has several entries in one
    /// archive keeps attributes given only by an earlier one, as after extraction, except access
    /// control lists, which go with the mode.
    fn set_xattrs(&mut self, node: NodeId, mut xattrs: Vec<Xattr>) -> Result<(), AddError> {
        if self.builder.node(node).kind == FileKind::Directory && !self.told.insert(node) {
            let is_kept = |old: &&Xattr| {
                AclKind::of(&old.name).is_none() && xattrs.iter().all(|new| new.name != old.name)
            };
            let kept: Vec<Xattr> =
                self.builder.xattrs(node).iter().filter(is_kept).cloned().collect();
            xattrs.extend(kept);
        }
        Ok(self.builder.set_xattrs(node, xattrs)?)
    }

    /// Adds another name for an existing file. Of the entry's attributes `attr` only the time is
    /// used, for missing directories.
    pub(crate) fn link(
        &mut self,
        path: &[u8],
        target: &[u8],
        attr: NodeAttr,
    ) -> Result<(), AddError> {
        let missing = || {
            let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            AddError::from(ArchiveFault::Link(shown(path), shown(target)))
        };
        let found = self.find(target)?.ok_or_else(missing)?;
        if path.is_empty() || self.builder.node(found).kind == FileKind::Directory {
            return Err(missing());
        }
        let (parent, name) = self.parent(path, attr.mtime)?;
        self.last = None;
        self.builder.add_link(parent, name, found)?;
        self.touch(found);
        Ok(())
    }

    /// The node at a path, if it exists. Symlinks are followed on the way, but not at the end.
    pub(crate) fn find(&self, path: &[u8]) -> Result<Option<NodeId>, AddError> {
        let (dir, name) = split(path);
        let mut hops = 0;
        match self.descend(NodeId::ROOT, dir, &mut hops) {
            Ok(Descent::There(parent)) if name.is_empty() => Ok(Some(parent)),
            Ok(Descent::There(parent)) => Ok(self.builder.child(parent, name)),
            _ => Ok(None),
        }
    }

    /// The directory at a path; symlinks are followed, also at its end.
    pub(crate) fn directory(&self, path: &[u8]) -> Option<NodeId> {
        match self.descend(NodeId::ROOT, path, &mut 0) {
            Ok(Descent::There(dir)) => Some(dir),
            _ => None,
        }
    }

    /// The kind of the file at a path, found as by [`find`](Self::find).
    pub(crate) fn kind(&self, path: &[u8]) -> Result<Option<FileKind>, AddError> {
        Ok(self.find(path)?.map(|node| self.builder.node(node).kind))
    }

    /// The directory of a path, created if it is missing, and the name in it.
    fn parent<'a>(
        &mut self,
        path: &'a [u8],
        mtime: Timestamp,
    ) -> Result<(NodeId, &'a [u8]), AddError> {
        if !self.root_known {
            self.root_known = true;
            let mut attr = missing_directory(mtime);
            self.options.apply_to_root(&mut attr)?;
            self.builder.set_attr(NodeId::ROOT, attr);
        }
        let (dir, name) = split(path);
        if let Some((last, node)) = &self.last
            && last == dir
        {
            return Ok((*node, name));
        }
        let mut at = NodeId::ROOT;
        let mut hops = 0;
        for component in dir.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            let not_directory = || ArchiveFault::Parent(String::from_utf8_lossy(path).into_owned());
            at = match self.descend(at, component, &mut hops).map_err(|()| not_directory())? {
                Descent::There(dir) => dir,
                Descent::Missing if self.builder.child(at, component).is_none() => {
                    let mut attr = missing_directory(mtime);
                    self.options.apply(&mut attr)?;
                    let made = self.builder.add(at, component, attr, NewPayload::None)?;
                    self.implied.insert(made);
                    self.touch(made);
                    made
                }
                // A dangling symlink: its target is created.
                Descent::Missing => self.make(at, component, mtime)?.ok_or_else(not_directory)?,
            };
        }
        self.last = Some((dir.to_vec(), at));
        Ok((at, name))
    }

    /// Follows a path as [`descend`](Self::descend) does and creates missing directories. `None` if
    /// a file other than a directory is in the way.
    fn make(
        &mut self,
        from: NodeId,
        path: &[u8],
        mtime: Timestamp,
    ) -> Result<Option<NodeId>, AddError> {
        let mut stack = self.ancestry(from);
        let mut rest: Vec<Vec<u8>> = components(path);
        let mut hops = 0;
        while let Some(name) = rest.pop() {
            let here = stack.last().copied().unwrap_or(NodeId::ROOT);
            if name == b".." {
                stack.pop();
                continue;
            }
            let Some(child) = self.builder.child(here, &name) else {
                let mut attr = missing_directory(mtime);
                self.options.apply(&mut attr)?;
                let made = self.builder.add(here, &name, attr, NewPayload::None)?;
                self.implied.insert(made);
                self.touch(made);
                stack.push(made);
                continue;
            };
            match self.builder.node(child).kind {
                FileKind::Directory => stack.push(child),
                FileKind::Symlink => {
                    hops += 1;
                    if hops > SYMLINKS_MAX {
                        return Ok(None);
                    }
                    let target = self.builder.target(child);
                    if target.starts_with(b"/") {
                        stack.clear();
                    }
                    rest.extend(components(target));
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(stack.last().copied().unwrap_or(NodeId::ROOT)))
    }

    /// Follows a path of directories and symlinks from `from`. `..` occurs in symlinks only and
    /// never leads above the root.
    fn descend(&self, from: NodeId, path: &[u8], hops: &mut usize) -> Result<Descent, ()> {
        let mut stack = self.ancestry(from);
        let mut rest: Vec<Vec<u8>> = components(path);
        while let Some(name) = rest.pop() {
            let here = stack.last().copied().unwrap_or(NodeId::ROOT);
            if name == b".." {
                stack.pop();
                continue;
            }
            let Some(child) = self.builder.child(here, &name) else { return Ok(Descent::Missing) };
            match self.builder.node(child).kind {
                FileKind::Directory => stack.push(child),
                FileKind::Symlink => {
                    *hops += 1;
                    if *hops > SYMLINKS_MAX {
                        return Err(());
                    }
                    let target = self.builder.target(child);
                    if target.starts_with(b"/") {
                        stack.clear();
                    }
                    rest.extend(components(target));
                }
                _ => return Err(()),
            }
        }
        Ok(Descent::There(stack.last().copied().unwrap_or(NodeId::ROOT)))
    }

    /// The directories from below the root down to `dir`.
    fn ancestry(&self, dir: NodeId) -> Vec<NodeId> {
        let mut stack = Vec::new();
        let mut at = dir;
        while at != NodeId::ROOT {
            stack.push(at);
            at = self.builder.parent(at);
        }
        stack.reverse();
        stack
    }

    /// The options applied to entries.
    pub(crate) fn options(&self) -> &TreeOptions {
        &self.options
    }

    /// The attributes that the root has if the tree is finished now.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for options that fail.
    pub(crate) fn root_attr(&self) -> Result<NodeAttr, FsError> {
        if self.root_known {
            return Ok(self.builder.attr(NodeId::ROOT));
        }
        let mut attr = missing_directory(Timestamp::default());
        self.options.apply_to_root(&mut attr)?;
        Ok(attr)
    }

    /// The tree under construction, to be read.
    pub(crate) fn tree(&self) -> &TreeBuilder {
        &self.builder
    }

    /// The tree under construction.
    pub(crate) fn builder(&mut self) -> &mut TreeBuilder {
        self.last = None;
        &mut self.builder
    }

    /// Finishes the tree, without the excluded entries.
    pub(crate) fn finish(mut self) -> Result<Unpacked, FsError> {
        let root = self.root_attr()?;
        self.builder.set_attr(NodeId::ROOT, root);
        let excludes = &self.options.excludes;
        if !excludes.is_empty() {
            self.builder.exclude(|path, is_dir| excludes.matches(path, is_dir));
        }
        let (tree, implied) = self.builder.finish_and_find(&self.implied);
        Ok(Unpacked { tree, implied })
    }
}

/// The result of following a path.
enum Descent {
    There(NodeId),
    Missing,
}

/// A path's significant components, last first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|&byte| byte == b'/');
    names.filter(|name| !matches!(*name, b"" | b".")).rev().map(<[u8]>::to_vec).collect()
}

/// A path's directory and its last component.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}
