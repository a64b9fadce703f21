//! Inodes as bytes again.

use super::map::{Core, Map, Node};
use super::node::InodeTables;
use super::sums::{extra_len, sum_inode};
use crate::encode::device::device_words;
use crate::ondisk::{INODE_CORE_SIZE, InodeCore, InodeExtra, flags, incompat, ro_compat};
use seekless_cache::{ChangeId, Piece, Role};
use seekless_fs::field::{byte, index, low16, low32};
use seekless_fs::{FileKind, FsError, Timestamp};
use seekless_live::{Fields, Part, Raw, Table};
use seekless_units::{BlockNo, Ino};
use smallvec::{SmallVec, smallvec};
use std::mem::offset_of;
use std::ops::Range;

/// Bytes of a block number.
const NUMBER: usize = 4;

/// A field of the first 128 bytes.
macro_rules! core {
    ($name:ident) => {
        offset_of!(InodeCore, $name)
    };
}

/// A field behind them.
macro_rules! extra {
    ($name:ident) => {
        INODE_CORE_SIZE + offset_of!(InodeExtra, $name)
    };
}

fn put(raw: &mut [u8], at: usize, bytes: &[u8]) {
    let to = raw.get_mut(at..at + bytes.len());
    debug_assert!(to.is_some(), "the field lies in the inode");
    if let Some(to) = to {
        to.copy_from_slice(bytes);
    }
}

fn put32(raw: &mut [u8], at: usize, value: u32) {
    put(raw, at, &value.to_le_bytes());
}

fn put16(raw: &mut [u8], at: usize, value: u16) {
    put(raw, at, &value.to_le_bytes());
}

/// Seconds modulo 2^32, and the two bits of epoch with the nanoseconds.
fn time_words(time: Timestamp) -> (u32, u32) {
    debug_assert!(time.nanos < 1_000_000_000, "{} nanoseconds", time.nanos);
    debug_assert!(
        (0..1 << 34).contains(&(time.secs - i64::from(i32::MIN))),
        "times are cut to those that an inode can store"
    );
    let secs = low32(time.secs.cast_unsigned());
    let epoch = (time.secs - i64::from(secs.cast_signed())) >> 32;
    (secs, low32(epoch.cast_unsigned()) & 3 | time.nanos << 2)
}

/// Puts a node into the bytes of its inode.
fn encode(node: &Node, raw: &mut [u8]) {
    debug_assert_eq!(node.perm & !0o7777, 0, "permissions have twelve bits");
    put16(raw, core!(i_mode), node.kind.mode_bits() | node.perm);
    put16(raw, core!(i_links_count), node.links);
    for (low, high, value) in
        [(core!(i_uid), core!(i_uid_high), node.uid), (core!(i_gid), core!(i_gid_high), node.gid)]
    {
        put16(raw, low, low16(value));
        put16(raw, high, low16(value >> 16));
    }
    let size = node.recorded_size();
    put32(raw, core!(i_size_lo), low32(size));
    if node.kind == FileKind::Regular {
        put32(raw, core!(i_size_high), low32(size >> 32));
    }
    put32(raw, core!(i_dtime), node.map.deleted);
    put32(raw, core!(i_flags), node.flags);
    put32(raw, core!(i_generation), node.generation);
    put_times(node, raw);
    put_numbers(node, raw);
    if let Some(inner) = &node.map.inner {
        put(raw, INODE_CORE_SIZE + extra_len(raw), inner);
    }
}

fn put_times(node: &Node, raw: &mut [u8]) {
    let extra = INODE_CORE_SIZE + extra_len(raw);
    for (at, more, time) in [
        (core!(i_atime), extra!(i_atime_extra), Some(node.atime)),
        (core!(i_mtime), extra!(i_mtime_extra), Some(node.mtime)),
        (core!(i_ctime), extra!(i_ctime_extra), Some(node.ctime)),
        (extra!(i_crtime), extra!(i_crtime_extra), node.birth),
    ] {
        let Some(time) = time else { continue };
        let (secs, rest) = time_words(time);
        if at < INODE_CORE_SIZE || at + 4 <= extra {
            put32(raw, at, secs);
        }
        if more + 4 <= extra {
            put32(raw, more, rest);
        }
    }
}

