//! The planner's promises, tested on made-up objects.

use super::moves::pieces_of;
use super::*;
use crate::replay::{Purpose, Replayed, Request};
use seekless_fs::plan::{InodeTable, Placed};
use seekless_units::{BlockNo, Extent, Ino, Lbn};
use std::sync::atomic::{AtomicU64, Ordering};

/// An object: whether it is a directory, its runs, blocks of attributes.
#[derive(Clone, Default)]
struct Thing {
    is_dir: bool,
    runs: Vec<(u64, u64)>,
    attributes: u64,
    parent: Option<u32>,
    names: Vec<u32>,
}

fn file(len: u64) -> Thing {
    Thing { runs: vec![(0, len)], ..Thing::default() }
}

fn dir(len: u64) -> Thing {
    Thing { is_dir: true, ..file(len) }
}

/// Objects in the order of a walk, with maps as extent trees have them: four
/// extents in the inode, then a block for every so many.
struct Things {
    things: Vec<Thing>,
    extents_per_block: u64,
    asked: AtomicU64,
}

impl Things {
    fn new(things: Vec<Thing>) -> Self {
        Self { things, extents_per_block: 340, asked: AtomicU64::new(0) }
    }
}

impl Demand for Things {
    fn objects(&self) -> usize {
        self.things.len()
    }

    fn fixed_ino(&self, _object: ObjectId) -> Option<Ino> {
        None
    }

    fn is_directory(&self, object: ObjectId) -> bool {
        self.things[object.index()].is_dir
    }

    fn runs(&self, object: ObjectId, runs: &mut Vec<Run>) {
        let own = &self.things[object.index()].runs;
        runs.extend(own.iter().map(|&(lbn, len)| Run { lbn: Lbn::new(lbn), len }));
    }

    fn overhead_blocks(&self, object: ObjectId, data: &[Placed]) -> u64 {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let extents = data.len() as u64;
        let map = if extents <= 4 { 0 } else { extents.div_ceil(self.extents_per_block) };
        map + self.things[object.index()].attributes
    }

    fn is_pinned(&self, _object: ObjectId) -> bool {
        false
    }

    fn walk_order(&self) -> Vec<ObjectId> {
        objects(self).collect()
    }

    fn inode_order(&self) -> Vec<ObjectId> {
        objects(self).collect()
    }

    fn named_in(&self, directory: ObjectId) -> Vec<ObjectId> {
        self.things[directory.index()].names.iter().copied().map(ObjectId::new).collect()
    }

    fn parent(&self, directory: ObjectId) -> Option<ObjectId> {
        self.things[directory.index()].parent.map(ObjectId::new)
    }
}

fn extent(start: u64, len: u64) -> Extent {
    Extent::new(BlockNo::new(start), len)
}

/// Room with groups of so many blocks, with inodes enough.
fn space(free: Vec<Extent>, group: u64) -> Space {
    let end = free.last().map_or(0, |run| run.end().get());
    let table = |number: u64| InodeTable {
        first: Ino::new(1 + u32::try_from(number).expect("group") * 1000),
        count: 1000,
        blocks: extent(number * group, 50),
        group: extent(number * group, group),
    };
    let tables: Vec<InodeTable> = (0..end.div_ceil(group)).map(table).collect();
    let inodes =
        vec![(Ino::new(11), u32::try_from(tables.len()).expect("groups") * 1000 + 900_000)];
    Space { inodes, free, tables, inodes_per_block: 16, counts_unused: false }
}

fn touch(object: u32, from: u64, len: u64) -> Touch {
    let run = Run { lbn: Lbn::new(from), len };
    Touch { object: ObjectId::new(object), part: Part::Blocks(run) }
}

fn overhead(object: u32) -> Touch {
    Touch { object: ObjectId::new(object), part: Part::Overhead }
}

/// Where an object's logical blocks lie, in logical order.
fn blocks(plan: &Plan, object: u32) -> Vec<(u64, u64)> {
    let placed = plan.data(ObjectId::new(object)).iter();
    placed
        .flat_map(|placed| {
            (0..placed.extent.len).map(|n| (placed.lbn.get() + n, placed.extent.start.get() + n))
        })
        .collect()
}

fn overhead_of(plan: &Plan, object: u32) -> Vec<u64> {
    plan.overhead(ObjectId::new(object)).map(BlockNo::get).collect()
}

