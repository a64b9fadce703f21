//! Inodes from their bytes, and the fields of a file that only FFS has.

use super::Ffs;
use super::map::Map;
use super::map::{Core, Node};
use crate::inode::{Inode, device_of, verify};
use crate::ondisk::{ROOT, check_hash};
use crate::superblock::Super;
use seekless_fs::field::{index, invalid, range, truncated};
use seekless_fs::{FileKind, FsError, Location};
use seekless_live::indirect::Trees;
use seekless_live::{Restrictions, gone};
use seekless_units::Ino;

/// Bits of `di_flags` that forbid changes, by users and by the system.
mod flag {
    pub(super) const IMMUTABLE: u32 = 0x0002_0002;
    pub(super) const APPEND: u32 = 0x0004_0004;
    pub(super) const NO_UNLINK: u32 = 0x0010_0010;
    pub(super) const SNAPSHOT: u32 = 0x0020_0000;
}

pub(super) fn restrictions(flags: u32) -> Restrictions {
    Restrictions {
        immutable: flags & flag::IMMUTABLE != 0,
        append_only: flags & flag::APPEND != 0,
        no_unlink: flags & flag::NO_UNLINK != 0,
        snapshot: flags & flag::SNAPSHOT != 0,
    }
}

impl Ffs {
    pub(super) fn load_node(&mut self, core: &mut Core, ino: Ino) -> Result<Node, FsError> {
        let (group, slot) = self.sb.inode_slot(ino)?;
        // Numbers below the root's are never files.
        if ino.get() < ROOT || !self.allocator.groups_mut().inode_in_use(core, group, slot)? {
            return Err(gone(ino));
        }
        let place = self.sb.inode_place(ino)?;
        let size = index(self.sb.inode_size());
        let block = core.cache.blocks_mut().read(place.block, 0, index(self.sb.bsize))?;
        let lost = || truncated(Location::of("inode").in_inode(ino));
        let end = place.skip + size;
        let bytes = block.get(place.skip..end).ok_or_else(lost)?;
        if self.sb.has_check_hash(check_hash::INODE)
            && !self.ignore_checksums
            && !self.verified_inodes.contains(&ino)
        {
            verify(&self.sb, ino, bytes)?;
            // An inode that was changed since has the hash that it was read with.
            self.verified_inodes.insert(ino);
        }
        let mut node = decode(&self.sb, ino, bytes)?;
        node.restrictions = self.restrictions_of(ino, node.flags);
        Ok(node)
    }

    /// Whether a file is a quota file in use.
    fn is_quota_file(&self, ino: Ino) -> bool {
        self.quota_files.iter().any(|file| file.ino == ino)
    }

    /// Operations that the flags of a file forbid. Quota files in use are changed by nobody else.
    pub(super) fn restrictions_of(&self, ino: Ino, flags: u32) -> Restrictions {
        let restrictions = restrictions(flags);
        Restrictions {
            immutable: restrictions.immutable || self.is_quota_file(ino),
            ..restrictions
        }
    }

    /// Whether an inode that is not in memory is in use, and not about to be freed.
    pub(super) fn is_there(&mut self, core: &mut Core, ino: Ino) -> Result<bool, FsError> {
        let (group, slot) = self.sb.inode_slot(ino)?;
        let place = self.sb.inode_place(ino)?;
        // The mode has the same place in both formats.
        let mode = core.cache.blocks_mut().read(place.block, place.skip, 2)?;
        Ok(mode.iter().any(|&byte| byte != 0)
            && self.allocator.groups_mut().inode_in_use(core, group, slot)?)
    }
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
    // Changes add to it.
    let sectors = sb.size * u64::from(sb.fsize / 512);
    if inode.sectors() > sectors {
        return Err(range("di_blocks", inode.sectors(), sectors, place));
    }
    let area = u64::from(sb.bsize) * 2;
    if u64::from(inode.ext_len) > area {
        return Err(range("di_extsize", u64::from(inode.ext_len), area, place));
    }
    let [atime, mtime, ctime] = inode.times;
    let mut node = Node::empty(ino, kind);
    node.perm = inode.mode() & 0o7777;
    (node.links, node.effective) = (links, links);
    (node.uid, node.gid) = (inode.uid, inode.gid);
    (node.size, node.sectors) = (inode.len, inode.sectors());
    (node.atime, node.mtime, node.ctime) = (atime, mtime, ctime);
    node.birth = inode.birth;
    node.device = device_of(kind, inode.direct.first().copied().unwrap_or(0));
    node.generation = inode.generation;
    (node.flags, node.restrictions) = (inode.flags, restrictions(inode.flags));
    // It is a hint, and UFS1 once had other numbers there: no directory is as deep as there are
    // inodes.
    let deepest = sb.inodes() - 1;
    node.depth = if kind == FileKind::Directory { inode.depth.min(deepest) } else { 0 };
    node.map = Map {
        trees: Trees { direct: inode.direct, indirect: inode.indirect },
        ext_size: inode.ext_len,
        ext: inode.ext_blocks,
    };
    if kind == FileKind::Symlink
        && let Some(target) = inode.short_target(sb)
    {
        node.target = Some(target?.into());
        node.map.trees = Trees::default();
    }
    Ok(node)
}
