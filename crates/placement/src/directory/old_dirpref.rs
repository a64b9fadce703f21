//! 4.4BSD's rule for directories.

use super::DirectoryPlacement;
use crate::Groups;
use crate::inode::NewInode;
use seekless_units::GroupNo;

/// 4.4BSD's rule: among the groups with at least the average of free inodes, the one with the
/// fewest directories. The parent plays no part.
#[derive(Clone, Copy, Debug)]
pub struct OldDirpref;

impl OldDirpref {
    /// Name of the policy.
    pub const NAME: &'static str = "old-dirpref";
}

impl DirectoryPlacement for OldDirpref {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, groups: &Groups, _: &NewInode<'_>) -> GroupNo {
        let average = groups.average(groups.totals().nifree);
        fewest(groups, GroupNo::ZERO, |nifree, _| nifree >= average)
    }

    fn hashes_groups(&self) -> bool {
        true
    }
}

/// The first group with the fewest directories, fewer than it has inodes, among those whose free
/// inodes and free blocks are `enough`; `start` if there is none.
pub(super) fn fewest(
    groups: &Groups,
    start: GroupNo,
    enough: impl Fn(u64, u64) -> bool,
) -> GroupNo {
    let (mut best, mut least) = (start, groups.shape().ipg);
    for (number, group) in groups.from(start) {
        if group.ndir < least && enough(u64::from(group.nifree), u64::from(group.nbfree)) {
            (best, least) = (number, group.ndir);
        }
    }
    best
}
