//! The on-disk structures of ext2/3/4 and jbd2, byte for byte.
//!
//! Little-endian except the journal, which is big-endian. Field names are
//! those of the format's own headers (Linux `fs/ext4/ext4.h`,
//! `fs/ext4/ext4_extents.h`, `fs/ext4/xattr.h`, `include/linux/jbd2.h`); every
//! offset is pinned at compile time at the end of this file. Nothing outside
//! this crate sees these types.

use std::mem::offset_of;
use zerocopy::byteorder::{big_endian as be, little_endian as le};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

type U16 = le::U16;
type U32 = le::U32;
type U64 = le::U64;

/// The start of the primary superblock, in bytes.
pub(crate) const SUPERBLOCK_OFFSET: u64 = 1024;
/// The same, in a block that begins the volume and holds it.
pub(crate) const SUPERBLOCK_IN_BLOCK: usize = 1024;
/// The number of the double-indirect block in `i_block`, in bytes.
pub(crate) const I_BLOCK_DOUBLE: usize = 13 * 4;
/// The inode number of `..` in a directory's first block.
pub(crate) const DOTDOT_INO: usize = 12;

/// The beginning of a quota file (`struct v2_disk_dqheader`, `struct v2_disk_dqinfo`).
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct QuotaHead {
    pub(crate) dqh_magic: U32,
    pub(crate) dqh_version: U32,
    pub(crate) dqi_bgrace: U32,
    pub(crate) dqi_igrace: U32,
    pub(crate) dqi_flags: U32,
    pub(crate) dqi_blocks: U32,
    pub(crate) dqi_free_blk: U32,
    pub(crate) dqi_free_entry: U32,
}

/// In front of the entries of a leaf of a quota file (`struct qt_disk_dqdbheader`).
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct QuotaLeafHead {
    pub(crate) dqdh_next_free: U32,
    pub(crate) dqdh_prev_free: U32,
    pub(crate) dqdh_entries: U16,
    pub(crate) dqdh_pad1: U16,
    pub(crate) dqdh_pad2: U32,
}

/// An entry of a quota file (`struct v2r1_disk_dqblk`).
#[derive(
    Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct QuotaEntry {
    pub(crate) dqb_id: U32,
    pub(crate) dqb_pad: U32,
    pub(crate) dqb_ihardlimit: U64,
    pub(crate) dqb_isoftlimit: U64,
    pub(crate) dqb_curinodes: U64,
    pub(crate) dqb_bhardlimit: U64,
    pub(crate) dqb_bsoftlimit: U64,
    pub(crate) dqb_curspace: U64,
    pub(crate) dqb_btime: U64,
    pub(crate) dqb_itime: U64,
}

/// Bytes in a superblock.
pub(crate) const SUPERBLOCK_SIZE: usize = 1024;
/// `s_magic`.
pub(crate) const SUPERBLOCK_MAGIC: u16 = 0xEF53;

