//! Options of a build.

use crate::features::{Features, LeftOut};
use crate::image::ExtImage;
use crate::ondisk::{ENCODING_STRICT, FLAG_TEST, compat, incompat, ro_compat};
use crate::superblock::Super;
use seekless_fs::plan::Spare;
use seekless_fs::{FsError, Inspect, Timestamp};
use seekless_units::{ByteLen, Ino};

/// How the image is to be made. [`Options::default`] is the default of today's mke2fs, in the
/// smallest volume that fits.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of the volume; fitted to the contents when `None`.
    pub size: Option<ByteLen>,
    /// Free space of a fitted volume, besides the reserved blocks. It comes with inodes:
    /// as many to a byte as the contents have, at least one to `inode_ratio` bytes.
    pub spare: Spare,
    /// Bytes in a block: a power of two from 1024 to 65536.
    pub block_size: u32,
    /// Bytes in an inode: a power of two from 128 to the block size.
    pub inode_size: u32,
    /// Inodes in the volume; from size and contents when `None`.
    pub inodes: Option<u32>,
    /// Bytes of volume for which there is one inode, when `inodes` is `None`; without it 16384
    /// where `size` is given, else as many inodes as the contents need.
    pub inode_ratio: Option<u32>,
    /// Features.
    pub features: Features,
    /// Volume label, at most 16 bytes.
    pub label: Vec<u8>,
    /// Volume UUID; derived from the tree when `None`.
    pub uuid: Option<[u8; 16]>,
    /// Size of the journal; by the volume's size when `None`.
    pub journal_size: Option<ByteLen>,
    /// Blocks reserved for root, in hundredths of a percent.
    pub reserved: u32,
    /// When the file system was made; the newest time in the tree when `None`.
    pub made: Option<Timestamp>,
    /// Consecutive blocks on one disk of a RAID; 0 for none.
    pub raid_stride: u16,
    /// Data blocks of a stripe of a RAID; 0 for none.
    pub raid_stripe_width: u32,
    /// Seed of the hashes of names; derived from the UUID when `None`.
    pub hash_seed: Option<[u8; 16]>,
    /// Owner and group of the root directory; those of the tree when `None`.
    pub root_owner: Option<(u32, u32)>,
    /// Permission, set-id and sticky bits of the root directory; those of the tree when `None`.
    pub root_perms: Option<u16>,
    /// The number of blocks to which the volume can grow while it is mounted, where it has the
    /// `resize_inode` feature; 1024 times its own when `None`.
    pub resize_limit: Option<u64>,
    /// Copies of the superblock and the descriptors, at most 2, with the `sparse_super2` feature.
    /// Without the feature there is one in each group whose number is 1 or a power of 3, 5 or 7.
    pub superblock_copies: u8,
    /// Puts bitmaps, inode tables and the journal at the beginning of the volume, which needs the
    /// `flex_bg` feature.
    pub packs_metadata: bool,
    /// Size of the file for orphans, at most 512 blocks, with the `orphan_file` feature; by
    /// the volume's size when `None`.
    pub orphan_file_size: Option<ByteLen>,
    /// Marks the volume as one for tests of file systems.
    pub is_test_filesystem: bool,
    /// Whether a `lost+found` is made where the source has none. A repair that needs one makes it.
    pub makes_lost_and_found: bool,
    /// With the `casefold` feature: whether names in directories that ignore case must be UTF-8.
    pub has_strict_encoding: bool,
}

/// Blocks of the largest file for orphans with which Linux 6.18 mounts a volume
/// (`ext4_init_orphan_info`).
const MAX_ORPHAN_BLOCKS: u64 = 512;

/// How many copies of the superblock a volume was made with, as far as it has groups for them.
pub(super) fn superblock_copies(sb: &Super) -> u8 {
    if !sb.has_compat(compat::SPARSE_SUPER2) || sb.groups == 1 {
        return SUPERBLOCK_COPIES;
    }
    let copies = sb.raw.s_backup_bgs.iter().filter(|at| at.get() != 0).count();
    match (copies, sb.groups) {
        (0, _) => 0,
        (1, 2) => SUPERBLOCK_COPIES,
        (1, _) => 1,
        _ => SUPERBLOCK_COPIES,
    }
}

/// Copies of the superblock with the `sparse_super2` feature, as mke2fs makes them: one in the
/// second group and one in the last.
pub(super) const SUPERBLOCK_COPIES: u8 = 2;

/// Default bytes of volume per inode, as in mke2fs.
pub(super) const INODE_RATIO: u32 = 16384;

impl Default for Options {
    fn default() -> Self {
        Self {
            size: None,
            spare: Spare::default(),
            block_size: 4096,
            inode_size: 256,
            inodes: None,
            inode_ratio: None,
            features: Features::EXT4,
            label: Vec::new(),
            uuid: None,
            journal_size: None,
            reserved: 500,
            made: None,
            raid_stride: 0,
            raid_stripe_width: 0,
            hash_seed: None,
            root_owner: None,
            root_perms: None,
            resize_limit: None,
            superblock_copies: SUPERBLOCK_COPIES,
            packs_metadata: false,
            orphan_file_size: None,
            is_test_filesystem: false,
            makes_lost_and_found: true,
            has_strict_encoding: false,
        }
    }
}

/// Every feature that a build supports.
const WRITABLE: Features = Features {
    compat: Features::EXT4.compat | compat::SPARSE_SUPER2,
    incompat: Features::EXT4.incompat
        | incompat::CASEFOLD
        | incompat::EA_INODE
        | incompat::LARGEDIR
        | incompat::INLINE_DATA,
    ro_compat: Features::EXT4.ro_compat | ro_compat::GDT_CSUM | ro_compat::VERITY,
};

