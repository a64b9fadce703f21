//! Flags of files (chattr(1), chflags(1)) that a source has: images only, since other sources
//! do not tell.

use super::{BuildArgs, Family};
use crate::failure::Failure;
use crate::say;
use seekless_ext::{BuildOptions, Common};
use seekless_fs::inode_flag;
use seekless_fs::source::Source;

/// Flags with their names, as `lsattr -l` has them.
const NAMES: [(u32, &str); 12] = [
    (inode_flag::SYNC, "synchronous updates"),
    (inode_flag::IMMUTABLE, "immutable"),
    (inode_flag::APPEND, "append only"),
    (inode_flag::NODUMP, "no dump"),
    (inode_flag::NOATIME, "no atime"),
    (inode_flag::JOURNAL_DATA, "journalled data"),
    (inode_flag::DIRSYNC, "synchronous directory updates"),
    (inode_flag::TOPDIR, "top of directory hierarchies"),
    (inode_flag::VERITY, "verity"),
    (inode_flag::DAX, "DAX"),
    (inode_flag::PROJINHERIT, "project"),
    (inode_flag::CASEFOLD, "casefold"),
];

/// Says how many files lose which flags in an image that has only those of `kept`.
pub(super) fn warn_of_lost(source: &dyn Source, kept: u32) {
    let lost = || source.tree().nodes().iter().map(|node| node.flags & !kept);
    let files = lost().filter(|flags| *flags != 0).count();
    if files == 0 {
        return;
    }
    let all = lost().fold(0, |all, flags| all | flags);
    let names = NAMES.iter().filter(|(flag, _)| all & flag != 0).map(|(_, name)| *name);
    let (names, s) = (names.collect::<Vec<_>>().join(", "), if files == 1 { "" } else { "s" });
    say::warning!("{files} file{s} with flags that the image cannot have: {names}");
}

impl BuildArgs {
    /// The options with `verity`, where files of the source are sealed by fs-verity and nothing
    /// speaks against it.
    pub(super) fn with_seals(
        &self,
        source: &dyn Source,
        options: &BuildOptions,
    ) -> Result<BuildOptions, Failure> {
        let mut options = options.clone();
        let nodes = source.tree().nodes();
        let is_sealed = nodes.iter().any(|node| node.flags & inode_flag::VERITY != 0);
        let list = self.features.as_deref().unwrap_or_default();
        let is_excluded = list.split([',', ' ']).any(|name| matches!(name, "^verity" | "none"));
        if is_sealed && self.format == Family::Ext4 && !is_excluded {
            let with = options.features.apply("verity")?;
            let common = Common::of(&self.compat)?;
            if common.check(with).is_ok() {
                options.features = with;
            }
        }
        Ok(options)
    }
}
