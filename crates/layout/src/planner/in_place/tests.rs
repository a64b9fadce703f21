//! Volumes made at random, changed step by step, and looked at after each.

use super::*;
use crate::planner::Part;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_fs::plan::{Demand, InodeTable, Placed};
use seekless_units::{Ino, Lbn};
use std::collections::BTreeMap;

/// Contents of a block: a logical block of an object, or a part of its map.
type BlockOwner = (u32, Option<u64>);

/// A volume of blocks, some of which are unusable.
#[derive(Clone, PartialEq, Debug)]
struct Volume {
    blocks: Vec<Option<BlockOwner>>,
    fixed: Vec<bool>,
    objects: u32,
}

/// Extents that need no block of a map.
const IN_INODE: u64 = 4;
const PER_BLOCK: u64 = 10;
const GROUP: u64 = 256;

fn maps_of(extents: u64) -> u64 {
    if extents <= IN_INODE { 0 } else { extents.div_ceil(PER_BLOCK) }
}

impl Volume {
    /// A volume of this fullness, with files in pieces.
    fn random(random: &mut Pcg64Mcg, len: usize, percent: usize) -> Self {
        let mut fixed = vec![false; len];
        for group in (0..len).step_by(GROUP as usize) {
            // More than may be left unused before a staying item, as bitmaps and tables are.
            fixed[group..(group + 20).min(len)].fill(true);
        }
        let mut volume = Self { blocks: vec![None; len], fixed, objects: 0 };
        let target = len * percent / 100;
        while volume.used() < target {
            let object = volume.objects;
            volume.objects += 1;
            let (mut lbn, pieces) = (0, 1 + random.next_u64() % 8);
            for _ in 0..pieces {
                let at = random.next_u64() as usize % len;
                for block in at..(at + 1 + random.next_u64() as usize % 12).min(len) {
                    if volume.blocks[block].is_some() || volume.fixed[block] {
                        break;
                    }
                    volume.blocks[block] = Some((object, Some(lbn)));
                    lbn += 1;
                }
                lbn += random.next_u64() % 3;
            }
            let needed = maps_of(volume.data(ObjectId::new(object)).len() as u64);
            for _ in 0..needed {
                let free = volume.free_blocks().next().expect("room");
                volume.blocks[free] = Some((object, None));
            }
        }
        volume
    }

    fn used(&self) -> usize {
        self.blocks.iter().flatten().count()
    }

    fn free_blocks(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.blocks.len()).filter(|&at| self.blocks[at].is_none() && !self.fixed[at])
    }

    fn space(&self) -> Space {
        let mut free: Vec<Extent> = Vec::new();
        for at in self.free_blocks() {
            match free.last_mut() {
                Some(last) if last.end().get() == at as u64 => last.len += 1,
                _ => free.push(Extent::new(BlockNo::new(at as u64), 1)),
            }
        }
        let table = InodeTable {
            first: Ino::new(1),
            count: 1,
            blocks: Extent::default(),
            group: Extent::new(BlockNo::ZERO, GROUP),
        };
        Space { free, tables: vec![table], inodes_per_block: 16, ..Space::default() }
    }

    /// Does a step on a copy of the volume it was planned for, and checks its promises.
    fn apply(&mut self, step: &Step, limits: StepLimits) {
        assert!(step.changed.len() <= limits.objects + 1, "{}", step.changed.len());
        let before = self.clone();
        let mut taken = vec![false; self.blocks.len()];
        for run in &step.taken {
            for at in blocks_of(run).map(|block| block.get() as usize) {
                assert!(before.blocks[at].is_none() && !before.fixed[at], "{at} was not free");
                assert!(!std::mem::replace(&mut taken[at], true), "{at} is taken twice");
            }
        }
        for copy in &step.copies {
            for n in 0..copy.to.len {
                let (from, to) = (copy.from.get() + n, copy.to.start.get() + n);
                let held = Some((copy.object.index() as u32, Some(copy.lbn.get() + n)));
                assert_eq!(before.blocks[from as usize], held, "what is copied");
                assert!(taken[to as usize]);
                self.blocks[to as usize] = held;
            }
        }
        for run in &step.freed {
            for at in blocks_of(run).map(|block| block.get() as usize) {
                assert!(self.blocks[at].take().is_some(), "{at} was free");
                assert!(!taken[at]);
            }
        }
        for changed in &step.changed {
            for &block in &changed.map {
                self.blocks[block.get() as usize] = Some((changed.object.index() as u32, None));
            }
            assert_eq!(changed.data, self.data(changed.object), "the data of {changed:?}");
            let mut map = changed.map.clone();
            map.sort_unstable();
            assert_eq!(map, self.map(changed.object));
            assert_eq!(map.len() as u64, maps_of(changed.data.len() as u64));
        }
    }

    /// The contents of each object, wherever they lie.
    fn contents(&self) -> BTreeMap<BlockOwner, usize> {
        let mut contents = BTreeMap::new();
        for held in self.blocks.iter().flatten().filter(|held| held.1.is_some()) {
            *contents.entry(*held).or_default() += 1;
        }
        contents
    }
}