/// `struct ext4_super_block`.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Superblock {
    pub(crate) s_inodes_count: U32,
    pub(crate) s_blocks_count_lo: U32,
    pub(crate) s_r_blocks_count_lo: U32,
    pub(crate) s_free_blocks_count_lo: U32,
    pub(crate) s_free_inodes_count: U32,
    pub(crate) s_first_data_block: U32,
    pub(crate) s_log_block_size: U32,
    pub(crate) s_log_cluster_size: U32,
    pub(crate) s_blocks_per_group: U32,
    pub(crate) s_clusters_per_group: U32,
    pub(crate) s_inodes_per_group: U32,
    pub(crate) s_mtime: U32,
    pub(crate) s_wtime: U32,
    pub(crate) s_mnt_count: U16,
    pub(crate) s_max_mnt_count: U16,
    pub(crate) s_magic: U16,
    pub(crate) s_state: U16,
    pub(crate) s_errors: U16,
    pub(crate) s_minor_rev_level: U16,
    pub(crate) s_lastcheck: U32,
    pub(crate) s_checkinterval: U32,
    pub(crate) s_creator_os: U32,
    pub(crate) s_rev_level: U32,
    pub(crate) s_def_resuid: U16,
    pub(crate) s_def_resgid: U16,
    pub(crate) s_first_ino: U32,
    pub(crate) s_inode_size: U16,
    pub(crate) s_block_group_nr: U16,
    pub(crate) s_feature_compat: U32,
    pub(crate) s_feature_incompat: U32,
    pub(crate) s_feature_ro_compat: U32,
    pub(crate) s_uuid: [u8; 16],
    pub(crate) s_volume_name: [u8; 16],
    pub(crate) s_last_mounted: [u8; 64],
    pub(crate) s_algorithm_usage_bitmap: U32,
    pub(crate) s_prealloc_blocks: u8,
    pub(crate) s_prealloc_dir_blocks: u8,
    pub(crate) s_reserved_gdt_blocks: U16,
    pub(crate) s_journal_uuid: [u8; 16],
    pub(crate) s_journal_inum: U32,
    pub(crate) s_journal_dev: U32,
    pub(crate) s_last_orphan: U32,
    pub(crate) s_hash_seed: [U32; 4],
    pub(crate) s_def_hash_version: u8,
    pub(crate) s_jnl_backup_type: u8,
    pub(crate) s_desc_size: U16,
    pub(crate) s_default_mount_opts: U32,
    pub(crate) s_first_meta_bg: U32,
    pub(crate) s_mkfs_time: U32,
    pub(crate) s_jnl_blocks: [U32; 17],
    pub(crate) s_blocks_count_hi: U32,
    pub(crate) s_r_blocks_count_hi: U32,
    pub(crate) s_free_blocks_count_hi: U32,
    pub(crate) s_min_extra_isize: U16,
    pub(crate) s_want_extra_isize: U16,
    pub(crate) s_flags: U32,
    pub(crate) s_raid_stride: U16,
    pub(crate) s_mmp_update_interval: U16,
    pub(crate) s_mmp_block: U64,
    pub(crate) s_raid_stripe_width: U32,
    pub(crate) s_log_groups_per_flex: u8,
    pub(crate) s_checksum_type: u8,
    pub(crate) s_encryption_level: u8,
    pub(crate) s_reserved_pad: u8,
    pub(crate) s_kbytes_written: U64,
    pub(crate) s_snapshot_inum: U32,
    pub(crate) s_snapshot_id: U32,
    pub(crate) s_snapshot_r_blocks_count: U64,
    pub(crate) s_snapshot_list: U32,
    pub(crate) s_error_count: U32,
    pub(crate) s_first_error_time: U32,
    pub(crate) s_first_error_ino: U32,
    pub(crate) s_first_error_block: U64,
    pub(crate) s_first_error_func: [u8; 32],
    pub(crate) s_first_error_line: U32,
    pub(crate) s_last_error_time: U32,
    pub(crate) s_last_error_ino: U32,
    pub(crate) s_last_error_line: U32,
    pub(crate) s_last_error_block: U64,
    pub(crate) s_last_error_func: [u8; 32],
    pub(crate) s_mount_opts: [u8; 64],
    pub(crate) s_usr_quota_inum: U32,
    pub(crate) s_grp_quota_inum: U32,
    pub(crate) s_overhead_clusters: U32,
    pub(crate) s_backup_bgs: [U32; 2],
    pub(crate) s_encrypt_algos: [u8; 4],
    pub(crate) s_encrypt_pw_salt: [u8; 16],
    pub(crate) s_lpf_ino: U32,
    pub(crate) s_prj_quota_inum: U32,
    pub(crate) s_checksum_seed: U32,
    pub(crate) s_wtime_hi: u8,
    pub(crate) s_mtime_hi: u8,
    pub(crate) s_mkfs_time_hi: u8,
    pub(crate) s_lastcheck_hi: u8,
    pub(crate) s_first_error_time_hi: u8,
    pub(crate) s_last_error_time_hi: u8,
    pub(crate) s_first_error_errcode: u8,
    pub(crate) s_last_error_errcode: u8,
    pub(crate) s_encoding: U16,
    pub(crate) s_encoding_flags: U16,
    pub(crate) s_orphan_file_inum: U32,
    pub(crate) s_reserved: [U32; 90],
    /// The last of the reserved words.
    pub(crate) s_ordered: OrderedMark,
    pub(crate) s_checksum: U32,
}

/// The mark of a volume that seekless has in use under soft updates: no field of the format says
/// so. It repeats fields that every other system changes when it mounts a volume or writes its
/// superblock.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct OrderedMark {
    pub(crate) magic: [u8; 4],
    pub(crate) mtime: U32,
    pub(crate) wtime: U32,
    pub(crate) mounts: U32,
}

