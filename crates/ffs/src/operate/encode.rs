//! Encodes inodes, and makes the changes for it.

use super::Ffs;
use super::map::Core;
use super::map::Node;
use crate::inode::numbers;
use crate::ondisk::{Dinode1, Dinode2};
use crate::superblock::{Format, Super};
use seekless_cache::{ChangeId, Piece, Role};
use seekless_fs::FsError;
use seekless_fs::field::{byte, index, low32};
use seekless_live::{Fields, Part, Raw, Table};
use seekless_units::{BlockNo, Ino};
use smallvec::smallvec;
use std::mem::offset_of;
use zerocopy::byteorder::LE;

/// A place in an inode of UFS1.
macro_rules! at1 {
    ($field:ident) => {
        offset_of!(Dinode1<LE>, $field)
    };
}

/// A place in an inode of UFS2.
macro_rules! at2 {
    ($field:ident) => {
        offset_of!(Dinode2<LE>, $field)
    };
}

/// The fields of a part, in bytes.
fn fields(sb: &Super, part: Part) -> Fields {
    let field = |at: usize, len: usize| at..at + len;
    let (numbers_at, room) = numbers(sb.format);
    let width = index(sb.pointer_size());
    let each = (0..room).step_by(width).map(|n| field(numbers_at + n, width));
    match (sb.format, part) {
        (Format::Ufs1, Part::Links) => smallvec![field(at1!(di_nlink), 2)],
        (Format::Ufs2, Part::Links) => smallvec![field(at2!(di_nlink), 2)],
        (Format::Ufs1, Part::Map | Part::Reach) => {
            [field(at1!(di_size), 8), field(at1!(di_blocks), 4)].into_iter().chain(each).collect()
        }
        (Format::Ufs2, Part::Map | Part::Reach) => {
            [field(at2!(di_size), 16), field(at2!(di_extsize), 20)]
                .into_iter()
                .chain(each)
                .collect()
        }
        (Format::Ufs1, Part::Attributes) => smallvec![
            field(at1!(di_mode), 2),
            field(at1!(di_oldids), 4),
            field(at1!(di_atime), 24),
            field(at1!(di_flags), 4),
            field(at1!(di_gen), 12),
        ],
        (Format::Ufs2, Part::Attributes) => smallvec![
            field(at2!(di_mode), 2),
            field(at2!(di_uid), 12),
            field(at2!(di_atime), 60),
            field(at2!(di_dirdepth), 4),
        ],
    }
}

/// Puts a node into the bytes of its inode; unknown bytes stay.
fn encode(sb: &Super, node: &Node, raw: &mut [u8]) {
    debug_assert_eq!(raw.len(), index(sb.inode_size()), "the bytes of one inode");
    debug_assert!(i16::try_from(node.links).is_ok(), "{} links", node.links);
    let order = sb.order;
    // The same places in both formats.
    order.put_u16(raw, at2!(di_mode), node.kind.mode_bits() | node.perm);
    order.put_u16(raw, at2!(di_nlink), node.links);
    if sb.format == Format::Ufs1 {
        first(sb, node, raw)
    } else {
        second(sb, node, raw)
    }
    put_numbers(sb, node, raw);
}

fn first(sb: &Super, node: &Node, raw: &mut [u8]) {
    let order = sb.order;
    let secs = |secs: i64| low32(secs.cast_unsigned());
    order.put_u64(raw, at1!(di_size), node.size);
    for (at, time) in
        [(at1!(di_atime), node.atime), (at1!(di_mtime), node.mtime), (at1!(di_ctime), node.ctime)]
    {
        order.put_u32(raw, at, secs(time.secs));
        order.put_u32(raw, at + 4, time.nanos);
    }
    for (at, word) in [
        (at1!(di_oldids), node.depth),
        (at1!(di_flags), node.flags),
        (at1!(di_blocks), low32(node.sectors)),
        (at1!(di_gen), node.generation),
        (at1!(di_uid), node.uid),
        (at1!(di_gid), node.gid),
    ] {
        order.put_u32(raw, at, word);
    }
}

