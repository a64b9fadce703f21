//! Another image as a source: all its files and attributes are taken, all times too.

use crate::options::TreeOptions;
use seekless_device::HostRange;
use seekless_fs::mapped::MappedContent;
use seekless_fs::source::{Content, SEAL_ALIGN, Sealed, Segment, Source};
use seekless_fs::tree::{
    NewPayload, Node, NodeAttr, NodeId, OtherTimes, Payload, Tree, TreeBuilder,
};
use seekless_fs::{Attr, BlockMap, Corruption, FileKind, FsError, Inspect, Location, inode_flag};
use seekless_units::{ByteLen, Ino};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// The tree of an image, and the image for the contents.
pub struct ImageSource {
    image: Arc<dyn Inspect>,
    tree: Tree,
}

impl ImageSource {
    /// Walks an image.
    ///
    /// # Errors
    /// The image's errors; [`FsError::Corrupt`] when a directory is reached twice.
    pub fn open(image: Arc<dyn Inspect>, options: &TreeOptions) -> Result<Self, FsError> {
        let root = image.root();
        let mut attr = node_attr(&image.attr(root)?);
        options.apply_to_root(&mut attr)?;
        let builder = TreeBuilder::new(attr);
        let builder = if options.raw_names { builder.with_raw_names() } else { builder };
        let mut walk = ImageWalk { image: image.as_ref(), options, builder, seen: HashMap::new() };
        walk.set_xattrs(NodeId::ROOT, root)?;
        walk.seen.insert(root, NodeId::ROOT);
        let mut pending = vec![(root, NodeId::ROOT, Vec::new())];
        while let Some((ino, node, path)) = pending.pop() {
            walk.directory(ino, node, &path, &mut pending)?;
        }
        let tree = walk.builder.finish();
        Ok(Self { image, tree })
    }

    /// The nodes of the tree by the image's inode numbers.
    ///
    /// # Errors
    /// The errors of reading directories.
    pub fn nodes_by_inode(&self) -> Result<HashMap<Ino, NodeId>, FsError> {
        let mut nodes = HashMap::from([(self.image.root(), NodeId::ROOT)]);
        let mut pending = vec![(self.image.root(), NodeId::ROOT)];
        while let Some((dir, node)) = pending.pop() {
            self.image.read_dir(dir, 0, &mut |entry| {
                if let Some(found) = self.tree.child(node, entry.name) {
                    nodes.insert(entry.ino, found.node);
                    if self.tree.node(found.node).kind == FileKind::Directory {
                        pending.push((entry.ino, found.node));
                    }
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(nodes)
    }

    fn ino(&self, node: &Node) -> Result<Ino, FsError> {
        match node.payload {
            Payload::Content(key) => Ok(Ino::new(key as u32)),
            _ => Err(FsError::Invalid("not a regular file".into())),
        }
    }
}

type Pending = Vec<(Ino, NodeId, Vec<u8>)>;

struct ImageWalk<'a> {
    image: &'a dyn Inspect,
    options: &'a TreeOptions,
    builder: TreeBuilder,
    seen: HashMap<Ino, NodeId>,
}

impl ImageWalk<'_> {
    fn set_xattrs(&mut self, node: NodeId, ino: Ino) -> Result<(), FsError> {
        let mut xattrs = self.image.xattrs(ino)?;
        self.options.apply_to_xattrs(&mut xattrs)?;
        self.builder.set_xattrs(node, xattrs)
    }

    fn directory(
        &mut self,
        ino: Ino,
        node: NodeId,
        path: &[u8],
        pending: &mut Pending,
    ) -> Result<(), FsError> {
        let mut entries = Vec::new();
        self.image.read_dir(ino, 0, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                entries.push((entry.name.to_vec(), entry.ino));
            }
            ControlFlow::Continue(())
        })?;
        for (name, child) in entries {
            self.entry(ino, node, path, &name, child, pending)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        dir: Ino,
        parent: NodeId,
        path: &[u8],
        name: &[u8],
        ino: Ino,
        pending: &mut Pending,
    ) -> Result<(), FsError> {
        let attr = self.image.attr(ino)?;
        let is_dir = attr.kind == FileKind::Directory;
        // Without the identifier of its key, which no built image stores, the file would be lost.
        if attr.flags & inode_flag::ENCRYPT != 0 && !self.options.raw_names {
            let path = String::from_utf8_lossy(&[path, b"/", name].concat()).into_owned();
            return Err(FsError::Unsupported(format!("{path}: is encrypted")));
        }
        let excludes = &self.options.excludes;
        let mut child_path = Vec::new();
        if is_dir || !excludes.is_empty() {
            child_path = if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() };
            if excludes.matches(&child_path, is_dir) {
                return Ok(());
            }
        }
        if let Some(&known) = self.seen.get(&ino) {
            if is_dir {
                let location = Location::of("directory entry").in_inode(dir);
                return Err(FsError::corrupt(Corruption::Cycle, location));
            }
            return self.builder.add_link(parent, name, known);
        }
        let target;
        let payload = match attr.kind {
            FileKind::Regular => NewPayload::Content(u64::from(ino.get())),
            FileKind::Symlink => {
                target = self.image.read_link(ino)?;
                NewPayload::Target(&target)
            }
            FileKind::CharDevice | FileKind::BlockDevice => NewPayload::Device(attr.device),
            _ => NewPayload::None,
        };
        let mut own = node_attr(&attr);
        self.options.apply(&mut own)?;
        let node = self.builder.add(parent, name, own, payload)?;
        self.set_xattrs(node, ino)?;
        if is_dir || attr.nlink > 1 {
            self.seen.insert(ino, node);
        }
        if is_dir {
            pending.push((ino, node, child_path));
        }
        Ok(())
    }
}