impl OrderedMark {
    pub(crate) const MAGIC: [u8; 4] = *b"SKSU";

    /// Takes the mark from a superblock. What others have in its place stays.
    pub(crate) fn clear(raw: &mut Superblock) {
        if raw.s_ordered.magic == Self::MAGIC {
            raw.s_ordered = Self::new_zeroed();
        }
    }
}

/// Bits of `s_feature_compat`.
pub(crate) mod compat {
    pub(crate) const DIR_PREALLOC: u32 = 0x1;
    pub(crate) const IMAGIC_INODES: u32 = 0x2;
    pub(crate) const HAS_JOURNAL: u32 = 0x4;
    pub(crate) const EXT_ATTR: u32 = 0x8;
    pub(crate) const RESIZE_INODE: u32 = 0x10;
    pub(crate) const DIR_INDEX: u32 = 0x20;
    pub(crate) const LAZY_BG: u32 = 0x40;
    pub(crate) const SPARSE_SUPER2: u32 = 0x200;
    pub(crate) const FAST_COMMIT: u32 = 0x400;
    pub(crate) const STABLE_INODES: u32 = 0x800;
    pub(crate) const ORPHAN_FILE: u32 = 0x1000;
}

/// Bits of `s_feature_ro_compat`.
pub(crate) mod ro_compat {
    pub(crate) const SPARSE_SUPER: u32 = 0x1;
    pub(crate) const LARGE_FILE: u32 = 0x2;
    pub(crate) const BTREE_DIR: u32 = 0x4;
    pub(crate) const HUGE_FILE: u32 = 0x8;
    pub(crate) const GDT_CSUM: u32 = 0x10;
    pub(crate) const DIR_NLINK: u32 = 0x20;
    pub(crate) const EXTRA_ISIZE: u32 = 0x40;
    pub(crate) const QUOTA: u32 = 0x100;
    pub(crate) const BIGALLOC: u32 = 0x200;
    pub(crate) const METADATA_CSUM: u32 = 0x400;
    pub(crate) const READONLY: u32 = 0x1000;
    pub(crate) const PROJECT: u32 = 0x2000;
    pub(crate) const SHARED_BLOCKS: u32 = 0x4000;
    pub(crate) const VERITY: u32 = 0x8000;
    pub(crate) const ORPHAN_PRESENT: u32 = 0x1_0000;
}

/// Bits of `s_feature_incompat`.
pub(crate) mod incompat {
    pub(crate) const COMPRESSION: u32 = 0x1;
    pub(crate) const FILETYPE: u32 = 0x2;
    pub(crate) const RECOVER: u32 = 0x4;
    pub(crate) const JOURNAL_DEV: u32 = 0x8;
    pub(crate) const META_BG: u32 = 0x10;
    pub(crate) const EXTENTS: u32 = 0x40;
    pub(crate) const BIT64: u32 = 0x80;
    pub(crate) const MMP: u32 = 0x100;
    pub(crate) const FLEX_BG: u32 = 0x200;
    pub(crate) const EA_INODE: u32 = 0x400;
    pub(crate) const DIRDATA: u32 = 0x1000;
    pub(crate) const CSUM_SEED: u32 = 0x2000;
    pub(crate) const LARGEDIR: u32 = 0x4000;
    pub(crate) const INLINE_DATA: u32 = 0x8000;
    pub(crate) const ENCRYPT: u32 = 0x1_0000;
    pub(crate) const CASEFOLD: u32 = 0x2_0000;
}

/// `s_state`: cleanly unmounted.
pub(crate) const STATE_VALID: u16 = 1;
/// `s_state`: there were errors.
pub(crate) const STATE_ERRORS: u16 = 2;
/// `s_flags`: names are hashed as signed characters.
pub(crate) const FLAG_SIGNED_HASH: u32 = 1;
/// `s_flags`: names are hashed as unsigned characters.
pub(crate) const FLAG_UNSIGNED_HASH: u32 = 2;
/// `s_flags`: the volume is one for tests of file systems.
pub(crate) const FLAG_TEST: u32 = 4;
/// `s_checksum_type`: CRC32C, the only one.
pub(crate) const CHECKSUM_CRC32C: u8 = 1;
/// `s_default_mount_opts`: the device is told of freed blocks.
pub(crate) const DEFAULT_DISCARD: u32 = 0x400;
/// `s_encoding`: UTF-8 of Unicode 12.1, the only one.
pub(crate) const ENCODING_UTF8_12_1: u16 = 1;
/// `s_encoding_flags`: names that are not valid UTF-8 are refused.
pub(crate) const ENCODING_STRICT: u16 = 1;

