//! ext's rules for the group of an inode of other files than directories.

use super::{InodePlace, NewInode, Parent};
use crate::directory::DirectoryPlacement;
use crate::flexible::Units;
use crate::{GroupSummary, Groups, hashalloc};
use seekless_units::GroupNo;

/// ext's rule for the group of an inode of other files than directories.
#[derive(Clone, Copy, Debug)]
pub(super) enum Others {
    /// ext4's (`find_group_other` of `fs/ext4/ialloc.c`): the parent's flexible group, or that of
    /// the last inode for a name in the parent, or the group for a directory that is not below the
    /// root. Without flexible groups as ext2's.
    Parent(Units),
    /// ext2's (`find_group_other` of `fs/ext2/ialloc.c`): the parent's group, if it has a free
    /// inode and a free block; then groups at growing distances from one selected by the parent's
    /// number, so that the children of one directory stay together; then any with a free inode.
    FindGroup,
    /// That of ext2 before 2.6, and of FreeBSD's ext2fs (`ext2_new_inode` of
    /// `sys/gnu/fs/ext2fs/ext2_linux_ialloc.c`): the parent's group, then groups at growing
    /// distances from it, then any, with a free inode, whether or not it has free blocks.
    OldFindGroup,
}

impl Others {
    /// Name of [`Others::Parent`].
    pub(super) const PARENT: &'static str = "parent";
    /// Name of [`Others::FindGroup`].
    pub(super) const FIND_GROUP: &'static str = "find-group-other";
    /// Name of [`Others::OldFindGroup`].
    pub(super) const OLD_FIND_GROUP: &'static str = "old-find-group-other";

    /// The groups to search, in order.
    pub(super) fn order(
        self,
        groups: &Groups,
        new: &NewInode<'_>,
        directories: &mut dyn DirectoryPlacement,
    ) -> Order {
        let parent = new.parent;
        match self {
            Self::Parent(units) if units.groups > 1 => {
                let first = |group: GroupNo| units.first_in(groups, units.of(group));
                let near = first(parent.at.group).or_else(|| parent.last.and_then(first));
                let below = NewInode { parent: Parent { is_root: false, ..parent }, ..*new };
                Order::from(near.unwrap_or_else(|| directories.prefer(groups, &below)))
            }
            Self::Parent(_) | Self::FindGroup => Order::near(groups, parent.at),
            Self::OldFindGroup => Order::from_parent(groups, parent.at.group),
        }
    }
}

/// An order of groups.
#[derive(Clone, Debug)]
pub(super) enum Order {
    /// Some groups, and then all from one on.
    Cyclic {
        /// The first groups.
        front: Vec<GroupNo>,
        /// The first of the others.
        from: GroupNo,
    },
    /// The order of [`hashalloc`](hashalloc()).
    Hashed(GroupNo),
}

impl Order {
    /// All groups from one on.
    pub(super) fn from(group: GroupNo) -> Self {
        Self::Cyclic { front: Vec::new(), from: group }
    }

    /// The parent's group and some at growing distances, if they have a free inode and a free
    /// block; then all behind the parent's, whatever they have, and it last: all others may be
    /// without an inode.
    fn near(groups: &Groups, parent: InodePlace) -> Self {
        let shape = groups.shape();
        let number = u64::from(parent.group.get()) * u64::from(shape.ipg);
        let number = number + u64::from(parent.slot) + 1;
        let has_both = |group: &GroupSummary| group.nifree > 0 && group.nbfree > 0;
        let is_good = |number: &GroupNo| groups.summary(*number).as_ref().is_some_and(has_both);
        let mut front = vec![parent.group];
        front.extend(Self::apart(groups, shape.group_after(parent.group, number)));
        front.retain(is_good);
        Self::Cyclic { front, from: shape.group_after(parent.group, 1) }
    }

    /// The parent's group, some at growing distances from it, and all behind it. Groups without a
    /// free inode are skipped when they are searched.
    fn from_parent(groups: &Groups, parent: GroupNo) -> Self {
        let mut front = vec![parent];
        front.extend(Self::apart(groups, parent));
        Self::Cyclic { front, from: groups.shape().group_after(parent, 1) }
    }

    /// Groups at distances of 1, 3, 7 and so on from one.
    fn apart(groups: &Groups, from: GroupNo) -> Vec<GroupNo> {
        let shape = groups.shape();
        let (mut at, mut by) = (from, 1u64);
        let mut all = Vec::new();
        while by < u64::from(shape.ncg) {
            at = shape.group_after(at, by);
            all.push(at);
            by *= 2;
        }
        all
    }

