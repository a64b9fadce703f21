use super::{InodePlace, InodePlacement, NewInode};
use crate::directory::DirectoryPlacement;
use crate::{GroupSummary, Groups};
use seekless_units::GroupNo;

/// ext2's rule (`find_group_other` of `fs/ext2/ialloc.c`): a directory goes to the
/// group that a policy for directories prefers, all else to its parent's, if that
/// has an inode and a block to spare; then to groups at growing distances from one
/// that the parent's number decides, so that the children of one directory stay
/// together; then to any that has an inode.
pub struct FindGroup {
    directories: Box<dyn DirectoryPlacement>,
    /// The parent of the file that is looked for; none for a directory.
    parent: Option<InodePlace>,
}

impl FindGroup {
    /// What it is called.
    pub const NAME: &'static str = "find-group-other";

    /// With the policy for directories.
    #[must_use]
    pub fn new(directories: Box<dyn DirectoryPlacement>) -> Self {
        Self { directories, parent: None }
    }
}

/// The groups in which a file of a directory is looked for a place, in this order: the
/// parent's and some at growing distances, those with an inode and a block to spare;
/// then all behind the parent's, whatever they have, and it last.
pub(super) fn near_parent(groups: &Groups, parent: InodePlace) -> Vec<GroupNo> {
    let shape = groups.shape();
    let number = u64::from(parent.group.get()).saturating_mul(shape.ipg.into());
    let number = number.saturating_add(parent.slot.into()).saturating_add(1);
    let after = |group: GroupNo, by: u64| shape.group_after(group, by);
    let has_both = |group: &GroupSummary| group.nifree > 0 && group.nbfree > 0;
    let is_good = |number: &GroupNo| groups.summary(*number).as_ref().is_some_and(has_both);
    let mut jumps = Vec::new();
    let (mut at, mut by) = (after(parent.group, number), 1u64);
    while by < u64::from(shape.ncg) {
        at = after(at, by);
        jumps.push(at);
        by = by.saturating_mul(2);
    }
    let near = std::iter::once(parent.group).chain(jumps).filter(is_good);
    // The parent's comes last: all others may be without an inode.
    let any = (1..u64::from(shape.ncg)).map(|by| after(parent.group, by));
    near.chain(any).chain([parent.group]).collect()
}

impl InodePlacement for FindGroup {
    fn goal(&mut self, groups: &Groups, new: &NewInode<'_>) -> InodePlace {
        let at = new.parent.at;
        if new.is_directory {
            self.parent = None;
            let group = self.directories.prefer(groups, &new.parent);
            return InodePlace { group, slot: 0 };
        }
        self.parent = Some(at);
        InodePlace { group: at.group, slot: 0 }
    }

    fn order(&self, groups: &Groups, goal: InodePlace) -> Box<dyn Iterator<Item = GroupNo>> {
        if let Some(parent) = self.parent {
            return Box::new(near_parent(groups, parent).into_iter());
        }
        let shape = *groups.shape();
        Box::new((0..u64::from(shape.ncg)).map(move |by| shape.group_after(goal.group, by)))
    }

    fn taken(&mut self, new: &NewInode<'_>, _: InodePlace, at: Option<InodePlace>) {
        if let Some(at) = at {
            self.directories.allocated(at.group, new.is_directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;
    use crate::directory::Linear;
    use crate::inode::Parent;

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

    /// `find_group_other` written out: the parent's; then `group = (parent's group +
    /// parent's ino) % n`, and `group += i`, less `n` when that is too much, for
    /// `i = 1; i < n; i <<= 1`; then, blocks or none, from the parent's + 1 on.
    #[test]
    fn groups_are_tried_as_ext2_tries_them() {
        for ncg in 1..40u32 {
            for (parent, slot) in [(0, 1), (ncg - 1, 57), (ncg / 2, 99)] {
                let full = [parent, (parent + 3) % ncg];
                let groups = groups(ncg, &full);
                let mut policy = FindGroup::new(Box::new(Linear));
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
}