/// `struct ext4_group_desc`, all 64 bytes; without the 64bit feature only the
/// first 32 are on disk.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct GroupDesc {
    pub(crate) bg_block_bitmap_lo: U32,
    pub(crate) bg_inode_bitmap_lo: U32,
    pub(crate) bg_inode_table_lo: U32,
    pub(crate) bg_free_blocks_count_lo: U16,
    pub(crate) bg_free_inodes_count_lo: U16,
    pub(crate) bg_used_dirs_count_lo: U16,
    pub(crate) bg_flags: U16,
    pub(crate) bg_exclude_bitmap_lo: U32,
    pub(crate) bg_block_bitmap_csum_lo: U16,
    pub(crate) bg_inode_bitmap_csum_lo: U16,
    pub(crate) bg_itable_unused_lo: U16,
    pub(crate) bg_checksum: U16,
    pub(crate) bg_block_bitmap_hi: U32,
    pub(crate) bg_inode_bitmap_hi: U32,
    pub(crate) bg_inode_table_hi: U32,
    pub(crate) bg_free_blocks_count_hi: U16,
    pub(crate) bg_free_inodes_count_hi: U16,
    pub(crate) bg_used_dirs_count_hi: U16,
    pub(crate) bg_itable_unused_hi: U16,
    pub(crate) bg_exclude_bitmap_hi: U32,
    pub(crate) bg_block_bitmap_csum_hi: U16,
    pub(crate) bg_inode_bitmap_csum_hi: U16,
    pub(crate) bg_reserved: U32,
}

/// `bg_flags`: the inode table and bitmap are not in use.
pub(crate) const BG_INODE_UNINIT: u16 = 1;
/// `bg_flags`: the block bitmap is not written; it follows from the geometry.
pub(crate) const BG_BLOCK_UNINIT: u16 = 2;
/// `bg_flags`: the unused part of the inode table is zeroed.
pub(crate) const BG_INODE_ZEROED: u16 = 4;

/// The first 128 bytes of `struct ext4_inode`: the whole inode of ext2.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct InodeCore {
    pub(crate) i_mode: U16,
    pub(crate) i_uid: U16,
    pub(crate) i_size_lo: U32,
    pub(crate) i_atime: U32,
    pub(crate) i_ctime: U32,
    pub(crate) i_mtime: U32,
    pub(crate) i_dtime: U32,
    pub(crate) i_gid: U16,
    pub(crate) i_links_count: U16,
    pub(crate) i_blocks_lo: U32,
    pub(crate) i_flags: U32,
    pub(crate) i_version: U32,
    pub(crate) i_block: IBlock,
    pub(crate) i_generation: U32,
    pub(crate) i_file_acl_lo: U32,
    pub(crate) i_size_high: U32,
    pub(crate) i_obso_faddr: U32,
    pub(crate) i_blocks_high: U16,
    pub(crate) i_file_acl_high: U16,
    pub(crate) i_uid_high: U16,
    pub(crate) i_gid_high: U16,
    pub(crate) i_checksum_lo: U16,
    pub(crate) i_reserved: U16,
}

/// The 60 bytes of `i_block`: 15 block numbers, an extent tree's root, a short
/// symlink's target, a device number or inline data.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct IBlock(pub(crate) [u8; 60]);

impl Default for IBlock {
    fn default() -> Self {
        Self([0; 60])
    }
}

/// The bytes behind [`InodeCore`] in inodes larger than 128 bytes, as far as `i_extra_isize` says.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct InodeExtra {
    pub(crate) i_extra_isize: U16,
    pub(crate) i_checksum_hi: U16,
    pub(crate) i_ctime_extra: U32,
    pub(crate) i_mtime_extra: U32,
    pub(crate) i_atime_extra: U32,
    pub(crate) i_crtime: U32,
    pub(crate) i_crtime_extra: U32,
    pub(crate) i_version_hi: U32,
    pub(crate) i_projid: U32,
}

