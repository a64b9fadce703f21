//! A volume's groups and their free space, as input of policies.

use seekless_units::{BlockNo, GroupNo};

/// The geometry of a volume that is divided into groups of one size.
///
/// Block numbers count fragments from the start of the volume. A format without fragments has one
/// per block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// Groups.
    pub ncg: u32,
    /// Inodes in a group.
    pub ipg: u32,
    /// Fragments in a group.
    pub fpg: u32,
    /// Bytes in a fragment.
    pub fsize: u32,
    /// Fragments in a block.
    pub frag: u32,
    /// Fragments in the volume.
    pub size: u64,
    /// Fragments in front of the first group.
    pub skip: u32,
}

impl Shape {
    /// Bytes in a block.
    #[must_use]
    pub fn bsize(&self) -> u64 {
        u64::from(self.fsize) * u64::from(self.frag)
    }

    /// A group's first fragment.
    #[must_use]
    pub fn base(&self, group: GroupNo) -> BlockNo {
        let within = u64::from(group.get()) * u64::from(self.fpg);
        BlockNo::new(within + u64::from(self.skip))
    }

    /// The group that contains a fragment.
    #[must_use]
    pub fn group_of(&self, block: BlockNo) -> GroupNo {
        let within = block.get().saturating_sub(u64::from(self.skip));
        let group = within / u64::from(self.fpg);
        GroupNo::new(u32::try_from(group).unwrap_or(u32::MAX))
    }

    /// The group `by` further on, wrapping around after the last.
    #[must_use]
    pub fn group_after(&self, group: GroupNo, by: u64) -> GroupNo {
        let sum = u64::from(group.get()) + by;
        let wrapped = sum % u64::from(self.ncg);
        GroupNo::new(u32::try_from(wrapped).unwrap_or(0))
    }
}

/// Counts of a group (`struct csum` of FFS).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupSummary {
    /// Directories.
    pub ndir: u32,
    /// Free blocks.
    pub nbfree: u32,
    /// Free inodes.
    pub nifree: u32,
    /// Free fragments that are not part of a free block.
    pub nffree: u32,
}

/// Sums over all groups (`struct csum_total` of FFS).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Directories.
    pub ndir: u64,
    /// Free blocks.
    pub nbfree: u64,
    /// Free inodes.
    pub nifree: u64,
    /// Free fragments that are not part of a free block.
    pub nffree: u64,
}

impl FromIterator<GroupSummary> for Totals {
    fn from_iter<I: IntoIterator<Item = GroupSummary>>(groups: I) -> Self {
        groups.into_iter().fold(Self::default(), |sum, one| Self {
            ndir: sum.ndir + u64::from(one.ndir),
            nbfree: sum.nbfree + u64::from(one.nbfree),
            nifree: sum.nifree + u64::from(one.nifree),
            nffree: sum.nffree + u64::from(one.nffree),
        })
    }
}

impl Totals {
    /// The totals after a change of one group.
    fn changed(self, old: GroupSummary, new: GroupSummary) -> Self {
        let changed = |total: u64, old: u32, new: u32| {
            debug_assert!(total >= u64::from(old), "{total} in all, {old} of them in one group");
            total - u64::from(old) + u64::from(new)
        };
        Self {
            ndir: changed(self.ndir, old.ndir, new.ndir),
            nbfree: changed(self.nbfree, old.nbfree, new.nbfree),
            nifree: changed(self.nifree, old.nifree, new.nifree),
            nffree: changed(self.nffree, old.nffree, new.nffree),
        }
    }
}

/// A group: the start of its data, and its counts.
#[derive(Clone, Copy, Debug)]
struct Group {
    data: BlockNo,
    summary: GroupSummary,
}

/// The groups of a volume: number, size, and free space of each.
///
/// An engine owns one, and updates it with every change of a group; the totals follow. Policies
/// decide by it.
#[derive(Clone, Debug)]
pub struct Groups {
    shape: Shape,
    groups: Vec<Group>,
    totals: Totals,
}

