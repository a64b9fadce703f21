//! The options of `-E` of e2fsck.

use super::refusal::unsupported;
use crate::failure::Failure;

/// Options of `-E` that make a difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Extended {
    /// Replay the journal, and do nothing else.
    pub(super) is_journal_only: bool,
    /// Discard free blocks.
    pub(super) discards: bool,
    /// Copy blocks that files share.
    pub(super) unshares_blocks: bool,
    /// Make repairs only.
    pub(super) is_fixes_only: bool,
}

/// Options that ask for work that is not done, with the work.
const UNSUPPORTED: [(&str, &str); 4] = [
    ("optimize_extents", "sound extent trees are not made smaller"),
    ("bmap2extent", "files are not converted to extents"),
    ("fragcheck", "fragments are not listed"),
    ("check_encoding", "the encoding of names is not checked"),
];

/// Options for work that is done in any case, or for e2fsck's use of memory alone.
const ACCEPTED: [&str; 3] =
    ["no_optimize_extents", "inode_count_fullmap", "no_inode_count_fullmap"];

impl Extended {
    /// The options of a list whose items are separated.
    pub(super) fn of(words: &[String]) -> Result<Self, Failure> {
        let mut extended = Self::default();
        for word in words {
            let invalid = || Failure::usage(format!("-E {word}: invalid option or value"));
            match word.split_once('=') {
                None if word == "journal_only" => extended.is_journal_only = true,
                None if word == "unshare_blocks" => extended.unshares_blocks = true,
                None if word == "discard" => extended.discards = true,
                None if word == "nodiscard" => extended.discards = false,
                None if word == "fixes_only" => extended.is_fixes_only = true,
                None if ACCEPTED.contains(&word.as_str()) => {}
                None => {
                    let mut refused = UNSUPPORTED.iter().filter(|(name, _)| name == word);
                    let (_, why) = refused.next().ok_or_else(invalid)?;
                    return Err(unsupported(&format!("-E {word}"), why));
                }
                Some(("readahead_kb", value)) => {
                    value.parse::<u64>().map_err(|_| invalid())?;
                }
                Some(("ea_ver", "2")) => {}
                Some(("ea_ver", "1")) => {
                    let why = "attributes of this version are not supported";
                    return Err(unsupported(&format!("-E {word}"), why));
                }
                Some(_) => return Err(invalid()),
            }
        }
        Ok(extended)
    }
}
