//! Inodes: their places, checksums and fields.

use crate::checksum::crc32c;
use crate::group::Group;
use crate::ondisk::{
    INODE_CORE_SIZE, InodeCore, InodeExtra, XATTR_MAGIC, compat, flags, incompat, ro_compat,
};
use crate::volume::Volume;
use seekless_fs::field::{index, invalid, le32, parse, range, slice, truncated, wide};
use seekless_fs::read_cache::Block;
use seekless_fs::{
    Attr, DeviceNumber, FileKind, FsError, InodeLocation, Location, Timestamp, inode_flag,
};
use seekless_units::{BlockNo, Extent, Ino};
use std::mem::offset_of;

/// The offset of the low half of the checksum.
pub(crate) const CHECKSUM_LO_AT: usize = offset_of!(InodeCore, i_checksum_lo);
/// Bits of seconds in the `_extra` fields of times.
pub(crate) const EPOCH_BITS: u32 = 3;
/// The offset of the high half, from the inode's start.
pub(crate) const CHECKSUM_HI_AT: usize = INODE_CORE_SIZE + offset_of!(InodeExtra, i_checksum_hi);
/// The first bytes of an inode, which contain both fields of its checksum.
const SUMMED: usize = 256;
const _: () = assert!(CHECKSUM_HI_AT + 2 <= SUMMED);

/// The longest symlink target that is stored in the inode.
const FAST_SYMLINK_MAX: u64 = 59;

/// An inode, still in its block of the table.
#[derive(Clone)]
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    pub(crate) core: InodeCore,
    /// Fields past `i_extra_isize` are zero.
    extra: InodeExtra,
    block: Block,
    offset: usize,
    size: usize,
    /// Length in bytes.
    pub(crate) len: u64,
}

/// The seed of the checksums of an inode and of its own blocks; `seed` is the volume's.
pub(crate) fn seed_of(seed: u32, ino: u32, generation: u32) -> u32 {
    crc32c(crc32c(seed, &ino.to_le_bytes()), &generation.to_le_bytes())
}

/// The checksum of an inode's bytes, its own fields counting as zero: 32 bits if the inode has the
/// field for the high half, else 16.
pub(crate) fn inode_sum(bytes: &[u8], wide: bool, seed: u32) -> u32 {
    // In one piece: a sum of a few bytes costs as much as one of a hundred.
    let mut start = [0; SUMMED];
    let len = bytes.len().min(SUMMED);
    let (head, rest) = bytes.split_at(len);
    for (to, from) in start.iter_mut().zip(head) {
        *to = *from;
    }
    let fields = [(CHECKSUM_LO_AT, true), (CHECKSUM_HI_AT, wide)];
    for (at, _) in fields.into_iter().filter(|(_, is_there)| *is_there) {
        if let Some(field) = start.get_mut(at..at + 2) {
            field.fill(0);
        }
    }
    let crc = crc32c(seed, start.get(..len).unwrap_or_default());
    let crc = if rest.is_empty() { crc } else { crc32c(crc, rest) };
    if wide { crc } else { crc & 0xFFFF }
}

impl Volume {
    /// The inodes.
    pub(crate) fn inodes(&self) -> Inodes<'_> {
        Inodes { volume: self }
    }
}

/// Reads inodes; the meaning of some of their fields depends on features.
#[derive(Clone, Copy)]
pub(crate) struct Inodes<'a> {
    volume: &'a Volume,
}