    /// The groups, one after the other.
    pub(super) fn all(&self, groups: &Groups) -> Box<dyn Iterator<Item = GroupNo>> {
        let shape = *groups.shape();
        match self {
            Self::Cyclic { front, from } => {
                let from = *from;
                let rest = (0..u64::from(shape.ncg)).map(move |by| shape.group_after(from, by));
                Box::new(front.clone().into_iter().chain(rest))
            }
            Self::Hashed(start) => Box::new(hashalloc(shape.ncg, *start)),
        }
    }

    /// The first group with a free inode; the first one if none has any.
    pub(super) fn first(&self, groups: &Groups) -> GroupNo {
        let has = |number: &GroupNo| groups.summary(*number).is_some_and(|group| group.nifree > 0);
        let first = self.all(groups).find(has).or_else(|| self.all(groups).next());
        first.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;
    use crate::inode::{ExtVolume, ext_by_name};

    fn groups(ncg: u32, full: &[u32]) -> Groups {
        let shape = Shape { ncg, ipg: 100, fpg: 1000, frag: 1, ..Shape::default() };
        let mut groups = Groups::new(shape, |group| shape.base(group));
        for number in 0..ncg {
            let nbfree = if full.contains(&number) { 0 } else { 10 };
            let summary = GroupSummary { nifree: 10, nbfree, ..GroupSummary::default() };
            groups.set(GroupNo::new(number), summary);
        }
        groups
    }

    /// `find_group_other` written out: the parent's; then `group = (parent's group + parent's ino)
    /// % n`, and `group += i`, minus `n` if that is too large, for `i = 1; i < n; i <<= 1`; then,
    /// with or without free blocks, from the parent's + 1 on.
    #[test]
    fn groups_are_tried_as_ext2_tries_them() {
        for ncg in 1..40u32 {
            for (parent, slot) in [(0, 1), (ncg - 1, 57), (ncg / 2, 99)] {
                let full = [parent, (parent + 3) % ncg];
                let groups = groups(ncg, &full);
                let volume = ExtVolume { groups: ncg, groups_per_flex: 1, inodes_per_group: 100 };
                let mut policy = ext_by_name("linear", None, &volume, 1).unwrap();
                let at = InodePlace { group: GroupNo::new(parent), slot };
                let parent_dir =
                    Parent { at, is_root: false, depth: 0, subdirectories: 0, last: None };
                let new =
                    NewInode { parent: parent_dir, name: b"x", hash: None, is_directory: false };
                let goal = policy.goal(&groups, &new);
                let order: Vec<u32> = policy.order(&groups, goal).map(GroupNo::get).collect();
                let ino = parent * 100 + slot + 1;
                let mut expected = vec![parent];
                let (mut group, mut i) = ((parent + ino) % ncg, 1);
                while i < ncg {
                    group += i;
                    if group >= ncg {
                        group -= ncg;
                    }
                    expected.push(group);
                    i *= 2;
                }
                expected.retain(|group| !full.contains(group));
                for i in 1..=ncg {
                    expected.push((parent + i) % ncg);
                }
                assert_eq!(order, expected, "{ncg} groups from {parent}");
            }
        }
    }

    /// `i = parent's group`; `i += j`, minus `n` if that is too large, for `j = 1; j < n; j <<= 1`;
    /// then from the parent's + 1 on. Free blocks are ignored.
    #[test]
    fn groups_are_tried_as_freebsd_tried_them() {
        for ncg in 1..40u32 {
            for parent in [0, ncg - 1, ncg / 2] {
                let groups = groups(ncg, &[parent]);
                let volume = ExtVolume { groups: ncg, groups_per_flex: 1, inodes_per_group: 100 };
                let name = Some("old-find-group-other");
                let mut policy = ext_by_name("linear", name, &volume, 1).unwrap();
                let at = InodePlace { group: GroupNo::new(parent), slot: 7 };
                let parent_dir =
                    Parent { at, is_root: false, depth: 0, subdirectories: 0, last: None };
                let new =
                    NewInode { parent: parent_dir, name: b"x", hash: None, is_directory: false };
                let goal = policy.goal(&groups, &new);
                let order: Vec<u32> = policy.order(&groups, goal).map(GroupNo::get).collect();
                let (mut expected, mut group, mut j) = (vec![parent], parent, 1);
                while j < ncg {
                    group = (group + j) % ncg;
                    expected.push(group);
                    j *= 2;
                }
                expected.extend((1..=ncg).map(|i| (parent + i) % ncg));
                assert_eq!(order, expected, "{ncg} groups from {parent}");
            }
        }
    }
}
