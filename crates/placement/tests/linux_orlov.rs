//! ext4's placement of inodes against a model of its description: random sequences of
//! operations on volumes of several shapes, kept in plain vectors beside the policy.

#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::as_conversions)]
#![allow(clippy::panic)]

#[path = "../../fs/tests/shared/property.rs"]
mod property;

use proptest::bool::weighted;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Strategy, any};
use proptest::prop_oneof;
use seekless_placement::inode::{
    ExtVolume, InodePlace, InodePlacement, NewInode, Parent, ext_by_name,
};
use seekless_placement::{GroupSummary, Groups, Shape};
use seekless_units::GroupNo;
use std::cell::RefCell;
use std::collections::BTreeSet;

#[derive(Clone, Copy)]
struct Volume {
    groups: u32,
    flex: u32,
    ipg: u32,
    bpg: u32,
}

/// A directory: location of its inode, whether its children are spread, and the group of the last
/// goal for one of them.
#[derive(Clone, Copy)]
struct Dir {
    at: InodePlace,
    is_top: bool,
    last: Option<u32>,
}

/// The volume in the model.
struct Model {
    volume: Volume,
    /// Used slots of each group.
    used: Vec<BTreeSet<u32>>,
    blocks: Vec<i64>,
    dirs: Vec<i64>,
    /// Lagging counts of directories, free inodes and free blocks: each is updated when it is off
    /// by 32.
    known: [i64; 3],
}

impl Model {
    fn new(volume: Volume) -> Self {
        let n = volume.groups as usize;
        let mut used = vec![BTreeSet::new(); n];
        used[0].extend(0..11);
        let mut dirs = vec![0; n];
        dirs[0] = 1;
        let blocks = vec![i64::from(volume.bpg) - 9; n];
        let mut model = Self { volume, used, blocks, dirs, known: [-100; 3] };
        model.count();
        model
    }

    fn count(&mut self) {
        let inodes = (0..self.used.len()).map(|group| self.inodes(group)).sum();
        let now = [self.dirs.iter().sum(), inodes, self.blocks.iter().sum()];
        for (known, now) in self.known.iter_mut().zip::<[i64; 3]>(now) {
            if (now - *known).abs() >= 32 {
                *known = now;
            }
        }
    }

    fn inodes(&self, group: usize) -> i64 {
        i64::from(self.volume.ipg) - self.used[group].len() as i64
    }

    /// The groups of each unit, in order.
    fn units(&self) -> Vec<Vec<usize>> {
        let all: Vec<usize> = (0..self.volume.groups as usize).collect();
        all.chunks(self.volume.flex as usize).map(<[usize]>::to_vec).collect()
    }

    fn fallback(&self, own: usize) -> Option<usize> {
        let n = self.volume.groups as usize;
        let average = self.known[1] / n as i64;
        let cyclic = || (0..n).map(|i| (own + i) % n).filter(|&group| self.inodes(group) > 0);
        let good = cyclic().find(|&group| self.inodes(group) >= average);
        good.or_else(|| cyclic().next())
    }

    /// The group for a directory; `hash` is given for those of the root.
    fn directory(&self, parent: &Dir, hash: Option<u32>) -> Option<usize> {
        let units = self.units();
        let sum = |unit: &[usize], of: &dyn Fn(usize) -> i64| unit.iter().map(|&g| of(g)).sum();
        let stats: Vec<(i64, i64, i64)> = units
            .iter()
            .map(|unit| {
                let inodes: i64 = sum(unit, &|group| self.inodes(group));
                (sum(unit, &|g| self.dirs[g]), inodes, sum(unit, &|g| self.blocks[g]))
            })
            .collect();
        let n = units.len() as i64;
        let [directories, inodes, blocks] = self.known.map(|known| known / n);
        let Volume { flex, ipg, bpg, .. } = self.volume;
        let found = if let Some(hash) = hash {
            let start = hash as usize % units.len();
            let mut candidates: Vec<usize> =
                (0..units.len()).map(|i| (start + i) % units.len()).collect();
            candidates.retain(|&unit| {
                let (dirs, free, room) = stats[unit];
                dirs < i64::from(ipg) && free > 0 && free >= inodes && room >= blocks
            });
            // The first of those with the fewest.
            candidates.into_iter().min_by_key(|&unit| stats[unit].0)
        } else {
            let most = directories + i64::from(ipg * flex / 16);
            let least_inodes = (inodes - i64::from(ipg * flex / 4)).max(1);
            let least_blocks = (blocks - i64::from(bpg * flex / 4)).max(0);
            let start = parent.last.unwrap_or(parent.at.group.get()) / flex;
            let all = (0..units.len()).map(|i| (start as usize + i) % units.len());
            let mut fits = all.filter(|&unit| {
                let (dirs, free, room) = stats[unit];
                dirs < most && free >= least_inodes && room >= least_blocks
            });
            fits.next()
        };
        let own = parent.at.group.get() as usize;
        match found {
            Some(unit) => units[unit].iter().copied().find(|&group| self.inodes(group) > 0),
            None => self.fallback(own),
        }
    }

