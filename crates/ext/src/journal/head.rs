//! The block with the superblock of a journal: emptied, or made.

use super::form::{CHECKSUM_CRC32C, WITH_SUM};
use super::log;
use crate::checksum::crc32c;
use crate::ondisk::{JOURNAL_MAGIC, JournalSuperblock, journal_block};
use std::mem::offset_of;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Clears the fields that a journal of the first version does not have.
pub(crate) fn clear_foreign_fields(block: &mut [u8]) {
    let from = offset_of!(JournalSuperblock, s_feature_compat);
    block.get_mut(from..).unwrap_or_default().fill(0);
}

/// Makes the first block of a journal that of an empty one, which goes on behind the old
/// transactions.
pub(crate) fn empty(block: &mut [u8]) {
    let Some((head, _)) = block.split_at_mut_checked(size_of::<JournalSuperblock>()) else {
        return;
    };
    let Ok(superblock) = JournalSuperblock::mut_from_bytes(head) else { return };
    superblock.s_start = 0.into();
    superblock.s_sequence = superblock.s_sequence.get().wrapping_add(1).max(1).into();
    if superblock.s_feature_incompat.get() & WITH_SUM != 0 {
        superblock.s_checksum = 0.into();
        superblock.s_checksum = crc32c(!0, superblock.as_bytes()).into();
    }
}

/// Makes the first block of a journal of `blocks` blocks, whose transactions begin in block `first`,
/// that of an empty one: the one there as far as it can be used, else one without features. The
/// transactions in the journal are lost.
pub(crate) fn reset(block: &mut [u8], blocks: u32, block_size: u32, first: u32) {
    const KEPT: usize = size_of::<JournalSuperblock>();
    // A number that old transactions hardly have: theirs are unknown.
    let number = crc32c(!0, block) | 1;
    let Some((head, rest)) = block.split_at_mut_checked(KEPT) else { return };
    let Ok(sb) = JournalSuperblock::mut_from_bytes(head) else { return };
    let is_usable = sb.s_header.h_magic.get() == JOURNAL_MAGIC
        && sb.s_header.h_blocktype.get() == journal_block::SUPERBLOCK_V2
        && sb.s_blocksize.get() == block_size
        && sb.s_first.get() == first
        && sb.s_feature_ro_compat.get() == 0
        && sb.s_feature_incompat.get() & !log::KNOWN == 0;
    if !is_usable {
        let uuid = sb.s_uuid;
        *sb = JournalSuperblock::new_zeroed();
        sb.s_header.h_magic = JOURNAL_MAGIC.into();
        sb.s_header.h_blocktype = journal_block::SUPERBLOCK_V2.into();
        sb.s_blocksize = block_size.into();
        sb.s_first = first.into();
        sb.s_nr_users = 1.into();
        sb.s_uuid = uuid;
        sb.s_sequence = number.into();
        rest.fill(0);
    }
    sb.s_maxlen = blocks.into();
    sb.s_errno = 0.into();
    if sb.s_feature_incompat.get() & WITH_SUM != 0 {
        sb.s_checksum_type = CHECKSUM_CRC32C;
    }
    empty(block);
}
