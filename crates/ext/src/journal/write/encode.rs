//! The bytes of a transaction: blocks of revoke records, descriptors each with the
//! copies behind it, and the commit record (jbd2: `fs/jbd2/commit.c`,
//! `fs/jbd2/revoke.c`).

use super::super::checksum::{COMMIT_CRC32, crc32_be, without_word};
use super::super::form::Form;
use crate::checksum::crc32c;
use crate::ondisk::{
    JOURNAL_MAGIC, JOURNAL_TAG_UUID, JournalHeader, JournalTag, JournalTag3, journal_at,
    journal_block, journal_feature, journal_tag,
};
use seekless_cache::{LogCopy, LogTransaction};
use seekless_fs::Timestamp;
use seekless_fs::field::{low16, low32, wide};
use seekless_units::BlockNo;
use zerocopy::IntoBytes;

/// Encodes the blocks of a transaction.
pub(super) struct Encoder<'a> {
    pub(super) form: &'a Form,
    /// Stands behind the first tag of each descriptor; never compared.
    pub(super) uuid: [u8; 16],
    /// Bytes in a block.
    pub(super) block: usize,
    /// The number of the transaction.
    pub(super) tid: u32,
}

impl Encoder<'_> {
    /// Tags that fit in a descriptor.
    pub(super) fn tags(&self) -> usize {
        let taken = journal_at::TAGS + JOURNAL_TAG_UUID + self.form.tail_len();
        debug_assert!(taken + self.form.tag_len() <= self.block, "a descriptor has a tag");
        (self.block - taken) / self.form.tag_len()
    }

    /// Revoke records that fit in a block.
    pub(super) fn revokes(&self) -> usize {
        let taken = journal_at::REVOKE_RECORDS + self.form.tail_len();
        debug_assert!(taken < self.block, "a block of revoke records has one");
        (self.block - taken) / self.form.revoke_record_len()
    }

    /// Blocks of a transaction, its commit record included.
    pub(super) fn cost(&self, copies: u64, revokes: u64) -> u64 {
        let descriptors = copies.div_ceil(wide(self.tags()));
        let records = revokes.div_ceil(wide(self.revokes()));
        copies + descriptors + records + 1
    }

    /// Makes all blocks, one after the other, except for the commit record. Returns the checksum of
    /// the first generation, which is in that record.
    pub(super) fn blocks(
        &self,
        transaction: &LogTransaction<'_>,
        mut put: impl FnMut(&[u8]),
    ) -> u32 {
        for revokes in transaction.revokes.chunks(self.revokes()) {
            put(&self.revoke_block(revokes));
        }
        let mut crc = !0;
        for copies in transaction.copies.chunks(self.tags()) {
            let descriptor = self.descriptor(copies);
            crc = crc32_be(crc, &descriptor);
            put(&descriptor);
            for copy in copies {
                let escaped = escaped(copy.bytes);
                let stored = escaped.as_deref().unwrap_or(copy.bytes);
                crc = crc32_be(crc, stored);
                put(stored);
            }
        }
        crc
    }

    /// A block with only the common header.
    fn headed(&self, kind: u32) -> Vec<u8> {
        let mut block = vec![0; self.block];
        let header = JournalHeader {
            h_magic: JOURNAL_MAGIC.into(),
            h_blocktype: kind.into(),
            h_sequence: self.tid.into(),
        };
        lay(&mut block, 0, header.as_bytes());
        block
    }

    fn revoke_block(&self, revokes: &[BlockNo]) -> Vec<u8> {
        debug_assert!(
            !revokes.is_empty() && revokes.len() <= self.revokes(),
            "{} revoke records in a block",
            revokes.len()
        );
        let mut block = self.headed(journal_block::REVOKE);
        let mut at = journal_at::REVOKE_RECORDS;
        for revoked in revokes {
            let number = revoked.get().to_be_bytes();
            let len = self.form.revoke_record_len();
            debug_assert!(len == 8 || u32::try_from(revoked.get()).is_ok(), "{revoked} in 32 bits");
            lay(&mut block, at, number.get(8 - len..).unwrap_or_default());
            at += len;
        }
        lay(&mut block, journal_at::REVOKE_COUNT, &low32(wide(at)).to_be_bytes());
        self.seal_tail(&mut block);
        block
    }

    fn descriptor(&self, copies: &[LogCopy<'_>]) -> Vec<u8> {
        debug_assert!(
            !copies.is_empty() && copies.len() <= self.tags(),
            "{} tags in a descriptor",
            copies.len()
        );
        let mut block = self.headed(journal_block::DESCRIPTOR);
        let mut at = journal_at::TAGS;
        for (n, copy) in copies.iter().enumerate() {
            let escaped = escaped(copy.bytes);
            let sum = self.data_sum(escaped.as_deref().unwrap_or(copy.bytes));
            let mut flags = 0;
            flags |= if escaped.is_some() { journal_tag::ESCAPE } else { 0 };
            flags |= if n > 0 { journal_tag::SAME_UUID } else { 0 };
            flags |= if n + 1 == copies.len() { journal_tag::LAST_TAG } else { 0 };
            self.put_tag(&mut block, at, copy.home, flags, sum);
            at += self.form.tag_len();
            if n == 0 {
                lay(&mut block, at, &self.uuid);
                at += JOURNAL_TAG_UUID;
            }
        }
        self.seal_tail(&mut block);
        block
    }

    fn put_tag(&self, block: &mut [u8], at: usize, home: BlockNo, flags: u32, sum: u32) {
        let (low, high) = (low32(home.get()), low32(home.get() >> 32));
        debug_assert!(high == 0 || self.form.has(journal_feature::INCOMPAT_64BIT));
        if self.form.has(journal_feature::INCOMPAT_CSUM_V3) {
            let tag = JournalTag3 {
                t_blocknr: low.into(),
                t_flags: flags.into(),
                t_blocknr_high: high.into(),
                t_checksum: sum.into(),
            };
            lay(block, at, tag.as_bytes());
            return;
        }
        // The second generation keeps half of the checksum.
        let tag = JournalTag {
            t_blocknr: low.into(),
            t_checksum: low16(sum & 0xFFFF).into(),
            t_flags: low16(flags).into(),
            t_blocknr_high: high.into(),
        };
        let len = self.form.tag_len().min(size_of::<JournalTag>());
        lay(block, at, tag.as_bytes().get(..len).unwrap_or_default());
    }

    fn data_sum(&self, stored: &[u8]) -> u32 {
        if !self.form.has_block_checksums() {
            return 0;
        }
        crc32c(crc32c(self.form.seed, &self.tid.to_be_bytes()), stored)
    }

    /// The record that commits the transaction. `crc` is the value that [`Encoder::blocks`]
    /// returned.
    pub(super) fn commit(&self, time: Timestamp, crc: u32) -> Vec<u8> {
        debug_assert!(
            !(self.form.has_transaction_checksums() && self.form.has_block_checksums()),
            "a commit record has one checksum"
        );
        let mut block = self.headed(journal_block::COMMIT);
        lay(&mut block, journal_at::COMMIT_SECONDS, &time.secs.to_be_bytes());
        lay(&mut block, journal_at::COMMIT_NANOS, &time.nanos.to_be_bytes());
        if self.form.has_transaction_checksums() {
            lay(&mut block, journal_at::COMMIT_CHECKSUM_TYPE, &COMMIT_CRC32);
            lay(&mut block, journal_at::COMMIT_CHECKSUM, &crc.to_be_bytes());
        }
        if self.form.has_block_checksums() {
            self.seal_at(&mut block, journal_at::COMMIT_CHECKSUM);
        }
        block
    }

    fn seal_tail(&self, block: &mut [u8]) {
        if self.form.tail_len() > 0 {
            self.seal_at(block, block.len() - 4);
        }
    }

    fn seal_at(&self, block: &mut [u8], at: usize) {
        let sum = without_word(self.form.seed, block, at);
        lay(block, at, &sum.to_be_bytes());
    }
}

/// The escaped form of a block that begins with the magic number of the log's own blocks.
fn escaped(bytes: &[u8]) -> Option<Vec<u8>> {
    bytes.starts_with(&JOURNAL_MAGIC.to_be_bytes()).then(|| {
        let mut stored = bytes.to_vec();
        lay(&mut stored, 0, &[0; 4]);
        stored
    })
}

/// Puts bytes at their place in a block, which has room for them.
fn lay(block: &mut [u8], at: usize, bytes: &[u8]) {
    let place = block.get_mut(at..at + bytes.len());
    debug_assert!(place.is_some(), "{} bytes at {at} of a journal block", bytes.len());
    if let Some(place) = place {
        place.copy_from_slice(bytes);
    }
}
