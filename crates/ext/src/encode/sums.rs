//! Checksums of structures that a volume or a group has one of.

use crate::checksum::crc32c;
use crate::ondisk::{Superblock, ro_compat};
use seekless_fs::field::{index, low16};
use zerocopy::IntoBytes;

/// Turns a superblock into the copy for a group and sets its checksum.
pub(crate) fn seal_superblock(sb: &mut Superblock, group: u32) {
    sb.s_block_group_nr = low16(group).into();
    if sb.s_feature_ro_compat.get() & ro_compat::METADATA_CSUM != 0 {
        let end = std::mem::offset_of!(Superblock, s_checksum);
        sb.s_checksum = crc32c(!0, sb.as_bytes().get(..end).unwrap_or_default()).into();
    }
}

/// The checksum of the first `bits` bits of a bitmap, from the volume's seed.
pub(crate) fn bitmap_sum(seed: u32, bitmap: &[u8], bits: u64) -> u32 {
    debug_assert!(index(bits) <= bitmap.len() * 8, "a bitmap of {bits} bits");
    crc32c(seed, bitmap.get(..index(bits.div_ceil(8))).unwrap_or(bitmap))
}
