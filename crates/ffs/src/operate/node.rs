//! Inodes in memory: what their bytes say, and what is not on the disk yet.

use super::FfsLive;
use super::reach::SeenIn;
use super::unsettled::Unsettled;
use crate::inode::{Inode, device_of, verify};
use crate::ondisk::{DIRECT, ROOT, check_hash};
use crate::superblock::Super;
use seekless_cache::ChangeId;
use seekless_fs::field::{index, invalid, range, truncated};
use seekless_fs::{Attr, DeviceNumber, FileKind, FsError, Location, Timestamp};
use seekless_units::Ino;
use smallvec::SmallVec;

/// Inodes kept at most, of those that nothing waits for.
pub(super) const MOST_NODES: usize = 32_768;
/// Most bytes of an inode of either format.
pub(super) const LARGEST: usize = 256;

/// Bits of `di_flags` that forbid things, of users and of the system.
pub(super) mod flag {
    pub(crate) const IMMUTABLE: u32 = 0x0002_0002;
    pub(crate) const APPEND: u32 = 0x0004_0004;
    pub(crate) const NO_UNLINK: u32 = 0x0010_0010;
    pub(crate) const SNAPSHOT: u32 = 0x0020_0000;
}

/// An inode.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) ino: Ino,
    pub(super) kind: FileKind,
    pub(super) perm: u16,
    /// Names on the disk, as far as it has been changed.
    pub(super) links: u16,
    /// Names there are for all who look (`i_effnlink`).
    pub(super) effective: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    pub(super) sectors: u64,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
    pub(super) birth: Option<Timestamp>,
    pub(super) generation: u32,
    pub(super) flags: u32,
    /// How far a directory lies below the root, where that is recorded.
    pub(super) depth: u32,
    pub(super) direct: [u64; DIRECT],
    pub(super) indirect: [u64; 3],
    /// UFS2: bytes of extended attributes, and their blocks.
    pub(super) ext_size: u32,
    pub(super) ext: [u64; 2],
    /// The target of a symlink that lies where the block numbers would.
    pub(super) target: Option<Box<[u8]>>,
    /// Those who have it open.
    pub(super) holds: u32,
    /// Directories in which it has names, as far as they are known.
    pub(super) seen_in: SeenIn,
    /// Its names are there once these are on the disk, each in a directory.
    pub(super) named_by: SmallVec<[(Ino, ChangeId); 2]>,
    /// Of a directory: its end can be reached once these are on the disk.
    pub(super) reached_by: SmallVec<[ChangeId; 2]>,
    /// The changes of a new inode that the disk has nothing of yet, the oldest
    /// first.
    pub(super) fresh: SmallVec<[ChangeId; 4]>,
    /// The change that gave it its length: block numbers behind an earlier end
    /// that stand in indirect blocks wait for it.
    pub(super) sized: ChangeId,
    /// Its length before the write that is under way.
    pub(super) grown_from: Option<u64>,
    /// Of a directory: the link of its parent that its `..` is counted as. Each
    /// of its names waits for that.
    pub(super) parent_link: ChangeId,
    /// Its blocks count as free already.
    pub(super) counted_free: bool,
    /// Of a removed directory: the one of which the links count its `..`.
    pub(super) counted_in: Option<Ino>,
    /// What takes older names of it from the disk.
    pub(super) leaving: SmallVec<[ChangeId; 1]>,
    /// Of a directory: what takes the older names of directories from the disk
    /// that have come to be in it.
    pub(super) arriving: SmallVec<[ChangeId; 1]>,
    /// Of a regular file: where its contents may not be on the disk.
    pub(super) unsettled: Unsettled,
}

impl Node {
    /// A node that has nothing yet.
    pub(super) fn empty(ino: Ino, kind: FileKind) -> Self {
        Self {
            ino,
            kind,
            perm: 0,
            links: 0,
            effective: 0,
            uid: 0,
            gid: 0,
            size: 0,
            sectors: 0,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            birth: None,
            generation: 0,
            flags: 0,
            depth: 0,
            direct: [0; DIRECT],
            indirect: [0; 3],
            ext_size: 0,
            ext: [0; 2],
            target: None,
            holds: 0,
            seen_in: SeenIn::new(),
            named_by: SmallVec::new(),
            reached_by: SmallVec::new(),
            fresh: SmallVec::new(),
            sized: ChangeId::COMMITTED,
            grown_from: None,
            parent_link: ChangeId::COMMITTED,
            counted_free: false,
            counted_in: None,
            leaving: SmallVec::new(),
            arriving: SmallVec::new(),
            unsettled: Unsettled::default(),
        }
    }

    /// Whether its block numbers are such, and not a target or a device.
    pub(super) fn has_blocks(&self) -> bool {
        match self.kind {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => self.target.is_none(),
            _ => false,
        }
    }

    pub(super) fn is(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// What `statx` tells.
    pub(super) fn attr(&self) -> Attr {
        Attr {
            ino: self.ino,
            kind: self.kind,
            perm: self.perm,
            uid: self.uid,
            gid: self.gid,
            nlink: u32::from(self.effective),
            size: self.size,
            sectors: self.sectors,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            crtime: self.birth,
            device: device_of(self.kind, self.direct.first().copied().unwrap_or(0)),
            generation: self.generation,
            flags: crate::inode::linux_flags(self.flags),
            project: 0,
        }
    }
}

/// As FreeBSD's `makedev` puts it together.
pub(super) fn raw_device(device: DeviceNumber) -> u64 {
    let (major, minor) = (u64::from(device.major), u64::from(device.minor));
    (major & 0xFFFF_FF00) << 32 | (major & 0xFF) << 8 | (minor & 0xFF00) << 24 | minor & 0xFFFF_00FF
}

impl FfsLive {
    /// The node of an inode that is in use.
    pub(super) fn node(&mut self, ino: Ino) -> Result<&mut Node, FsError> {
        if !self.nodes.contains_key(&ino) {
            let mut node = self.load_node(ino)?;
            node.seen_in = self.reach.take_seen(ino);
            self.nodes.insert(ino, node);
        }
        self.nodes.get_mut(&ino).ok_or_else(|| gone(ino))
    }

