//! Inodes as bytes again, and the changes that brings.

use super::Node;
use super::node::LARGEST;
use super::{Core, Ffs};
use crate::inode::numbers;
use crate::ondisk::{Dinode1, Dinode2};
use crate::superblock::{Format, Super};
use seekless_cache::{ChangeId, Changed, Piece, Role};
use seekless_fs::field::{byte, index, low32, truncated};
use seekless_fs::{FsError, Location};
use seekless_units::Ino;
use smallvec::{SmallVec, smallvec};
use std::mem::offset_of;
use std::ops::Range;
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

/// An inode's bytes.
pub(super) struct Raw {
    bytes: [u8; LARGEST],
    len: usize,
}

impl Raw {
    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn part(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }
}

/// What a change of an inode is about: which of its bytes may differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// The number of links.
    Links,
    /// Size, blocks, and block numbers, a piece for each.
    Blocks,
    /// As `Blocks`, and the size in any case: a number that leads to indirect
    /// blocks is not there without the length that reaches them.
    Reach,
    /// All else.
    Attributes,
}

/// The pieces of a part, in bytes.
fn pieces(sb: &Super, part: Part) -> SmallVec<[Range<usize>; 24]> {
    let field = |at: usize, len: usize| at..at.saturating_add(len);
    let (numbers_at, room) = numbers(sb.format);
    let width = index(sb.pointer_size());
    let each = (0..room).step_by(width.max(1)).map(|n| field(numbers_at.saturating_add(n), width));
    match (sb.format, part) {
        (Format::Ufs1, Part::Links) => smallvec![field(at1!(di_nlink), 2)],
        (Format::Ufs2, Part::Links) => smallvec![field(at2!(di_nlink), 2)],
        (Format::Ufs1, Part::Blocks | Part::Reach) => {
            [field(at1!(di_size), 8), field(at1!(di_blocks), 4)].into_iter().chain(each).collect()
        }
        (Format::Ufs2, Part::Blocks | Part::Reach) => {
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

/// Puts a node into the bytes of its inode; what is not known of them stays.
pub(super) fn encode(sb: &Super, node: &Node, raw: &mut [u8]) {
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
        order.put_u32(raw, at.saturating_add(4), time.nanos);
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
        (at2!(di_extb).saturating_add(8), node.map.ext[1]),
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
        if let Some(field) = raw.get_mut(at..at.saturating_add(room)) {
            field.fill(0);
            field.iter_mut().zip(target.iter()).for_each(|(to, &from)| *to = from);
        }
        return;
    }
    let width = index(sb.pointer_size());
    let all = node.map.trees.direct.iter().chain(&node.map.trees.indirect);
    for (at, &number) in (at..).step_by(width.max(1)).zip(all) {
        match sb.format {
            Format::Ufs1 => sb.order.put_u32(raw, at, low32(number)),
            Format::Ufs2 => sb.order.put_u64(raw, at, number),
        }
    }
}

impl Ffs {
    /// An inode's bytes as they are, and as its node would have them.
    fn old_and_new(&mut self, core: &mut Core, ino: Ino) -> Result<(Raw, Raw), FsError> {
        let place = self.sb.inode_place(ino)?;
        let len = index(self.sb.inode_size());
        let held = core.cache.read(place.block, place.skip, len)?;
        let mut old = Raw { bytes: [0; LARGEST], len };
        let to = old.bytes.get_mut(..len).ok_or_else(|| truncated(Location::of("inode")))?;
        to.copy_from_slice(held);
        let mut new = Raw { bytes: old.bytes, len };
        let node = core.nodes.get(&ino).ok_or_else(|| seekless_live::gone(ino))?;
        if let Some(raw) = new.bytes.get_mut(..len) {
            encode(&self.sb, node, raw);
        }
        Ok((old, new))
    }

    /// Writes one part of a node into its inode, after what must be on the disk
    /// before; with `instead` in the place of an earlier such change, which need
    /// not wait for that any more.
    pub(super) fn put_part(
        &mut self,
        core: &mut Core,
        ino: Ino,
        part: Part,
        role: Role,
        after: &[ChangeId],
        instead: Option<&[ChangeId]>,
    ) -> Result<Changed, FsError> {
        let (old, new) = self.old_and_new(core, ino)?;
        let all = pieces(&self.sb, part);
        let size = all.first().cloned().filter(|_| matches!(part, Part::Reach));
        let differs = |at: &Range<usize>| old.part(at) != new.part(at) || size.as_ref() == Some(at);
        let differing: SmallVec<[Range<usize>; 24]> = all.into_iter().filter(differs).collect();
        let changed: SmallVec<[Piece<'_>; 8]> = differing
            .iter()
            .map(|at| Piece { offset: 0, bytes: new.part(at) })
            .zip(&differing)
            .map(|(piece, at)| Piece { offset: byte(at.start), ..piece })
            .collect();
        if changed.is_empty() {
            return Ok(Changed { id: ChangeId::COMMITTED, replaced: false });
        }
        let place = self.sb.inode_place(ino)?;
        // Offsets count from the block's start.
        let skip = byte(place.skip);
        let changed: SmallVec<[Piece<'_>; 8]> = changed
            .iter()
            .map(|piece| Piece { offset: piece.offset.saturating_add(skip), ..*piece })
            .collect();
        let changed = if let Some(dropped) = instead {
            core.cache.replace(place.block, &changed, role, after, dropped)?
        } else {
            let id = core.cache.change(place.block, &changed, role, after)?;
            Changed { id, replaced: false }
        };
        core.note_fresh(ino, changed.id);
        Ok(changed)
    }

    /// Writes the number of links.
    pub(super) fn put_links(
        &mut self,
        core: &mut Core,
        ino: Ino,
        role: Role,
    ) -> Result<ChangeId, FsError> {
        Ok(self.put_part(core, ino, Part::Links, role, &[], None)?.id)
    }

    /// Writes size and block numbers.
    pub(super) fn put_blocks(
        &mut self,
        core: &mut Core,
        ino: Ino,
        role: Role,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        Ok(self.put_part(core, ino, Part::Blocks, role, after, None)?.id)
    }

    /// Writes times, mode, owner and the like, for which nothing waits.
    pub(super) fn put_attributes(&mut self, core: &mut Core, ino: Ino) -> Result<(), FsError> {
        let (old, new) = self.old_and_new(core, ino)?;
        let place = self.sb.inode_place(ino)?;
        for at in pieces(&self.sb, Part::Attributes) {
            let bytes = new.part(&at);
            if old.part(&at) == bytes {
                continue;
            }
            let skip = place.skip.saturating_add(at.start);
            core.cache.edit(place.block, skip, bytes.len(), Role::Attributes, |to| {
                to.copy_from_slice(bytes);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Writes a whole new inode.
    pub(super) fn put_new(
        &mut self,
        core: &mut Core,
        ino: Ino,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let place = self.sb.inode_place(ino)?;
        let len = index(self.sb.inode_size());
        let mut new = Raw { bytes: [0; LARGEST], len };
        let node = core.nodes.get(&ino).ok_or_else(|| seekless_live::gone(ino))?;
        if let Some(raw) = new.bytes.get_mut(..len) {
            encode(&self.sb, node, raw);
            if self.sb.format == Format::Ufs2 {
                self.sb.order.put_u32(raw, at2!(di_blksize), self.sb.bsize);
            }
        }
        let piece = Piece { offset: byte(place.skip), bytes: new.bytes() };
        let id = core.cache.change(place.block, &[piece], Role::InodeInit, after)?;
        if let Some(node) = core.nodes.get_mut(&ino) {
            node.fresh = SmallVec::from_slice(&[id]);
        }
        // In the cache it gets no check hash: only what is written does.
        self.verified_inodes.insert(ino);
        Ok(id)
    }

    /// Makes an inode that nothing leads to any more as good as unused: all
    /// zeros but for its generation. Without blocks there is none that could get
    /// a second owner, and no hurry.
    pub(super) fn put_cleared(
        &mut self,
        core: &mut Core,
        ino: Ino,
        has_blocks: bool,
    ) -> Result<ChangeId, FsError> {
        let place = self.sb.inode_place(ino)?;
        let len = index(self.sb.inode_size());
        let generation = core.nodes.get(&ino).map_or(0, |node| node.generation);
        let mut new = Raw { bytes: [0; LARGEST], len };
        let at = if self.sb.format == Format::Ufs1 { at1!(di_gen) } else { at2!(di_gen) };
        self.sb.order.put_u32(&mut new.bytes, at, generation);
        let piece = Piece { offset: byte(place.skip), bytes: new.bytes() };
        let role = if has_blocks { Role::PointerClear } else { Role::InodeClear };
        core.cache.change(place.block, &[piece], role, &[])
    }

    /// The generation an unused inode was left with.
    pub(super) fn last_generation(&mut self, core: &mut Core, ino: Ino) -> Result<u32, FsError> {
        let place = self.sb.inode_place(ino)?;
        let bytes = core.cache.read(place.block, 0, index(self.sb.bsize))?;
        let at = if self.sb.format == Format::Ufs1 { at1!(di_gen) } else { at2!(di_gen) };
        Ok(self.sb.order.get_u32(bytes, place.skip.saturating_add(at)).unwrap_or(0))
    }
}
