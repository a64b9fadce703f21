//! The format of a journal's blocks, as determined by its features.

use crate::ondisk::{JournalTag, JournalTag3, journal_feature};
use seekless_fs::Location;

/// Features with which the journal's superblock has a checksum.
pub(super) const WITH_SUM: u32 =
    journal_feature::INCOMPAT_CSUM_V2 | journal_feature::INCOMPAT_CSUM_V3;
/// `s_checksum_type` of jbd2: CRC32C.
pub(super) const CHECKSUM_CRC32C: u8 = 4;

/// The structure that errors of the journal name.
pub(super) fn place() -> Location {
    Location::of("journal")
}

/// The big-endian word at byte `at`.
pub(super) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

/// The features of a journal that determine the format of its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Form {
    pub(super) incompat: u32,
    pub(super) compat: u32,
    /// The seed of the journal's own checksums.
    pub(super) seed: u32,
}

impl Form {
    /// Whether the journal has an incompatible feature.
    pub(super) fn has(&self, bit: u32) -> bool {
        self.incompat & bit != 0
    }

    /// Whether every block of the journal has its own checksum.
    pub(super) fn has_block_checksums(&self) -> bool {
        self.has(journal_feature::INCOMPAT_CSUM_V2) || self.has(journal_feature::INCOMPAT_CSUM_V3)
    }

    /// Whether commit records carry a checksum of their whole transaction.
    pub(super) fn has_transaction_checksums(&self) -> bool {
        self.compat & journal_feature::COMPAT_CHECKSUM != 0 && !self.has_block_checksums()
    }

    /// Bytes at the end of descriptor and revoke blocks kept for a checksum.
    pub(super) fn tail_len(&self) -> usize {
        if self.has_block_checksums() { 4 } else { 0 }
    }

    /// Bytes of a tag, without the UUID that may follow.
    pub(super) fn tag_len(&self) -> usize {
        if self.has(journal_feature::INCOMPAT_CSUM_V3) {
            return size_of::<JournalTag3>();
        }
        // The second checksum version left two unused bytes in each tag.
        let extra = if self.has(journal_feature::INCOMPAT_CSUM_V2) { 2 } else { 0 };
        let high = if self.has(journal_feature::INCOMPAT_64BIT) { 0 } else { 4 };
        size_of::<JournalTag>() + extra - high
    }

    /// Bytes of a revoke record.
    pub(super) fn revoke_record_len(&self) -> usize {
        if self.has(journal_feature::INCOMPAT_64BIT) { 8 } else { 4 }
    }
}
