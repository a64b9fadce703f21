//! The rules of ext2 for the group of a new directory.
//!
//! - [`Ext2Orlov`]: Linux since 2.6 (`find_group_orlov` of `fs/ext2/ialloc.c`, after
//!   Grigoriy Orlov's rule for FFS), with debts;
//! - [`FindGroupDir`]: Linux before, and FreeBSD's ext2fs before 9 (`oldalloc`);
//! - [`Linear`]: the first group with a free inode.

use super::DirectoryPlacement;
use crate::chance::Chance;
use crate::inode::NewInode;
use crate::{GroupSummary, Groups};
use seekless_units::GroupNo;

/// Minimum number of blocks of a directory in the limit of debts (`BLOCK_COST`).
const BLOCK_COST: u64 = 256;
/// Number of inodes per unit of debt (`INODE_COST`).
const INODE_COST: u64 = 64;
/// Maximum debt of a group.
const MOST_DEBT: u8 = 255;

/// Directories of the root are spread to the groups with the fewest directories; others stay near
/// their parent unless its group is too full or has had too many directories in a row.
#[derive(Clone, Debug)]
pub struct Ext2Orlov {
    /// Directories made in a group since the last files, by group.
    debts: Vec<u8>,
    chance: Chance,
}

/// Among the groups with at least the average of free inodes, the one with the most free blocks.
#[derive(Clone, Copy, Debug)]
pub struct FindGroupDir;

/// The first group with a free inode: groups are filled one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Linear;

impl Ext2Orlov {
    /// Name of the policy.
    pub const NAME: &'static str = "ext2-orlov";

    /// Creates the policy for a volume with `groups` groups and a seed.
    #[must_use]
    pub fn new(groups: u32, seed: u64) -> Self {
        let groups = usize::try_from(groups).unwrap_or(0);
        Self { debts: vec![0; groups], chance: Chance::new(seed) }
    }

    fn debt(&self, group: GroupNo) -> u64 {
        let at = usize::try_from(group.get()).ok();
        u64::from(at.and_then(|at| self.debts.get(at)).copied().unwrap_or(0))
    }

    /// The group for a directory of the root.
    fn top(&mut self, groups: &Groups) -> Option<GroupNo> {
        let shape = groups.shape();
        let start = u32::try_from(self.chance.below(u64::from(shape.ncg))).unwrap_or(0);
        let average = Averages::of(groups);
        let mut best = None;
        let mut fewest = shape.ipg;
        for (number, group) in groups.from(GroupNo::new(start)) {
            let fits = group.nifree > 0
                && u64::from(group.nifree) >= average.inodes
                && u64::from(group.nbfree) >= average.blocks;
            if fits && group.ndir < fewest {
                (best, fewest) = (Some(number), group.ndir);
            }
        }
        best
    }

    /// The group for any other directory.
    fn near(&self, groups: &Groups, parent: GroupNo) -> Option<GroupNo> {
        let (shape, totals) = (groups.shape(), groups.totals());
        let (ipg, ncg) = (u64::from(shape.ipg), u64::from(shape.ncg).max(1));
        let blocks = |frags: u64| frags.checked_div(u64::from(shape.frag)).unwrap_or(frags);
        let bpg = blocks(u64::from(shape.fpg));
        let average = Averages::of(groups);
        let used = blocks(shape.size).saturating_sub(totals.nbfree);
        let blocks_per_dir = used / totals.ndir.max(1);
        let most_dirs = totals.ndir / ncg + ipg / 16;
        let least_inodes = average.inodes.saturating_sub(ipg / 4);
        let least_blocks = average.blocks.saturating_sub(bpg / 4);
        let by_blocks = bpg / blocks_per_dir.max(BLOCK_COST);
        let by_inodes = if by_blocks * INODE_COST > ipg { ipg / INODE_COST } else { by_blocks };
        let most_debt = by_inodes.clamp(1, u64::from(MOST_DEBT));
        let fits = |&(number, group): &(GroupNo, GroupSummary)| {
            group.nifree > 0
                && self.debt(number) < most_debt
                && u64::from(group.ndir) < most_dirs
                && u64::from(group.nifree) >= least_inodes
                && u64::from(group.nbfree) >= least_blocks
        };
        groups.from(parent).find(fits).map(|(number, _)| number)
    }
}

/// Average free inodes and blocks of a group.
struct Averages {
    inodes: u64,
    blocks: u64,
}

impl Averages {
    fn of(groups: &Groups) -> Self {
        let totals = groups.totals();
        Self { inodes: groups.average(totals.nifree), blocks: groups.average(totals.nbfree) }
    }
}

/// The fallback: the first group from the parent's on with the average of free inodes, or else with
/// any.
fn fallback(groups: &Groups, parent: GroupNo) -> GroupNo {
    let average = Averages::of(groups).inodes.max(1);
    let first =
        |least: u64| groups.from(parent).find(|(_, group)| u64::from(group.nifree) >= least);
    first(average).or_else(|| first(1)).map_or(parent, |(number, _)| number)
}