/// Every block of every object lies in free room, and none lies where another
/// does.
fn is_sound(things: &Things, space: &Space, plan: &Plan) {
    let mut used: Vec<Extent> = plan.data.iter().map(|placed| placed.extent).collect();
    used.extend(&plan.overhead);
    used.sort_unstable();
    assert!(used.windows(2).all(|pair| !pair[0].overlaps(pair[1])), "a block is given twice");
    for run in &used {
        let at = space.free.partition_point(|free| free.end() <= run.start);
        let within = space.free[at].start <= run.start && run.end() <= space.free[at].end();
        assert!(within, "{run:?} does not lie in free room");
    }
    for (number, thing) in (0..).zip(&things.things) {
        let wanted: Vec<u64> =
            thing.runs.iter().flat_map(|&(from, len)| from..from + len).collect();
        let got: Vec<u64> = blocks(plan, number).iter().map(|&(lbn, _)| lbn).collect();
        assert_eq!(wanted, got, "object {number}");
    }
}

#[test]
fn the_hot_region_begins_on_a_chunk() {
    let things = Things::new(vec![file(10), file(30), file(10)]);
    // The first run that holds 30 blocks from a multiple of 64 on is the third.
    let space = space(vec![extent(5, 60), extent(70, 40), extent(120, 100)], 1000);
    let plan = plan(&things, &space, &[touch(1, 0, 30)], 64).expect("plan");
    is_sound(&things, &space, &plan);
    assert_eq!(blocks(&plan, 1)[0], (0, 128));
    // The blocks before it are not lost.
    assert_eq!((blocks(&plan, 0)[0].1, blocks(&plan, 2)[0].1), (5, 15));
}

#[test]
fn a_hot_region_in_pieces_begins_each_on_a_chunk() {
    let things = Things::new(vec![file(8), file(40)]);
    let space = space(vec![extent(10, 30), extent(50, 30), extent(90, 30)], 1000);
    let plan = plan(&things, &space, &[touch(1, 0, 40)], 16).expect("plan");
    is_sound(&things, &space, &plan);
    let starts: Vec<u64> =
        plan.data(ObjectId::new(1)).iter().map(|placed| placed.extent.start.get()).collect();
    assert_eq!(starts, [16, 64]);
    assert_eq!(blocks(&plan, 0)[0], (0, 10));
}

#[test]
fn boundaries_give_way_where_room_is_short() {
    let things = Things::new(vec![file(50)]);
    let space = space(vec![extent(10, 25), extent(45, 30)], 1000);
    let plan = plan(&things, &space, &[touch(0, 0, 50)], 64).expect("plan");
    is_sound(&things, &space, &plan);
}

fn replayed(reads: &[(u32, u64)]) -> Replayed {
    let request = |&(ino, block): &(u32, u64)| Request {
        extent: extent(block, 1),
        purpose: Purpose::Data,
        ino: Ino::new(ino),
        lbn: Lbn::new(block),
        event: 0,
    };
    Replayed { requests: reads.iter().map(request).collect(), ..Replayed::default() }
}

#[test]
fn what_more_traces_touch_comes_first() {
    let replays = [
        replayed(&[(1, 0), (2, 0), (3, 0), (1, 1)]),
        replayed(&[(4, 0), (3, 0), (2, 1)]),
        replayed(&[(3, 0)]),
    ];
    let touches = touches(&replays, &|ino| Some(ObjectId::new(ino.get())), 1);
    let order: Vec<usize> = touches.iter().map(|touch| touch.object.index()).collect();
    // Three traces touch 3, two touch 2; 1 and 4 are in the order of first touch,
    // however often a trace touches them.
    assert_eq!(order, [3, 3, 3, 2, 2, 1, 1, 4]);
}

#[test]
fn tables_that_follow_each_other_are_filled_as_one() {
    let things = Things::new(vec![file(600); 4]);
    let mut space = space(vec![extent(200, 2800)], 1000);
    let inodes = |space: &Space| plan(&things, space, &[], 1).expect("plan").inodes;
    // The files begin in groups 0, 0, 1 and 2.
    assert_eq!(inodes(&space), [11, 12, 1001, 2001].map(Ino::new));
    // The tables of groups 0 and 1 lie together, as with flexible groups.
    space.tables[1].blocks = extent(50, 50);
    assert_eq!(inodes(&space), [11, 12, 13, 2001].map(Ino::new));
}

