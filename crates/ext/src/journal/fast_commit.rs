//! Fast commits: changes logged as file operations behind the ring. They are
//! recognised, not replayed.

use super::log::Log;
use crate::field::{le32, slice};
use crate::ondisk::journal_feature;
use seekless_fs::FsError;

/// Tags: the head of the first block, the tail of each commit.
const TAG_TAIL: u16 = 8;
const TAG_HEAD: u16 = 9;
/// Bytes of a tag and the length that follows it.
const TAG_LEN: usize = 4;

/// Fails when the fast-commit area holds a finished commit on top of
/// transaction `end - 1`.
pub(super) fn refuse(log: &Log<'_>, end: u32) -> Result<(), FsError> {
    if !log.has(journal_feature::INCOMPAT_FAST_COMMIT) {
        return Ok(());
    }
    for at in log.last.saturating_add(1)..log.len {
        let Ok(block) = log.block(at) else { return Ok(()) };
        let first = at == log.last.saturating_add(1);
        let mut pos = 0;
        while let Some((tag, value)) = record(&block, pos) {
            let expected = match tag {
                TAG_HEAD => le32(value, 4) == Some(end),
                _ => !first || pos != 0,
            };
            if !expected {
                return Ok(());
            }
            if tag == TAG_TAIL && le32(value, 0) == Some(end) {
                return Err(FsError::Unsupported("fast commits in the journal".into()));
            }
            pos = pos.saturating_add(TAG_LEN).saturating_add(value.len());
        }
    }
    Ok(())
}

/// The tag at byte `at` with its value.
fn record(block: &[u8], at: usize) -> Option<(u16, &[u8])> {
    let head = le32(block, at)?;
    let tag = u16::try_from(head & 0xFFFF).ok()?;
    let len = usize::try_from(head >> 16).ok()?;
    if tag == 0 {
        return None;
    }
    Some((tag, slice(block, at.saturating_add(TAG_LEN), len)?))
}