fn node_attr(attr: &Attr) -> NodeAttr {
    NodeAttr {
        kind: attr.kind,
        perm: attr.perm,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        mtime: attr.mtime,
        times: Some(OtherTimes {
            atime: attr.atime,
            ctime: attr.ctime,
            crtime: attr.crtime.unwrap_or(attr.mtime),
        }),
        // Project ids are not stored; the flag reports that there was one.
        flags: attr.flags | if attr.project == 0 { 0 } else { inode_flag::PROJINHERIT },
    }
}

impl Source for ImageSource {
    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn segments(&self, node: NodeId) -> Result<Vec<Segment>, FsError> {
        let node = self.tree.node(node);
        let map = self.image.contents_map(self.ino(node)?)?;
        if map.runs.is_empty() && map.index.is_empty() && node.size > 0 {
            // Contents in the inode, or one great hole: reading distinguishes them.
            return self.inline_segments(node);
        }
        Ok(self.segments_of(&map, 0..node.size))
    }

    fn sealed(&self, node: NodeId) -> Result<Option<Sealed>, FsError> {
        let node = self.tree.node(node);
        if node.flags & inode_flag::VERITY == 0 {
            return Ok(None);
        }
        let map = self.image.contents_map(self.ino(node)?)?;
        let start = node.size.checked_next_multiple_of(SEAL_ALIGN).unwrap_or(u64::MAX);
        let segments = self.segments_of(&map, start..u64::MAX);
        Ok(Some(Sealed { segments, block_size: self.image.geometry().block_size }))
    }

    fn open(&self, node: NodeId) -> Result<Box<dyn Content + '_>, FsError> {
        let node = self.tree.node(node);
        let ino = self.ino(node)?;
        let image = self.image.as_ref();
        Ok(Box::new(ImageContent { image, ino, size: node.size, mapped: OnceCell::new() }))
    }
}

impl ImageSource {
    /// The allocated segments of a range of bytes.
    fn segments_of(&self, map: &BlockMap, within: Range<u64>) -> Vec<Segment> {
        let block = u64::from(self.image.geometry().block_size);
        let mut segments: Vec<Segment> = Vec::new();
        for run in map.runs.iter().filter(|run| !run.unwritten) {
            let from = run.lbn.get().saturating_mul(block);
            let end = run.extent.len.saturating_mul(block).saturating_add(from).min(within.end);
            let offset = from.max(within.start);
            if offset >= end {
                continue;
            }
            match segments.last_mut() {
                Some(last) if last.offset + last.len == offset => last.len += end - offset,
                _ => segments.push(Segment { offset, len: end - offset }),
            }
        }
        segments
    }

    /// A file without blocks that is longer than any inode is a hole.
    fn inline_segments(&self, node: &Node) -> Result<Vec<Segment>, FsError> {
        let inode_size = u64::from(self.image.geometry().inode_size);
        if node.size > inode_size {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; node.size as usize];
        self.image.read(self.ino(node)?, ByteLen::ZERO, &mut bytes)?;
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(Vec::new());
        }
        Ok(vec![Segment { offset: 0, len: node.size }])
    }
}

struct ImageContent<'a> {
    image: &'a dyn Inspect,
    ino: Ino,
    size: u64,
    /// The contents by their map, if they lie in blocks.
    mapped: OnceCell<Option<MappedContent<'a>>>,
}

impl<'a> ImageContent<'a> {
    fn map(&self) -> Option<MappedContent<'a>> {
        let device = self.image.contents()?;
        // Whoever reads meets the error again.
        let map = self.image.contents_map(self.ino).ok()?;
        Some(MappedContent::new(map.runs, self.image.geometry().block_size, device))
    }
}

impl Content for ImageContent<'_> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), FsError> {
        if offset >= self.size && !buf.is_empty() {
            return self.image.read_seal(self.ino, ByteLen::new(offset), buf);
        }
        let mut done = 0;
        while done < buf.len() {
            let at = ByteLen::new(offset + done as u64);
            match self.image.read(self.ino, at, &mut buf[done..])? {
                0 => {
                    let location = Location::of("file contents").in_inode(self.ino);
                    return Err(FsError::corrupt(Corruption::Truncated, location));
                }
                got => done += got,
            }
        }
        Ok(())
    }

    fn host_range(&self, offset: u64, len: u64) -> Option<HostRange<'_>> {
        let len = len.min(self.size.checked_sub(offset).filter(|&rest| rest > 0)?);
        self.mapped.get_or_init(|| self.map()).as_ref()?.host_range(offset, len)
    }
}
