//! Metadata of a volume as a whole: superblock, group descriptors, bitmaps.

use super::geometry::Geometry;
use super::shape::FIRST_INO;
use crate::checksum::{crc16, crc32c};
use crate::ondisk::{
    BG_BLOCK_UNINIT, BG_INODE_UNINIT, BG_INODE_ZEROED, CHECKSUM_CRC32C, ENCODING_STRICT,
    ENCODING_UTF8_12_1, FLAG_SIGNED_HASH, FLAG_TEST, GroupDesc, IBlock, STATE_VALID,
    SUPERBLOCK_MAGIC, Superblock, compat, hash_version, incompat, ro_compat, special,
};
use seekless_fs::Timestamp;
use seekless_units::Extent;
use zerocopy::{FromZeros, IntoBytes};

/// A volume's name and marks.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) uuid: [u8; 16],
    pub(crate) label: Vec<u8>,
    pub(crate) hash_seed: [u32; 4],
    pub(crate) made: Timestamp,
    pub(crate) checksum_seed: u32,
    /// Hundredths of a percent.
    pub(crate) reserved: u32,
    /// Stride and width of a RAID's stripes, in blocks.
    pub(crate) raid: (u16, u32),
    /// Owner and group of the root directory, instead of the tree's.
    pub(crate) root_owner: Option<(u32, u32)>,
    /// Permission, set-id and sticky bits of the root directory, instead of the tree's.
    pub(crate) root_perms: Option<u16>,
    pub(crate) has_strict_encoding: bool,
    pub(crate) is_test_filesystem: bool,
}

/// The use of a group, counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupUse {
    /// Used runs within the group, fixed metadata included, sorted.
    pub(crate) used: Vec<Extent>,
    pub(crate) directories: u32,
    /// Used inodes as offsets in the group, sorted.
    pub(crate) inodes: Vec<u32>,
}

impl GroupUse {
    fn used_blocks(&self) -> u64 {
        self.used.iter().map(|run| run.len).sum()
    }

    /// Inodes up to the last used one.
    pub(crate) fn table_used(&self) -> u32 {
        self.inodes.last().map_or(0, |last| last + 1)
    }
}

/// Bitmaps and descriptor of one group.
pub(crate) struct GroupRecord {
    pub(crate) desc: GroupDesc,
    /// `None` if the descriptor's flag says that it follows from the geometry.
    pub(crate) block_bitmap: Option<Vec<u8>>,
    pub(crate) inode_bitmap: Option<Vec<u8>>,
    pub(crate) free_blocks: u64,
}

/// Encodes a group's descriptor and bitmaps.
pub(crate) fn group_record(
    geometry: &Geometry,
    identity: &Identity,
    group: u32,
    content: &GroupUse,
) -> GroupRecord {
    let features = geometry.features;
    let csum = features.has_ro_compat(ro_compat::METADATA_CSUM);
    let lazy = features.has_group_checksums();
    let free_blocks = geometry.group_blocks(group) - content.used_blocks();
    let free_inodes = geometry.inodes_per_group - content.inodes.len() as u32;
    let untouched = content.used_blocks() == geometry.group_overhead(group)
        && geometry.is_self_contained(group);
    let last = group + 1 == geometry.groups;
    let (mut flags, mut unused) = (0, 0);
    if lazy {
        flags |= BG_INODE_ZEROED;
        unused = geometry.inodes_per_group - content.table_used();
        if content.inodes.is_empty() {
            flags |= BG_INODE_UNINIT;
        }
        if untouched && !last {
            flags |= BG_BLOCK_UNINIT;
        }
    }
    let block_bitmap =
        (flags & BG_BLOCK_UNINIT == 0).then(|| block_bitmap(geometry, group, &content.used));
    let inode_bitmap =
        (flags & BG_INODE_UNINIT == 0).then(|| inode_bitmap(geometry, &content.inodes));
    let sum = |bitmap: &Option<Vec<u8>>, bits: u64| match bitmap {
        Some(bytes) if csum => crc32c(identity.checksum_seed, &bytes[..(bits / 8) as usize]),
        _ => 0,
    };
    let block_sum = sum(&block_bitmap, geometry.blocks_per_group);
    let inode_sum = sum(&inode_bitmap, u64::from(geometry.inodes_per_group));
    let table = geometry.inode_table(group).start.get();
    let (bb, ib) = (geometry.block_bitmap(group), geometry.inode_bitmap(group));
    let mut desc = GroupDesc {
        bg_block_bitmap_lo: (bb as u32).into(),
        bg_inode_bitmap_lo: (ib as u32).into(),
        bg_inode_table_lo: (table as u32).into(),
        bg_free_blocks_count_lo: (free_blocks as u16).into(),
        bg_free_inodes_count_lo: (free_inodes as u16).into(),
        bg_used_dirs_count_lo: (content.directories as u16).into(),
        bg_flags: flags.into(),
        bg_block_bitmap_csum_lo: (block_sum as u16).into(),
        bg_inode_bitmap_csum_lo: (inode_sum as u16).into(),
        bg_itable_unused_lo: (unused as u16).into(),
        ..GroupDesc::default()
    };
    if geometry.desc_size == 64 {
        desc.bg_block_bitmap_hi = ((bb >> 32) as u32).into();
        desc.bg_inode_bitmap_hi = ((ib >> 32) as u32).into();
        desc.bg_inode_table_hi = ((table >> 32) as u32).into();
        desc.bg_free_blocks_count_hi = ((free_blocks >> 16) as u16).into();
        desc.bg_free_inodes_count_hi = ((free_inodes >> 16) as u16).into();
        desc.bg_used_dirs_count_hi = ((content.directories >> 16) as u16).into();
        desc.bg_itable_unused_hi = ((unused >> 16) as u16).into();
        desc.bg_block_bitmap_csum_hi = ((block_sum >> 16) as u16).into();
        desc.bg_inode_bitmap_csum_hi = ((inode_sum >> 16) as u16).into();
    }
    seal_desc(&mut desc, group, geometry, identity);
    GroupRecord { desc, block_bitmap, inode_bitmap, free_blocks }
}

