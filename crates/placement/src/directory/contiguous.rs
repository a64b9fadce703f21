//! Limits of consecutive directories in a group.

use super::Expected;
use crate::Groups;
use seekless_units::GroupNo;

/// `fs_contigdirs`: for each group, the number of directories made there one after the other; each
/// file decrements it. In memory only.
#[derive(Clone, Debug)]
pub(super) struct ContigDirs(Vec<u8>);

impl ContigDirs {
    pub(super) fn new(ncg: u32) -> Self {
        Self(vec![0; usize::try_from(ncg).unwrap_or(0)])
    }

    pub(super) fn of(&self, group: GroupNo) -> u8 {
        usize::try_from(group.get()).ok().and_then(|at| self.0.get(at)).copied().unwrap_or(0)
    }

    /// Counts a new inode, for the group preferred for it.
    pub(super) fn allocated(&mut self, preferred: GroupNo, is_directory: bool) {
        let at = usize::try_from(preferred.get()).ok();
        if let Some(count) = at.and_then(|at| self.0.get_mut(at)) {
            *count = if is_directory { count.saturating_add(1) } else { count.saturating_sub(1) };
        }
    }
}

/// The conditions under which a group takes one more directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limits {
    pub(super) maxndir: u64,
    pub(super) minifree: u64,
    pub(super) minbfree: u64,
    pub(super) maxcontigdirs: u64,
}

impl Limits {
    /// Limits derived from the averages of the volume; `more` is the number of directories by which
    /// a group may exceed their average.
    pub(super) fn new(groups: &Groups, expected: &Expected, more: u64) -> Self {
        let totals = groups.totals();
        let average = |total| groups.average(total);
        let most_of = |total| {
            let average = average(total);
            average.saturating_sub(average / 4).max(1)
        };
        Self {
            maxndir: (average(totals.ndir) + more).min(groups.shape().ipg.into()),
            minifree: most_of(totals.nifree),
            minbfree: most_of(totals.nbfree),
            maxcontigdirs: maxcontigdirs(groups, expected),
        }
    }
}

/// Maximum number of consecutive directories whose expected files fit in the group.
fn maxcontigdirs(groups: &Groups, expected: &Expected) -> u64 {
    let (shape, totals) = (groups.shape(), groups.totals());
    let free = groups.average(totals.nbfree) * shape.bsize();
    let group = u64::from(shape.fsize) * u64::from(shape.fpg);
    // The space of a directory with its files: the expected or the actual one.
    let current = group.saturating_sub(free).checked_div(groups.average(totals.ndir));
    let files = u64::from(expected.avgfilesize) * u64::from(expected.avgfpdir);
    let dirsize = files.max(current.unwrap_or(0));
    let by_space = free.checked_div(dirsize).unwrap_or(0).min(255);
    let by_inodes = shape.ipg.checked_div(expected.avgfpdir).map_or(u64::MAX, u64::from);
    by_space.min(by_inodes).max(1)
}

/// The first group from `start` on within the limits, or else with the average of free inodes, or
/// else `start`.
pub(super) fn nearest(
    groups: &Groups,
    contigdirs: &ContigDirs,
    start: GroupNo,
    limits: &Limits,
) -> GroupNo {
    let fits = groups.from(start).find(|(number, group)| {
        u64::from(group.ndir) < limits.maxndir
            && u64::from(group.nifree) >= limits.minifree
            && u64::from(group.nbfree) >= limits.minbfree
            && u64::from(contigdirs.of(*number)) < limits.maxcontigdirs
    });
    let average = groups.average(groups.totals().nifree);
    let backstop = || groups.from(start).find(|(_, group)| u64::from(group.nifree) >= average);
    fits.or_else(backstop).map_or(start, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupSummary, Shape};

    #[test]
    fn counters_stop_at_their_ends() {
        let mut counters = ContigDirs::new(2);
        let one = GroupNo::new(1);
        counters.allocated(one, false);
        assert_eq!(counters.of(one), 0);
        for _ in 0..300 {
            counters.allocated(one, true);
        }
        assert_eq!((counters.of(one), counters.of(GroupNo::ZERO)), (255, 0));
        counters.allocated(one, false);
        assert_eq!(counters.of(one), 254);
        counters.allocated(GroupNo::new(7), true);
    }

    #[test]
    fn as_many_directories_as_have_room() {
        let shape =
            Shape { ncg: 4, ipg: 8192, fpg: 32768, fsize: 2048, frag: 8, size: 4 * 32768, skip: 0 };
        let usual = Expected { avgfilesize: 16384, avgfpdir: 64 };
        let limit = |shape: Shape, expected: &Expected, nbfree: u32, ndir: u32| {
            let mut groups = Groups::new(shape, |group| shape.base(group));
            for number in (0..shape.ncg).map(GroupNo::new) {
                groups.set(number, GroupSummary { ndir, nbfree, nifree: 8000, nffree: 0 });
            }
            maxcontigdirs(&groups, expected)
        };
        // 3967 blocks of 16 KiB are 61.98 MiB, a directory is expected to take one.
        assert_eq!(limit(shape, &usual, 3967, 0), 61);
        assert_eq!(limit(shape, &usual, 3968, 0), 62);
        // Half the group is taken by 8 directories: 4 MiB each, 8 more fit.
        assert_eq!(limit(shape, &usual, 2048, 8), 8);
        // Even a full group takes one.
        assert_eq!(limit(shape, &usual, 0, 5), 1);
        // 512 inodes are 8 directories of 64 files.
        let few = Shape { ipg: 512, ..shape };
        assert_eq!(limit(few, &usual, 3968, 0), 8);
        let unknown = Expected::default();
        assert_eq!(limit(shape, &unknown, 3968, 0), 1);
    }
}
