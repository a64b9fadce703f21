//! Flexible groups as ext4's units of inode placement.

use crate::{GroupSummary, Groups};
use seekless_units::GroupNo;
use std::ops::Range;

/// The division of groups into units: flexible groups (`flex_bg`), or single groups without them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    /// Groups in a unit, at least one.
    pub(crate) groups: u32,
}

/// The sums over the groups of a unit.
#[derive(Clone, Copy, Default)]
pub(crate) struct Unit {
    pub(crate) directories: u64,
    pub(crate) inodes: u64,
    pub(crate) blocks: u64,
}

impl Unit {
    fn with(self, group: GroupSummary) -> Self {
        Self {
            directories: self.directories + u64::from(group.ndir),
            inodes: self.inodes + u64::from(group.nifree),
            blocks: self.blocks + u64::from(group.nbfree),
        }
    }
}

impl Units {
    /// Creates units of `groups_per_flex` groups; 0 and 1 stand for a volume without flexible
    /// groups.
    pub(crate) fn new(groups_per_flex: u32) -> Self {
        Self { groups: groups_per_flex.max(1) }
    }

    pub(crate) fn count(self, groups: &Groups) -> u32 {
        groups.shape().ncg.div_ceil(self.groups)
    }

    /// The unit of a group.
    pub(crate) fn of(self, group: GroupNo) -> u32 {
        group.get().checked_div(self.groups).unwrap_or(0)
    }

    /// The groups of a unit; the last unit may have fewer.
    fn groups_of(self, groups: &Groups, unit: u32) -> Range<u32> {
        let first = unit * self.groups;
        first..(first + self.groups).min(groups.shape().ncg)
    }

    fn sum(self, groups: &Groups, unit: u32) -> Unit {
        let all = self.groups_of(groups, unit).map(GroupNo::new);
        all.filter_map(|number| groups.summary(number)).fold(Unit::default(), Unit::with)
    }

    /// All units from `start` on with their sums, then those before it.
    pub(crate) fn from(self, groups: &Groups, start: u32) -> impl Iterator<Item = (u32, Unit)> {
        let end = self.count(groups);
        (start..end).chain(0..start).map(move |unit| (unit, self.sum(groups, unit)))
    }

    /// The first group of a unit with a free inode.
    pub(crate) fn first_in(self, groups: &Groups, unit: u32) -> Option<GroupNo> {
        let has = |number: &GroupNo| groups.summary(*number).is_some_and(|group| group.nifree > 0);
        self.groups_of(groups, unit).map(GroupNo::new).find(has)
    }
}
