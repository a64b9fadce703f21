//! Inodes, maps and directories after the operations.

use super::maps;
use super::records::{Dentry, Operation, place};
use crate::dir::Directory;
use crate::inode::Inode;
use crate::ondisk::{INODE_CORE_SIZE, InodeCore, flags, special};
use crate::volume::Volume;
use seekless_fs::field::{invalid, parse, range, truncated};
use seekless_fs::{FileKind, FsError, Location, Mapping};
use seekless_units::{BlockNo, Extent, GroupNo, Ino};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

/// The names in a directory, `.` and `..` left out.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) parent: Ino,
    pub(super) entries: BTreeMap<Vec<u8>, (Ino, FileKind)>,
}

/// An inode that the replay changes.
pub(super) struct ReplayedInode {
    pub(super) core: InodeCore,
    /// The bytes behind the core.
    pub(super) rest: Vec<u8>,
    /// The map of an inode that is mapped by extents.
    pub(super) runs: Option<Vec<Mapping>>,
    /// Blocks of the map as it is on the disk.
    pub(super) index: Vec<BlockNo>,
    /// Entries of a directory whose names changed.
    pub(super) names: Option<Names>,
    /// Whether its last name is gone.
    pub(super) removed: bool,
}

impl ReplayedInode {
    /// An empty one with `rest` bytes behind the core.
    fn fresh(rest: usize) -> Self {
        Self {
            core: InodeCore::default(),
            rest: vec![0; rest],
            runs: None,
            index: Vec::new(),
            names: None,
            removed: false,
        }
    }

    pub(super) fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.core.i_mode.get())
    }

    pub(super) fn has_flag(&self, bit: u32) -> bool {
        self.core.i_flags.get() & bit != 0
    }

    fn add_links(&mut self, change: i16) {
        let links = self.core.i_links_count.get().saturating_add_signed(change);
        self.core.i_links_count = links.into();
    }
}

/// The volume's state after the operations replayed so far (`struct ext4_fc_replay_state`).
pub(super) struct ReplayState<'a> {
    pub(super) volume: &'a Volume,
    pub(super) nodes: BTreeMap<Ino, ReplayedInode>,
    /// Blocks that are unused, unless a node uses them.
    pub(super) freed: Vec<Extent>,
    /// Attribute blocks that lost an owner.
    pub(super) released: Vec<BlockNo>,
    in_use: HashMap<GroupNo, Vec<Ino>>,
}

fn inode_place(ino: Ino) -> Location {
    place().in_inode(ino)
}

impl<'a> ReplayState<'a> {
    pub(super) fn new(volume: &'a Volume) -> Self {
        Self {
            volume,
            nodes: BTreeMap::new(),
            freed: Vec::new(),
            released: Vec::new(),
            in_use: HashMap::new(),
        }
    }

    /// Applies one operation. As in a mount, names and ranges of missing inodes are passed over.
    pub(super) fn apply(&mut self, operation: &Operation) -> Result<(), FsError> {
        match operation {
            Operation::Inode { ino, raw } => self.set_inode(*ino, raw),
            Operation::AddRange { ino, run } => self.add_range(*ino, *run),
            Operation::DelRange { ino, from, len } => {
                let Some((runs, freed)) = self.map(*ino)? else { return Ok(()) };
                maps::cut(runs, *from, *len, freed);
                Ok(())
            }
            Operation::Create(name) => self.create(name),
            Operation::Link(name) => self.link(name),
            Operation::Unlink(name) => self.unlink(name),
        }
    }

    /// Whether the inode was in use when the last transaction was committed.
    pub(super) fn was_in_use(&mut self, ino: Ino) -> Result<bool, FsError> {
        let (group, _) = self.volume.sb.inode_slot(ino)?;
        if let Some(used) = self.in_use.get(&group) {
            return Ok(used.binary_search(&ino).is_ok());
        }
        let used = self.volume.bitmaps().allocated_inodes(group)?;
        let found = used.binary_search(&ino).is_ok();
        self.in_use.insert(group, used);
        Ok(found)
    }