impl DirectoryPlacement for Ext2Orlov {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, groups: &Groups, new: &NewInode<'_>) -> GroupNo {
        let parent = &new.parent;
        let found = match parent.is_root {
            true => self.top(groups),
            false => self.near(groups, parent.at.group),
        };
        found.unwrap_or_else(|| fallback(groups, parent.at.group))
    }

    fn taken(&mut self, group: GroupNo, is_directory: bool) {
        let at = usize::try_from(group.get()).ok();
        let debt = at.and_then(|at| self.debts.get_mut(at));
        debug_assert!(debt.is_some(), "there is no group {group}");
        if let Some(debt) = debt {
            *debt = if is_directory { debt.saturating_add(1) } else { debt.saturating_sub(1) };
        }
    }
}

impl FindGroupDir {
    /// Name of the policy.
    pub const NAME: &'static str = "find-group-dir";
}

impl DirectoryPlacement for FindGroupDir {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, groups: &Groups, new: &NewInode<'_>) -> GroupNo {
        let parent = &new.parent;
        let average = Averages::of(groups).inodes.max(1);
        let mut best: Option<(GroupNo, u32)> = None;
        for (number, group) in groups.from(GroupNo::ZERO) {
            let fits = u64::from(group.nifree) >= average;
            if fits && best.is_none_or(|(_, most)| group.nbfree > most) {
                best = Some((number, group.nbfree));
            }
        }
        best.map_or_else(|| fallback(groups, parent.at.group), |(number, _)| number)
    }
}

impl Linear {
    /// Name of the policy.
    pub const NAME: &'static str = "linear";
}

impl DirectoryPlacement for Linear {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, groups: &Groups, _: &NewInode<'_>) -> GroupNo {
        let mut all = groups.from(GroupNo::ZERO);
        all.find(|(_, group)| group.nifree > 0).map_or(GroupNo::ZERO, |(number, _)| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;
    use crate::inode::{InodePlace, Parent};

    fn groups(all: &[(u32, u32, u32)]) -> Groups {
        let ncg = u32::try_from(all.len()).unwrap();
        let shape = Shape {
            ncg,
            ipg: 1024,
            fpg: 8192,
            frag: 1,
            size: 8192 * u64::from(ncg),
            ..Shape::default()
        };
        let mut groups = Groups::new(shape, |group| shape.base(group));
        for (number, &(ndir, nifree, nbfree)) in (0..).map(GroupNo::new).zip(all) {
            groups.set(number, GroupSummary { ndir, nifree, nbfree, nffree: 0 });
        }
        groups
    }

    fn below(group: u32, is_root: bool) -> NewInode<'static> {
        let at = InodePlace { group: GroupNo::new(group), slot: 1 };
        let parent = Parent { at, is_root, depth: 1, subdirectories: 0, last: None };
        NewInode { parent, name: b"new", hash: None, is_directory: true }
    }

    #[test]
    fn directories_of_the_root_go_where_there_are_fewest_and_enough_is_free() {
        // The third has the fewest directories, but less than the average of blocks.
        let groups = groups(&[(5, 900, 4000), (3, 900, 4000), (1, 900, 1000), (4, 900, 4000)]);
        for seed in 0..20 {
            let chosen = Ext2Orlov::new(4, seed).prefer(&groups, &below(0, true));
            assert_eq!(chosen, GroupNo::new(1));
        }
        // Among equals it is the first from a random group on.
        let even = self::groups(&[(1, 900, 4000); 7]);
        let chosen: std::collections::BTreeSet<GroupNo> =
            (0..60).map(|seed| Ext2Orlov::new(7, seed).prefer(&even, &below(0, true))).collect();
        assert_eq!(chosen.len(), 7);
    }

    #[test]
    fn others_stay_with_their_parent_until_its_group_is_in_debt() {
        // 7 * 8192 / 7 blocks per directory: 8192 / 8191 = 1 directory in a row.
        let busy = groups(&[(1, 1000, 1), (1, 1000, 1), (1, 1000, 1)]);
        let mut policy = Ext2Orlov::new(3, 1);
        let parent = below(1, false);
        assert_eq!(policy.prefer(&busy, &parent), GroupNo::new(1));
        policy.taken(GroupNo::new(1), true);
        assert_eq!(policy.prefer(&busy, &parent), GroupNo::new(2));
        policy.taken(GroupNo::new(1), false);
        assert_eq!(policy.prefer(&busy, &parent), GroupNo::new(1));
        // With little in use a group takes ipg / INODE_COST = 16 in a row.
        let idle = groups(&[(1, 1000, 8000), (1, 1000, 8000)]);
        let mut policy = Ext2Orlov::new(2, 1);
        let parent = below(0, false);
        for _ in 0..16 {
            assert_eq!(policy.prefer(&idle, &parent), GroupNo::new(0));
            policy.taken(GroupNo::new(0), true);
        }
        assert_eq!(policy.prefer(&idle, &parent), GroupNo::new(1));
    }

    #[test]
    fn the_older_rules() {
        let groups =
            groups(&[(0, 0, 900), (2, 10, 4000), (2, 900, 100), (2, 900, 200), (2, 900, 200)]);
        let parent = below(4, false);
        // The second has the most blocks, but less than the average of inodes.
        assert_eq!(FindGroupDir.prefer(&groups, &parent), GroupNo::new(3));
        assert_eq!(Linear.prefer(&groups, &parent), GroupNo::new(1));
    }
}