impl Demand for Volume {
    fn objects(&self) -> usize {
        self.objects as usize
    }

    fn fixed_ino(&self, _object: ObjectId) -> Option<Ino> {
        None
    }

    fn is_directory(&self, _object: ObjectId) -> bool {
        false
    }

    fn runs(&self, object: ObjectId, runs: &mut Vec<Run>) {
        let data = self.data(object).into_iter();
        runs.extend(data.map(|placed| Run { lbn: placed.lbn, len: placed.extent.len }));
    }

    fn overhead_blocks(&self, _object: ObjectId, data: &[Placed]) -> u64 {
        maps_of(data.len() as u64)
    }

    fn is_pinned(&self, _object: ObjectId) -> bool {
        false
    }

    fn walk_order(&self) -> Vec<ObjectId> {
        (0..self.objects).map(ObjectId::new).collect()
    }

    fn inode_order(&self) -> Vec<ObjectId> {
        self.walk_order()
    }
}

impl Occupied for Volume {
    fn data(&self, object: ObjectId) -> Vec<Placed> {
        let own = |(at, held): (usize, &Option<BlockOwner>)| match held {
            Some((owner, Some(lbn))) if *owner == object.index() as u32 => Some((*lbn, at as u64)),
            _ => None,
        };
        let mut own: Vec<(u64, u64)> = self.blocks.iter().enumerate().filter_map(own).collect();
        own.sort_unstable();
        let mut data: Vec<Placed> = Vec::new();
        for (lbn, at) in own {
            match data.last_mut() {
                Some(last)
                    if last.lbn.get() + last.extent.len == lbn && last.extent.end().get() == at =>
                {
                    last.extent.len += 1;
                }
                _ => data
                    .push(Placed { lbn: Lbn::new(lbn), extent: Extent::new(BlockNo::new(at), 1) }),
            }
        }
        data
    }

    fn map(&self, object: ObjectId) -> Vec<BlockNo> {
        let own = Some((object.index() as u32, None));
        let blocks = (0..self.blocks.len()).filter(|&at| self.blocks[at] == own);
        blocks.map(|at| BlockNo::new(at as u64)).collect()
    }

    fn map_needed(&self, _object: ObjectId, data: &[Placed]) -> u64 {
        maps_of(data.len() as u64)
    }
}

/// Touches of parts of some objects, in an order of their own.
fn touches(random: &mut Pcg64Mcg, volume: &Volume) -> Vec<Touch> {
    (0..volume.objects / 5)
        .map(|_| {
            let object = ObjectId::new(random.next_u32() % volume.objects);
            let lbn = Lbn::new(random.next_u64() % 8);
            let run = Run { lbn, len: 1 + random.next_u64() % 30 };
            Touch { object, part: Part::Blocks(run) }
        })
        .collect()
}

/// Performs all steps; returns the progress.
fn rearrange(volume: &mut Volume, hot: &[Touch], budget: u64, limits: StepLimits) -> Progress {
    let before = volume.clone();
    let mut plan = InPlace::new(&before, &before.space(), hot, 16, Some(budget), limits)
        .expect("there is room");
    let contents = volume.contents();
    let mut copied = 0;
    while let Some(step) = plan.next_step().expect("maps have room") {
        assert!(!step.changed.is_empty());
        volume.apply(&step, limits);
        assert_eq!(volume.contents(), contents, "nothing is lost or there twice");
        copied += step.blocks();
    }
    assert!(copied <= budget, "{copied} blocks copied of {budget}");
    plan.progress()
}

const LIMITS: StepLimits = StepLimits { blocks: 64, objects: 20, groups: 16 };

/// The touched blocks by place, as far as they follow each other in the order of touch.
fn order(volume: &Volume, hot: &[Touch]) -> Vec<u64> {
    let mut places = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for touch in hot {
        let Part::Blocks(run) = touch.part else { continue };
        for lbn in run.lbn.get()..run.lbn.get() + run.len {
            let held = Some((touch.object.index() as u32, Some(lbn)));
            if let Some(at) = volume.blocks.iter().position(|block| *block == held)
                && seen.insert(held)
            {
                places.push(at as u64);
            }
        }
    }
    places
}