fn put_numbers(node: &Node, raw: &mut [u8]) {
    let at = core!(i_block);
    let len = size_of::<crate::ondisk::IBlock>();
    if let Some(target) = &node.target {
        let mut field = [0; size_of::<crate::ondisk::IBlock>()];
        field.iter_mut().zip(target.iter()).for_each(|(to, &from)| *to = from);
        return put(raw, at, &field);
    }
    if node.has_blocks() && node.flags & (flags::EXTENTS | flags::INLINE_DATA) != 0 {
        return put(raw, at, &node.map.root.0);
    }
    if !node.has_blocks() {
        // Numbers that do not fit were refused when it was made.
        let words = device_words(node.device).unwrap_or_default();
        return (at..).step_by(NUMBER).zip(words).for_each(|(at, word)| put32(raw, at, word));
    }
    let all = node.map.trees.direct.iter().chain(&node.map.trees.indirect);
    debug_assert!(
        all.clone().all(|&number| u32::try_from(number).is_ok()),
        "block maps have numbers of 32 bits"
    );
    for (at, &number) in (at..at + len).step_by(NUMBER).zip(all) {
        put32(raw, at, low32(number));
    }
}

impl Table for InodeTables {
    type Map = Map;

    fn inode_place(&self, ino: Ino) -> Result<(BlockNo, usize), FsError> {
        self.layout().inode_place(ino)
    }

    fn inode_len(&self) -> usize {
        index(self.layout().sb().inode_size)
    }

    fn seals_inodes(&self) -> bool {
        self.layout().has_sums()
    }

    fn seal_inode(&self, ino: Ino, raw: &mut [u8]) -> Fields {
        sum_inode(self.layout().sb(), ino, raw)
    }

    fn encode(&self, node: &Node, raw: &mut [u8]) {
        encode(node, raw);
        self.put_wide(node, raw);
    }

    fn fields(&self, part: Part) -> Fields {
        let field = |at: usize, len: usize| at..at + len;
        match part {
            // A deleted inode without links has its deletion time in the same sector.
            Part::Links => smallvec![field(core!(i_links_count), 2), field(core!(i_dtime), 4)],
            Part::Map | Part::Reach => {
                let numbers = (0..size_of::<crate::ondisk::IBlock>()).step_by(NUMBER);
                [
                    field(core!(i_size_lo), 4),
                    field(core!(i_size_high), 4),
                    field(core!(i_blocks_lo), 4),
                    field(core!(i_blocks_high), 2),
                    field(core!(i_file_acl_lo), 4),
                    field(core!(i_file_acl_high), 2),
                ]
                .into_iter()
                .chain(numbers.map(|at| field(core!(i_block) + at, NUMBER)))
                .collect()
            }
            Part::Attributes => self.attribute_fields(),
        }
    }
}

impl InodeTables {
    fn attribute_fields(&self) -> Fields {
        let mut fields: SmallVec<[Range<usize>; 24]> = smallvec![
            core!(i_mode)..core!(i_size_lo),
            core!(i_atime)..core!(i_dtime),
            core!(i_gid)..core!(i_links_count),
            core!(i_flags)..core!(i_block),
            core!(i_generation)..core!(i_file_acl_lo),
            core!(i_uid_high)..core!(i_checksum_lo),
        ];
        if self.inode_len() > INODE_CORE_SIZE {
            fields.push(INODE_CORE_SIZE..self.inode_len());
        }
        fields
    }

    /// The bytes of a new inode.
    pub(super) fn new_bytes(&self, node: &Node) -> Raw {
        let mut raw: Raw = smallvec![0; self.inode_len()];
        if self.inode_len() > INODE_CORE_SIZE {
            put16(&mut raw, extra!(i_extra_isize), self.extra_isize());
        }
        self.encode(node, &mut raw);
        raw
    }