impl Options {
    /// Options for a volume like an image: size, features, marks, reserved share.
    #[must_use]
    pub fn like(image: &ExtImage) -> Self {
        let sb = &image.volume().sb;
        let raw = &sb.raw;
        let reserved = (u64::from(raw.s_r_blocks_count_hi.get()) << 32)
            | u64::from(raw.s_r_blocks_count_lo.get());
        let label = &image.geometry().label;
        let secs = i64::from(raw.s_mkfs_time.get()) | (i64::from(raw.s_mkfs_time_hi) << 32);
        let pending = Features {
            incompat: incompat::RECOVER,
            ro_compat: ro_compat::ORPHAN_PRESENT,
            ..Features::default()
        };
        let journal = image.attr(Ino::new(raw.s_journal_inum.get()));
        Self {
            size: Some(ByteLen::new(sb.blocks * u64::from(sb.block_size))),
            block_size: sb.block_size,
            inode_size: u32::from(sb.inode_size),
            inodes: Some(raw.s_inodes_count.get()),
            features: Features::of(raw).without(pending),
            label: label.clone(),
            uuid: Some(raw.s_uuid),
            journal_size: journal.ok().map(|journal| ByteLen::new(journal.size)),
            // Rounded up, so that the same number of blocks follows from it.
            reserved: (reserved * 10_000).div_ceil(sb.blocks.max(1)).min(5000) as u32,
            made: Some(Timestamp { secs, nanos: 0 }),
            superblock_copies: superblock_copies(sb),
            is_test_filesystem: raw.s_flags.get() & FLAG_TEST != 0,
            has_strict_encoding: raw.s_encoding_flags.get() & ENCODING_STRICT != 0,
            ..Self::default()
        }
    }

    /// Whether small files are stored in their inodes.
    #[must_use]
    pub fn has_inline_data(&self) -> bool {
        self.features.has_incompat(incompat::INLINE_DATA)
    }

    /// Checks that each option is supported, and that they go together.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] with the name of a feature that cannot be
    /// written; [`FsError::Invalid`] for values out of range and features that
    /// exclude each other.
    pub fn check(&self) -> Result<(), FsError> {
        let invalid = |why: String| Err(FsError::Invalid(why));
        if !self.block_size.is_power_of_two() || !(1024..=65536).contains(&self.block_size) {
            return invalid(format!("invalid block size {}", self.block_size));
        }
        if !self.inode_size.is_power_of_two() || !(128..=self.block_size).contains(&self.inode_size)
        {
            return invalid(format!("invalid inode size {}", self.inode_size));
        }
        if self.label.len() > 16 {
            return invalid("a volume label may have at most 16 bytes".into());
        }
        if self.reserved > 5000 {
            return invalid("at most half of the blocks may be reserved".into());
        }
        if self.inode_ratio.is_some_and(|ratio| ratio < 1024) {
            return invalid("at most one inode per 1K is possible".into());
        }
        let missing = self.features.without(WRITABLE).names();
        if !missing.is_empty() {
            return Err(FsError::Unsupported(format!(
                "building an image with {}",
                missing.join(", ")
            )));
        }
        self.check_combination()
    }

    fn check_combination(&self) -> Result<(), FsError> {
        let has = self.features;
        if let Some(LeftOut { feature, needs }) = has.lacking() {
            return Err(FsError::Invalid(format!("{feature} needs {needs}")));
        }
        let orphan_blocks =
            self.orphan_file_size.map(|size| size.get().div_ceil(self.block_size.into()));
        let copies_differ = self.superblock_copies != SUPERBLOCK_COPIES;
        let rules = [
            (
                copies_differ && !has.has_compat(compat::SPARSE_SUPER2),
                "a number of superblock copies needs the sparse_super2 feature",
            ),
            (
                self.superblock_copies > SUPERBLOCK_COPIES,
                "the sparse_super2 feature has at most 2 copies of the superblock",
            ),
            (
                self.orphan_file_size.is_some() && !has.has_compat(compat::ORPHAN_FILE),
                "a size of the orphan file needs the orphan_file feature",
            ),
            (
                orphan_blocks.is_some_and(|blocks| !(1..=MAX_ORPHAN_BLOCKS).contains(&blocks)),
                "orphan_file_size: the orphan file has from 1 to 512 blocks",
            ),
            (
                self.packs_metadata && !has.has_incompat(incompat::FLEX_BG),
                "metadata at the beginning of the volume needs the flex_bg feature",
            ),
            (
                self.has_strict_encoding && !has.has_incompat(incompat::CASEFOLD),
                "a strict encoding needs the casefold feature",
            ),
            (
                self.resize_limit.is_some() && !has.has_compat(compat::RESIZE_INODE),
                "a resize limit needs the resize_inode feature",
            ),
            (
                !has.has_incompat(incompat::FILETYPE),
                "images cannot be built without the filetype feature",
            ),
            (
                has.has_ro_compat(ro_compat::GDT_CSUM)
                    && has.has_ro_compat(ro_compat::METADATA_CSUM),
                "uninit_bg and metadata_csum cannot be combined",
            ),
            (
                has.has_incompat(incompat::INLINE_DATA) && self.inode_size == 128,
                "inline_data needs inodes of 256 bytes or more",
            ),
        ];
        match rules.iter().find(|(broken, _)| *broken) {
            Some((_, why)) => Err(FsError::Invalid((*why).to_string())),
            None => Ok(()),
        }
    }
}
