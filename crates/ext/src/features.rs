//! Feature bits and their names, as `dumpe2fs` prints them.

use crate::ondisk::{Superblock, compat, incompat, ro_compat};
use seekless_fs::FsError;

const COMPAT: &[(u32, &str)] = &[
    (compat::DIR_PREALLOC, "dir_prealloc"),
    (compat::IMAGIC_INODES, "imagic_inodes"),
    (compat::HAS_JOURNAL, "has_journal"),
    (compat::EXT_ATTR, "ext_attr"),
    (compat::RESIZE_INODE, "resize_inode"),
    (compat::DIR_INDEX, "dir_index"),
    (compat::LAZY_BG, "lazy_bg"),
    (0x80, "snapshot_bitmap"),
    (compat::SPARSE_SUPER2, "sparse_super2"),
    (compat::FAST_COMMIT, "fast_commit"),
    (compat::STABLE_INODES, "stable_inodes"),
    (compat::ORPHAN_FILE, "orphan_file"),
];

const INCOMPAT: &[(u32, &str)] = &[
    (incompat::COMPRESSION, "compression"),
    (incompat::FILETYPE, "filetype"),
    (incompat::RECOVER, "needs_recovery"),
    (incompat::JOURNAL_DEV, "journal_dev"),
    (incompat::META_BG, "meta_bg"),
    (incompat::EXTENTS, "extent"),
    (incompat::BIT64, "64bit"),
    (incompat::MMP, "mmp"),
    (incompat::FLEX_BG, "flex_bg"),
    (incompat::EA_INODE, "ea_inode"),
    (incompat::DIRDATA, "dirdata"),
    (incompat::CSUM_SEED, "metadata_csum_seed"),
    (incompat::LARGEDIR, "large_dir"),
    (incompat::INLINE_DATA, "inline_data"),
    (incompat::ENCRYPT, "encrypt"),
    (incompat::CASEFOLD, "casefold"),
];

const RO_COMPAT: &[(u32, &str)] = &[
    (ro_compat::SPARSE_SUPER, "sparse_super"),
    (ro_compat::LARGE_FILE, "large_file"),
    (ro_compat::BTREE_DIR, "btree_dir"),
    (ro_compat::HUGE_FILE, "huge_file"),
    (ro_compat::GDT_CSUM, "uninit_bg"),
    (ro_compat::DIR_NLINK, "dir_nlink"),
    (ro_compat::EXTRA_ISIZE, "extra_isize"),
    (0x80, "snapshot"),
    (ro_compat::QUOTA, "quota"),
    (ro_compat::BIGALLOC, "bigalloc"),
    (ro_compat::METADATA_CSUM, "metadata_csum"),
    (0x800, "replica"),
    (ro_compat::READONLY, "read-only"),
    (ro_compat::PROJECT, "project"),
    (ro_compat::SHARED_BLOCKS, "shared_blocks"),
    (ro_compat::VERITY, "verity"),
    (ro_compat::ORPHAN_PRESENT, "orphan_present"),
];

/// Incompatible features that this crate can read.
const READABLE: u32 = incompat::FILETYPE
    | incompat::RECOVER
    | incompat::META_BG
    | incompat::EXTENTS
    | incompat::BIT64
    | incompat::MMP
    | incompat::FLEX_BG
    | incompat::EA_INODE
    | incompat::CSUM_SEED
    | incompat::LARGEDIR
    | incompat::INLINE_DATA
    | incompat::ENCRYPT
    | incompat::CASEFOLD;

/// Features that ext3 does not have: what makes an image ext4.
const EXT3_RO_COMPAT: u32 = ro_compat::SPARSE_SUPER | ro_compat::LARGE_FILE | ro_compat::BTREE_DIR;
const EXT3_INCOMPAT: u32 = incompat::FILETYPE | incompat::RECOVER | incompat::META_BG;

/// The name of each bit, or `FEATURE_I17` as e2fsprogs has it for unknown ones.
fn named(bits: u32, letter: char, table: &[(u32, &str)], names: &mut Vec<String>) {
    for number in 0..32u32 {
        let bit = 1u32 << number;
        if bits & bit == 0 {
            continue;
        }
        match table.iter().find(|(known, _)| *known == bit) {
            Some((_, name)) => names.push((*name).to_string()),
            None => names.push(format!("FEATURE_{letter}{number}")),
        }
    }
}

/// All features of a superblock, in the order of `dumpe2fs`.
pub(crate) fn names(raw: &Superblock) -> Vec<String> {
    let mut names = Vec::new();
    named(raw.s_feature_compat.get(), 'C', COMPAT, &mut names);
    named(raw.s_feature_incompat.get(), 'I', INCOMPAT, &mut names);
    named(raw.s_feature_ro_compat.get(), 'R', RO_COMPAT, &mut names);
    names
}

/// Refuses images with incompatible features that cannot be read, by name.
pub(crate) fn check(raw: &Superblock) -> Result<(), FsError> {
    let unknown = raw.s_feature_incompat.get() & !READABLE;
    if unknown == 0 {
        return Ok(());
    }
    let mut missing = Vec::new();
    named(unknown, 'I', INCOMPAT, &mut missing);
    Err(FsError::Unsupported(format!("feature {}", missing.join(", "))))
}

/// `ext2`, `ext3` or `ext4`, told apart as `blkid` does.
pub(crate) fn format_name(raw: &Superblock) -> &'static str {
    if raw.s_feature_ro_compat.get() & !EXT3_RO_COMPAT != 0
        || raw.s_feature_incompat.get() & !EXT3_INCOMPAT != 0
    {
        "ext4"
    } else if raw.s_feature_compat.get() & compat::HAS_JOURNAL != 0 {
        "ext3"
    } else {
        "ext2"
    }
}
