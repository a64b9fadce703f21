//! Encodes inode records as bytes of the inode table.

use crate::checksum::crc32c;
use crate::features::Features;
use crate::ondisk::{
    IBlock, INODE_CORE_SIZE, INODE_EXTRA_SIZE, InodeCore, InodeExtra, XATTR_MAGIC, XattrEntry,
    flags, incompat, ro_compat,
};
use seekless_fs::tree::OtherTimes;
use seekless_fs::{FileKind, Timestamp, inode_flag};
use seekless_units::{BlockNo, Ino};
use std::ops::Range;
use zerocopy::IntoBytes;

/// The maximum link count of an inode; directories with more have 1.
pub(crate) const MAX_LINKS: u32 = 65000;

/// An inode to be written.
#[derive(Clone, Debug)]
pub(crate) struct InodeRecord<'a> {
    pub(crate) kind: FileKind,
    pub(crate) perm: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) links: u32,
    pub(crate) mtime: Timestamp,
    pub(crate) times: OtherTimes,
    /// Blocks of data, map and attributes.
    pub(crate) blocks: u64,
    pub(crate) flags: u32,
    pub(crate) version: u64,
    pub(crate) i_block: IBlock,
    pub(crate) file_acl: Option<BlockNo>,
    /// The bytes behind `i_extra_isize`.
    pub(crate) in_inode: &'a [u8],
}

/// The common format of all inodes of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeFormat {
    pub(crate) features: Features,
    pub(crate) inode_size: u32,
    pub(crate) block_size: u32,
    /// Seed of the volume's checksums.
    pub(crate) checksum_seed: u32,
}

impl InodeFormat {
    /// Seed of the checksums of an inode's own blocks, for generation 0.
    pub(crate) fn seed(&self, ino: Ino) -> u32 {
        crc32c(crc32c(self.checksum_seed, &ino.get().to_le_bytes()), &0u32.to_le_bytes())
    }

    /// Writes `record` as inode `ino` into `out`, one inode long and zeroed.
    pub(crate) fn encode(&self, ino: Ino, record: &InodeRecord<'_>, out: &mut [u8]) {
        debug_assert_eq!(out.len(), self.inode_size as usize, "inode {ino} has its room");
        debug_assert!(record.links <= MAX_LINKS, "{} links of inode {ino}", record.links);
        let sectors = record.blocks * u64::from(self.block_size / 512);
        let (mut flags, mut i_blocks) = (record.flags, sectors);
        if sectors >= 1 << 48 {
            // `i_blocks` is counted in blocks instead of sectors.
            flags |= flags::HUGE_FILE;
            i_blocks = record.blocks;
        }
        let extra = self.inode_size as usize > INODE_CORE_SIZE;
        let fit = |time| storable(time, self.inode_size);
        let seconds = |time: Timestamp| fit(time).secs as u32;
        let acl = record.file_acl.map_or(0, BlockNo::get);
        let core = InodeCore {
            i_mode: (record.kind.mode_bits() | record.perm).into(),
            i_uid: (record.uid as u16).into(),
            i_size_lo: (record.size as u32).into(),
            i_atime: seconds(record.times.atime).into(),
            i_ctime: seconds(record.times.ctime).into(),
            i_mtime: seconds(record.mtime).into(),
            i_dtime: 0.into(),
            i_gid: (record.gid as u16).into(),
            i_links_count: (record.links as u16).into(),
            i_blocks_lo: (i_blocks as u32).into(),
            i_flags: flags.into(),
            i_version: (record.version as u32).into(),
            i_block: record.i_block,
            i_generation: 0.into(),
            i_file_acl_lo: (acl as u32).into(),
            i_size_high: ((record.size >> 32) as u32).into(),
            i_obso_faddr: 0.into(),
            i_blocks_high: ((i_blocks >> 32) as u16).into(),
            i_file_acl_high: ((acl >> 32) as u16).into(),
            i_uid_high: ((record.uid >> 16) as u16).into(),
            i_gid_high: ((record.gid >> 16) as u16).into(),
            i_checksum_lo: 0.into(),
            i_reserved: 0.into(),
        };
        out[..INODE_CORE_SIZE].copy_from_slice(core.as_bytes());
        if extra {
            let more = InodeExtra {
                i_extra_isize: INODE_EXTRA_SIZE.into(),
                i_ctime_extra: time_extra(fit(record.times.ctime)).into(),
                i_mtime_extra: time_extra(fit(record.mtime)).into(),
                i_atime_extra: time_extra(fit(record.times.atime)).into(),
                i_crtime: seconds(record.times.crtime).into(),
                i_crtime_extra: time_extra(fit(record.times.crtime)).into(),
                i_version_hi: ((record.version >> 32) as u32).into(),
                ..InodeExtra::default()
            };
            let end = INODE_CORE_SIZE + size_of::<InodeExtra>();
            out[INODE_CORE_SIZE..end].copy_from_slice(more.as_bytes());
            out[end..end + record.in_inode.len()].copy_from_slice(record.in_inode);
        }
        if self.features.has_ro_compat(ro_compat::METADATA_CSUM) {
            seal(out, self.seed(ino));
        }
    }
}

