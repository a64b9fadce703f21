//! The shape of a volume that follows from another one, or from the options alone: sizes of groups and
//! tables.

use super::options::Options;
use crate::ondisk::{compat, incompat};
use seekless_units::{BlockNo, ByteLen};

/// Reserved inodes before the first ordinary one.
pub(crate) const FIRST_INO: u32 = 11;

/// Groups in a flexible group, which the kernel searches as one.
pub(crate) const LOG_GROUPS_PER_FLEX: u8 = 4;

/// The places of a group's bitmaps and inode table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupTables {
    pub(crate) block_bitmap: BlockNo,
    pub(crate) inode_bitmap: BlockNo,
    /// The first block of the inode table.
    pub(crate) inodes: BlockNo,
}

/// The shape of an older volume, for a new one of at least its size.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) blocks: u64,
    pub(crate) blocks_per_group: u64,
    pub(crate) inodes_per_group: u32,
    pub(crate) desc_size: u32,
    /// Blocks of descriptors, and those reserved for more.
    pub(crate) descriptor_room: u64,
    pub(crate) log_groups_per_flex: u8,
    /// Whether the volume ends with a group, if its size is not requested.
    pub(crate) whole_groups: bool,
    /// Blocks of the orphan file; `None` for those that follow from the size.
    pub(crate) orphan_blocks: Option<u64>,
    /// By group.
    pub(crate) tables: Vec<GroupTables>,
}

/// Blocks of descriptors for which volumes without a common size have room: 4096 groups of 64-byte
/// descriptors in blocks of 4 KiB. With the superblock and the bitmaps of the first group they fit
/// in a chunk of 512 KiB.
const COMMON_DESCRIPTORS: u64 = 64;

/// Blocks of a journal whose length depends on nothing.
const COMMON_JOURNAL: u64 = 4096;

/// Blocks of an orphan file whose length depends on nothing: mke2fs' least.
const COMMON_ORPHAN_FILE: u64 = 32;

/// Bytes of volume to an inode where its size is not known.
const COMMON_INODE_RATIO: u32 = 8192;

impl Shape {
    /// A shape that follows from the options alone.
    pub(crate) fn common(options: &Options) -> Self {
        let blocks_per_group = blocks_in_group(options.block_size);
        let ratio = u64::from(options.inode_ratio.unwrap_or(COMMON_INODE_RATIO));
        let inodes = blocks_per_group * u64::from(options.block_size) / ratio;
        let step = inode_step(options);
        let most = most_inodes_in_group(options);
        let wide = options.features.has_incompat(incompat::BIT64);
        let room = options.features.has_compat(compat::RESIZE_INODE);
        let group = u64::from(options.block_size == 1024) + blocks_per_group;
        let size = options.size.map(|size| size.get() / u64::from(options.block_size));
        Self {
            blocks: size.map_or(group, |blocks| blocks.min(group)),
            blocks_per_group,
            inodes_per_group: (inodes.min(most.into()) as u32)
                .max(FIRST_INO + 5)
                .next_multiple_of(step)
                .min(most),
            desc_size: if wide { 64 } else { 32 },
            descriptor_room: if room { COMMON_DESCRIPTORS } else { 1 },
            log_groups_per_flex: LOG_GROUPS_PER_FLEX,
            whole_groups: true,
            orphan_blocks: Some(COMMON_ORPHAN_FILE),
            tables: Vec::new(),
        }
    }

    /// Blocks of the journal.
    pub(crate) fn common_journal(options: &Options) -> ByteLen {
        let usual = ByteLen::new(COMMON_JOURNAL * u64::from(options.block_size));
        options.journal_size.unwrap_or(usual)
    }
}

/// Blocks covered by one bitmap block; 65528 is the maximum of the count in a group descriptor.
pub(super) fn blocks_in_group(block_size: u32) -> u64 {
    (u64::from(block_size) * 8).min(65528)
}

/// Inodes per group are a multiple of those of a block and of a bitmap's byte.
pub(super) fn inode_step(options: &Options) -> u32 {
    (options.block_size / options.inode_size).max(8)
}

/// The most inodes for which the bitmap has bits, and which leave half of the group to data.
pub(super) fn most_inodes_in_group(options: &Options) -> u32 {
    let bits = (options.block_size * 8).min(65528);
    let half = bits / 2 * (options.block_size / options.inode_size);
    let step = inode_step(options);
    (bits.min(half) / step * step).max(step)
}