    /// The inode, if it exists now.
    fn node(&mut self, ino: Ino) -> Result<Option<&mut ReplayedInode>, FsError> {
        let first = self.volume.sb.raw.s_first_ino.get();
        if ino.get() != special::ROOT && ino.get() < first {
            return Err(invalid("fc_ino", u64::from(ino.get()), inode_place(ino)));
        }
        if !self.nodes.contains_key(&ino) {
            if !self.was_in_use(ino)? {
                return Ok(None);
            }
            let node = self.load(ino)?;
            self.nodes.insert(ino, node);
        }
        Ok(self.nodes.get_mut(&ino).filter(|node| !node.removed))
    }

    fn load(&self, ino: Ino) -> Result<ReplayedInode, FsError> {
        let inode: Inode = self.volume.inodes().read(ino)?;
        let rest = inode.raw().get(INODE_CORE_SIZE..).unwrap_or_default().to_vec();
        let mut node = ReplayedInode { core: inode.core, rest, ..ReplayedInode::fresh(0) };
        if inode.has_flag(flags::EXTENTS) && !inode.has_flag(flags::INLINE_DATA) {
            let map = self.volume.maps().block_map(&inode)?;
            node.runs = Some(map.runs);
            node.index = map.index.iter().map(|index| index.block).collect();
        }
        Ok(node)
    }

    fn set_inode(&mut self, ino: Ino, raw: &[u8]) -> Result<(), FsError> {
        let size = usize::from(self.volume.sb.inode_size) - INODE_CORE_SIZE;
        let core: InodeCore = parse(raw, 0).ok_or_else(|| truncated(inode_place(ino)))?;
        let rest = raw.get(INODE_CORE_SIZE..).unwrap_or_default();
        if self.node(ino)?.is_none() {
            self.nodes.insert(ino, ReplayedInode::fresh(size));
        }
        let Some(node) = self.nodes.get_mut(&ino) else { return Ok(()) };
        node.core = core;
        for (to, from) in node.rest.iter_mut().zip(rest) {
            *to = *from;
        }
        let mapped = matches!(node.kind(), Some(FileKind::Regular | FileKind::Directory));
        if node.has_flag(flags::INLINE_DATA) || !node.has_flag(flags::EXTENTS) {
            if mapped && !node.has_flag(flags::INLINE_DATA) {
                return Err(unsupported("a file without extents"));
            }
            let runs = node.runs.take().unwrap_or_default();
            self.freed.extend(runs.iter().map(|run| run.extent));
            self.freed.extend(node.index.drain(..).map(|block| Extent::new(block, 1)));
        } else if node.runs.is_none() {
            node.runs = Some(Vec::new());
        }
        Ok(())
    }

    /// The map of an inode, and the list of its freed blocks.
    #[allow(clippy::type_complexity, reason = "two halves of one borrow")]
    fn map(&mut self, ino: Ino) -> Result<Option<(&mut Vec<Mapping>, &mut Vec<Extent>)>, FsError> {
        if self.node(ino)?.is_none() {
            return Ok(None);
        }
        let runs = self.nodes.get_mut(&ino).and_then(|node| node.runs.as_mut());
        let runs = runs.ok_or_else(|| unsupported("a file without extents"))?;
        Ok(Some((runs, &mut self.freed)))
    }

    fn add_range(&mut self, ino: Ino, run: Mapping) -> Result<(), FsError> {
        self.volume.check_extent(run.extent, inode_place(ino))?;
        let limit = u64::from(u32::MAX);
        if run.lbn.get() + run.extent.len > limit {
            return Err(range("ee_block", run.lbn.get(), limit, inode_place(ino)));
        }
        let Some((runs, freed)) = self.map(ino)? else { return Ok(()) };
        maps::put(runs, run, freed);
        Ok(())
    }