#[test]
fn overhead_that_was_touched_is_hot() {
    let quiet = Thing { attributes: 2, ..file(10) };
    let read = Thing { attributes: 1, ..file(10) };
    let things = Things::new(vec![file(20), quiet, file(20), read]);
    let space = space(vec![extent(5, 300)], 1000);
    // Of 1 only the attributes were read, of 3 some blocks.
    let hot = [overhead(1), touch(3, 4, 2)];
    let plan = plan(&things, &space, &hot, 100).expect("plan");
    is_sound(&things, &space, &plan);
    assert_eq!(overhead_of(&plan, 3), [100]);
    assert_eq!(blocks(&plan, 3)[4..6], [(4, 101), (5, 102)]);
    assert_eq!(overhead_of(&plan, 1), [103, 104]);
    assert!(blocks(&plan, 1).iter().all(|&(_, at)| at < 100), "its contents are not hot");
}

#[test]
fn ranges_that_meet_are_one() {
    let things = Things::new(vec![file(30)]);
    let space = space(vec![extent(100, 200)], 1000);
    // The second half of each touch is new: none is placed twice.
    let hot = [touch(0, 0, 4), touch(0, 8, 4), touch(0, 16, 4), touch(0, 2, 16), touch(0, 3, 30)];
    let plan = plan(&things, &space, &hot, 1).expect("plan");
    is_sound(&things, &space, &plan);
    let by_place = {
        let mut blocks = blocks(&plan, 0);
        blocks.sort_unstable_by_key(|&(_, at)| at);
        blocks.iter().map(|&(lbn, _)| lbn).collect::<Vec<_>>()
    };
    let wanted: Vec<u64> =
        [0..4, 8..12, 16..20, 4..8, 12..16, 20..30].into_iter().flatten().collect();
    assert_eq!(by_place, wanted);
    // Neighbours are one piece again where they came to lie so.
    assert_eq!(plan.data(ObjectId::new(0)).len(), 6);
}

#[test]
fn pieces_that_came_to_lie_together_are_one() {
    let things = Things::new(vec![file(30)]);
    let space = space(vec![extent(100, 200)], 1000);
    // The hot part ends where the rest begins, on the disk too.
    let plan = plan(&things, &space, &[touch(0, 0, 4)], 1).expect("plan");
    is_sound(&things, &space, &plan);
    let placed = plan.data(ObjectId::new(0));
    assert_eq!(placed, [Placed { lbn: Lbn::ZERO, extent: extent(100, 30) }]);
}

/// Maps that grew take no more room than there is, and blocks reserved for one that shrank again
/// are not missing elsewhere.
#[test]
fn room_that_just_suffices_does() {
    for spare in 0..6 {
        // Free runs of one block: each file has as many pieces as blocks.
        let free: Vec<Extent> = (0..42 + spare).map(|n| extent(n * 2, 1)).collect();
        let things =
            Things { extents_per_block: 8, ..Things::new(vec![file(4), file(17), file(17)]) };
        let space = space(free, 1000);
        // 38 blocks, and maps of three blocks each for the two longer files.
        let planned = plan(&things, &space, &[touch(2, 3, 5)], 1);
        match planned {
            Ok(plan) => is_sound(&things, &space, &plan),
            Err(error) => assert!(spare < 2, "{spare} blocks to spare: {error}"),
        }
    }
}

#[test]
fn ranges_are_kept_apart_and_sorted() {
    let mut touched = sequence::Touched::default();
    let (object, mut steps) = (ObjectId::new(0), Vec::new());
    let mut add = |from, to| touched.add(object, from, to, &mut steps);
    for (from, to) in [(20, 30), (0, 10), (40, 50), (10, 12), (35, 60), (5, 45)] {
        add(from, to);
    }
    let new: Vec<(u64, u64)> =
        steps.iter().map(|step| (step.run.lbn.get(), step.run.len)).collect();
    // 45..60 of the fifth is behind the marked range; the last fills two gaps.
    assert_eq!(new, [(20, 10), (0, 10), (40, 10), (10, 2), (35, 5), (50, 10), (12, 8), (30, 5)]);
    let mut rest = Vec::new();
    let run = Run { lbn: Lbn::new(0), len: 70 };
    touched.rest(object, run, |run| rest.push((run.lbn.get(), run.len)));
    assert_eq!(rest, [(60, 10)]);
}