/// Bytes of [`InodeCore`], the inode size of ext2.
pub(crate) const INODE_CORE_SIZE: usize = 128;
/// Bytes of [`InodeExtra`], today's `i_extra_isize`.
pub(crate) const INODE_EXTRA_SIZE: u16 = 32;

/// Inode flags, as `lsattr` shows them and beyond.
pub(crate) mod flags {
    pub(crate) const IMMUTABLE: u32 = 0x10;
    pub(crate) const APPEND: u32 = 0x20;
    pub(crate) const ENCRYPT: u32 = 0x800;
    pub(crate) const INDEX: u32 = 0x1000;
    pub(crate) const IMAGIC: u32 = 0x2000;
    pub(crate) const HUGE_FILE: u32 = 0x4_0000;
    pub(crate) const EXTENTS: u32 = 0x8_0000;
    pub(crate) const VERITY: u32 = 0x10_0000;
    pub(crate) const EA_INODE: u32 = 0x20_0000;
    pub(crate) const INLINE_DATA: u32 = 0x1000_0000;
    pub(crate) const PROJINHERIT: u32 = 0x2000_0000;
    pub(crate) const CASEFOLD: u32 = 0x4000_0000;
}

/// Inode numbers with a fixed meaning.
pub(crate) mod special {
    pub(crate) const BAD_BLOCKS: u32 = 1;
    pub(crate) const ROOT: u32 = 2;
    pub(crate) const USER_QUOTA: u32 = 3;
    pub(crate) const GROUP_QUOTA: u32 = 4;
    pub(crate) const BOOT_LOADER: u32 = 5;
    pub(crate) const UNDELETE: u32 = 6;
    pub(crate) const RESIZE: u32 = 7;
    pub(crate) const JOURNAL: u32 = 8;
    pub(crate) const FIRST_ORDINARY: u32 = 11;
}

/// `struct ext4_extent_header`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ExtentHeader {
    pub(crate) eh_magic: U16,
    pub(crate) eh_entries: U16,
    pub(crate) eh_max: U16,
    pub(crate) eh_depth: U16,
    pub(crate) eh_generation: U32,
}

/// `eh_magic`.
pub(crate) const EXTENT_MAGIC: u16 = 0xF30A;
/// Deepest extent tree the kernel reads.
pub(crate) const EXTENT_MAX_DEPTH: u16 = 5;
/// Most blocks in an initialised extent; longer lengths mean unwritten.
pub(crate) const EXTENT_MAX_LEN: u16 = 32768;

/// `struct ext4_extent`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ExtentLeaf {
    pub(crate) ee_block: U32,
    pub(crate) ee_len: U16,
    pub(crate) ee_start_hi: U16,
    pub(crate) ee_start_lo: U32,
}

/// `struct ext4_extent_idx`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ExtentIndex {
    pub(crate) ei_block: U32,
    pub(crate) ei_leaf_lo: U32,
    pub(crate) ei_leaf_hi: U16,
    pub(crate) ei_unused: U16,
}

/// The fixed part of `struct ext4_dir_entry_2`; the name follows.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DirEntryHead {
    pub(crate) inode: U32,
    pub(crate) rec_len: U16,
    pub(crate) name_len: u8,
    pub(crate) file_type: u8,
}

/// `struct ext4_dir_entry_tail`: looks like an unused entry of type 0xDE.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DirEntryTail {
    pub(crate) det_reserved_zero1: U32,
    pub(crate) det_rec_len: U16,
    pub(crate) det_reserved_zero2: u8,
    pub(crate) det_reserved_ft: u8,
    pub(crate) det_checksum: U32,
}

/// `det_reserved_ft`.
pub(crate) const DIR_TAIL_TYPE: u8 = 0xDE;

/// `struct dx_root_info`, at byte 24 of a hashed directory's first block.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DxRootInfo {
    pub(crate) reserved_zero: U32,
    pub(crate) hash_version: u8,
    pub(crate) info_length: u8,
    pub(crate) indirect_levels: u8,
    pub(crate) unused_flags: u8,
}

/// The offset of [`DxRootInfo`], behind the entries of `.` and `..`.
pub(crate) const DX_ROOT_INFO_OFFSET: usize = 24;
/// The offset of the entries of an interior node, behind its empty entry.
pub(crate) const DX_NODE_ENTRIES_OFFSET: usize = 8;