#[test]
fn what_was_touched_comes_together_and_nothing_is_lost() {
    let mut done = 0;
    for seed in 0..40 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let percent = 40 + (seed as usize % 4) * 13;
        let mut volume = Volume::random(&mut random, 3000, percent);
        let hot = touches(&mut random, &volume);
        let progress = rearrange(&mut volume, &hot, u64::MAX, LIMITS);
        if progress.stopped.is_some() {
            assert!(percent > 70, "seed {seed}: {progress:?}");
            continue;
        }
        done += 1;
        let places = order(&volume, &hot);
        assert!(places.is_sorted(), "seed {seed}: not in order of first touch");
        let span = places.last().unwrap() - places.first().unwrap();
        // Besides them there are maps, and fixed blocks.
        assert!(span < places.len() as u64 * 2 + 40, "seed {seed}: {span} {}", places.len());
        assert!(progress.moved_in + progress.in_place >= places.len() as u64);
        // All of it is in place now.
        let again = volume.clone();
        let progress = rearrange(&mut volume, &hot, u64::MAX, LIMITS);
        assert_eq!((progress.moved_in, progress.moved_out), (0, 0), "seed {seed}");
        assert_eq!(volume, again);
    }
    assert!(done > 30, "{done}");
}

/// All free blocks lie together, as they do after a kernel's allocation: a region that takes them
/// all in has nowhere to let anything make way to.
#[test]
fn little_room_in_one_place_suffices() {
    for seed in 0..40 {
        let mut random = Pcg64Mcg::seed_from_u64(200 + seed);
        let mut volume = Volume::random(&mut random, 3000, 70);
        let free: Vec<usize> = volume.free_blocks().collect();
        free.into_iter().for_each(|at| volume.fixed[at] = true);
        let room = 100 + random.next_u64() as usize % 100;
        volume.blocks.extend(std::iter::repeat_n(None, room));
        volume.fixed.extend(std::iter::repeat_n(false, room));
        let hot = touches(&mut random, &volume);
        let progress = rearrange(&mut volume, &hot, u64::MAX, LIMITS);
        assert_eq!(progress.stopped, None, "seed {seed}: {room} blocks: {progress:?}");
    }
}

#[test]
fn no_more_is_copied_than_allowed() {
    for seed in 0..20 {
        let mut random = Pcg64Mcg::seed_from_u64(100 + seed);
        let mut volume = Volume::random(&mut random, 3000, 60);
        let hot = touches(&mut random, &volume);
        let all = InPlace::new(&volume, &volume.space(), &hot, 16, None, LIMITS)
            .expect("room")
            .progress()
            .hot;
        let progress = rearrange(&mut volume, &hot, all, LIMITS);
        assert!(progress.moved_in > 0, "seed {seed}: {progress:?}");
        assert!(progress.moved_in + progress.moved_out <= all);
        if progress.moved_in + progress.in_place < progress.hot {
            assert_eq!(progress.stopped, Some(Stopped::Budget));
        }
    }
}

#[test]
fn nothing_touched_moves_nothing() {
    let mut random = Pcg64Mcg::seed_from_u64(7);
    let mut volume = Volume::random(&mut random, 1000, 50);
    let before = volume.clone();
    assert_eq!(rearrange(&mut volume, &[], u64::MAX, LIMITS), Progress::default());
    assert_eq!(volume, before);
}

/// Whatever a process had done when it was killed: the rest is done by the next one.
#[test]
fn what_was_cut_off_is_resumed() {
    let (mut whole, mut resumed) = (0, 0);
    for seed in 0..24 {
        let mut random = Pcg64Mcg::seed_from_u64(300 + seed);
        let percent = 60 + seed as usize % 6 * 4;
        let volume = Volume::random(&mut random, 1500, percent);
        let hot = touches(&mut random, &volume);
        if rearrange(&mut volume.clone(), &hot, u64::MAX, LIMITS).stopped.is_some() {
            continue;
        }
        whole += 1;
        let mut cut = volume.clone();
        let space = volume.space();
        let mut plan = InPlace::new(&volume, &space, &hot, 16, None, LIMITS).expect("room");
        while let Some(step) = plan.next_step().expect("maps have room") {
            cut.apply(&step, LIMITS);
            let progress = rearrange(&mut cut.clone(), &hot, u64::MAX, LIMITS);
            assert_eq!(progress.stopped, None, "seed {seed}: {percent}%, {progress:?}");
            resumed += 1;
        }
    }
    assert!(whole > 15 && resumed > 100, "{whole} {resumed}");
}