#[test]
fn directories_of_a_stretch_lie_before_its_files() {
    // A stretch is half a group: 50 blocks.
    let things = Things::new(vec![
        dir(2),
        file(20),
        dir(2),
        file(30), // 54 blocks: a stretch
        dir(2),
        file(10),
        dir(2),
        file(10),
    ]);
    let space = space(vec![extent(0, 300)], 100);
    let plan = plan(&things, &space, &[], 1).expect("plan");
    is_sound(&things, &space, &plan);
    let mut order: Vec<u32> = (0..8).collect();
    order.sort_by_key(|&object| blocks(&plan, object)[0].1);
    assert_eq!(order, [0, 2, 1, 3, 4, 6, 5, 7]);
}

/// As many free runs as an aged image has: the layout settles within a few
/// passes, each of which asks once for each object.
#[test]
fn neighbours_of_what_is_touched_come_first() {
    let below = |parent| Thing { parent: Some(parent), ..dir(1) };
    // Two directories without a touched file, then one that has one deep below it, and another.
    let mut things = vec![dir(1), below(0), file(2), below(0), file(3), file(2)];
    things.extend([below(0), file(4), below(6), file(2), file(5), below(0), file(1), file(1)]);
    let things = Things::new(things);
    let space = space(vec![extent(60, 900)], 1 << 20);
    let places = |hot: &[Touch]| {
        let plan = plan(&things, &space, hot, 1).expect("plan");
        is_sound(&things, &space, &plan);
        let cold = |object: &u32| hot.iter().all(|touch| touch.object.index() as u32 != *object);
        let mut files: Vec<u32> =
            (0..14).filter(|&at| !things.things[at as usize].is_dir).collect();
        files.retain(cold);
        files.sort_by_key(|&object| blocks(&plan, object)[0].1);
        let mut inodes: Vec<u32> = (0..14).filter(cold).collect();
        inodes.sort_by_key(|&object| plan.inodes[object as usize]);
        (files, inodes)
    };
    let (files, inodes) = places(&[touch(10, 0, 5)]);
    assert_eq!(files, [7, 9, 2, 4, 5, 12, 13]);
    // A directory's inode lies with the files beside it.
    assert_eq!(inodes, [0, 1, 3, 6, 11, 7, 8, 9, 2, 4, 5, 12, 13]);
    // Of two directories with touched files, the one of which a larger part is touched.
    let (files, _) = places(&[touch(4, 0, 3), touch(9, 0, 2), touch(10, 0, 5)]);
    assert_eq!(files, [7, 5, 2, 12, 13]);
    let (files, inodes) = places(&[]);
    assert_eq!(files, [2, 4, 5, 7, 9, 10, 12, 13]);
    assert!(inodes.is_sorted());
}

#[test]
fn many_free_runs_are_laid_out_in_few_passes() {
    let mut state = 7u64;
    let mut random = |limit: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut at = 0;
    let mut free = Vec::new();
    for _ in 0..100_000 {
        at += 1 + random(8);
        let len = 1 + random(4);
        free.push(extent(at, len));
        at += len;
    }
    let room: u64 = free.iter().map(|run| run.len).sum();
    let mut things = Vec::new();
    let mut wanted = 0;
    while wanted < room * 9 / 10 {
        let len = if random(100) == 0 { 1 + random(4000) } else { 1 + random(12) };
        things.push(file(len));
        wanted += len;
    }
    let count = things.len() as u64;
    let things = Things { extents_per_block: 84, ..Things::new(things) };
    let hot: Vec<Touch> =
        (0..20_000).map(|_| touch(u32::try_from(random(count)).expect("object"), 0, 4)).collect();
    let space = space(free, 8192);
    let plan = plan(&things, &space, &hot, 128).expect("plan");
    is_sound(&things, &space, &plan);
    let asked = things.asked.load(Ordering::Relaxed);
    let passes = u64::from(PASSES) + 3;
    assert!(asked <= passes * count, "{asked} questions for {count} objects");
    for number in 0..u32::try_from(count).expect("objects") {
        let object = ObjectId::new(number);
        let needed = things.overhead_blocks(object, plan.data(object));
        assert_eq!(plan.overhead(object).count() as u64, needed, "map of object {number}");
    }
}