/// `struct dx_countlimit`: takes the hash of the first [`DxEntry`].
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DxCountLimit {
    pub(crate) limit: U16,
    pub(crate) count: U16,
}

/// `struct dx_entry`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DxEntry {
    pub(crate) hash: U32,
    pub(crate) block: U32,
}

/// `struct dx_tail`, behind the room for entries.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DxTail {
    pub(crate) dt_reserved: U32,
    pub(crate) dt_checksum: U32,
}

/// `s_def_hash_version` and `hash_version`.
pub(crate) mod hash_version {
    pub(crate) const LEGACY: u8 = 0;
    pub(crate) const HALF_MD4: u8 = 1;
    pub(crate) const TEA: u8 = 2;
    pub(crate) const LEGACY_UNSIGNED: u8 = 3;
    pub(crate) const HALF_MD4_UNSIGNED: u8 = 4;
    pub(crate) const TEA_UNSIGNED: u8 = 5;
    pub(crate) const SIPHASH: u8 = 6;
}

/// `struct ext4_xattr_header`, at the start of an attribute block.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct XattrHeader {
    pub(crate) h_magic: U32,
    pub(crate) h_refcount: U32,
    pub(crate) h_blocks: U32,
    pub(crate) h_hash: U32,
    pub(crate) h_checksum: U32,
    pub(crate) h_reserved: [U32; 3],
}

/// `i_mode` of the volume's own files: a regular file, read and written by root.
pub(crate) const OWN_FILE_MODE: u16 = 0o100_600;

/// `h_magic`, also the first word of attributes inside an inode.
pub(crate) const XATTR_MAGIC: u32 = 0xEA02_0000;
/// Most inodes that may share an attribute block.
pub(crate) const XATTR_REFCOUNT_MAX: u32 = 1024;

/// `struct ext4_xattr_entry`; the name follows, padded to four bytes.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct XattrEntry {
    pub(crate) e_name_len: u8,
    pub(crate) e_name_index: u8,
    pub(crate) e_value_offs: U16,
    pub(crate) e_value_inum: U32,
    pub(crate) e_value_size: U32,
    pub(crate) e_hash: U32,
}

/// `struct orphan_file` block tail (`struct ext4_orphan_block_tail`).
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct OrphanBlockTail {
    pub(crate) ob_magic: U32,
    pub(crate) ob_checksum: U32,
}

/// `ob_magic`.
pub(crate) const ORPHAN_BLOCK_MAGIC: u32 = 0x0B10_CA04;

/// `struct mmp_struct`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct MmpBlock {
    pub(crate) mmp_magic: U32,
    pub(crate) mmp_seq: U32,
    pub(crate) mmp_time: U64,
    pub(crate) mmp_nodename: [u8; 64],
    pub(crate) mmp_bdevname: [u8; 32],
    pub(crate) mmp_check_interval: U16,
    pub(crate) mmp_pad1: U16,
    pub(crate) mmp_pad2: [U32; 226],
    pub(crate) mmp_checksum: U32,
}

/// `mmp_magic`.
pub(crate) const MMP_MAGIC: u32 = 0x004D_4D50;
/// `mmp_seq`: the volume is not in use.
pub(crate) const MMP_SEQ_CLEAN: u32 = 0xFF4D_4D50;
/// `mmp_seq`: a program that is no mount changes the volume.
pub(crate) const MMP_SEQ_FSCK: u32 = 0xE24D_4D50;
/// `mmp_seq`: the greatest number of a mount.
pub(crate) const MMP_SEQ_MAX: u32 = 0xE24D_4D4F;

/// `struct journal_superblock_s`, big-endian like all of jbd2.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct JournalSuperblock {
    pub(crate) s_header: JournalHeader,
    pub(crate) s_blocksize: be::U32,
    pub(crate) s_maxlen: be::U32,
    pub(crate) s_first: be::U32,
    pub(crate) s_sequence: be::U32,
    pub(crate) s_start: be::U32,
    pub(crate) s_errno: be::U32,
    pub(crate) s_feature_compat: be::U32,
    pub(crate) s_feature_incompat: be::U32,
    pub(crate) s_feature_ro_compat: be::U32,
    pub(crate) s_uuid: [u8; 16],
    pub(crate) s_nr_users: be::U32,
    pub(crate) s_dynsuper: be::U32,
    pub(crate) s_max_transaction: be::U32,
    pub(crate) s_max_trans_data: be::U32,
    pub(crate) s_checksum_type: u8,
    pub(crate) s_padding2: [u8; 3],
    pub(crate) s_num_fc_blks: be::U32,
    pub(crate) s_head: be::U32,
    pub(crate) s_padding: [be::U32; 40],
    pub(crate) s_checksum: be::U32,
    pub(crate) s_users: [u8; 768],
}