    fn other(&self, parent: &Dir) -> Option<usize> {
        let own = parent.at.group.get() as usize;
        let (n, flex) = (self.volume.groups as usize, self.volume.flex as usize);
        let has = |group: &usize| self.inodes(*group) > 0;
        if flex > 1 {
            let units = self.units();
            let first = |group: usize| units[group / flex].iter().copied().find(has);
            let near = first(own).or_else(|| first(parent.last? as usize));
            return near.or_else(|| self.directory(parent, None));
        }
        let both = |group: usize| has(&group) && self.blocks[group] > 0;
        if both(own) {
            return Some(own);
        }
        let ino = own * self.volume.ipg as usize + parent.at.slot as usize + 1;
        let (mut group, mut i) = ((own + ino) % n, 1);
        while i < n {
            group = (group + i) % n;
            if both(group) {
                return Some(group);
            }
            i *= 2;
        }
        (1..=n).map(|i| (own + i) % n).find(has)
    }

    /// The input of the policy.
    fn told(&self) -> Groups {
        let Volume { groups: ncg, ipg, bpg: fpg, .. } = self.volume;
        let size = u64::from(ncg) * u64::from(fpg);
        let shape = Shape { ncg, ipg, fpg, frag: 1, size, ..Shape::default() };
        let mut groups = Groups::new(shape, |group| shape.base(group));
        for group in 0..ncg {
            self.tell(&mut groups, group as usize);
        }
        groups
    }

    fn tell(&self, groups: &mut Groups, group: usize) {
        let summary = GroupSummary {
            ndir: self.dirs[group] as u32,
            nbfree: self.blocks[group] as u32,
            nifree: self.inodes(group) as u32,
            nffree: 0,
        };
        groups.set(GroupNo::new(group as u32), summary);
    }
}

/// Events seen, to detect operations that did nothing.
#[derive(Default)]
struct Seen {
    made: u32,
    top: BTreeSet<u32>,
    away: u32,
    full: u32,
    removed: u32,
}

fn policy(volume: Volume, seed: u64) -> Box<dyn InodePlacement> {
    let Volume { groups, flex: groups_per_flex, ipg: inodes_per_group, .. } = volume;
    let volume = ExtVolume { groups, groups_per_flex, inodes_per_group };
    ext_by_name("linux-orlov", None, &volume, seed).unwrap()
}

/// An operation; a file or directory is given by a number that is taken modulo theirs.
#[derive(Clone, Debug)]
enum Op {
    RemoveDir(u16),
    RemoveFile(u16),
    Make(Make),
}

#[derive(Clone, Debug)]
struct Make {
    /// `None` for the root.
    parent: Option<u16>,
    is_directory: bool,
    hash: u32,
    /// Blocks of a file.
    blocks: i64,
    /// Whether the children of a directory are spread.
    is_top: bool,
}

/// Removals are fewer, so the volume fills; then it is partly emptied.
fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    let parent = option::weighted(5.0 / 6.0, any::<u16>());
    let hash = (0..1u32 << 31).prop_map(|hash| hash * 2);
    let make = (parent, weighted(1.0 / 3.0), hash, 0..4i64, weighted(1.0 / 40.0));
    let make = make.prop_map(|(parent, is_directory, hash, blocks, is_top)| {
        Op::Make(Make { parent, is_directory, hash, blocks, is_top })
    });
    let op = prop_oneof![
        8 => any::<u16>().prop_map(Op::RemoveDir),
        8 => any::<u16>().prop_map(Op::RemoveFile),
        84 => make,
    ];
    vec(op, 0..=most)
}