/// A layout of all objects, as a base.
fn as_base(plan: &Plan) -> Base {
    let mut used: Vec<Extent> = plan.data.iter().map(|placed| placed.extent).collect();
    used.extend(&plan.overhead);
    used.sort_unstable();
    Base { plan: plan.clone(), used, ..Base::default() }
}

#[test]
fn all_that_a_base_has_keeps_its_place() {
    let things = Things::new(vec![dir(1), file(10), Thing { attributes: 1, ..file(700) }]);
    let space = space(vec![extent(5, 400), extent(500, 500)], 1000);
    let old = plan(&things, &space, &[touch(2, 100, 20)], 64).expect("plan");
    // Whatever a trace asks for now.
    let again = plan_on(&as_base(&old), &things, &space, &[touch(1, 0, 10)], 64).expect("plan");
    assert_eq!(old, again);
}

#[test]
fn new_objects_fill_holes_and_then_free_space() {
    let things = Things::new(vec![file(40), file(9), file(40), file(3), file(40)]);
    let space = space(vec![extent(0, 400)], 1000);
    let mut base = as_base(&plan(&things, &space, &[], 1).expect("plan"));
    // Objects 1 and 3 are gone: holes of 9 and 3 blocks. Others have come.
    let gone = [1, 3];
    let mut kept = Plan::default();
    for at in (0..5).map(ObjectId::new) {
        match gone.contains(&at.index()) {
            true => kept.push(Ino::ZERO, [], []),
            false => kept.push(
                base.plan.inodes[at.index()],
                base.plan.data(at).iter().copied(),
                base.plan.overhead_extents(at).iter().copied(),
            ),
        }
    }
    let (large, small) = (base.plan.data[1].extent, base.plan.data[3].extent);
    base.plan = kept;
    let now = Things::new(vec![file(40), file(3), file(40), file(8), file(42), file(20)]);
    let plan = plan_on(&base, &now, &space, &[], 1).expect("plan");
    is_sound(&now, &space, &plan);
    assert_eq!(plan.data(ObjectId::new(1))[0].extent, small, "the smallest hole that suffices");
    assert_eq!(plan.data(ObjectId::new(3))[0].extent, extent(large.start.get(), 8));
    // The tail of a file that grew, and a file for which no hole suffices.
    assert_eq!(blocks(&plan, 4)[..40], blocks(&base.plan, 4)[..]);
    assert!(blocks(&plan, 5)[0].1 >= 132);
    // Numbers: those of the base stay, the two that are free come first.
    let old = &base.plan.inodes;
    assert_eq!([plan.inodes[0], plan.inodes[2], plan.inodes[4]], [old[0], old[2], old[4]]);
    let mut new = [plan.inodes[1], plan.inodes[3], plan.inodes[5]];
    new.sort_unstable();
    assert_eq!(new[..2], [Ino::new(12), Ino::new(14)]);
}

/// Hot blocks that no free run holds lie in the longest ones.
#[test]
fn hot_blocks_lie_in_few_runs_of_an_older_volume() {
    let free = [(0, 20), (30, 3), (40, 30), (80, 5), (90, 25), (120, 6)];
    let space = space(free.map(|(start, len)| extent(start, len)).to_vec(), 1000);
    let now = Things::new(vec![file(50), file(20)]);
    let placed = |base: &Base| {
        let hot = [touch(0, 0, 50)];
        let plan = plan_on(base, &now, &space, &hot, 64).expect("plan");
        is_sound(&now, &space, &plan);
        let data = plan.data(ObjectId::new(0)).iter();
        let data: Vec<_> =
            data.map(|placed| (placed.extent.start.get(), placed.extent.len)).collect();
        assert_eq!(pieces_of(&plan, &now, &hot), data.len() as u64);
        data
    };
    let older = Base { used: vec![extent(500, 1)], ..Base::default() };
    assert_eq!(placed(&older), [(40, 30), (90, 20)]);
    // On a new volume the order of the disk counts.
    assert_eq!(placed(&Base::default()), [(0, 20), (30, 3), (40, 27)]);
}

