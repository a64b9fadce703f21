//! Inodes in memory: what their bytes say, and what is not on the disk yet.

use super::FfsLive;
use crate::crc32c;
use crate::ondisk::{DIRECT, Dinode1, Dinode2, check_hash};
use crate::superblock::{Format, Order, Super, same};
use seekless_cache::ChangeId;
use seekless_fs::field::{index, invalid, parse, range, truncated, wide};
use seekless_fs::{Attr, DeviceNumber, FileKind, FsError, Location, Timestamp};
use seekless_units::{BlockNo, GroupNo, Ino};
use smallvec::SmallVec;
use std::mem::offset_of;
use zerocopy::byteorder::{BE, ByteOrder, LE, U64};

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
    /// Its last name leads from here, once these are on the disk.
    pub(super) name_in: Option<Ino>,
    pub(super) named_by: SmallVec<[ChangeId; 2]>,
    /// Of a directory: its end can be reached once these are on the disk.
    pub(super) reached_by: SmallVec<[ChangeId; 2]>,
    /// The changes of a new inode that the disk has nothing of yet, the oldest
    /// first.
    pub(super) fresh: SmallVec<[ChangeId; 4]>,
    /// Its blocks count as free already.
    pub(super) counted_free: bool,
    /// Of a removed directory: the one of which the links count its `..`.
    pub(super) counted_in: Option<Ino>,
    /// What takes older names of it from the disk.
    pub(super) leaving: SmallVec<[ChangeId; 1]>,
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
            name_in: None,
            named_by: SmallVec::new(),
            reached_by: SmallVec::new(),
            fresh: SmallVec::new(),
            counted_free: false,
            counted_in: None,
            leaving: SmallVec::new(),
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
        let device = matches!(self.kind, FileKind::CharDevice | FileKind::BlockDevice)
            .then(|| self.direct.first().copied().map(device_of))
            .flatten();
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
            device: device.unwrap_or_default(),
            generation: self.generation,
            flags: crate::inode::linux_flags(self.flags),
            project: 0,
        }
    }
}

/// A device's number as FreeBSD's `major` and `minor` take it apart.
pub(super) fn device_of(raw: u64) -> DeviceNumber {
    let low = |value: u64| u32::try_from(value & 0xFFFF_FFFF).unwrap_or(0);
    DeviceNumber {
        major: low(raw >> 32) & 0xFFFF_FF00 | low(raw >> 8) & 0xFF,
        minor: low(raw >> 24) & 0xFF00 | low(raw) & 0xFFFF_00FF,
    }
}

/// As FreeBSD's `makedev` puts it together.
pub(super) fn raw_device(device: DeviceNumber) -> u64 {
    let (major, minor) = (u64::from(device.major), u64::from(device.minor));
    (major & 0xFFFF_FF00) << 32 | (major & 0xFF) << 8 | (minor & 0xFF00) << 24 | minor & 0xFFFF_00FF
}

/// Where an inode lies: the first fragment of its block, and the byte there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) block: BlockNo,
    pub(super) skip: usize,
}

/// A sound inode number's group, and its place in it.
pub(super) fn slot_of(sb: &Super, ino: Ino) -> Result<(GroupNo, u32), FsError> {
    let count = sb.inodes();
    if ino.get() >= count || ino.get() < 2 {
        let place = Location::of("inode number").in_inode(ino);
        return Err(range("inode", u64::from(ino.get()), u64::from(count), place));
    }
    let group = ino.get().checked_div(sb.ipg).unwrap_or(0);
    Ok((GroupNo::new(group), ino.get().checked_rem(sb.ipg).unwrap_or(0)))
}

pub(super) fn place_of(sb: &Super, ino: Ino) -> Result<Place, FsError> {
    let (group, slot) = slot_of(sb, ino)?;
    let size = sb.inode_size();
    let per_block = sb.bsize.checked_div(size).unwrap_or(1).max(1);
    let block = u64::from(slot.checked_div(per_block).unwrap_or(0));
    let within = slot.checked_rem(per_block).unwrap_or(0);
    Ok(Place {
        block: sb
            .in_group(group, sb.iblkno)
            .saturating_add(block.saturating_mul(u64::from(sb.frag))),
        skip: index(within.saturating_mul(size)),
    })
}

