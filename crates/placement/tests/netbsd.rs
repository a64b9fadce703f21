//! 201 directories in one parent, as a real NetBSD kernel places them.
//!
//! There each group that was filled held exactly 61 directories. The volume
//! here has the shape that NetBSD's `newfs -O 2 -b 16384 -f 2048 -s 256m` works
//! out: four groups, the least that it makes, of 32768 fragments (64 MiB); an
//! inode for every 8192 bytes, 7936 a group, in 992 fragments; in front of them
//! a gap of 40 fragments, 8 for a superblock's copy, 8 for the group's head. A
//! group then has 3970 blocks for data, all together a little less than
//! 4 * 3968, so that 61 times 1 MiB (64 files of 16 KiB) find room in an average
//! group from the third block taken on.

use seekless_placement::directory::{Parent, by_name};
use seekless_placement::{GroupSummary, Totals, View, Volume, hashalloc};
use seekless_units::GroupNo;

const FRAG: u32 = 8;
const IPG: u32 = 7936;
/// Copy of the superblock, group head, inodes; and the gap in front.
const METADATA: u32 = 8 + 8 + IPG / 8;
const GAP: u32 = 40;

struct Simulation {
    volume: Volume,
    groups: Vec<GroupSummary>,
    policy: Box<dyn seekless_placement::directory::DirectoryPlacement>,
}

impl Simulation {
    fn new(policy: &str, seed: u64) -> Self {
        let volume = Volume {
            ncg: 4,
            ipg: IPG,
            fpg: 32768,
            fsize: 2048,
            bsize: 16384,
            frag: FRAG,
            size: 4 * 32768,
            minfree: 5,
            avgfilesize: 16384,
            avgfpdir: 64,
            ..Volume::default()
        };
        let data = (32768 - METADATA) / FRAG;
        let empty = GroupSummary { nbfree: data, nifree: IPG, ..GroupSummary::default() };
        let mut groups = vec![empty; 4];
        // The boot area; the summary area and the root's fragment share a block.
        groups[0].nbfree -= GAP / FRAG + 1;
        groups[0].nffree = FRAG - 2;
        groups[0].nifree -= 3;
        groups[0].ndir = 1;
        let policy = by_name(policy, volume.ncg, seed).unwrap();
        Self { volume, groups, policy }
    }

    fn mkdir(&mut self, parent: Parent) -> GroupNo {
        let totals: Totals = self.groups.iter().copied().collect();
        let view = View { volume: &self.volume, groups: &self.groups, totals: &totals };
        let preferred = self.policy.prefer(&view, &parent);
        self.policy.allocating(preferred, true);
        let found = hashalloc::<_, ()>(self.volume.ncg, preferred, |group, _| {
            Ok((self.groups[group.get() as usize].nifree > 0).then_some(group))
        });
        let group = found.unwrap().unwrap();
        let summary = &mut self.groups[group.get() as usize];
        summary.nifree -= 1;
        summary.ndir += 1;
        // Its entries take a fragment.
        if summary.nffree == 0 {
            summary.nbfree -= 1;
            summary.nffree = FRAG;
        }
        summary.nffree -= 1;
        group
    }

    /// The parent and the directories in it; by group, how many there are.
    fn run(&mut self, directories: u32) -> Vec<u32> {
        let root = Parent { group: GroupNo::ZERO, is_root: true, depth: 0, subdirectories: 0 };
        let group = self.mkdir(root);
        for subdirectories in 0..directories {
            self.mkdir(Parent { group, is_root: false, depth: 1, subdirectories });
        }
        self.groups.iter().map(|group| group.ndir).collect()
    }
}

#[test]
fn filled_groups_hold_61_directories() {
    for seed in 0..20 {
        let mut held = Simulation::new("orlov", seed).run(201);
        // The root's own directory was there before the volume was mounted.
        held[0] -= 1;
        held.sort_unstable();
        // The parent counts as the first of the 202.
        assert_eq!(held, [202 - 3 * 61, 61, 61, 61], "seed {seed}");
    }
}

#[test]
fn files_in_between_let_directories_stay_together() {
    let mut simulation = Simulation::new("orlov", 1);
    let root = Parent { group: GroupNo::ZERO, is_root: true, depth: 0, subdirectories: 0 };
    let group = simulation.mkdir(root);
    for subdirectories in 0..201 {
        let made = simulation.mkdir(Parent { group, is_root: false, depth: 1, subdirectories });
        assert_eq!(made, group);
        simulation.policy.allocating(made, false);
    }
}

#[test]
fn the_old_policy_deals_directories_out_evenly() {
    assert_eq!(Simulation::new("old-dirpref", 0).run(198), [50, 50, 50, 50]);
}