#[test]
fn new_objects_begin_where_the_base_says() {
    let space = space(vec![extent(0, 400)], 1000);
    let old = Things::new(vec![file(40), file(9)]);
    let mut base = as_base(&plan(&old, &space, &[], 1).expect("plan"));
    base.begin = Some(BlockNo::new(64));
    for _ in 0..3 {
        base.plan.push(Ino::ZERO, [], []);
    }
    let now = Things::new(vec![file(40), file(9), file(30), file(300), file(12)]);
    // A trace, or none: the order of new objects.
    for (hot, order) in [(vec![], [2, 3, 4]), (vec![touch(4, 0, 12)], [4, 2, 3])] {
        let plan = plan_on(&base, &now, &space, &hot, 16).expect("plan");
        is_sound(&now, &space, &plan);
        assert_eq!(blocks(&plan, order[0])[0].1, 64);
        // Blocks that do not fit behind go in front.
        let in_front = blocks(&plan, order[2]).iter().filter(|&&(_, at)| at < 64).count();
        assert_eq!(in_front, 342 - (400 - 64));
    }
}

/// A base that claims blocks twice, used blocks, blocks that nobody needs, and numbers that are not
/// free.
#[test]
fn a_base_that_contradicts_itself_makes_no_unsound_plan() {
    let mut state = 5u64;
    let mut random = |limit: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    for round in 0..200 {
        let count = 2 + random(20);
        let things: Vec<Thing> =
            (0..count).map(|_| Thing { attributes: random(2), ..file(1 + random(30)) }).collect();
        let things = Things { extents_per_block: 8, ..Things::new(things) };
        let space = space(vec![extent(3, 200), extent(260, 90), extent(400, 600)], 1000);
        let mut base = Base::default();
        for _ in 0..random(count + 1) {
            let mut data = Vec::new();
            let mut lbn = 0;
            for _ in 0..random(4) {
                lbn += random(10);
                let len = 1 + random(12);
                data.push(Placed { lbn: Lbn::new(lbn), extent: extent(random(1000), len) });
                lbn += len;
            }
            let over: Vec<Extent> =
                (0..random(3)).map(|_| extent(random(1000), 1 + random(3))).collect();
            base.plan.push(Ino::new(u32::try_from(random(40)).expect("number")), data, over);
        }
        while base.plan.inodes.len() < things.objects() {
            base.plan.push(Ino::ZERO, [], []);
        }
        base.used = base.plan.data.iter().map(|placed| placed.extent).collect();
        base.used.sort_unstable();
        base.used.dedup_by(|later, earlier| later.start < earlier.end());
        base.keeps_freed = random(2) == 0;
        base.inode_reserve = [None, Some(random(3000) as u32)][random(2) as usize];
        let plan = plan_on(&base, &things, &space, &[], 16).expect("plan");
        is_sound(&things, &space, &plan);
        let mut numbers = plan.inodes.clone();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), things.objects(), "round {round}: a number is given twice");
        assert!(numbers[0] >= Ino::new(11), "round {round}: {numbers:?}");
    }
}

/// Directories of the first volume, and what others add, have the first numbers; the first one's
/// files begin at a chunk.
#[test]
fn numbers_that_change_lie_together() {
    let space = space(vec![extent(50, 400)], 1000);
    let first = Base { inode_reserve: Some(100), ..Base::default() };
    let old = Things::new(vec![dir(1), file(40), dir(1), file(9), dir(1)]);
    let plan = plan_on(&first, &old, &space, &[], 16).expect("plan");
    let numbers = |plan: &Plan| plan.inodes.iter().map(|ino| ino.get()).collect::<Vec<_>>();
    // Blocks 0, 16 and so on of the table begin with the numbers 1, 257 and so on.
    assert_eq!(numbers(&plan), [11, 257, 12, 258, 13]);
    let mut base = as_base(&plan);
    base.inode_reserve = first.inode_reserve;
    (0..3).for_each(|_| base.plan.push(Ino::ZERO, [], []));
    let all = [old.things, vec![file(3), dir(1), file(4)]].concat();
    let plan = plan_on(&base, &Things::new(all), &space, &[], 16).expect("plan");
    assert_eq!(numbers(&plan), [11, 257, 12, 258, 13, 14, 15, 16]);
}

