//! Orlov's rule for directories.

use super::contiguous::{ContigDirs, Limits, nearest};
use super::old_dirpref::fewest;
use super::{DirectoryPlacement, Expected};
use crate::Groups;
use crate::chance::Chance;
use crate::inode::NewInode;
use seekless_units::GroupNo;

/// Orlov's rule (FreeBSD 4.4 to 13, its ext2fs since 9, NetBSD, OpenBSD): directories of the root
/// are spread over the volume, from a random group on; all others are placed with their parent, as
/// long as the group has room for their expected files.
///
/// Source: G. Orlov, *dirpref* (2000), `ffs_dirpref`, `ext2_dirpref`.
#[derive(Clone, Debug)]
pub struct Orlov {
    contigdirs: ContigDirs,
    expected: Expected,
    chance: Chance,
}

impl Orlov {
    /// Name of the policy.
    pub const NAME: &'static str = "orlov";

    /// Creates the policy for a newly mounted volume with `ncg` groups.
    #[must_use]
    pub fn new(ncg: u32, expected: Expected, seed: u64) -> Self {
        Self { contigdirs: ContigDirs::new(ncg), expected, chance: Chance::new(seed) }
    }

    /// The group for a directory of the root: the fewest directories, from a random group on.
    fn spread(&mut self, groups: &Groups) -> GroupNo {
        let start = self.chance.below(u64::from(groups.shape().ncg));
        let start = GroupNo::new(u32::try_from(start).unwrap_or(0));
        let inodes = groups.average(groups.totals().nifree);
        let blocks = groups.average(groups.totals().nbfree);
        fewest(groups, start, |nifree, nbfree| nifree >= inodes && nbfree >= blocks)
    }
}

impl DirectoryPlacement for Orlov {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, groups: &Groups, new: &NewInode<'_>) -> GroupNo {
        let parent = &new.parent;
        if parent.is_root {
            return self.spread(groups);
        }
        let limits = Limits::new(groups, &self.expected, u64::from(groups.shape().ipg) / 16);
        nearest(groups, &self.contigdirs, parent.at.group, &limits)
    }

    fn hashes_groups(&self) -> bool {
        true
    }

    fn allocated(&mut self, preferred: GroupNo, is_directory: bool) {
        self.contigdirs.allocated(preferred, is_directory);
    }
}