/// `struct journal_header_s`, at the start of every journal block but data.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct JournalHeader {
    pub(crate) h_magic: be::U32,
    pub(crate) h_blocktype: be::U32,
    pub(crate) h_sequence: be::U32,
}

/// `h_magic` of the journal.
pub(crate) const JOURNAL_MAGIC: u32 = 0xC03B_3998;

/// `h_blocktype`.
pub(crate) mod journal_block {
    pub(crate) const DESCRIPTOR: u32 = 1;
    pub(crate) const COMMIT: u32 = 2;
    pub(crate) const SUPERBLOCK_V1: u32 = 3;
    pub(crate) const SUPERBLOCK_V2: u32 = 4;
    pub(crate) const REVOKE: u32 = 5;
}

/// Offsets in blocks of the journal behind their header (`struct commit_header`,
/// `journal_revoke_header_t`), in bytes.
pub(crate) mod journal_at {
    /// The tags of a descriptor.
    pub(crate) const TAGS: usize = 12;
    /// The used length of a block of revoke records.
    pub(crate) const REVOKE_COUNT: usize = 12;
    /// The records of such a block.
    pub(crate) const REVOKE_RECORDS: usize = 16;
    /// The kind of checksum in a commit record, and its size.
    pub(crate) const COMMIT_CHECKSUM_TYPE: usize = 12;
    /// The checksum itself.
    pub(crate) const COMMIT_CHECKSUM: usize = 16;
    /// The time of a commit, in seconds.
    pub(crate) const COMMIT_SECONDS: usize = 48;
    /// Its nanoseconds.
    pub(crate) const COMMIT_NANOS: usize = 56;
}

/// Bytes of the UUID behind a tag that does not share that of the tag before it.
pub(crate) const JOURNAL_TAG_UUID: usize = 16;

/// Feature bits of the journal.
pub(crate) mod journal_feature {
    pub(crate) const COMPAT_CHECKSUM: u32 = 0x1;
    pub(crate) const INCOMPAT_REVOKE: u32 = 0x1;
    pub(crate) const INCOMPAT_64BIT: u32 = 0x2;
    pub(crate) const INCOMPAT_ASYNC_COMMIT: u32 = 0x4;
    pub(crate) const INCOMPAT_CSUM_V2: u32 = 0x8;
    pub(crate) const INCOMPAT_CSUM_V3: u32 = 0x10;
    pub(crate) const INCOMPAT_FAST_COMMIT: u32 = 0x20;
}

/// `journal_block_tag3_t`, the tag with v3 checksums.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct JournalTag3 {
    pub(crate) t_blocknr: be::U32,
    pub(crate) t_flags: be::U32,
    pub(crate) t_blocknr_high: be::U32,
    pub(crate) t_checksum: be::U32,
}

/// `journal_block_tag_t`, older tags; the last field only with 64bit.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct JournalTag {
    pub(crate) t_blocknr: be::U32,
    pub(crate) t_checksum: be::U16,
    pub(crate) t_flags: be::U16,
    pub(crate) t_blocknr_high: be::U32,
}

/// `t_flags`.
pub(crate) mod journal_tag {
    pub(crate) const ESCAPE: u32 = 1;
    pub(crate) const SAME_UUID: u32 = 2;
    pub(crate) const DELETED: u32 = 4;
    pub(crate) const LAST_TAG: u32 = 8;
}

macro_rules! pin {
    ($type:ty: $size:expr; $($field:ident @ $offset:expr),* $(,)?) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            $(assert!(offset_of!($type, $field) == $offset);)*
        };
    };
}

