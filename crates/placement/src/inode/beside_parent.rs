//! FFS's rule for inodes.

use super::{InodePlace, InodePlacement, NewInode};
use crate::directory::DirectoryPlacement;
use crate::{Groups, hashalloc};
use seekless_units::GroupNo;

/// FFS's rule (`ffs_valloc`): a directory goes to the start of the group that a directory policy
/// prefers, all others beside their parent, whose own slot is the goal. Groups are tried in the
/// order of [`hashalloc`](hashalloc()).
pub struct BesideParent {
    directories: Box<dyn DirectoryPlacement>,
}

impl BesideParent {
    /// Creates the rule with a directory policy.
    #[must_use]
    pub fn new(directories: Box<dyn DirectoryPlacement>) -> Self {
        Self { directories }
    }
}

impl InodePlacement for BesideParent {
    fn goal(&mut self, groups: &Groups, new: &NewInode<'_>) -> InodePlace {
        self.directories.begin(groups);
        if new.is_directory {
            let group = self.directories.prefer(groups, new);
            InodePlace { group, slot: 0 }
        } else {
            new.parent.at
        }
    }

    fn order(&self, groups: &Groups, goal: InodePlace) -> Box<dyn Iterator<Item = GroupNo>> {
        Box::new(hashalloc(groups.shape().ncg, goal.group))
    }

    /// Counts it for the preferred group, as FFS does, whichever group it was found in.
    fn taken(&mut self, new: &NewInode<'_>, goal: InodePlace, _: Option<InodePlace>) {
        self.directories.allocated(goal.group, new.is_directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::Parent;
    use crate::{GroupSummary, Shape, first_with};
    use std::sync::{Arc, Mutex};

    /// Prefers the last group, and records its calls.
    #[derive(Clone, Default)]
    struct Last(Arc<Mutex<Vec<(u32, bool)>>>);

    impl DirectoryPlacement for Last {
        fn name(&self) -> &'static str {
            "last"
        }

        fn prefer(&mut self, groups: &Groups, _: &NewInode<'_>) -> GroupNo {
            GroupNo::new(groups.shape().ncg - 1)
        }

        fn allocated(&mut self, preferred: GroupNo, is_directory: bool) {
            self.0.lock().unwrap().push((preferred.get(), is_directory));
        }
    }

    fn groups(ncg: u32) -> Groups {
        let shape = Shape { ncg, ipg: 64, fpg: 1000, frag: 8, ..Shape::default() };
        let mut groups = Groups::new(shape, |group| shape.base(group));
        for number in (0..ncg).map(GroupNo::new) {
            let summary = GroupSummary { nifree: 64, nbfree: 100, ..GroupSummary::default() };
            groups.set(number, summary);
        }
        groups
    }

    fn place(group: u32, slot: u32) -> InodePlace {
        InodePlace { group: GroupNo::new(group), slot }
    }

    fn new(name: &[u8], is_directory: bool) -> NewInode<'_> {
        let parent =
            Parent { at: place(2, 17), is_root: false, depth: 1, subdirectories: 0, last: None };
        NewInode { parent, name, hash: None, is_directory }
    }

    #[test]
    fn files_go_beside_their_parent_and_directories_where_the_policy_says() {
        let (groups, mut policy) = (groups(6), BesideParent::new(Box::new(Last::default())));
        for name in [b"a".as_slice(), b"another"] {
            assert_eq!(policy.goal(&groups, &new(name, false)), place(2, 17));
            assert_eq!(policy.goal(&groups, &new(name, true)), place(5, 0));
        }
    }

    /// `ffs_hashalloc` in its three steps, written out: `cg = icg`; `cg += i`, minus `ncg` if that
    /// is too large, for `i = 1; i < ncg; i *= 2`; and from `icg + 2` on for `i = 2; i < ncg; i++`.
    #[test]
    fn groups_are_tried_in_the_order_of_hashalloc() {
        let policy = BesideParent::new(Box::new(Last::default()));
        for ncg in 1..70 {
            let groups = groups(ncg);
            for icg in 0..ncg {
                let mut expected = vec![icg];
                let (mut cg, mut i) = (icg, 1);
                while i < ncg {
                    cg += i;
                    if cg >= ncg {
                        cg -= ncg;
                    }
                    expected.push(cg);
                    i *= 2;
                }
                cg = (icg + 2) % ncg;
                for _ in 2..ncg {
                    expected.push(cg);
                    cg += 1;
                    if cg == ncg {
                        cg = 0;
                    }
                }
                let order = policy.order(&groups, place(icg, 3)).map(GroupNo::get);
                assert_eq!(order.collect::<Vec<_>>(), expected, "{ncg} groups from {icg}");
            }
        }
    }

    #[test]
    fn the_policy_for_directories_is_told_of_the_goal_however_the_search_ends() {
        let last = Last::default();
        let (groups, mut policy) = (groups(6), BesideParent::new(Box::new(last.clone())));
        let found_in = |group: Option<u32>, policy: &mut BesideParent, new: &NewInode<'_>| {
            let goal = policy.goal(&groups, new);
            let order = policy.order(&groups, goal);
            let found = first_with::<_, ()>(order, |number, preferred| {
                assert_eq!(preferred, number == goal.group);
                Ok((Some(number.get()) == group).then_some(place(number.get(), 9)))
            });
            policy.taken(new, goal, found.unwrap());
            found.unwrap()
        };
        let (file, directory) = (new(b"file", false), new(b"directory", true));
        assert_eq!(found_in(Some(2), &mut policy, &file), Some(place(2, 9)));
        assert_eq!(found_in(Some(4), &mut policy, &directory), Some(place(4, 9)));
        assert_eq!(found_in(None, &mut policy, &directory), None);
        policy.given_back(place(4, 9), true);
        assert_eq!(*last.0.lock().unwrap(), [(2, false), (5, true), (5, true)]);
    }
}
