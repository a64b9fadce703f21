//! Use and return of the inodes reserved for a directory, on one group of 40.

#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::as_conversions)]
#![allow(clippy::panic)]

use seekless_placement::inode::{
    ExtVolume, InodePlace, InodePlacement, LinkedAreas, NewInode, Parent, Slots, ext_by_name,
};
use seekless_placement::{GroupSummary, Groups, Shape};
use seekless_units::GroupNo;
use std::ops::Range;

const SLOTS: u32 = 40;

struct Used([bool; SLOTS as usize]);

impl Slots for Used {
    fn next_free(&self, mut range: Range<u32>) -> Option<u32> {
        range.find(|&slot| !self.0[slot as usize])
    }

    fn next_used(&self, mut range: Range<u32>) -> Option<u32> {
        range.find(|&slot| self.0[slot as usize])
    }
}

struct Volume {
    groups: Groups,
    used: Used,
    policy: Box<dyn InodePlacement>,
}

impl Volume {
    /// A volume with the root in slot 1.
    fn new(policy: &str) -> Self {
        let shape = Shape { ncg: 1, ipg: SLOTS, fpg: 100, frag: 1, size: 100, ..Shape::default() };
        let mut groups = Groups::new(shape, |group| shape.base(group));
        let summary = GroupSummary { ndir: 1, nifree: 9, nbfree: 9, nffree: 0 };
        groups.set(GroupNo::ZERO, summary);
        let volume = ExtVolume { groups: 1, groups_per_flex: 1, inodes_per_group: SLOTS };
        let policy = ext_by_name("linear", Some(policy), &volume, 1).unwrap();
        let mut used = [false; SLOTS as usize];
        used[..2].fill(true);
        Self { groups, used: Used(used), policy }
    }

    /// The same inodes under a new policy, which finds the directories and gets second areas.
    fn mount_again(&mut self, policy: &str, directories: &[u32], areas: &LinkedAreas) {
        self.policy = Self::new(policy).policy;
        let windows = self.policy.windows().unwrap();
        windows.link(areas.clone());
        windows.learn(GroupNo::ZERO, directories.iter().copied());
    }

    fn make(&mut self, parent: u32, is_directory: bool, hash: u32) -> u32 {
        let at = |slot| InodePlace { group: GroupNo::ZERO, slot };
        let is_root = parent == 1;
        let parent = Parent { at: at(parent), is_root, depth: 0, subdirectories: 0, last: None };
        let new = NewInode { parent, name: b"name", hash: Some(hash), is_directory };
        let goal = self.policy.goal(&self.groups, &new);
        let order: Vec<GroupNo> = self.policy.order(&self.groups, goal).collect();
        let mut found = None;
        for (n, group) in order.into_iter().enumerate() {
            let windows = self.policy.windows().unwrap();
            if windows.unknown(group).is_some() {
                windows.learn(group, []);
            }
            found = found.or_else(|| windows.slot(&new, group, n == 0, &self.used));
        }
        let slot = found.unwrap();
        assert!(!std::mem::replace(&mut self.used.0[slot as usize], true));
        self.policy.taken(&new, goal, Some(at(slot)));
        slot
    }

    fn remove(&mut self, slot: u32, is_directory: bool) {
        self.used.0[slot as usize] = false;
        self.policy.given_back(InodePlace { group: GroupNo::ZERO, slot }, is_directory);
    }
}

#[test]
fn children_follow_their_directory_and_others_keep_out() {
    let mut volume = Volume::new("dir-reserve=8");
    assert_eq!(volume.make(1, true, 0), 8, "the root is in the first window");
    assert_eq!(volume.make(1, false, 0), 2);
    assert_eq!([volume.make(8, false, 0), volume.make(8, false, 0)], [9, 10]);
    assert_eq!(volume.make(8, true, 0), 16, "directories have windows of their own");
    let root: Vec<u32> = (0..6).map(|_| volume.make(1, false, 0)).collect();
    assert_eq!(root, [3, 4, 5, 6, 7, 24]);
    let rest: Vec<u32> = (0..6).map(|_| volume.make(8, false, 0)).collect();
    assert_eq!(rest, [11, 12, 13, 14, 15, 25], "a full window");
    assert_eq!(volume.make(1, true, 0), 32, "the one at 24 is not wholly free");
    assert_eq!(volume.make(1, true, 0), 26, "there is none");
    // The window is freed with its directory.
    volume.remove(16, true);
    assert_eq!(volume.make(1, false, 0), 16);
    volume.remove(32, true);
    assert_eq!(volume.make(1, true, 0), 32);
    // When all others are used, reserved ones are taken.
    let all: Vec<u32> = (0..19).map(|_| volume.make(1, false, 0)).collect();
    assert_eq!(all[..12], [17, 18, 19, 20, 21, 22, 23, 27, 28, 29, 30, 31]);
    assert_eq!(all[12..], [33, 34, 35, 36, 37, 38, 39]);
}