impl<'a> Inodes<'a> {
    /// The volume that they lie in.
    pub(crate) fn volume(self) -> &'a Volume {
        self.volume
    }

    /// Where an inode lies.
    pub(crate) fn location(&self, ino: Ino) -> Result<InodeLocation, FsError> {
        let (number, slot) = self.volume.sb.inode_slot(ino)?;
        let group = self.volume.descriptors().read(number)?;
        let table = Extent::new(group.inode_table(), self.volume.sb.itable_blocks());
        self.volume.check_extent(table, Location::of("group descriptor").in_group(number))?;
        let (block, offset) = self.table_slot(table, slot);
        Ok(InodeLocation {
            block,
            offset: u32::try_from(offset).unwrap_or(0),
            table,
            used_end: self.used_table_end(&group, table),
        })
    }

    /// Block and byte of an inode in a table.
    pub(crate) fn table_slot(&self, table: Extent, slot: u32) -> (BlockNo, usize) {
        debug_assert!(slot < self.volume.sb.inodes_per_group, "slot {slot} of a table");
        let block_size = u64::from(self.volume.sb.block_size);
        let at = u64::from(slot) * u64::from(self.volume.sb.inode_size);
        let skip = at / block_size;
        let offset = at % block_size;
        (table.start + skip, index(offset))
    }

    /// The bytes of inodes that follow one another in the table of a group, read with one request past
    /// the cache.
    pub(crate) fn read_run(&self, first: Ino, count: u32) -> Result<Block, FsError> {
        let (number, slot) = self.volume.sb.inode_slot(first)?;
        debug_assert!(slot + count <= self.volume.sb.inodes_per_group, "inodes of one group");
        let group = self.volume.descriptors().read(number)?;
        let table = Extent::new(group.inode_table(), self.volume.sb.itable_blocks());
        self.volume.check_extent(table, Location::of("group descriptor").in_group(number))?;
        let (block, offset) = self.table_slot(table, slot);
        let mut bytes = vec![0; index(count) * index(self.volume.sb.inode_size)];
        self.volume.read_bytes(block, wide(offset), &mut bytes)?;
        Ok(Block::from(bytes))
    }

    /// The end of the part of an inode table that was ever used, in whole blocks
    /// as the kernel counts: a last block that is used in part is not counted.
    fn used_table_end(&self, group: &Group, table: Extent) -> BlockNo {
        if !self.volume.sb.has_group_checksums() {
            return table.end();
        }
        let used = self.volume.sb.inodes_per_group.saturating_sub(group.itable_unused());
        let bytes = u64::from(used) * u64::from(self.volume.sb.inode_size);
        let blocks = bytes / u64::from(self.volume.sb.block_size);
        table.start + blocks
    }

    /// The block with an inode's bytes, and their offset.
    pub(crate) fn table_block(&self, ino: Ino) -> Result<(Block, usize), FsError> {
        let at = self.location(ino)?;
        let block = self.volume.block(at.block, Location::of("inode table").in_inode(ino))?;
        Ok((block, index(at.offset)))
    }

    /// An inode's bytes on the disk, unchecked.
    pub(crate) fn bytes(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        let place = Location::of("inode").in_inode(ino);
        let (block, offset) = self.table_block(ino)?;
        let bytes = slice(&block, offset, index(self.volume.sb.inode_size));
        Ok(bytes.ok_or_else(|| truncated(place))?.to_vec())
    }

    /// Whether an inode was never in use: then its other fields are not looked at, even if they
    /// could not be right.
    pub(crate) fn is_unused(&self, ino: Ino) -> Result<bool, FsError> {
        let bytes = self.bytes(ino)?;
        let core: InodeCore =
            parse(&bytes, 0).ok_or_else(|| truncated(Location::of("inode").in_inode(ino)))?;
        if self.volume.sb.is_kept_unused(ino) {
            return Ok(is_idle(&core));
        }
        let is_mapped = core.i_block.0.iter().any(|&byte| byte != 0);
        Ok(core.i_links_count.get() == 0 && core.i_mode.get() == 0 && !is_mapped)
    }

    /// Reads an inode and checks its checksum and sizes.
    pub(crate) fn read(&self, ino: Ino) -> Result<Inode, FsError> {
        let (block, offset) = self.table_block(ino)?;
        self.read_in(ino, block, offset)
    }

    /// The inode at a byte of a block, its checksum and sizes checked.
    pub(crate) fn read_in(&self, ino: Ino, block: Block, offset: usize) -> Result<Inode, FsError> {
        let place = Location::of("inode").in_inode(ino);
        let size = index(self.volume.sb.inode_size);
        let bytes = slice(&block, offset, size).ok_or_else(|| truncated(place))?;
        let core: InodeCore = parse(bytes, 0).ok_or_else(|| truncated(place))?;
        // e2fsck does not check the size of these fields in the volume's own inodes, nor where
        // nothing was ever written.
        let is_sized = core.i_mode.get() != 0 && !self.volume.sb.is_own(ino);
        let extra = parse_extra(bytes, is_sized, place)?;
        let mut inode = Inode { ino, core, extra, block, offset, size, len: 0 };
        inode.len = self.file_len(&inode, place)?;
        self.verify(&inode, place)?;
        Ok(inode)
    }

    fn file_len(&self, inode: &Inode, place: Location) -> Result<u64, FsError> {
        let low = u64::from(inode.core.i_size_lo.get());
        let high = u64::from(inode.core.i_size_high.get());
        let wide = inode.kind() == Some(FileKind::Regular)
            || self.volume.sb.has_incompat(incompat::LARGEDIR);
        let len = if wide { (high << 32) | low } else { low };
        if i64::try_from(len).is_err() {
            return Err(range("i_size", len, i64::MAX.cast_unsigned(), place));
        }
        Ok(len)
    }

    /// Compares the checksum of an inode.
    pub(crate) fn verify(&self, inode: &Inode, place: Location) -> Result<(), FsError> {
        if !self.volume.sb.has_metadata_csum() || self.volume.ignore_checksums {
            return Ok(());
        }
        let wide = covers(&inode.extra, offset_of!(InodeExtra, i_checksum_hi), 2);
        let crc = inode_sum(inode.raw(), wide, self.seed(inode));
        let high = if wide { u32::from(inode.extra.i_checksum_hi.get()) } else { 0 };
        self.volume.verify((high << 16) | u32::from(inode.core.i_checksum_lo.get()), crc, place)
    }

    /// Whether the checksum in the bytes of an inode is right, where there is one, whatever the size
    /// of its fields says.
    pub(crate) fn is_sealed(&self, ino: Ino, bytes: &[u8]) -> bool {
        let Some(core) = parse::<InodeCore>(bytes, 0) else { return false };
        let extra = parse_extra(bytes, false, Location::of("inode")).unwrap_or_default();
        let is_wide = covers(&extra, offset_of!(InodeExtra, i_checksum_hi), 2);
        let seed = seed_of(self.volume.sb.checksum_seed, ino.get(), core.i_generation.get());
        let high = if is_wide { u32::from(extra.i_checksum_hi.get()) } else { 0 };
        let stored = (high << 16) | u32::from(core.i_checksum_lo.get());
        !self.volume.sb.has_metadata_csum() || inode_sum(bytes, is_wide, seed) == stored
    }

    /// The seed of the checksums of an inode's own blocks.
    pub(crate) fn seed(&self, inode: &Inode) -> u32 {
        seed_of(self.volume.sb.checksum_seed, inode.ino.get(), inode.core.i_generation.get())
    }

    /// An inode that is in use and has a known kind.
    pub(crate) fn read_live(&self, ino: Ino) -> Result<(Inode, FileKind), FsError> {
        let inode = self.read(ino)?;
        let place = Location::of("inode").in_inode(ino);
        let mode = inode.core.i_mode.get();
        let Some(kind) = inode.kind() else {
            return Err(invalid("i_mode", u64::from(mode), place));
        };
        if inode.core.i_links_count.get() == 0 && !self.volume.sb.is_reserved(ino) {
            return Err(invalid("i_links_count", 0, place));
        }
        Ok((inode, kind))
    }

    /// A directory's inode.
    pub(crate) fn read_directory(&self, ino: Ino) -> Result<Inode, FsError> {
        match self.read_live(ino)? {
            (inode, FileKind::Directory) => Ok(inode),
            _ => Err(FsError::NotDirectory(format!("inode {ino}"))),
        }
    }

    /// The fields of `statx`.
    pub(crate) fn attr(&self, inode: &Inode, kind: FileKind) -> Attr {
        let core = &inode.core;
        let crtime = inode
            .has_extra(offset_of!(InodeExtra, i_crtime), 4)
            .then(|| inode.time(inode.extra.i_crtime.get(), inode.extra.i_crtime_extra.get()));
        let project = self.volume.sb.has_ro_compat(ro_compat::PROJECT);
        Attr {
            ino: inode.ino,
            kind,
            perm: core.i_mode.get() & 0o7777,
            uid: (u32::from(core.i_uid_high.get()) << 16) | u32::from(core.i_uid.get()),
            gid: (u32::from(core.i_gid_high.get()) << 16) | u32::from(core.i_gid.get()),
            nlink: u32::from(core.i_links_count.get()),
            size: inode.len,
            sectors: self.sectors(inode),
            atime: inode.time(core.i_atime.get(), inode.extra.i_atime_extra.get()),
            mtime: inode.time(core.i_mtime.get(), inode.extra.i_mtime_extra.get()),
            ctime: inode.time(core.i_ctime.get(), inode.extra.i_ctime_extra.get()),
            crtime,
            device: inode.device(kind),
            generation: core.i_generation.get(),
            // Not those of other formats, whose bits mean nothing here.
            flags: core.i_flags.get() & !(inode_flag::HIDDEN | inode_flag::SYSTEM),
            project: if project { inode.extra.i_projid.get() } else { 0 },
        }
    }

    /// Disk space an inode occupies, in 512-byte units.
    fn sectors(&self, inode: &Inode) -> u64 {
        let allocated = self.allocated_sectors(inode);
        // A mount counts a file's inline data as if it had blocks.
        let inline = inode.has_flag(flags::INLINE_DATA) && inode.kind() == Some(FileKind::Regular);
        if inline { allocated + inode.len.div_ceil(512) } else { allocated }
    }

    /// `i_blocks` in 512-byte units.
    pub(crate) fn allocated_sectors(&self, inode: &Inode) -> u64 {
        let low = u64::from(inode.core.i_blocks_lo.get());
        if !self.volume.sb.has_ro_compat(ro_compat::HUGE_FILE) {
            return low;
        }
        let count = (u64::from(inode.core.i_blocks_high.get()) << 32) | low;
        if inode.has_flag(flags::HUGE_FILE) {
            count * u64::from(self.volume.sb.block_size >> 9)
        } else {
            count
        }
    }

    /// The block of extended attributes outside the inode, if there is one.
    pub(crate) fn xattr_block_of(&self, inode: &Inode) -> Option<BlockNo> {
        let bit64 = self.volume.sb.has_incompat(incompat::BIT64);
        let high = if bit64 { u64::from(inode.core.i_file_acl_high.get()) } else { 0 };
        let number = (high << 32) | u64::from(inode.core.i_file_acl_lo.get());
        // e2fsck passes over an attribute block outside the volume in an inode of the volume's own:
        // `mark_inode_bad` is acted upon in pass 2, where names lead to inodes.
        let is_nameless = self.volume.sb.is_own(inode.ino);
        let is_nowhere = number >= self.volume.sb.blocks && is_nameless;
        (number != 0 && !is_nowhere).then(|| BlockNo::new(number))
    }

    /// Whether an inode holds the value of an attribute, also where the feature for it is lost (as
    /// e2fsck has it).
    pub(crate) fn is_value(&self, inode: &Inode) -> bool {
        inode.has_flag(flags::EA_INODE)
    }

    /// Whether a symlink's target lies in `i_block`, decided as the kernel does; one that is too
    /// long for it does not, for any `i_blocks` and `i_file_acl`.
    pub(crate) fn is_fast_symlink(&self, inode: &Inode) -> bool {
        if inode.has_flag(flags::INLINE_DATA) || inode.kind() != Some(FileKind::Symlink) {
            return false;
        }
        if self.volume.sb.has_incompat(incompat::EA_INODE) || inode.len > FAST_SYMLINK_MAX {
            return inode.len <= FAST_SYMLINK_MAX;
        }
        let cluster =
            u64::from(self.volume.sb.block_size) * u64::from(self.volume.sb.cluster_ratio);
        let attributes = if self.xattr_block_of(inode).is_some() { cluster >> 9 } else { 0 };
        self.allocated_sectors(inode) <= attributes
    }

    /// Whether a directory is hashed.
    pub(crate) fn is_hashed(&self, inode: &Inode) -> bool {
        self.volume.sb.has_compat(compat::DIR_INDEX)
            && inode.has_flag(flags::INDEX)
            && !inode.has_flag(flags::INLINE_DATA)
    }
}

