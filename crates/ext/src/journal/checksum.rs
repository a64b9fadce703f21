//! The checksums of the journal: three generations of them.

use super::form::{Form, be32, place};
use super::tags::Tag;
use crate::checksum::crc32c;
use crate::ondisk::{JournalSuperblock, journal_at, journal_feature};
use crate::superblock::verify;
use crc::{CRC_32_MPEG_2, Crc, Table};
use seekless_fs::field::truncated;
use seekless_fs::{FsError, Location};
use std::mem::offset_of;

/// `h_chksum_type` CRC32 with `h_chksum_size` 4.
pub(super) const COMMIT_CRC32: [u8; 2] = [1, 4];

/// CRC32C of a block with the word at byte `at` taken as zero.
pub(super) fn without_word(seed: u32, block: &[u8], at: usize) -> u32 {
    let (before, rest) = block.split_at_checked(at).unwrap_or_default();
    let crc = crc32c(crc32c(seed, before), &[0; 4]);
    crc32c(crc, rest.get(4..).unwrap_or_default())
}

/// Checks the journal superblock.
pub(super) fn verify_superblock(block: &[u8], stored: u32) -> Result<(), FsError> {
    let sb = block.get(..size_of::<JournalSuperblock>()).ok_or_else(|| truncated(place()))?;
    let computed = without_word(!0, sb, offset_of!(JournalSuperblock, s_checksum));
    verify(stored, computed, Location::of("journal superblock"))
}

/// Checks a journal block whose checksum stands at byte `at`.
pub(super) fn verify_at(form: &Form, block: &[u8], at: usize) -> Result<(), FsError> {
    let stored = be32(block, at).ok_or_else(|| truncated(place()))?;
    verify(stored, without_word(form.seed, block, at), Location::of("journal block"))
}

/// Whether a commit record's own checksum is right.
pub(super) fn commit_matches(form: &Form, block: &[u8]) -> bool {
    !form.has_block_checksums() || verify_at(form, block, journal_at::COMMIT_CHECKSUM).is_ok()
}

/// Checks a journalled block against its tag.
pub(super) fn verify_data(
    form: &Form,
    tag: &Tag,
    transaction: u32,
    data: &[u8],
) -> Result<(), FsError> {
    if !form.has_block_checksums() {
        return Ok(());
    }
    let mut computed = crc32c(crc32c(form.seed, &transaction.to_be_bytes()), data);
    if !form.has(journal_feature::INCOMPAT_CSUM_V3) {
        computed &= 0xFFFF;
    }
    let place = Location::of("journalled block").in_block(tag.block);
    verify(tag.checksum, computed, place)
}

/// Whether a commit record's checksum of its whole transaction is `computed`,
/// or there is none.
pub(super) fn transaction_matches(commit: &[u8], computed: u32) -> bool {
    let kind = commit.get(journal_at::COMMIT_CHECKSUM_TYPE..).and_then(<[u8]>::first_chunk::<2>);
    let stored = be32(commit, journal_at::COMMIT_CHECKSUM);
    match kind {
        Some(&COMMIT_CRC32) => stored == Some(computed),
        Some([0, 0]) => stored == Some(0),
        _ => false,
    }
}

/// CRC32 (polynomial 0x04C11DB7, most significant bit first, no complement)
/// continued from `seed`: the kernel's `crc32_be`.
pub(super) fn crc32_be(seed: u32, data: &[u8]) -> u32 {
    let mut digest = CRC32_BE.digest_with_initial(seed);
    digest.update(data);
    digest.finalize()
}

static CRC32_BE: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_MPEG_2);

#[cfg(test)]
mod tests {
    use super::crc32_be;

    #[test]
    fn known_value() {
        // CRC-32/MPEG-2's check value.
        assert_eq!(crc32_be(!0, b"123456789"), 0x0376_E6E7);
        assert_eq!(crc32_be(crc32_be(!0, b"1234"), b"56789"), 0x0376_E6E7);
    }
}