/// Where free blocks keep the bytes of the older volume, whatever is written makes its chunk new:
/// the chunks of which most is free come first.
#[test]
fn kept_blocks_are_filled_chunk_by_chunk() {
    let space = space(vec![extent(0, 320)], 1000);
    let pair = [file(60), file(4)];
    let old = [&pair[..], &pair, &pair, &pair, &[file(30), file(34)]].concat();
    let old_plan = plan(&Things::new(old.clone()), &space, &[], 64).expect("plan");
    // Objects 1, 3, 5 and 8 are gone; a new one fits in no hole.
    let mut base = Base { plan: Plan::default(), keeps_freed: true, ..as_base(&old_plan) };
    let mut now = old;
    for gone in [1, 3, 5, 8] {
        now[gone] = Thing::default();
    }
    for at in (0..10).map(ObjectId::new) {
        let data: &[Placed] = if now[at.index()].runs.is_empty() { &[] } else { old_plan.data(at) };
        base.plan.push(old_plan.inodes[at.index()], data.iter().copied(), []);
    }
    now.push(file(33));
    base.plan.push(Ino::ZERO, [], []);
    let now = Things::new(now);
    let plan = plan_on(&base, &now, &space, &[], 64).expect("plan");
    is_sound(&now, &space, &plan);
    let mut chunks: Vec<u64> = blocks(&plan, 10).iter().map(|&(_, at)| at / 64).collect();
    chunks.dedup();
    assert_eq!(chunks, [4, 0]);
}

/// Inodes leave the windows of a table that are emptied at the least price, all together, for free
/// numbers behind one another; never for more blocks than may change.
#[test]
fn inodes_that_are_read_leave_windows_of_their_table() {
    use super::numbers::{Renumbered, renumber_touched};
    // Two directories with forty files each. Windows have 32 blocks of 16 inodes.
    let mut things = vec![dir(1), dir(1)];
    (things[0].names, things[1].names) = ((2..42).collect(), (42..82).collect());
    things.extend(vec![file(1); 80]);
    let things = Things::new(things);
    let space = Space {
        inodes: vec![(Ino::new(11), 8000)],
        free: vec![extent(1000, 500)],
        tables: vec![InodeTable {
            first: Ino::new(1),
            count: 8192,
            blocks: extent(0, 512),
            group: extent(0, 1500),
        }],
        inodes_per_block: 16,
        counts_unused: false,
    };
    // Five files in each window, and the directories in the first.
    let number = |object: u32| match object {
        0 | 1 => 20 + object,
        _ => (object - 2) / 5 * 512 + 100 + (object - 2) % 5 * 3,
    };
    let mut base = Base::default();
    (0..82).for_each(|object| base.plan.push(Ino::new(number(object)), [], []));
    // Two of each window from the second on are read, in another order.
    let hot: Vec<Touch> = [47, 7, 12, 8, 13, 48].map(|object| touch(object, 0, 1)).to_vec();
    let renumbered = |budget| {
        let (base, renumbered) = renumber_touched(base.clone(), &things, &space, &hot, budget);
        let numbers: Vec<u32> =
            hot.iter().map(|touch| base.plan.inodes[touch.object.index()].get()).collect();
        let others = (0..82).filter(|&object| !hot.contains(&touch(object, 0, 1)));
        for object in others {
            assert_eq!(base.plan.inodes[object as usize].get(), number(object), "{object} stays");
        }
        (numbers, renumbered)
    };
    let old: Vec<u32> = hot.iter().map(|touch| number(touch.object.index() as u32)).collect();
    for budget in [0, 2] {
        assert_eq!(renumbered(budget).0, old, "{budget}");
    }
    // The new numbers are in a window that is read. A block of the table for each other one, one for
    // the new numbers, and two directories.
    let (numbers, all) = renumbered(5);
    let (inodes, windows_before) = (4, 3);
    assert_eq!(all, Renumbered { inodes, blocks: 5, windows_before, windows_after: 1 });
    assert_eq!([numbers[1], numbers[3]], [old[1], old[3]]);
    assert_eq!([numbers[0], numbers[2], numbers[4], numbers[5]], [625, 626, 627, 628]);
    // For less, one window is left.
    let (numbers, one) = renumbered(4);
    assert_eq!(one, Renumbered { inodes: 2, blocks: 3, windows_before, windows_after: 2 });
    assert_eq!([numbers[2], numbers[4]], [625, 626]);
    assert_eq!([numbers[0], numbers[5]], [old[0], old[5]]);
}