/// A group's descriptor and its free blocks, without marks of unused parts: a kernel that takes it
/// for the current one reads the bitmaps and the whole table.
pub(crate) fn plain_descriptor(
    geometry: &Geometry,
    identity: &Identity,
    group: u32,
    content: &GroupUse,
) -> (GroupDesc, u64) {
    let GroupRecord { mut desc, free_blocks, .. } =
        group_record(geometry, identity, group, content);
    let marks = BG_BLOCK_UNINIT | BG_INODE_UNINIT;
    desc.bg_flags = (desc.bg_flags.get() & !marks).into();
    desc.bg_itable_unused_lo = 0.into();
    if geometry.desc_size == 64 {
        desc.bg_itable_unused_hi = 0.into();
    }
    desc.bg_checksum = 0.into();
    seal_desc(&mut desc, group, geometry, identity);
    (desc, free_blocks)
}

/// `ext4_group_desc_csum`; the checksum's own field is zero while it is computed.
fn seal_desc(desc: &mut GroupDesc, group: u32, geometry: &Geometry, identity: &Identity) {
    let bytes = &desc.as_bytes()[..geometry.desc_size as usize];
    if geometry.features.has_ro_compat(ro_compat::METADATA_CSUM) {
        let sum = crc32c(crc32c(identity.checksum_seed, &group.to_le_bytes()), bytes);
        desc.bg_checksum = (sum as u16).into();
    } else if geometry.features.has_ro_compat(ro_compat::GDT_CSUM) {
        let at = std::mem::offset_of!(GroupDesc, bg_checksum);
        let sum = crc16(crc16(!0, &identity.uuid), &group.to_le_bytes());
        // The old checksum leaves its own field out.
        let sum = crc16(crc16(sum, &bytes[..at]), &bytes[at + 2..]);
        desc.bg_checksum = sum.into();
    }
}

fn block_bitmap(geometry: &Geometry, group: u32, used: &[Extent]) -> Vec<u8> {
    let mut bits = vec![0; geometry.block_size as usize];
    let start = geometry.group_start(group);
    for run in used {
        set_bits(&mut bits, run.start.get() - start, run.len);
    }
    // Blocks behind the end of the volume count as used.
    let blocks = geometry.group_blocks(group);
    set_bits(&mut bits, blocks, u64::from(geometry.block_size) * 8 - blocks);
    bits
}

fn inode_bitmap(geometry: &Geometry, inodes: &[u32]) -> Vec<u8> {
    let mut bits = vec![0; geometry.block_size as usize];
    for &at in inodes {
        bits[at as usize / 8] |= 1 << (at % 8);
    }
    let count = u64::from(geometry.inodes_per_group);
    set_bits(&mut bits, count, u64::from(geometry.block_size) * 8 - count);
    bits
}

fn set_bits(bits: &mut [u8], from: u64, len: u64) {
    let (mut at, end) = (from as usize, (from + len) as usize);
    while at < end && at % 8 != 0 {
        bits[at / 8] |= 1 << (at % 8);
        at += 1;
    }
    while at + 8 <= end {
        bits[at / 8] = 0xFF;
        at += 8;
    }
    while at < end {
        bits[at / 8] |= 1 << (at % 8);
        at += 1;
    }
}

/// The superblock's totals of the volume.
pub(crate) struct Totals {
    pub(crate) free_blocks: u64,
    pub(crate) free_inodes: u64,
    /// `i_block` and size of the journal's inode, kept as a backup.
    pub(crate) journal: Option<(IBlock, u64)>,
    pub(crate) orphan_ino: u32,
    /// Some file is longer than 2 GiB.
    pub(crate) large_file: bool,
}