fn replay(volume: Volume, ops: &[Op], seen: &mut Seen) {
    let mut model = Model::new(volume);
    let mut groups = model.told();
    let mut policy = self::policy(volume, 0);
    let place = |group: u32, slot: u32| InodePlace { group: GroupNo::new(group), slot };
    let mut dirs = vec![Dir { at: place(0, 1), is_top: true, last: None }];
    let mut files: Vec<(InodePlace, i64)> = Vec::new();
    for op in ops {
        let make = match *op {
            Op::RemoveDir(at) if dirs.len() > 1 => {
                let dir = dirs.swap_remove(1 + usize::from(at) % (dirs.len() - 1));
                let group = dir.at.group.get() as usize;
                model.used[group].remove(&dir.at.slot);
                (model.dirs[group], model.blocks[group]) =
                    (model.dirs[group] - 1, model.blocks[group] + 1);
                model.tell(&mut groups, group);
                model.count();
                policy.given_back(dir.at, true);
                policy.blocks_changed(1);
                seen.removed += 1;
                continue;
            }
            Op::RemoveFile(at) if !files.is_empty() => {
                let (at, blocks) = files.swap_remove(usize::from(at) % files.len());
                let group = at.group.get() as usize;
                model.used[group].remove(&at.slot);
                model.blocks[group] += blocks;
                model.tell(&mut groups, group);
                model.count();
                policy.given_back(at, false);
                policy.blocks_changed(blocks);
                continue;
            }
            Op::RemoveDir(_) | Op::RemoveFile(_) => continue,
            Op::Make(ref make) => make,
        };
        let which = make.parent.map_or(0, |at| usize::from(at) % dirs.len());
        let parent = dirs[which];
        let Make { is_directory, hash, .. } = *make;
        model.count();
        let expected = match is_directory {
            true => model.directory(&parent, parent.is_top.then_some(hash)),
            false => model.other(&parent),
        };
        let told = Parent {
            at: parent.at,
            is_root: parent.is_top,
            depth: 0,
            subdirectories: 0,
            last: parent.last.map(GroupNo::new),
        };
        let new = NewInode { parent: told, name: b"name", hash: Some(hash), is_directory };
        let goal = policy.goal(&groups, &new);
        let Some(expected) = expected else {
            let all: Vec<u32> = policy.order(&groups, goal).map(GroupNo::get).collect();
            assert_eq!(all.len(), volume.groups as usize, "all are looked at before it is full");
            seen.full += 1;
            continue;
        };
        assert_eq!(goal.group.get() as usize, expected, "{} made", seen.made);
        assert_eq!(policy.order(&groups, goal).next(), Some(goal.group));
        let mut slots = 0..volume.ipg;
        let slot = slots.find(|slot| !model.used[expected].contains(slot)).unwrap();
        let at = place(expected as u32, slot);
        policy.taken(&new, goal, Some(at));
        model.used[expected].insert(slot);
        model.dirs[expected] += i64::from(is_directory);
        model.count();
        dirs[which].last = Some(expected as u32);
        let blocks = if is_directory { 1 } else { make.blocks }.min(model.blocks[expected]);
        if is_directory {
            dirs.push(Dir { at, is_top: make.is_top, last: None });
        } else {
            files.push((at, blocks));
        }
        model.blocks[expected] -= blocks;
        model.count();
        policy.blocks_changed(-blocks);
        model.tell(&mut groups, expected);
        seen.made += 1;
        let unit = |group: u32| group / volume.flex;
        if is_directory && parent.is_top {
            seen.top.insert(unit(expected as u32));
        } else {
            seen.away += u32::from(unit(expected as u32) != unit(parent.at.group.get()));
        }
    }
}

#[test]
fn every_goal_is_the_one_that_the_description_has() {
    for (flex, groups) in [(1, 1), (1, 7), (1, 40), (4, 13), (4, 32), (16, 16), (16, 75)] {
        for (ipg, bpg) in [(32, 100), (64, 1024), (16, 60)] {
            let volume = Volume { groups, flex, ipg, bpg };
            let seen = RefCell::new(Seen::default());
            property::for_all(6, ops(4000), |ops| replay(volume, &ops, &mut seen.borrow_mut()));
            let seen = seen.into_inner();
            let what = format!("{groups} groups, {flex} in a unit, {ipg} inodes");
            let units = groups.div_ceil(flex) as usize;
            assert!(seen.made > 500 && seen.removed > 100, "{what}: {} made", seen.made);
            assert!(seen.top.len() * 4 >= units * 3, "{what}: the root's are spread");
            assert!(units == 1 || seen.away > 10, "{what}: some parents' units are full");
            let room = (groups * ipg).saturating_sub(11);
            assert!(room > 2000 || seen.full > 0, "{what}: it becomes full");
        }
    }
}

/// The hash determines the start, whatever the seed; without one it is random.
#[test]
fn the_hash_decides_for_directories_of_the_root() {
    const VOLUME: Volume = Volume { groups: 64, flex: 4, ipg: 64, bpg: 500 };
    let model = Model::new(VOLUME);
    let groups = model.told();
    let at = InodePlace { group: GroupNo::ZERO, slot: 1 };
    let parent = Parent { at, is_root: true, depth: 0, subdirectories: 0, last: None };
    let goal = |hash: Option<u32>, seed: u64| {
        let new = NewInode { parent, name: b"name", hash, is_directory: true };
        let mut policy = policy(VOLUME, seed);
        policy.goal(&groups, &new).group.get()
    };
    for seed in 0..20 {
        assert_eq!(goal(Some(16 * 5 + 7), seed), 28);
        // The first unit has a directory, the root.
        assert_eq!(goal(Some(16 * 9), seed), 4);
    }
    let by_chance: BTreeSet<u32> = (0..60).map(|seed| goal(None, seed)).collect();
    assert!(by_chance.len() > 10, "without a hash it is left to chance: {by_chance:?}");
}
