//! 201 directories in one parent, as a real NetBSD kernel places them.
//!
//! In NetBSD each group that was filled contained exactly 61 directories. The volume here has the
//! geometry of NetBSD's `newfs -O 2 -b 16384 -f 2048 -s 256m`: four groups, its minimum, of 32768
//! fragments (64 MiB); an inode for every 8192 bytes, 7936 per group, in 992 fragments; in front of
//! them a gap of 40 fragments, 8 for a superblock's copy, 8 for the group's head. A group then has
//! 3970 blocks for data, all together a little less than 4 * 3968, so that 61 times 1 MiB (64 files
//! of 16 KiB) fit in an average group from the third block taken on.

#[path = "../../fs/tests/shared/property.rs"]
mod property;

use proptest::prelude::{Just, any};
use proptest::prop_oneof;
use seekless_placement::directory::{Expected, by_name};
use seekless_placement::inode::{BesideParent, InodePlace, InodePlacement, NewInode, Parent};
use seekless_placement::{GroupSummary, Groups, Shape, first_with};
use seekless_units::GroupNo;

const FRAG: u32 = 8;
const IPG: u32 = 7936;
/// Copy of the superblock, group head, inodes; and the gap in front.
const METADATA: u32 = 8 + 8 + IPG / 8;
const GAP: u32 = 40;

const ROOT: Parent = Parent {
    at: InodePlace { group: GroupNo::ZERO, slot: 2 },
    is_root: true,
    depth: 0,
    subdirectories: 0,
    last: None,
};

fn below_root(group: GroupNo, subdirectories: u32) -> Parent {
    Parent {
        at: InodePlace { group, slot: 0 },
        is_root: false,
        depth: 1,
        subdirectories,
        last: None,
    }
}

struct Simulation {
    groups: Groups,
    policy: BesideParent,
}

impl Simulation {
    fn new(policy: &str, seed: u64) -> Self {
        let shape = Shape {
            ncg: 4,
            ipg: IPG,
            fpg: 32768,
            fsize: 2048,
            frag: FRAG,
            size: 4 * 32768,
            skip: 0,
        };
        let mut groups = Groups::new(shape, |group| shape.base(group));
        let data = (32768 - METADATA) / FRAG;
        let mut summary = GroupSummary { nbfree: data, nifree: IPG, ..GroupSummary::default() };
        for group in 1..4 {
            groups.set(GroupNo::new(group), summary);
        }
        // The boot area; the summary area and the root's fragment share a block.
        summary.nbfree -= GAP / FRAG + 1;
        summary.nffree = FRAG - 2;
        summary.nifree -= 3;
        summary.ndir = 1;
        groups.set(GroupNo::ZERO, summary);
        let expected = Expected { avgfilesize: 16384, avgfpdir: 64 };
        let policy = BesideParent::new(by_name(policy, shape.ncg, expected, seed).unwrap());
        Self { groups, policy }
    }

    /// Takes an inode in the first group with a free one.
    fn take(&mut self, parent: Parent, is_directory: bool) -> (GroupNo, GroupSummary) {
        let new = NewInode { parent, name: b"name", hash: None, is_directory };
        let goal = self.policy.goal(&self.groups, &new);
        let order = self.policy.order(&self.groups, goal);
        let found = first_with::<_, ()>(order, |group, _| {
            let summary = self.groups.summary(group).unwrap();
            Ok((summary.nifree > 0).then_some((group, summary)))
        });
        let (group, mut summary) = found.unwrap().unwrap();
        self.policy.taken(&new, goal, Some(InodePlace { group, slot: 0 }));
        summary.nifree -= 1;
        (group, summary)
    }

    fn create(&mut self, parent: Parent) {
        let (group, summary) = self.take(parent, false);
        self.groups.set(group, summary);
    }

    fn mkdir(&mut self, parent: Parent) -> GroupNo {
        let (group, mut summary) = self.take(parent, true);
        summary.ndir += 1;
        // Its entries take a fragment.
        if summary.nffree == 0 {
            summary.nbfree -= 1;
            summary.nffree = FRAG;
        }
        summary.nffree -= 1;
        self.groups.set(group, summary);
        group
    }

    /// Creates the parent and the directories in it. Returns their number by group.
    fn run(&mut self, directories: u32) -> Vec<u32> {
        let group = self.mkdir(ROOT);
        for subdirectories in 0..directories {
            self.mkdir(below_root(group, subdirectories));
        }
        (0..4).map(|group| self.groups.summary(GroupNo::new(group)).unwrap().ndir).collect()
    }
}

/// One group is filled after the other.
#[test]
fn filled_groups_hold_61_directories() {
    let directories = prop_oneof![0..4 * 61u32, Just(201)];
    property::for_all(40, (any::<u64>(), directories), |(seed, directories)| {
        let mut held = Simulation::new("orlov", seed).run(directories);
        // The root's own directory existed before the volume was mounted.
        held[0] -= 1;
        held.sort_unstable();
        // The parent counts as the first of them.
        let filled =
            [3, 2, 1, 0].map(|before| (directories + 1).saturating_sub(before * 61).min(61));
        assert_eq!(held, filled);
    });
}

#[test]
fn files_in_between_let_directories_stay_together() {
    let mut simulation = Simulation::new("orlov", 1);
    let group = simulation.mkdir(ROOT);
    for subdirectories in 0..201 {
        let made = simulation.mkdir(below_root(group, subdirectories));
        assert_eq!(made, group);
        simulation.create(below_root(made, 0));
    }
}

#[test]
fn the_old_policy_deals_directories_out_evenly() {
    assert_eq!(Simulation::new("old-dirpref", 0).run(198), [50, 50, 50, 50]);
}