/// Encodes the superblock for a group, without checksum.
pub(crate) fn superblock(geometry: &Geometry, identity: &Identity, totals: &Totals) -> Superblock {
    let features = geometry.features;
    let reserved = geometry.blocks * u64::from(identity.reserved) / 10_000;
    let log_block = (geometry.block_size / 1024).trailing_zeros();
    let made = identity.made.secs;
    let made_hi = (made >> 32) as u8;
    let mut sb = Superblock::new_zeroed();
    sb.s_inodes_count = (geometry.inodes() as u32).into();
    sb.s_blocks_count_lo = (geometry.blocks as u32).into();
    sb.s_blocks_count_hi = ((geometry.blocks >> 32) as u32).into();
    sb.s_r_blocks_count_lo = (reserved as u32).into();
    sb.s_r_blocks_count_hi = ((reserved >> 32) as u32).into();
    sb.s_free_blocks_count_lo = (totals.free_blocks as u32).into();
    sb.s_free_blocks_count_hi = ((totals.free_blocks >> 32) as u32).into();
    sb.s_free_inodes_count = (totals.free_inodes as u32).into();
    sb.s_first_data_block = (geometry.first_block as u32).into();
    sb.s_log_block_size = log_block.into();
    sb.s_log_cluster_size = log_block.into();
    sb.s_blocks_per_group = (geometry.blocks_per_group as u32).into();
    sb.s_clusters_per_group = sb.s_blocks_per_group;
    sb.s_inodes_per_group = geometry.inodes_per_group.into();
    sb.s_wtime = (made as u32).into();
    sb.s_lastcheck = (made as u32).into();
    sb.s_mkfs_time = (made as u32).into();
    (sb.s_wtime_hi, sb.s_lastcheck_hi, sb.s_mkfs_time_hi) = (made_hi, made_hi, made_hi);
    sb.s_max_mnt_count = u16::MAX.into();
    sb.s_magic = SUPERBLOCK_MAGIC.into();
    sb.s_state = STATE_VALID.into();
    sb.s_errors = 1.into();
    sb.s_rev_level = 1.into();
    sb.s_first_ino = FIRST_INO.into();
    sb.s_inode_size = (geometry.inode_size as u16).into();
    sb.s_feature_compat = features.compat.into();
    sb.s_feature_incompat = features.incompat.into();
    let large = if totals.large_file { ro_compat::LARGE_FILE } else { 0 };
    sb.s_feature_ro_compat = (features.ro_compat | large).into();
    sb.s_uuid = identity.uuid;
    sb.s_volume_name[..identity.label.len()].copy_from_slice(&identity.label);
    sb.s_reserved_gdt_blocks = (geometry.reserved_gdt_blocks as u16).into();
    sb.s_hash_seed = identity.hash_seed.map(Into::into);
    (sb.s_raid_stride, sb.s_raid_stripe_width) = (identity.raid.0.into(), identity.raid.1.into());
    sb.s_def_hash_version = hash_version::HALF_MD4;
    let test = if identity.is_test_filesystem { FLAG_TEST } else { 0 };
    sb.s_flags = (FLAG_SIGNED_HASH | test).into();
    // user_xattr and acl, as in mke2fs.
    sb.s_default_mount_opts = 0x000C.into();
    if features.has_incompat(incompat::BIT64) {
        sb.s_desc_size = (geometry.desc_size as u16).into();
    }
    if geometry.inode_size > 128 && features.has_ro_compat(ro_compat::EXTRA_ISIZE) {
        sb.s_min_extra_isize = 32.into();
        sb.s_want_extra_isize = 32.into();
    }
    if features.has_incompat(incompat::FLEX_BG) {
        sb.s_log_groups_per_flex = geometry.log_groups_per_flex;
    }
    if features.has_ro_compat(ro_compat::METADATA_CSUM) {
        sb.s_checksum_type = CHECKSUM_CRC32C;
    }
    if features.has_compat(compat::SPARSE_SUPER2) {
        sb.s_backup_bgs = geometry.backup_groups().map(Into::into);
    }
    if features.has_incompat(incompat::CASEFOLD) {
        sb.s_encoding = ENCODING_UTF8_12_1.into();
        sb.s_encoding_flags = if identity.has_strict_encoding { ENCODING_STRICT } else { 0 }.into();
    }
    if features.has_incompat(incompat::CSUM_SEED) {
        sb.s_checksum_seed = identity.checksum_seed.into();
    }
    if let Some((i_block, size)) = totals.journal {
        sb.s_journal_inum = special::JOURNAL.into();
        sb.s_jnl_backup_type = 1;
        for (slot, bytes) in sb.s_jnl_blocks.iter_mut().zip(i_block.0.chunks(4)) {
            *slot = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into();
        }
        sb.s_jnl_blocks[15] = ((size >> 32) as u32).into();
        sb.s_jnl_blocks[16] = (size as u32).into();
    }
    if features.has_compat(compat::ORPHAN_FILE) {
        sb.s_orphan_file_inum = totals.orphan_ino.into();
    }
    let overhead: u64 = (0..geometry.groups).map(|group| geometry.group_overhead(group)).sum();
    let overhead = geometry.first_block + overhead + geometry.journal_blocks;
    sb.s_overhead_clusters = u32::try_from(overhead).unwrap_or(0).into();
    sb
}