/// Where the `_extra` fields of times after the year 2310 lie behind an [`InodeCore`]: the seconds are
/// negative, with both bits of epoch. Attributes may begin in the place of these fields.
pub(crate) fn late_times(core: &InodeCore, fields: &[u8]) -> Vec<usize> {
    let size = fields.first_chunk().map_or(0, |size| usize::from(u16::from_le_bytes(*size)));
    let end = if le32(fields, size) == Some(XATTR_MAGIC) { size } else { fields.len() };
    let crtime = le32(fields, offset_of!(InodeExtra, i_crtime)).unwrap_or(0);
    let times = [
        (core.i_atime.get(), offset_of!(InodeExtra, i_atime_extra)),
        (core.i_ctime.get(), offset_of!(InodeExtra, i_ctime_extra)),
        (core.i_mtime.get(), offset_of!(InodeExtra, i_mtime_extra)),
        (crtime, offset_of!(InodeExtra, i_crtime_extra)),
    ];
    let is_late = |&(secs, at): &(u32, usize)| {
        let extra = le32(fields, at).filter(|_| at + size_of::<u32>() <= end);
        secs.cast_signed() < 0 && extra.is_some_and(|it| it & EPOCH_BITS == EPOCH_BITS)
    };
    times.into_iter().filter(is_late).map(|(_, at)| at).collect()
}