pin!(Superblock: 1024; s_inodes_count @ 0, s_blocks_count_lo @ 4, s_first_data_block @ 20,
    s_blocks_per_group @ 32, s_mtime @ 44, s_magic @ 56, s_lastcheck @ 64, s_rev_level @ 76,
    s_first_ino @ 84, s_inode_size @ 88, s_feature_compat @ 92, s_feature_incompat @ 96,
    s_feature_ro_compat @ 100, s_uuid @ 104, s_volume_name @ 120, s_last_mounted @ 136,
    s_reserved_gdt_blocks @ 206, s_journal_uuid @ 208, s_journal_inum @ 224, s_last_orphan @ 232,
    s_hash_seed @ 236, s_def_hash_version @ 252, s_desc_size @ 254, s_default_mount_opts @ 256,
    s_mkfs_time @ 264, s_jnl_blocks @ 268, s_blocks_count_hi @ 336, s_min_extra_isize @ 348,
    s_flags @ 352, s_mmp_block @ 360, s_log_groups_per_flex @ 372, s_kbytes_written @ 376,
    s_error_count @ 404, s_mount_opts @ 512, s_usr_quota_inum @ 576, s_backup_bgs @ 588,
    s_encrypt_algos @ 596, s_lpf_ino @ 616, s_prj_quota_inum @ 620, s_checksum_seed @ 624,
    s_wtime_hi @ 628, s_encoding @ 636, s_orphan_file_inum @ 640, s_ordered @ 1004,
    s_checksum @ 1020);
pin!(GroupDesc: 64; bg_inode_table_lo @ 8, bg_flags @ 18, bg_block_bitmap_csum_lo @ 24,
    bg_itable_unused_lo @ 28, bg_checksum @ 30, bg_block_bitmap_hi @ 32, bg_inode_table_hi @ 40,
    bg_itable_unused_hi @ 50, bg_block_bitmap_csum_hi @ 56, bg_inode_bitmap_csum_hi @ 58);
pin!(InodeCore: 128; i_size_lo @ 4, i_mtime @ 16, i_links_count @ 26, i_flags @ 32, i_block @ 40,
    i_generation @ 100, i_file_acl_lo @ 104, i_size_high @ 108, i_blocks_high @ 116,
    i_checksum_lo @ 124);
pin!(InodeExtra: 32; i_checksum_hi @ 2, i_ctime_extra @ 4, i_crtime @ 16, i_projid @ 28);
pin!(QuotaHead: 32; dqi_bgrace @ 8, dqi_free_entry @ 28);
pin!(QuotaLeafHead: 16; dqdh_entries @ 8);
pin!(QuotaEntry: 72; dqb_curinodes @ 24, dqb_curspace @ 48, dqb_itime @ 64);
pin!(ExtentHeader: 12; eh_depth @ 6);
pin!(ExtentLeaf: 12; ee_len @ 4, ee_start_hi @ 6, ee_start_lo @ 8);
pin!(ExtentIndex: 12; ei_leaf_lo @ 4, ei_leaf_hi @ 8);
pin!(DirEntryHead: 8; rec_len @ 4, name_len @ 6, file_type @ 7);
pin!(DirEntryTail: 12; det_reserved_ft @ 7, det_checksum @ 8);
pin!(DxRootInfo: 8; hash_version @ 4, indirect_levels @ 6);
pin!(DxCountLimit: 4; count @ 2);
pin!(DxEntry: 8; block @ 4);
pin!(DxTail: 8; dt_checksum @ 4);
pin!(XattrHeader: 32; h_hash @ 12, h_checksum @ 16);
pin!(XattrEntry: 16; e_value_offs @ 2, e_value_inum @ 4, e_value_size @ 8, e_hash @ 12);
pin!(OrphanBlockTail: 8; ob_checksum @ 4);
pin!(MmpBlock: 1024; mmp_time @ 8, mmp_check_interval @ 112, mmp_checksum @ 1020);
pin!(JournalSuperblock: 1024; s_blocksize @ 12, s_start @ 28, s_feature_incompat @ 40,
    s_uuid @ 48, s_checksum_type @ 80, s_num_fc_blks @ 84, s_checksum @ 252, s_users @ 256);
pin!(JournalHeader: 12; h_sequence @ 8);
pin!(JournalTag3: 16; t_blocknr_high @ 8, t_checksum @ 12);
pin!(JournalTag: 12; t_flags @ 6, t_blocknr_high @ 8);
