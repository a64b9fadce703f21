//! Descriptor blocks: the homes of the following blocks.

use super::form::{Form, place};
use crate::ondisk::{
    JOURNAL_TAG_UUID, JournalTag, JournalTag3, journal_at, journal_feature, journal_tag,
};
use seekless_fs::FsError;
use seekless_fs::field::{parse, truncated};
use seekless_units::BlockNo;

/// One journalled block.
pub(super) struct Tag {
    /// Where it belongs.
    pub(super) block: BlockNo,
    /// Its first word is the journal's magic number and was blanked.
    pub(super) escaped: bool,
    /// Stored checksum; 16 bits of it before version 3.
    pub(super) checksum: u32,
}

/// The tags of a descriptor block.
pub(super) fn read(form: &Form, block: &[u8]) -> Result<Vec<Tag>, FsError> {
    let end = block.len() - form.tail_len();
    let tags = block.get(..end).ok_or_else(|| truncated(place()))?;
    let mut found = Vec::new();
    let mut at = journal_at::TAGS;
    while at + form.tag_len() <= tags.len() {
        let (tag, flags) = read_one(form, tags, at).ok_or_else(|| truncated(place()))?;
        found.push(tag);
        at += form.tag_len();
        if flags & journal_tag::SAME_UUID == 0 {
            at += JOURNAL_TAG_UUID;
        }
        if flags & journal_tag::LAST_TAG != 0 {
            break;
        }
    }
    Ok(found)
}

fn read_one(form: &Form, tags: &[u8], at: usize) -> Option<(Tag, u32)> {
    let wide = form.has(journal_feature::INCOMPAT_64BIT);
    let (low, high, flags, checksum) = if form.has(journal_feature::INCOMPAT_CSUM_V3) {
        let tag: JournalTag3 = parse(tags, at)?;
        (tag.t_blocknr, tag.t_blocknr_high.get(), tag.t_flags.get(), tag.t_checksum.get())
    } else {
        // The last field is missing in short tags: it reads as zeros.
        let mut whole = [0; size_of::<JournalTag>()];
        for (to, from) in whole.iter_mut().zip(tags.get(at..)?.iter().take(form.tag_len())) {
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