impl Inode {
    /// All bytes of the inode.
    pub(crate) fn raw(&self) -> &[u8] {
        slice(&self.block, self.offset, self.size).unwrap_or_default()
    }

    /// Whether an inode reserved for something that the volume does not have has no contents
    /// (e2fsck, `PR_1_JOURNAL_INODE_NOT_CLEAR`).
    pub(crate) fn is_idle(&self) -> bool {
        is_idle(&self.core)
    }

    /// Its file type, if its mode has a known one.
    pub(crate) fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.core.i_mode.get())
    }

    /// Whether `i_flags` has the bit.
    pub(crate) fn has_flag(&self, bit: u32) -> bool {
        self.core.i_flags.get() & bit != 0
    }

    /// The bytes behind the extra fields, where attributes may stand.
    pub(crate) fn tail(&self) -> &[u8] {
        if self.size <= INODE_CORE_SIZE {
            return &[];
        }
        let start = INODE_CORE_SIZE + index(self.extra.i_extra_isize.get());
        self.raw().get(start..).unwrap_or_default()
    }

    /// Whether a time is after the year 2310, in an inode behind whose fields attributes may begin.
    pub(crate) fn has_late_times(&self) -> bool {
        let fields = self.raw().get(INODE_CORE_SIZE..).unwrap_or_default();
        let size = index(self.extra.i_extra_isize.get());
        size + size_of::<u32>() < fields.len() && !late_times(&self.core, fields).is_empty()
    }

    /// Whether `i_extra_isize` covers a field of [`InodeExtra`].
    fn has_extra(&self, at: usize, len: usize) -> bool {
        covers(&self.extra, at, len)
    }

    /// Seconds with 2 more bits of epoch and 30 bits of nanoseconds.
    fn time(&self, secs: u32, extra: u32) -> Timestamp {
        let epoch = i64::from(extra & EPOCH_BITS) << 32;
        let secs = i64::from(secs.cast_signed()) + epoch;
        Timestamp { secs, nanos: (extra >> 2).min(999_999_999) }
    }

    /// The device number of a device node, in the old or the new encoding.
    fn device(&self, kind: FileKind) -> DeviceNumber {
        if !matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) {
            return DeviceNumber::default();
        }
        let old = le32(&self.core.i_block.0, 0).unwrap_or(0);
        if old != 0 {
            return DeviceNumber { major: (old >> 8) & 0xFF, minor: old & 0xFF };
        }
        let new = le32(&self.core.i_block.0, 4).unwrap_or(0);
        DeviceNumber {
            major: (new & 0xF_FF00) >> 8,
            minor: (new & 0xFF) | ((new >> 12) & 0xF_FF00),
        }
    }
}

