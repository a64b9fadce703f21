//! ext4's rule for directories.

use super::DirectoryPlacement;
use crate::Groups;
use crate::chance::Chance;
use crate::flexible::{Unit, Units};
use crate::inode::{NewInode, Parent};
use seekless_units::GroupNo;

/// ext4's rule (`find_group_orlov` of `fs/ext4/ialloc.c`), whose units are flexible groups; without
/// them a unit is a group.
///
/// Directories of the root go to the unit with the fewest directories among those with at least the
/// average of free inodes and blocks; among equals, the first from one that the hash of the name
/// selects. Other directories go to the first unit with room from the last one in which the parent
/// got an inode. In a unit it is the first group with a free inode.
#[derive(Clone, Debug)]
pub struct LinuxOrlov {
    units: Units,
    /// Directories, free inodes and free blocks of the volume.
    totals: [Lagging; 3],
    chance: Chance,
}

/// Maximum error of the kernel's counters (`percpu_counter_batch`, on up to 16 processors).
const BATCH: u64 = 32;

/// A total as seen by a writer on one processor of the kernel: each processor counts free inodes,
/// free blocks and directories, and updates the sum in steps (`percpu_counter_add_batch` of
/// `lib/percpu_counter.c`). Averages use these sums; the counts of single units are exact.
#[derive(Clone, Debug, Default)]
struct Lagging {
    known: Option<u64>,
    /// The exact total.
    now: u64,
}

impl Lagging {
    /// Called with the total before each inode is placed. Changes since the last call count as one.
    fn note(&mut self, now: u64) {
        self.now = now;
        self.known = Some(self.known.filter(|known| known.abs_diff(now) < BATCH).unwrap_or(now));
    }

    /// Applies a change at once. No-op before the first inode is placed.
    fn change(&mut self, by: i64) {
        if self.known.is_some() {
            self.note(self.now.saturating_add_signed(by));
        }
    }
}

impl LinuxOrlov {
    /// Name of the policy.
    pub const NAME: &'static str = "linux-orlov";

    /// Creates the policy for a volume with `groups_per_flex` groups in a flexible group; 0 and 1
    /// stand for a volume without. `seed` is used for directories of the root whose names have no
    /// hash.
    #[must_use]
    pub fn new(groups_per_flex: u32, seed: u64) -> Self {
        Self {
            units: Units::new(groups_per_flex),
            totals: <[Lagging; 3]>::default(),
            chance: Chance::new(seed),
        }
    }

    /// Counts an inode taken or freed: one that comes and goes between two placements changes the
    /// kernel's counters too.
    fn changed(&mut self, is_directory: bool, given_back: bool) {
        let [directories, inodes, _] = &mut self.totals;
        let (free, used) = if given_back { (1, -1) } else { (-1, 1) };
        inodes.change(free);
        if is_directory {
            directories.change(used);
        }
    }

    /// The average of a unit.
    fn average(&self, groups: &Groups) -> Unit {
        let units = u64::from(self.units.count(groups));
        let average = |total: &Lagging| total.known.unwrap_or(0).checked_div(units).unwrap_or(0);
        let [directories, inodes, blocks] = &self.totals;
        Unit { directories: average(directories), inodes: average(inodes), blocks: average(blocks) }
    }

    /// The fallback: the first group from the parent's on with the average of free inodes, or else
    /// with any.
    fn fallback(&self, groups: &Groups, parent: GroupNo) -> GroupNo {
        let [_, inodes, _] = &self.totals;
        let average = groups.average(inodes.known.unwrap_or(0)).max(1);
        let first =
            |least: u64| groups.from(parent).find(|(_, group)| u64::from(group.nifree) >= least);
        first(average).or_else(|| first(1)).map_or(parent, |(number, _)| number)
    }

    /// The unit for a directory of the root.
    fn top(&mut self, groups: &Groups, hash: Option<u32>) -> Option<u32> {
        let units = self.units.count(groups);
        let chance = &mut self.chance;
        let start = hash.and_then(|hash| hash.checked_rem(units));
        let start = start.unwrap_or_else(|| u32::try_from(chance.below(units.into())).unwrap_or(0));
        let average = self.average(groups);
        let mut best = None;
        // The limit is a group's inodes, however many groups a unit has.
        let mut fewest = u64::from(groups.shape().ipg);
        for (number, unit) in self.units.from(groups, start) {
            let fits =
                unit.inodes > 0 && unit.inodes >= average.inodes && unit.blocks >= average.blocks;
            if fits && unit.directories < fewest {
                (best, fewest) = (Some(number), unit.directories);
            }
        }
        best
    }

    /// The unit for any other directory.
    fn near(&self, groups: &Groups, parent: &Parent) -> Option<u32> {
        let shape = groups.shape();
        let in_unit = |of_group: u32| u64::from(of_group) * u64::from(self.units.groups);
        let (ipu, bpu) = (in_unit(shape.ipg), in_unit(shape.fpg));
        let average = self.average(groups);
        let most_directories = average.directories + ipu / 16;
        let least_inodes = average.inodes.saturating_sub(ipu / 4).max(1);
        let least_blocks = average.blocks.saturating_sub(bpu / 4);
        let start = self.units.of(parent.last.unwrap_or(parent.at.group));
        let mut all = self.units.from(groups, start);
        let found = all.find(|(_, unit)| {
            unit.directories < most_directories
                && unit.inodes >= least_inodes
                && unit.blocks >= least_blocks
        });
        found.map(|(number, _)| number)
    }
}

impl DirectoryPlacement for LinuxOrlov {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn begin(&mut self, groups: &Groups) {
        let now = groups.totals();
        for (total, now) in self.totals.iter_mut().zip([now.ndir, now.nifree, now.nbfree]) {
            total.note(now);
        }
    }

    fn prefer(&mut self, groups: &Groups, new: &NewInode<'_>) -> GroupNo {
        let is_top = new.parent.is_root;
        let unit = if is_top { self.top(groups, new.hash) } else { self.near(groups, &new.parent) };
        let group = unit.and_then(|unit| self.units.first_in(groups, unit));
        group.unwrap_or_else(|| self.fallback(groups, new.parent.at.group))
    }

    fn taken(&mut self, _: GroupNo, is_directory: bool) {
        self.changed(is_directory, false);
    }

    fn blocks_changed(&mut self, by: i64) {
        let [_, _, blocks] = &mut self.totals;
        blocks.change(by);
    }

    fn given_back(&mut self, is_directory: bool) {
        self.changed(is_directory, true);
    }
}