impl FfsLive {
    /// The node of an inode that is in use.
    pub(super) fn node(&mut self, ino: Ino) -> Result<&mut Node, FsError> {
        if !self.nodes.contains_key(&ino) {
            let node = self.load_node(ino)?;
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
        let (group, slot) = slot_of(&self.sb, ino)?;
        if !self.inode_in_use(group, slot)? {
            return Err(gone(ino));
        }
        let place = place_of(&self.sb, ino)?;
        let size = index(self.sb.inode_size());
        let block = self.cache.read(place.block, 0, index(self.sb.bsize))?;
        let lost = || truncated(Location::of("inode").in_inode(ino));
        let end = place.skip.saturating_add(size);
        let bytes = block.get(place.skip..end).ok_or_else(lost)?;
        if self.sb.has_check_hash(check_hash::INODE)
            && !self.ignore_checksums
            && self.verified_inodes.insert(ino)
        {
            verify(&self.sb, ino, bytes)?;
        }
        decode(&self.sb, ino, bytes)
    }

    /// Drops nodes that can be read again, when there are many.
    pub(super) fn drop_nodes(&mut self) {
        if self.nodes.len() < self.most_nodes {
            return;
        }
        let cache = &self.cache;
        let on_disk = |ids: &[ChangeId]| ids.iter().all(|&id| cache.is_committed(id));
        self.nodes.retain(|_, node| {
            let idle = node.holds == 0
                && node.links == node.effective
                && node.links > 0
                && on_disk(&node.named_by)
                && on_disk(&node.reached_by)
                && on_disk(&node.fresh);
            !idle
        });
        // Those that stay are in use: looked at again when there are many more.
        self.most_nodes = self.nodes.len().saturating_mul(2).max(MOST_NODES);
    }
}

pub(super) fn gone(ino: Ino) -> FsError {
    FsError::NotFound(format!("inode {ino}"))
}

fn verify(sb: &Super, ino: Ino, bytes: &[u8]) -> Result<(), FsError> {
    let at = offset_of!(Dinode2<LE>, di_ckhash);
    let stored = sb.order.get_u32(bytes, at).unwrap_or(0);
    let mut copy = bytes.to_vec();
    sb.order.put_u32(&mut copy, at, 0);
    same(stored, crc32c(&copy), Location::of("inode").in_inode(ino))
}

/// An inode's bytes in native terms, checked.
pub(super) fn decode(sb: &Super, ino: Ino, bytes: &[u8]) -> Result<Node, FsError> {
    let place = Location::of("inode").in_inode(ino);
    let lost = || truncated(place);
    let mode = sb.order.get_u16(bytes, 0).ok_or_else(lost)?;
    let Some(kind) = FileKind::from_mode(mode) else {
        return Err(invalid("di_mode", u64::from(mode), place));
    };
    let mut node = Node::empty(ino, kind);
    node.perm = mode & 0o7777;
    match (sb.format, sb.order) {
        (Format::Ufs1, Order::Little) => {
            first(&mut node, &parse::<Dinode1<LE>>(bytes, 0).ok_or_else(lost)?);
        }
        (Format::Ufs1, Order::Big) => {
            first(&mut node, &parse::<Dinode1<BE>>(bytes, 0).ok_or_else(lost)?);
        }
        (Format::Ufs2, Order::Little) => {
            second(&mut node, &parse::<Dinode2<LE>>(bytes, 0).ok_or_else(lost)?);
        }
        (Format::Ufs2, Order::Big) => {
            second(&mut node, &parse::<Dinode2<BE>>(bytes, 0).ok_or_else(lost)?);
        }
    }
    check(sb, &mut node, bytes)?;
    Ok(node)
}

fn check(sb: &Super, node: &mut Node, bytes: &[u8]) -> Result<(), FsError> {
    let place = Location::of("inode").in_inode(node.ino);
    if i16::try_from(node.links).is_err() {
        return Err(invalid("di_nlink", u64::from(node.links), place));
    }
    node.effective = node.links;
    if i64::try_from(node.size).is_err() {
        return Err(range("di_size", node.size, i64::MAX.cast_unsigned(), place));
    }
    let short = node.size < u64::from(sb.maxsymlinklen) || node.sectors == 0;
    if node.kind == FileKind::Symlink && short {
        let (at, room) = numbers(sb);
        let len = index(node.size);
        let target = bytes.get(at..at.saturating_add(len)).filter(|_| len <= room);
        let target = target.ok_or_else(|| range("di_size", node.size, wide(room), place))?;
        node.target = Some(target.into());
        (node.direct, node.indirect) = ([0; DIRECT], [0; 3]);
    }
    let area = u64::from(sb.bsize).saturating_mul(2);
    if u64::from(node.ext_size) > area {
        return Err(range("di_extsize", u64::from(node.ext_size), area, place));
    }
    Ok(())
}

/// Where the block numbers stand in an inode, and their bytes.
pub(super) fn numbers(sb: &Super) -> (usize, usize) {
    match sb.format {
        Format::Ufs1 => (offset_of!(Dinode1<LE>, di_db), 60),
        Format::Ufs2 => (offset_of!(Dinode2<LE>, di_db), 120),
    }
}

fn time(secs: i64, nanos: u32) -> Timestamp {
    Timestamp { secs, nanos: nanos.min(999_999_999) }
}

fn first<O: ByteOrder>(node: &mut Node, raw: &Dinode1<O>) {
    node.links = raw.di_nlink.get().cast_unsigned();
    (node.uid, node.gid) = (raw.di_uid.get(), raw.di_gid.get());
    (node.size, node.sectors) = (raw.di_size.get(), u64::from(raw.di_blocks.get()));
    node.atime = time(i64::from(raw.di_atime.get()), raw.di_atimensec.get());
    node.mtime = time(i64::from(raw.di_mtime.get()), raw.di_mtimensec.get());
    node.ctime = time(i64::from(raw.di_ctime.get()), raw.di_ctimensec.get());
    (node.generation, node.flags) = (raw.di_gen.get(), raw.di_flags.get());
    node.direct = raw.di_db.map(|number| u64::from(number.get()));
    node.indirect = raw.di_ib.map(|number| u64::from(number.get()));
}

fn second<O: ByteOrder>(node: &mut Node, raw: &Dinode2<O>) {
    node.links = raw.di_nlink.get().cast_unsigned();
    (node.uid, node.gid) = (raw.di_uid.get(), raw.di_gid.get());
    (node.size, node.sectors) = (raw.di_size.get(), raw.di_blocks.get());
    node.atime = time(raw.di_atime.get(), raw.di_atimensec.get());
    node.mtime = time(raw.di_mtime.get(), raw.di_mtimensec.get());
    node.ctime = time(raw.di_ctime.get(), raw.di_ctimensec.get());
    node.birth = Some(time(raw.di_birthtime.get(), raw.di_birthnsec.get()));
    (node.generation, node.flags) = (raw.di_gen.get(), raw.di_flags.get());
    node.depth = raw.di_dirdepth.get();
    node.direct = raw.di_db.map(U64::get);
    node.indirect = raw.di_ib.map(U64::get);
    (node.ext_size, node.ext) = (raw.di_extsize.get(), raw.di_extb.map(U64::get));
}