/// Without links, sectors and a first block.
fn is_idle(core: &InodeCore) -> bool {
    core.i_links_count.get() == 0
        && core.i_blocks_lo.get() == 0
        && le32(&core.i_block.0, 0) == Some(0)
}

/// Whether `i_extra_isize` covers a field.
fn covers(extra: &InodeExtra, at: usize, len: usize) -> bool {
    at + len <= index(extra.i_extra_isize.get())
}

/// The fields behind the first 128 bytes, as far as they exist; with `is_sized` their size must be
/// a possible one.
fn parse_extra(bytes: &[u8], is_sized: bool, place: Location) -> Result<InodeExtra, FsError> {
    let Some(rest) = bytes.get(INODE_CORE_SIZE..).filter(|rest| !rest.is_empty()) else {
        return Ok(InodeExtra::default());
    };
    let have = rest.first_chunk().map_or(0, |pair| u16::from_le_bytes(*pair));
    if is_sized && (index(have) > rest.len() || have & 3 != 0) {
        return Err(range(
            "i_extra_isize",
            u64::from(have),
            seekless_fs::field::wide(rest.len()),
            place,
        ));
    }
    let mut whole = [0; size_of::<InodeExtra>()];
    for (to, from) in whole.iter_mut().zip(rest.iter().take(index(have))) {
        *to = *from;
    }
    parse(&whole, 0).ok_or_else(|| truncated(place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    /// Attributes that begin where a time could be are none.
    #[test]
    fn a_late_time_is_no_attribute() {
        let before_1970 = u32::MAX.into();
        let core = InodeCore { i_mtime: before_1970, ..InodeCore::new_zeroed() };
        let mut fields = [0; 128];
        let at = offset_of!(InodeExtra, i_mtime_extra);
        (fields[0], fields[at]) = (4, 7);
        assert_eq!(late_times(&core, &fields), [at]);
        fields[4..8].copy_from_slice(&XATTR_MAGIC.to_le_bytes());
        assert_eq!(late_times(&core, &fields), [0usize; 0]);
        fields[0] = 32;
        assert_eq!(late_times(&core, &fields), [at]);
    }
}
