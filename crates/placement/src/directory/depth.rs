//! FreeBSD's present rule for directories: by depth.

use super::contiguous::{ContigDirs, Limits, nearest};
use super::{DirectoryPlacement, Expected};
use crate::Groups;
use crate::inode::{NewInode, Parent};
use seekless_units::GroupNo;

/// FreeBSD's present rule: directories near the root are spread over the volume, those far from it
/// are placed close to their parent.
///
/// Around the parent's group there is a range of `ncg / 2^depth` groups. New directories are placed
/// at 1/2 of it, then at 1/4, 3/4, 1/8, 3/8 and so on. From there on the nearest group with room is
/// taken; no group may have more than 2^depth directories above the average. If the format does not
/// record the parent's depth, the parent's own group is preferred.
#[derive(Clone, Debug)]
pub struct Depth {
    contigdirs: ContigDirs,
    expected: Expected,
}

impl Depth {
    /// Name of the policy.
    pub const NAME: &'static str = "depth";

    /// Creates the policy for a newly mounted volume with `ncg` groups.
    #[must_use]
    pub fn new(ncg: u32, expected: Expected) -> Self {
        Self { contigdirs: ContigDirs::new(ncg), expected }
    }
}

/// The location of the next directory in the range around its parent.
fn probe(ncg: u32, parent: &Parent) -> GroupNo {
    debug_assert!(ncg > 0, "a volume has a group");
    let ncg = u64::from(ncg);
    let range = ncg.checked_shr(parent.depth).unwrap_or(0);
    // The 1st, 2nd, 3rd ... go to 1/2, 1/4, 3/4, 1/8 ...: the highest bit of the count determines
    // the number of parts, the other bits select one of them.
    let count = u64::from(parent.subdirectories) + 1;
    let power = count.ilog2();
    let odd = (count & !(1u64 << power)) * 2 + 1;
    let parts = 2u64 << power;
    let within = range * odd / parts;
    // Adds `ncg` to avoid negative intermediate results.
    let at = u64::from(parent.at.group.get()) + ncg + within;
    let at = (at - range / 2) % ncg;
    GroupNo::new(u32::try_from(at).unwrap_or(0))
}

impl DirectoryPlacement for Depth {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, groups: &Groups, new: &NewInode<'_>) -> GroupNo {
        let parent = &new.parent;
        let known = parent.depth > 0 || parent.is_root;
        let start = if known { probe(groups.shape().ncg, parent) } else { parent.at.group };
        let more = 1u64.checked_shl(parent.depth).unwrap_or(u64::MAX);
        let limits = Limits::new(groups, &self.expected, more);
        nearest(groups, &self.contigdirs, start, &limits)
    }

    fn hashes_groups(&self) -> bool {
        true
    }

    fn allocated(&mut self, preferred: GroupNo, is_directory: bool) {
        self.contigdirs.allocated(preferred, is_directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::InodePlace;

    fn probes(ncg: u32, group: u32, depth: u32, count: u32) -> Vec<u32> {
        let at = |subdirectories| {
            let at = InodePlace { group: GroupNo::new(group), slot: 0 };
            probe(ncg, &Parent { at, is_root: depth == 0, depth, subdirectories, last: None }).get()
        };
        (0..count).map(at).collect()
    }

    #[test]
    fn the_range_is_halved_and_halved_again() {
        // All 64 groups around group 32: the middle, the quarters, the eighths.
        assert_eq!(probes(64, 32, 0, 7), [32, 16, 48, 8, 24, 40, 56]);
        // Around group 0 the range begins in front of the volume's start.
        assert_eq!(probes(64, 0, 0, 3), [0, 48, 16]);
        // Two levels down: 16 groups.
        assert_eq!(probes(64, 32, 2, 3), [32, 28, 36]);
        // Too deep for a range: with the parent.
        assert_eq!(probes(64, 5, 7, 3), [5, 5, 5]);
        assert_eq!(probes(64, 5, 200, 2), [5, 5]);
    }
}