impl Groups {
    /// Creates the groups of a volume, without free space; `data` returns the start of a group's
    /// data, in fragments from the start of the volume.
    #[must_use]
    pub fn new(shape: Shape, data: impl Fn(GroupNo) -> BlockNo) -> Self {
        let group = |number| Group { data: data(number), summary: GroupSummary::default() };
        let groups = (0..shape.ncg).map(GroupNo::new).map(group).collect();
        Self { shape, groups, totals: Totals::default() }
    }

    /// The geometry of the volume.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Sums over all groups.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Counts of a group; `None` for an invalid number.
    #[must_use]
    pub fn summary(&self, number: GroupNo) -> Option<GroupSummary> {
        self.group(number).map(|group| group.summary)
    }

    /// Updates the counts of a group. The number must be valid.
    pub fn set(&mut self, number: GroupNo, summary: GroupSummary) {
        let at = usize::try_from(number.get()).ok();
        let group = at.and_then(|at| self.groups.get_mut(at));
        debug_assert!(group.is_some(), "there is no group {number}");
        if let Some(group) = group {
            let old = std::mem::replace(&mut group.summary, summary);
            self.totals = self.totals.changed(old, summary);
        }
    }

    /// Start of a group's data. The number must be valid.
    #[must_use]
    pub fn data_start(&self, number: GroupNo) -> BlockNo {
        let group = self.group(number);
        debug_assert!(group.is_some(), "there is no group {number}");
        group.map_or_else(|| self.shape.base(number), |group| group.data)
    }

    /// Number of free fragments, in whole blocks and outside of them.
    #[must_use]
    pub fn free_frags(&self) -> u64 {
        let blocks = self.totals.nbfree * u64::from(self.shape.frag);
        blocks + self.totals.nffree
    }

    /// A total divided by the number of groups, rounded down.
    pub(crate) fn average(&self, total: u64) -> u64 {
        total / u64::from(self.shape.ncg)
    }

    /// All groups from `start` to the last one, then those before it.
    pub(crate) fn from(&self, start: GroupNo) -> impl Iterator<Item = (GroupNo, GroupSummary)> {
        let (start, end) = (start.get().min(self.shape.ncg), self.shape.ncg);
        let numbers = (start..end).chain(0..start).map(GroupNo::new);
        numbers.filter_map(|number| Some((number, self.summary(number)?)))
    }

    fn group(&self, number: GroupNo) -> Option<&Group> {
        usize::try_from(number.get()).ok().and_then(|at| self.groups.get(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(ncg: u32) -> Groups {
        let shape =
            Shape { ncg, fpg: 100, frag: 8, size: 100 * u64::from(ncg), ..Shape::default() };
        Groups::new(shape, |group| shape.base(group) + 16)
    }

    #[test]
    fn totals_follow_every_change() {
        let mut groups = groups(3);
        assert_eq!(*groups.totals(), Totals::default());
        let mut held = [GroupSummary::default(); 3];
        for n in 0..200u32 {
            let at = (n * 7 % 3) as usize;
            held[at] = GroupSummary {
                ndir: n % 5,
                nbfree: n * 13 % 31,
                nifree: n * 17 % 29,
                nffree: n * 3 % 8,
            };
            groups.set(GroupNo::new(at as u32), held[at]);
            assert_eq!(*groups.totals(), held.into_iter().collect());
            let totals = groups.totals();
            assert_eq!(groups.free_frags(), totals.nbfree * 8 + totals.nffree);
        }
        assert_eq!(groups.summary(GroupNo::new(2)), Some(held[2]));
        assert_eq!(groups.summary(GroupNo::new(3)), None);
        assert_eq!(groups.data_start(GroupNo::new(2)), BlockNo::new(216));
    }

    #[test]
    fn a_sweep_begins_anew_behind_the_last_group() {
        let groups = groups(4);
        let sweep = |start| -> Vec<u32> {
            groups.from(GroupNo::new(start)).map(|(number, _)| number.get()).collect()
        };
        assert_eq!(sweep(0), [0, 1, 2, 3]);
        assert_eq!(sweep(3), [3, 0, 1, 2]);
        assert_eq!(groups.shape().group_after(GroupNo::new(3), 6), GroupNo::new(1));
        assert_eq!(groups.shape().group_of(BlockNo::new(399)), GroupNo::new(3));
    }
}