fn second(sb: &Super, node: &Node, raw: &mut [u8]) {
    let order = sb.order;
    let birth = node.birth.unwrap_or_default();
    for (at, word) in [
        (at2!(di_size), node.size),
        (at2!(di_blocks), node.sectors),
        (at2!(di_atime), node.atime.secs.cast_unsigned()),
        (at2!(di_mtime), node.mtime.secs.cast_unsigned()),
        (at2!(di_ctime), node.ctime.secs.cast_unsigned()),
        (at2!(di_birthtime), birth.secs.cast_unsigned()),
        (at2!(di_extb), node.map.ext[0]),
        (at2!(di_extb) + 8, node.map.ext[1]),
    ] {
        order.put_u64(raw, at, word);
    }
    for (at, word) in [
        (at2!(di_uid), node.uid),
        (at2!(di_gid), node.gid),
        (at2!(di_atimensec), node.atime.nanos),
        (at2!(di_mtimensec), node.mtime.nanos),
        (at2!(di_ctimensec), node.ctime.nanos),
        (at2!(di_birthnsec), birth.nanos),
        (at2!(di_gen), node.generation),
        (at2!(di_flags), node.flags),
        (at2!(di_extsize), node.map.ext_size),
        (at2!(di_dirdepth), node.depth),
    ] {
        order.put_u32(raw, at, word);
    }
}

fn put_numbers(sb: &Super, node: &Node, raw: &mut [u8]) {
    let (at, room) = numbers(sb.format);
    if let Some(target) = &node.target {
        debug_assert!(target.len() <= room, "a target of {} bytes", target.len());
        if let Some(field) = raw.get_mut(at..at + room) {
            field.fill(0);
            field.iter_mut().zip(target.iter()).for_each(|(to, &from)| *to = from);
        }
        return;
    }
    let width = index(sb.pointer_size());
    let all = node.map.trees.direct.iter().chain(&node.map.trees.indirect);
    for (at, &number) in (at..).step_by(width).zip(all) {
        match sb.format {
            Format::Ufs1 => sb.order.put_u32(raw, at, low32(number)),
            Format::Ufs2 => sb.order.put_u64(raw, at, number),
        }
    }
}

impl Table for Ffs {
    type Map = super::map::Map;

    fn inode_place(&self, ino: Ino) -> Result<(BlockNo, usize), FsError> {
        let place = self.sb.inode_place(ino)?;
        Ok((place.block, place.skip))
    }

    fn inode_len(&self) -> usize {
        index(self.sb.inode_size())
    }

    fn encode(&self, node: &Node, raw: &mut [u8]) {
        encode(&self.sb, node, raw);
    }

    fn fields(&self, part: Part) -> Fields {
        let fields = fields(&self.sb, part);
        debug_assert!(fields.iter().all(|field| field.end <= self.inode_len()), "{fields:?}");
        fields
    }
}

impl Ffs {
    /// Writes a whole new inode.
    pub(super) fn put_new(
        &mut self,
        core: &mut Core,
        ino: Ino,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let mut raw: Raw = smallvec![0; self.inode_len()];
        encode(&self.sb, core.node(ino)?, &mut raw);
        if self.sb.format == Format::Ufs2 {
            self.sb.order.put_u32(&mut raw, at2!(di_blksize), self.sb.bsize);
        }
        // In the cache it gets no check hash: hashes are set only on write-out.
        self.verified_inodes.insert(ino);
        self.put_first(core, ino, &raw, after)
    }

    /// Makes an unreferenced inode as good as unused: all zeros except for its generation. Without
    /// blocks, no block could get a second owner, and there is no hurry.
    pub(super) fn put_cleared(
        &mut self,
        core: &mut Core,
        ino: Ino,
        has_blocks: bool,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let (block, skip) = self.inode_place(ino)?;
        let generation = core.nodes.get(&ino).map_or(0, |node| node.generation);
        let mut raw: Raw = smallvec![0; self.inode_len()];
        let at = if self.sb.format == Format::Ufs1 { at1!(di_gen) } else { at2!(di_gen) };
        self.sb.order.put_u32(&mut raw, at, generation);
        let piece = Piece { offset: byte(skip), bytes: &raw };
        let role = if has_blocks { Role::PointerClear } else { Role::InodeClear };
        core.cache.changes().change(block, &[piece], role, after)
    }

    /// The last generation of an unused inode.
    pub(super) fn last_generation(&mut self, core: &mut Core, ino: Ino) -> Result<u32, FsError> {
        let place = self.sb.inode_place(ino)?;
        let bytes = core.cache.blocks_mut().read(place.block, 0, index(self.sb.bsize))?;
        let at = if self.sb.format == Format::Ufs1 { at1!(di_gen) } else { at2!(di_gen) };
        Ok(self.sb.order.get_u32(bytes, place.skip + at).unwrap_or(0))
    }
}