/// Sets an inode's checksum, the fields for it being zero. `seed` is the
/// inode's own.
pub(crate) fn seal(inode: &mut [u8], seed: u32) {
    let sum = crc32c(seed, inode);
    let lo = std::mem::offset_of!(InodeCore, i_checksum_lo);
    inode[lo..lo + 2].copy_from_slice(&(sum as u16).to_le_bytes());
    if inode.len() > INODE_CORE_SIZE {
        let hi = INODE_CORE_SIZE + std::mem::offset_of!(InodeExtra, i_checksum_hi);
        inode[hi..hi + 2].copy_from_slice(&((sum >> 16) as u16).to_le_bytes());
    }
}

/// Seconds since 1970 whose lower 32 bits are negative and whose epoch is 3: April 2310 to April
/// 2378. Older kernels encoded times before 1970 so, and e2fsck takes them for these
/// (`CHECK_INODE_EXTRA_NEGATIVE_EPOCH` of its pass1.c).
const DOUBTFUL: Range<i64> = (3 << 32) - (1 << 31)..3 << 32;

/// The nearest time that an inode can store: 34 bits of seconds from 1901 on, without those that
/// checks take for others; 32 in inodes without the extra fields.
pub(crate) fn storable(time: Timestamp, inode_size: u32) -> Timestamp {
    let first = i64::from(i32::MIN);
    let last = if inode_size as usize > INODE_CORE_SIZE {
        first + (1 << 34) - 1
    } else {
        i64::from(i32::MAX)
    };
    match time.secs {
        secs if secs < first => Timestamp { secs: first, nanos: 0 },
        secs if secs > last => Timestamp { secs: last, nanos: 0 },
        secs if last > i32::MAX.into() && DOUBTFUL.contains(&secs) => {
            let is_early = secs - DOUBTFUL.start < DOUBTFUL.end - secs;
            let secs = if is_early { DOUBTFUL.start - 1 } else { DOUBTFUL.end };
            Timestamp { secs, nanos: 0 }
        }
        _ => time,
    }
}

/// Nanoseconds and the two bits that carry seconds past 2038
/// (`ext4_encode_extra_time`).
fn time_extra(time: Timestamp) -> u32 {
    let epoch = ((time.secs - i64::from(time.secs as i32)) >> 32) as u32 & 3;
    epoch | (time.nanos << 2)
}

/// Bytes that an inode can hold as inline data: `i_block`, and the longest value of a `system.data`
/// attribute when there are no others.
pub(crate) const fn inline_capacity(inode_size: u32, other_xattrs: bool) -> usize {
    if other_xattrs || inode_size <= 128 {
        return 0;
    }
    let room = inode_size as usize - INODE_CORE_SIZE - INODE_EXTRA_SIZE as usize;
    // Magic, one entry with the name "data", and the zero word that ends the list.
    60 + room - 4 - (size_of::<XattrEntry>() + 4) - 4
}

/// Splits inline data into `i_block` and the attribute area that holds
/// `system.data`, which is there even when it is empty.
pub(crate) fn inline_data(data: &[u8], inode_size: u32) -> (IBlock, Vec<u8>) {
    let mut block = IBlock::default();
    debug_assert!(data.len() <= inline_capacity(inode_size, false), "{} bytes", data.len());
    let head = data.len().min(60);
    block.0[..head].copy_from_slice(&data[..head]);
    let rest = &data[head..];
    let mut area = vec![0; inode_size as usize - INODE_CORE_SIZE - INODE_EXTRA_SIZE as usize];
    area[..4].copy_from_slice(&XATTR_MAGIC.to_le_bytes());
    let value_at = area.len() - rest.len().next_multiple_of(4);
    let entry = XattrEntry {
        e_name_len: 4,
        e_name_index: 7,
        e_value_offs: if rest.is_empty() { 0.into() } else { ((value_at - 4) as u16).into() },
        e_value_size: (rest.len() as u32).into(),
        ..XattrEntry::default()
    };
    area[4..4 + size_of::<XattrEntry>()].copy_from_slice(entry.as_bytes());
    area[4 + size_of::<XattrEntry>()..][..4].copy_from_slice(b"data");
    area[value_at..value_at + rest.len()].copy_from_slice(rest);
    (block, area)
}

/// Flags of [`inode_flag`] that a file keeps in an image with these features.
#[must_use]
pub fn kept_flags(features: Features) -> u32 {
    let can_seal =
        features.has_ro_compat(ro_compat::VERITY) && features.has_incompat(incompat::EXTENTS);
    let can_fold = features.has_incompat(incompat::CASEFOLD);
    let seal = if can_seal { 0 } else { inode_flag::VERITY };
    let fold = if can_fold { 0 } else { inode_flag::CASEFOLD };
    // A project needs a feature that is not built.
    let of_others = inode_flag::HIDDEN | inode_flag::SYSTEM;
    inode_flag::KEPT & !(seal | fold | inode_flag::PROJINHERIT | of_others)
}
