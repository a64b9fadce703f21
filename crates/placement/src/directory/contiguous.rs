//! How many directories may follow each other in a group.

use crate::View;
use seekless_units::GroupNo;

/// `fs_contigdirs`: for each group, how many directories were made there one
/// after the other; files in between count it down. In memory only.
#[derive(Clone, Debug)]
pub(super) struct ContigDirs(Vec<u8>);

impl ContigDirs {
    pub(super) fn new(ncg: u32) -> Self {
        Self(vec![0; usize::try_from(ncg).unwrap_or(0)])
    }

    pub(super) fn of(&self, group: GroupNo) -> u8 {
        usize::try_from(group.get()).ok().and_then(|at| self.0.get(at)).copied().unwrap_or(0)
    }

    /// Counts a new inode, for the group that is preferred for it.
    pub(super) fn allocating(&mut self, preferred: GroupNo, is_directory: bool) {
        let at = usize::try_from(preferred.get()).ok();
        if let Some(count) = at.and_then(|at| self.0.get_mut(at)) {
            *count = if is_directory { count.saturating_add(1) } else { count.saturating_sub(1) };
        }
    }
}

/// What a group must have to take one more directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limits {
    pub(super) maxndir: u64,
    pub(super) minifree: u64,
    pub(super) minbfree: u64,
    pub(super) maxcontigdirs: u64,
}

impl Limits {
    /// From the averages of the volume; `more` is by how many directories a
    /// group may exceed theirs.
    pub(super) fn new(view: &View<'_>, more: u64) -> Self {
        let volume = view.volume;
        let average = |total| view.average(total);
        let most_of = |total| {
            let average = average(total);
            average.saturating_sub(average / 4).max(1)
        };
        Self {
            maxndir: average(view.totals.ndir).saturating_add(more).min(u64::from(volume.ipg)),
            minifree: most_of(view.totals.nifree),
            minbfree: most_of(view.totals.nbfree),
            maxcontigdirs: maxcontigdirs(view),
        }
    }
}

/// How many directories may follow each other, so that the files expected in
/// them find room in the group.
fn maxcontigdirs(view: &View<'_>) -> u64 {
    let volume = view.volume;
    let free = view.average(view.totals.nbfree).saturating_mul(u64::from(volume.bsize));
    let group = u64::from(volume.fsize).saturating_mul(u64::from(volume.fpg));
    // What a directory with its files takes: as expected, or as it turned out.
    let current = group.saturating_sub(free).checked_div(view.average(view.totals.ndir));
    let expected = u64::from(volume.avgfilesize).saturating_mul(u64::from(volume.avgfpdir));
    let dirsize = expected.max(current.unwrap_or(0));
    let by_space = free.checked_div(dirsize).unwrap_or(0).min(255);
    let by_inodes = volume.ipg.checked_div(volume.avgfpdir).map_or(u64::MAX, u64::from);
    by_space.min(by_inodes).max(1)
}

/// The first group from `start` on within the limits, or else with the average
/// of free inodes, or else `start`.
pub(super) fn nearest(
    view: &View<'_>,
    contigdirs: &ContigDirs,
    start: GroupNo,
    limits: &Limits,
) -> GroupNo {
    let fits = view.from(start).find(|(number, group)| {
        u64::from(group.ndir) < limits.maxndir
            && u64::from(group.nifree) >= limits.minifree
            && u64::from(group.nbfree) >= limits.minbfree
            && u64::from(contigdirs.of(*number)) < limits.maxcontigdirs
    });
    let average = view.average(view.totals.nifree);
    let backstop = || view.from(start).find(|(_, group)| u64::from(group.nifree) >= average);
    fits.or_else(backstop).map_or(start, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Totals, Volume};

    #[test]
    fn counters_stop_at_their_ends() {
        let mut counters = ContigDirs::new(2);
        let one = GroupNo::new(1);
        counters.allocating(one, false);
        assert_eq!(counters.of(one), 0);
        for _ in 0..300 {
            counters.allocating(one, true);
        }
        assert_eq!((counters.of(one), counters.of(GroupNo::ZERO)), (255, 0));
        counters.allocating(one, false);
        assert_eq!(counters.of(one), 254);
        counters.allocating(GroupNo::new(7), true);
    }

    #[test]
    fn as_many_directories_as_have_room() {
        let volume = Volume {
            ncg: 4,
            ipg: 8192,
            fpg: 32768,
            fsize: 2048,
            bsize: 16384,
            avgfilesize: 16384,
            avgfpdir: 64,
            ..Volume::default()
        };
        let limit = |volume: &Volume, nbfree: u64, ndir: u64| {
            let totals = Totals { nbfree: nbfree * 4, ndir: ndir * 4, nifree: 32000, nffree: 0 };
            maxcontigdirs(&View { volume, groups: &[], totals: &totals })
        };
        // 3967 blocks of 16 KiB are 61.98 MiB, a directory is expected to take one.
        assert_eq!(limit(&volume, 3967, 0), 61);
        assert_eq!(limit(&volume, 3968, 0), 62);
        // Half the group taken by 8 directories: 4 MiB each, 8 more have room.
        assert_eq!(limit(&volume, 2048, 8), 8);
        // No room at all still lets one in.
        assert_eq!(limit(&volume, 0, 5), 1);
        // 512 inodes are 8 directories of 64 files.
        let few = Volume { ipg: 512, ..volume.clone() };
        assert_eq!(limit(&few, 3968, 0), 8);
        let unknown = Volume { avgfpdir: 0, avgfilesize: 0, ..volume };
        assert_eq!(limit(&unknown, 3968, 0), 1);
    }
}