    fn create(&mut self, name: &Dentry) -> Result<(), FsError> {
        let Some(node) = self.node(name.ino)? else {
            return Err(invalid("fc_ino", u64::from(name.ino.get()), inode_place(name.ino)));
        };
        node.core.i_links_count = 0.into();
        if node.kind() == Some(FileKind::Directory) {
            node.names = Some(Names { parent: name.parent, entries: BTreeMap::new() });
        }
        self.link(name)
    }

    fn link(&mut self, name: &Dentry) -> Result<(), FsError> {
        let Some(node) = self.node(name.ino)? else { return Ok(()) };
        let mode = u64::from(node.core.i_mode.get());
        let kind = node.kind().ok_or_else(|| invalid("i_mode", mode, inode_place(name.ino)))?;
        let Some(names) = self.names(name.parent)? else { return Ok(()) };
        if let std::collections::btree_map::Entry::Vacant(slot) =
            names.entries.entry(name.bytes.clone())
        {
            slot.insert((name.ino, kind));
            if let Some(node) = self.node(name.ino)? {
                node.add_links(1);
            }
        }
        Ok(())
    }

    fn unlink(&mut self, name: &Dentry) -> Result<(), FsError> {
        if self.node(name.ino)?.is_none() {
            return Ok(());
        }
        let Some(names) = self.names(name.parent)? else { return Ok(()) };
        let Some(&(found, _)) = names.entries.get(&name.bytes) else { return Ok(()) };
        // A name of another inode by now was renamed over: it stays, and the link is dropped all
        // the same.
        if found == name.ino {
            names.entries.remove(&name.bytes);
        }
        let Some(node) = self.node(name.ino)? else { return Ok(()) };
        node.add_links(-1);
        let empty = node.kind() == Some(FileKind::Directory) || node.core.i_links_count.get() == 0;
        if empty && name.ino.get() != special::ROOT {
            self.remove(name.ino);
        }
        Ok(())
    }

    fn remove(&mut self, ino: Ino) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        debug_assert!(!node.removed, "inode {ino} is removed once");
        node.removed = true;
        node.names = None;
        let runs = node.runs.take().unwrap_or_default();
        self.freed.extend(runs.iter().map(|run| run.extent));
        self.freed.extend(node.index.drain(..).map(|block| Extent::new(block, 1)));
        let high = u64::from(node.core.i_file_acl_high.get()) << 32;
        let attributes = high | u64::from(node.core.i_file_acl_lo.get());
        if attributes != 0 {
            self.released.push(BlockNo::new(attributes));
        }
    }

    /// The names of a directory, if it exists.
    fn names(&mut self, dir: Ino) -> Result<Option<&mut Names>, FsError> {
        let volume = self.volume;
        let Some(node) = self.node(dir)? else { return Ok(None) };
        if node.kind() != Some(FileKind::Directory) {
            return Err(invalid("fc_parent_ino", u64::from(dir.get()), inode_place(dir)));
        }
        if node.has_flag(flags::INLINE_DATA) {
            return Err(unsupported("names in an inline directory"));
        }
        if node.names.is_none() {
            node.names = Some(list(volume, dir)?);
        }
        Ok(node.names.as_mut())
    }
}

fn list(volume: &Volume, dir: Ino) -> Result<Names, FsError> {
    let inode = volume.inodes().read_directory(dir)?;
    let mut names = Names { parent: Ino::new(special::ROOT), entries: BTreeMap::new() };
    Directory::new(volume, &inode).read(0, &mut |entry| {
        match (entry.name, entry.kind) {
            (b".", _) => {}
            (b"..", _) => names.parent = entry.ino,
            (name, kind) => {
                let kind = kind.unwrap_or(FileKind::Regular);
                names.entries.insert(name.to_vec(), (entry.ino, kind));
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok(names)
}

fn unsupported(what: &str) -> FsError {
    FsError::Unsupported(format!("a fast commit in the journal that changes {what}"))
}
