//! Finds the finished fast commits.

use super::records::{Operation, TAG_LEN, Tlv, tag};
use crate::checksum::crc32c;
use crate::journal::log::Log;
use crate::ondisk::journal_feature;
use seekless_fs::FsError;
use seekless_fs::field::{le32, slice};

/// Whether more records of the area follow.
enum Next {
    More,
    /// Nothing behind this belongs to the commits.
    End,
}

struct Scan<'a> {
    end: u32,
    log: &'a Log<'a>,
    crc: u32,
    /// Operations of finished commits.
    done: Vec<Operation>,
    /// Operations of the commit that is being read.
    open: Vec<Operation>,
}

/// The operations of all finished fast commits on top of transaction `end - 1`, in order. Records
/// behind the last finished one were never promised to anybody and are left out.
pub(super) fn committed(log: &Log<'_>, end: u32) -> Result<Vec<Operation>, FsError> {
    let mut scan = Scan { end, log, crc: 0, done: Vec::new(), open: Vec::new() };
    if !log.form.has(journal_feature::INCOMPAT_FAST_COMMIT) {
        return Ok(scan.done);
    }
    // Without an area of its own the journal ends with the ring, wherever that is.
    let Some(first) = log.last.checked_add(1) else { return Ok(scan.done) };
    for at in first..log.len {
        let Ok(block) = log.block(at) else { break };
        let begins = Tlv::at(&block, 0).is_some_and(|record| record.tag == tag::HEAD);
        if at == first && !begins {
            break;
        }
        if matches!(scan.block(&block)?, Next::End) {
            break;
        }
    }
    Ok(scan.done)
}

impl Scan<'_> {
    fn block(&mut self, block: &[u8]) -> Result<Next, FsError> {
        let mut at = 0usize;
        while let Some(record) = Tlv::at(block, at) {
            let whole = TAG_LEN + record.len;
            match record.tag {
                tag::HEAD => {
                    if !self.head(&record)? {
                        return Ok(Next::End);
                    }
                    self.sum(block, at, whole);
                }
                tag::TAIL => {
                    // The checksum covers the tail up to itself.
                    self.sum(block, at, TAG_LEN + 4);
                    if !self.tail(&record) {
                        return Ok(Next::End);
                    }
                }
                tag::ADD_RANGE..=tag::PAD if record.value.len() == record.len => {
                    self.sum(block, at, whole);
                    // A torn record cannot be told from a hostile one before the checksum behind it
                    // was read.
                    match record.operation() {
                        Ok(operation) => self.open.extend(operation),
                        Err(_) => return Ok(Next::End),
                    }
                }
                _ => return Ok(Next::End),
            }
            at += whole;
        }
        Ok(Next::More)
    }

    fn sum(&mut self, block: &[u8], at: usize, len: usize) {
        self.crc = crc32c(self.crc, slice(block, at, len).unwrap_or_default());
    }

    /// Whether the area belongs to this turn of the journal.
    fn head(&self, record: &Tlv<'_>) -> Result<bool, FsError> {
        if le32(record.value, 4) != Some(self.end) {
            return Ok(false);
        }
        match le32(record.value, 0) {
            Some(0) => Ok(true),
            features => Err(FsError::Unsupported(format!(
                "fast-commit features {:#x} in the journal",
                features.unwrap_or(0)
            ))),
        }
    }

    fn tail(&mut self, record: &Tlv<'_>) -> bool {
        let ours = le32(record.value, 0) == Some(self.end);
        let sound = le32(record.value, 4) == Some(self.crc) || !self.log.verifies;
        self.crc = 0;
        if ours && sound {
            self.done.append(&mut self.open);
        }
        ours && sound
    }
}