    /// As [`FfsLive::node`], of one that has names.
    pub(super) fn named_node(&mut self, ino: Ino) -> Result<&mut Node, FsError> {
        let node = self.node(ino)?;
        if node.effective == 0 && node.holds == 0 { Err(gone(ino)) } else { Ok(node) }
    }

    /// The node of a directory.
    pub(super) fn dir_node(&mut self, ino: Ino) -> Result<&mut Node, FsError> {
        let node = self.node(ino)?;
        if node.kind == FileKind::Directory {
            Ok(node)
        } else {
            Err(FsError::NotDirectory(format!("inode {ino}")))
        }
    }

    fn load_node(&mut self, ino: Ino) -> Result<Node, FsError> {
        let (group, slot) = self.sb.inode_slot(ino)?;
        // Numbers below the root's are never files.
        if ino.get() < ROOT || !self.inode_in_use(group, slot)? {
            return Err(gone(ino));
        }
        let place = self.sb.inode_place(ino)?;
        let size = index(self.sb.inode_size());
        let block = self.cache.read(place.block, 0, index(self.sb.bsize))?;
        let lost = || truncated(Location::of("inode").in_inode(ino));
        let end = place.skip.saturating_add(size);
        let bytes = block.get(place.skip..end).ok_or_else(lost)?;
        if self.sb.has_check_hash(check_hash::INODE)
            && !self.ignore_checksums
            && !self.verified_inodes.contains(&ino)
        {
            verify(&self.sb, ino, bytes)?;
            // What has been changed since has the hash that it was read with.
            self.verified_inodes.insert(ino);
        }
        decode(&self.sb, ino, bytes)
    }

    /// Whether an inode is in use, and not about to be given back.
    pub(super) fn is_there(&mut self, ino: Ino) -> Result<bool, FsError> {
        if self.nodes.contains_key(&ino) {
            return Ok(true);
        }
        let (group, slot) = self.sb.inode_slot(ino)?;
        let place = self.sb.inode_place(ino)?;
        // Where the mode stands in both formats.
        let mode = self.cache.read(place.block, place.skip, 2)?;
        Ok(mode.iter().any(|&byte| byte != 0) && self.inode_in_use(group, slot)?)
    }

    /// Drops nodes that can be read again, when there are many.
    pub(super) fn drop_nodes(&mut self) {
        if self.nodes.len() < self.most_nodes {
            return;
        }
        let (cache, reach) = (&self.cache, &mut self.reach);
        let on_disk = |ids: &[ChangeId]| ids.iter().all(|&id| cache.is_committed(id));
        self.nodes.retain(|_, node| {
            let idle = node.holds == 0
                && node.links == node.effective
                && node.links > 0
                && node.named_by.iter().all(|&(_, id)| cache.is_committed(id))
                && on_disk(&node.reached_by)
                && on_disk(&node.leaving)
                && on_disk(&node.arriving)
                && on_disk(&node.fresh)
                // Else a number in an indirect block would not wait for the length.
                && on_disk(&[node.sized, node.parent_link])
                && node.unsettled.is_settled(cache);
            if idle {
                reach.keep_seen(node.ino, std::mem::take(&mut node.seen_in));
            }
            !idle
        });
        // Those that stay are in use: looked at again when there are many more.
        self.most_nodes = self.nodes.len().saturating_mul(2).max(MOST_NODES);
    }
}

pub(super) fn gone(ino: Ino) -> FsError {
    FsError::NotFound(format!("inode {ino}"))
}

/// An inode's bytes in native terms, checked.
pub(super) fn decode(sb: &Super, ino: Ino, bytes: &[u8]) -> Result<Node, FsError> {
    let place = Location::of("inode").in_inode(ino);
    let inode = Inode::decode(sb, ino, bytes)?;
    let Some(kind) = FileKind::from_mode(inode.mode()) else {
        return Err(invalid("di_mode", u64::from(inode.mode()), place));
    };
    let Ok(links) = u16::try_from(inode.nlink()) else {
        let links = inode.nlink().cast_unsigned();
        return Err(invalid("di_nlink", u64::from(links), place));
    };
    if i64::try_from(inode.len).is_err() {
        return Err(range("di_size", inode.len, i64::MAX.cast_unsigned(), place));
    }
    let area = u64::from(sb.bsize).saturating_mul(2);
    if u64::from(inode.ext_len) > area {
        return Err(range("di_extsize", u64::from(inode.ext_len), area, place));
    }
    let [atime, mtime, ctime] = inode.times;
    let mut node = Node {
        perm: inode.mode() & 0o7777,
        links,
        effective: links,
        uid: inode.uid,
        gid: inode.gid,
        size: inode.len,
        sectors: inode.sectors(),
        atime,
        mtime,
        ctime,
        birth: inode.birth,
        generation: inode.generation,
        flags: inode.flags,
        depth: if kind == FileKind::Directory { inode.depth } else { 0 },
        direct: inode.direct,
        indirect: inode.indirect,
        ext_size: inode.ext_len,
        ext: inode.ext_blocks,
        ..Node::empty(ino, kind)
    };
    if kind == FileKind::Symlink
        && let Some(target) = inode.short_target(sb)
    {
        node.target = Some(target?.into());
        (node.direct, node.indirect) = ([0; DIRECT], [0; 3]);
    }
    Ok(node)
}
