//! Flags of files (chattr(1), chflags(1)) that a source has: images only, since other sources
//! do not tell.

use seekless_fs::inode_flag;
use seekless_fs::source::Source;
use tracing::warn;

/// Flags with their names, as `lsattr -l` and `attrib` have them.
const NAMES: [(u32, &str); 18] = [
    (inode_flag::SECRM, "secure deletion"),
    (inode_flag::UNRM, "undeletable"),
    (inode_flag::COMPR, "compressed"),
    (inode_flag::SYNC, "synchronous updates"),
    (inode_flag::IMMUTABLE, "immutable"),
    (inode_flag::APPEND, "append only"),
    (inode_flag::NODUMP, "no dump"),
    (inode_flag::NOATIME, "no atime"),
    (inode_flag::JOURNAL_DATA, "journalled data"),
    (inode_flag::NOTAIL, "no tail merging"),
    (inode_flag::DIRSYNC, "synchronous directory updates"),
    (inode_flag::TOPDIR, "top of directory hierarchies"),
    (inode_flag::VERITY, "verity"),
    (inode_flag::DAX, "DAX"),
    (inode_flag::HIDDEN, "hidden"),
    (inode_flag::SYSTEM, "system"),
    (inode_flag::PROJINHERIT, "project"),
    (inode_flag::CASEFOLD, "casefold"),
];

/// Says how many files lose which flags in an image that has only those of `kept`.
pub(crate) fn warn_of_lost(source: &dyn Source, kept: u32) {
    let lost = || source.tree().nodes().iter().map(|node| node.flags & !kept);
    let files = lost().filter(|flags| *flags != 0).count();
    if files == 0 {
        return;
    }
    let all = lost().fold(0, |all, flags| all | flags);
    let names = NAMES.iter().filter(|(flag, _)| all & flag != 0).map(|(_, name)| *name);
    let (names, s) = (names.collect::<Vec<_>>().join(", "), if files == 1 { "" } else { "s" });
    warn!("{files} file{s} with flags that the image cannot have: {names}");
}