#[test]
fn hashes_say_where_and_second_areas_go_with_their_directory() {
    let share = |of: u32| (u64::from(of) << 32 >> 3) as u32;
    let mut volume = Volume::new("dir-reserve-hashed=8");
    assert_eq!(volume.make(1, true, 0), 8);
    assert_eq!(volume.make(8, false, share(5)), 13);
    assert_eq!(volume.make(8, false, share(5)), 14, "the next free one");
    assert_eq!(volume.make(8, false, share(7)), 15);
    assert_eq!(volume.make(8, false, share(6)), 9, "from the beginning again");
    for expected in 10..13 {
        assert_eq!(volume.make(8, false, 0), expected);
    }
    // 16 to 31 is its second area.
    assert_eq!(volume.make(8, false, share(4)), 24);
    assert_eq!(volume.make(8, false, u32::MAX), 31);
    assert_eq!(volume.make(1, true, 0), 32, "nobody else's window");
    for expected in [2, 3, 4, 5, 6, 7] {
        assert_eq!(volume.make(1, false, 0), expected);
    }
    assert_eq!(volume.make(1, false, 0), 16, "all that is left is reserved");
    // The second area is freed with the directory, although slots in it are in use.
    for slot in (8..16).chain([16, 24, 31]) {
        volume.remove(slot, slot == 8);
    }
    assert_eq!(volume.make(1, true, 0), 8);
    assert_eq!(volume.make(1, true, 0), 16, "nothing is kept here any more");
    assert_eq!(volume.make(16, false, 0), 17);
}

/// A mount that has the second areas of the one before continues to use them; one that has not
/// takes others for them, even for directories.
#[test]
fn second_areas_survive_a_mount_that_gets_them() {
    let filled = |areas: &LinkedAreas| {
        let mut volume = Volume::new("dir-reserve-hashed=8");
        volume.policy.windows().unwrap().link(areas.clone());
        assert_eq!(volume.make(1, true, 0), 8);
        let children: Vec<u32> = (0..8).map(|_| volume.make(8, false, 0)).collect();
        assert_eq!(children, [9, 10, 11, 12, 13, 14, 15, 16], "the last in a second area");
        volume
    };
    let areas = LinkedAreas::default();
    let mut volume = filled(&areas);
    assert_eq!(areas.count(), 1);
    volume.mount_again("dir-reserve-hashed=8", &[8], &areas);
    assert_eq!(volume.make(8, false, u32::MAX), 31, "in the area that it had");
    assert_eq!(volume.make(1, true, 0), 32, "and nobody else takes it");
    for slot in (8..17).chain([31]) {
        volume.remove(slot, slot == 8);
    }
    assert_eq!(areas.count(), 0);

    let mut volume = filled(&LinkedAreas::default());
    volume.mount_again("dir-reserve-hashed=8", &[8], &LinkedAreas::default());
    assert_eq!(volume.make(8, false, u32::MAX), 39, "a third area");
    assert_eq!(volume.make(1, false, 0), 2);
}

/// Areas that do not fit the mount that gets them are dropped: those of other windows, and those of
/// directories that were removed by a mount without them.
#[test]
fn second_areas_that_do_not_fit_are_dropped() {
    for (policy, first) in [("dir-reserve-hashed=16", 2), ("dir-reserve-hashed=8", 24)] {
        let areas = LinkedAreas::default();
        let mut volume = Volume::new("dir-reserve-hashed=8");
        volume.policy.windows().unwrap().link(areas.clone());
        assert_eq!(volume.make(1, true, 0), 8);
        (0..8).for_each(|_| _ = volume.make(8, false, 0));
        assert_eq!(areas.count(), 1);
        volume.mount_again(policy, &[], &areas);
        assert_eq!(areas.count(), 0, "{policy}");
        assert_eq!(volume.make(1, true, 0), first, "{policy}: the first that is free");
    }
}