    /// Numbers whose upper halves exist on some volumes only: 48 bits of sectors, or of blocks
    /// where the inode's flags say so (`huge_file`; `ext4_inode_blocks_set` of `fs/ext4/inode.c`),
    /// and of a block number (`64bit`).
    fn put_wide(&self, node: &Node, raw: &mut [u8]) {
        let sb = self.layout().sb();
        let huge = sb.has_ro_compat(ro_compat::HUGE_FILE);
        let in_blocks = huge && node.flags & flags::HUGE_FILE != 0;
        let unit = if in_blocks { u64::from(sb.block_size / 512) } else { 1 };
        let count = node.sectors / unit;
        let (acl, deep) =
            (node.map.attributes.map_or(0, BlockNo::get), sb.has_incompat(incompat::BIT64));
        for (low, high, value, is_wide) in [
            (core!(i_blocks_lo), core!(i_blocks_high), count, huge),
            (core!(i_file_acl_lo), core!(i_file_acl_high), acl, deep),
        ] {
            // A count that was wrong on the disk may exceed the range.
            put32(raw, low, low32(value));
            if is_wide {
                put16(raw, high, low16(low32(value >> 32)));
            }
        }
    }

    /// Bytes of fields behind the first 128 that a new inode gets.
    pub(super) fn extra_isize(&self) -> u16 {
        let raw = &self.layout().sb().raw;
        let room = self.layout().sb().inode_size - low16(byte(INODE_CORE_SIZE));
        let all = crate::ondisk::INODE_EXTRA_SIZE;
        let wanted = raw.s_want_extra_isize.get().max(raw.s_min_extra_isize.get());
        let size = wanted.max(all).min(room).next_multiple_of(4);
        debug_assert!(size <= room, "the extra fields lie in the inode");
        size
    }

    /// Makes an inode as good as unused: without links and blocks, and with the time of deletion.
    /// All new bytes lie in one sector. The removal of its last name waits for it, with or without
    /// blocks.
    pub(super) fn put_cleared(
        &self,
        core: &mut Core,
        ino: Ino,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let deleted = low32(core.now().secs.cast_unsigned());
        // Smaller numbers would be those of orphans.
        let deleted = deleted.max(self.layout().sb().raw.s_inodes_count.get() + 1);
        let (block, skip) = self.layout().inode_place(ino)?;
        // No more than a sector needs: the rest is there for the checksum.
        let len = if self.layout().has_sums() { self.inode_len() } else { INODE_CORE_SIZE };
        let mut raw = Raw::from_slice(core.cache.blocks_mut().read(block, skip, len)?);
        for (at, len) in [
            (core!(i_links_count), 2),
            (core!(i_size_lo), 4),
            (core!(i_size_high), 4),
            (core!(i_blocks_lo), 4),
            (core!(i_blocks_high), 2),
            (core!(i_file_acl_lo), 4),
            (core!(i_file_acl_high), 2),
            (core!(i_block), size_of::<crate::ondisk::IBlock>()),
        ] {
            if let Some(field) = raw.get_mut(at..at + len) {
                field.fill(0);
            }
        }
        if seekless_fs::field::le32(&raw, core!(i_flags)).unwrap_or(0) & flags::EXTENTS != 0 {
            // e2fsck takes a block of inodes for garbage if too many have extents without a root
            // for them.
            put(&mut raw, core!(i_block), &super::extents::empty_root().0);
        }
        put32(&mut raw, core!(i_dtime), deleted);
        if self.layout().has_sums() {
            sum_inode(self.layout().sb(), ino, &mut raw);
        }
        let piece = Piece { offset: byte(skip), bytes: &raw };
        core.cache.changes().change(block, &[piece], Role::PointerClear, after)
    }

    /// The generation an unused inode was left with.
    pub(super) fn last_generation(&self, core: &mut Core, ino: Ino) -> Result<u32, FsError> {
        let (block, skip) = self.layout().inode_place(ino)?;
        let bytes = core.cache.blocks_mut().read(block, skip, INODE_CORE_SIZE)?;
        Ok(seekless_fs::field::le32(bytes, core!(i_generation)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_34_bits_of_seconds() {
        for secs in [0, -1, i64::from(i32::MIN), 1 << 31, (1 << 32) + 5, (1 << 34) - (1 << 31) - 1]
        {
            let (low, rest) = time_words(Timestamp { secs, nanos: 999_999_999 });
            let epoch = i64::from(rest & 3) << 32;
            assert_eq!(i64::from(low.cast_signed()) + epoch, secs);
            assert_eq!(rest >> 2, 999_999_999);
        }
    }
}
