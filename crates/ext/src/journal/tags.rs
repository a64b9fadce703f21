//! Descriptor blocks: the homes of the following blocks.

use super::log::Log;
use super::place;
use crate::field::{parse, truncated};
use crate::ondisk::{JournalTag, JournalTag3, journal_feature, journal_tag};
use seekless_fs::FsError;
use seekless_units::BlockNo;

/// Where the tags start.
pub(super) const TAGS_AT: usize = 12;
/// Bytes of the UUID behind a tag that does not share its predecessor's.
pub(super) const UUID: usize = 16;

/// One journalled block.
pub(super) struct Tag {
    /// Where it belongs.
    pub(super) block: BlockNo,
    /// Its first word is the journal's magic number and was blanked.
    pub(super) escaped: bool,
    /// Stored checksum; 16 bits of it before version 3.
    pub(super) checksum: u32,
}

/// The big-endian word at byte `at`.
pub(super) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

/// The tags of a descriptor block.
pub(super) fn read(log: &Log<'_>, block: &[u8]) -> Result<Vec<Tag>, FsError> {
    let end = block.len().saturating_sub(log.form.tail_len());
    let tags = block.get(..end).ok_or_else(|| truncated(place()))?;
    let mut found = Vec::new();
    let mut at = TAGS_AT;
    while at.saturating_add(log.form.tag_len()) <= tags.len() {
        let (tag, flags) = read_one(log, tags, at).ok_or_else(|| truncated(place()))?;
        found.push(tag);
        at = at.saturating_add(log.form.tag_len());
        if flags & journal_tag::SAME_UUID == 0 {
            at = at.saturating_add(UUID);
        }
        if flags & journal_tag::LAST_TAG != 0 {
            break;
        }
    }
    Ok(found)
}

fn read_one(log: &Log<'_>, tags: &[u8], at: usize) -> Option<(Tag, u32)> {
    let wide = log.form.has(journal_feature::INCOMPAT_64BIT);
    let (low, high, flags, checksum) = if log.form.has(journal_feature::INCOMPAT_CSUM_V3) {
        let tag: JournalTag3 = parse(tags, at)?;
        (tag.t_blocknr, tag.t_blocknr_high.get(), tag.t_flags.get(), tag.t_checksum.get())
    } else {
        // The last field is missing in short tags: it reads as zeros.
        let mut whole = [0; size_of::<JournalTag>()];
        for (to, from) in whole.iter_mut().zip(tags.get(at..)?.iter().take(log.form.tag_len())) {
            *to = *from;
        }
        let tag: JournalTag = parse(&whole, 0)?;
        let checksum = u32::from(tag.t_checksum.get());
        (tag.t_blocknr, tag.t_blocknr_high.get(), u32::from(tag.t_flags.get()), checksum)
    };
    let high = if wide { u64::from(high) << 32 } else { 0 };
    let block = BlockNo::new(high | u64::from(low.get()));
    Some((Tag { block, escaped: flags & journal_tag::ESCAPE != 0, checksum }, flags))
}
