//! Chooses the region and the place of each item in it.

use super::super::base::Held;
use super::super::sequence::HotSequence;
use super::super::{Touch, objects};
use super::{Item, MAP_RESERVE, MovedPart};
use seekless_fs::FsError;
use seekless_fs::extents::union;
use seekless_fs::plan::in_place::{Occupied, StepLimits};
use seekless_fs::plan::{ObjectId, Placed, Run, Space};
use seekless_units::{BlockNo, Extent, Lbn};
use std::collections::{HashMap, HashSet};

/// Parts of the volume that are compared, at most: a region begins with one of them.
const MOST_PARTS: u64 = 1 << 16;

/// Items of one move are at most this part of the blocks that a step may copy.
const ITEMS_OF_A_STEP: u64 = 4;

/// Blocks that may be left unused before an item that stays in place.
const SLACK: u64 = 8;

/// Of the evicted blocks, this part must find room before any is given back.
const ROOM_PART: u64 = 4;

/// Runs in order, disjoint, with the blocks before each.
struct Runs {
    runs: Vec<Extent>,
    before: Vec<u64>,
}

impl Runs {
    fn new(runs: Vec<Extent>) -> Self {
        let runs = union(runs);
        let mut before = Vec::with_capacity(runs.len());
        let mut sum = 0;
        for run in &runs {
            before.push(sum);
            sum += run.len;
        }
        Self { runs, before }
    }

    /// Blocks of the runs that lie before a block.
    fn below(&self, block: u64) -> u64 {
        let at = self.runs.partition_point(|run| run.start.get() < block);
        match at.checked_sub(1) {
            None => 0,
            Some(at) => self.before[at] + self.runs[at].len.min(block - self.runs[at].start.get()),
        }
    }

    /// The runs from a block on.
    fn from(&self, block: u64) -> impl Iterator<Item = Extent> + '_ {
        let at = self.runs.partition_point(|run| run.end().get() <= block);
        self.runs[at..].iter().map(move |run| {
            let start = run.start.get().max(block);
            Extent::new(BlockNo::new(start), run.end().get() - start)
        })
    }

    fn end(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.end().get())
    }
}

/// Where the objects that were touched lie now.
struct Now {
    data: HashMap<ObjectId, Vec<Placed>>,
    map: HashMap<ObjectId, Vec<BlockNo>>,
}

impl Now {
    fn new(occupied: &dyn Occupied, items: &[(ObjectId, MovedPart)]) -> Self {
        let mut now = Self { data: HashMap::new(), map: HashMap::new() };
        for &(object, _) in items {
            now.data.entry(object).or_insert_with(|| occupied.data(object));
            now.map.entry(object).or_insert_with(|| occupied.map(object));
        }
        now
    }

    /// Where an item lies, in the order of its blocks.
    fn places(&self, object: ObjectId, what: MovedPart) -> Vec<Extent> {
        let run = match what {
            MovedPart::Map(_) => {
                return self.map[&object].iter().map(|&block| Extent::new(block, 1)).collect();
            }
            MovedPart::Data(run) => run,
        };
        let data = &self.data[&object];
        let (from, to) = (run.lbn.get(), run.lbn.get() + run.len);
        let first = data.partition_point(|own| own.lbn.get() + own.extent.len <= from);
        let within = data[first..].iter().take_while(|own| own.lbn.get() < to);
        within
            .map(|own| {
                let low = own.lbn.get().max(from);
                let high = (own.lbn.get() + own.extent.len).min(to);
                let start = own.extent.start + (low - own.lbn.get());
                Extent::new(start, high - low)
            })
            .collect()
    }
}

/// Items with their places, and the places whose blocks are already right.
type Assigned = (Vec<Item>, Vec<Extent>);

/// Free blocks outside a region in which `evicted` blocks make way. Each of these takes one, and a
/// block that comes in from outside gives one back, but one from within the region does so only
/// when its turn has come: until then some must be spare.
fn room_for(evicted: u64) -> u64 {
    (evicted / ROOM_PART).max(MAP_RESERVE) + MAP_RESERVE.min(evicted)
}

/// Chooses the region that takes the fewest copies: where the first of it lies now, or where the
/// fewest blocks are in the way. One that takes in nearly all free blocks comes last: the blocks in
/// the way there could not go anywhere.
///
/// # Errors
/// [`FsError::NoSpace`] when all available blocks do not hold it.
pub(super) fn assign(
    occupied: &dyn Occupied,
    space: &Space,
    hot: &[Touch],
    align: u64,
    limits: StepLimits,
) -> Result<Assigned, FsError> {
    let items = items(occupied, space, hot, limits);
    let blocks: u64 = items.iter().map(|(_, what)| what.blocks()).sum();
    if blocks == 0 {
        return Ok((Vec::new(), Vec::new()));
    }
    let mut used = Vec::new();
    for object in objects(occupied) {
        used.extend(occupied.data(object).iter().map(|placed| placed.extent));
        used.extend(occupied.map(object).into_iter().map(|block| Extent::new(block, 1)));
    }
    let usable = Runs::new(used.iter().chain(&space.free).copied().collect());
    let used = Runs::new(used);
    let free: u64 = space.free.iter().map(|run| run.len).sum();
    let align = align.max(1);
    let aligned = |block: u64| block / align * align;
    let now = Now::new(occupied, &items);
    // Where it begins now, if it was brought together before: with its first data, or
    // with the map of that.
    let lies = |&(object, what): &(ObjectId, MovedPart)| now.places(object, what).first().copied();
    let is_data = |item: &&(ObjectId, MovedPart)| matches!(item.1, MovedPart::Data(_));
    let begins = [items.first().and_then(lies), items.iter().find(is_data).and_then(lies)];
    let begins = begins.into_iter().flatten().map(|run| run.start.get());
    let starts = begins.flat_map(|block| [aligned(block), block]);
    let least = |most_free| least_in_the_way(&usable, &used, blocks, align, most_free);
    let most_free = free.saturating_sub(room_for(blocks).min(free / 4 * 3));
    let starts = starts.chain(least(u64::MAX)).chain(least(most_free)).chain([0]);
    let mut best: Option<(bool, u64, Assigned)> = None;
    for start in starts {
        let Some(assigned) = place(&now, &items, &usable, start) else { continue };
        let (first, end) = ends(&assigned.0);
        let kept: u64 = assigned.1.iter().map(|run| run.len).sum();
        let here = used.below(end) - used.below(first);
        let evicted = here.saturating_sub(kept);
        let outside = free.saturating_sub(usable.below(end) - usable.below(first) - here);
        let (lacks_room, copies) =
            (outside < room_for(evicted).min(free / 4 * 3), blocks - kept + evicted);
        let is_better =
            |(lacked, fewest, _): &(bool, u64, _)| (lacks_room, copies) < (*lacked, *fewest);
        if best.as_ref().is_none_or(is_better) {
            best = Some((lacks_room, copies, assigned));
        }
    }
    let lacking = || FsError::NoSpace(format!("no room for {blocks} blocks that were touched"));
    best.map(|(.., assigned)| assigned).ok_or_else(lacking)
}

fn ends(items: &[Item]) -> (u64, u64) {
    let places = || items.iter().flat_map(|item| &item.places);
    let first = places().map(|place| place.start.get()).min().unwrap_or(0);
    (first, places().map(|place| place.end().get()).max().unwrap_or(0))
}

/// The items of the region, in order, a map before the first block it leads to.
fn items(
    occupied: &dyn Occupied,
    space: &Space,
    hot: &[Touch],
    limits: StepLimits,
) -> Vec<(ObjectId, MovedPart)> {
    let sequence = HotSequence::new(occupied, &Held::none(space), hot);
    let mut own: HashMap<ObjectId, Vec<Run>> = HashMap::new();
    for step in &sequence.steps {
        own.entry(step.object).or_default().push(step.run);
    }
    let mut mapped = HashSet::new();
    let mut items = Vec::new();
    let mut map = |object: ObjectId, items: &mut Vec<(ObjectId, MovedPart)>| {
        if mapped.insert(object) {
            let runs = own.get(&object).map_or(&[][..], Vec::as_slice);
            let most = map_at_most(occupied, object, runs);
            if most > 0 {
                items.push((object, MovedPart::Map(most)));
            }
        }
    };
    let most = (limits.blocks / ITEMS_OF_A_STEP).max(1);
    for step in &sequence.steps {
        map(step.object, &mut items);
        for from in (0..step.run.len).step_by(usize::try_from(most).unwrap_or(usize::MAX)) {
            let run = Run { lbn: step.run.lbn + from, len: most.min(step.run.len - from) };
            items.push((step.object, MovedPart::Data(run)));
        }
    }
    for &object in &sequence.overhead {
        map(object, &mut items);
    }
    items
}

/// Blocks for an object's map when each of its touched runs, and each remainder between them where
/// it lies now, is a piece of its own.
fn map_at_most(occupied: &dyn Occupied, object: ObjectId, hot: &[Run]) -> u64 {
    let mut cuts: Vec<u64> =
        hot.iter().flat_map(|run| [run.lbn.get(), run.lbn.get() + run.len]).collect();
    cuts.sort_unstable();
    let mut runs = Vec::new();
    for placed in occupied.data(object) {
        let (mut from, end) = (placed.lbn.get(), placed.lbn.get() + placed.extent.len);
        let first = cuts.partition_point(|cut| *cut <= from);
        for &cut in cuts[first..].iter().take_while(|cut| **cut < end).chain([&end]) {
            if cut > from {
                runs.push(Run { lbn: Lbn::new(from), len: cut - from });
                from = cut;
            }
        }
    }
    occupied.map_needed(object, &Run::apart(&runs))
}

/// A region begins at a multiple of so many blocks, of `end` in all, where it is not
/// where its first blocks lie already.
pub(super) fn part(end: u64, align: u64) -> u64 {
    align.max(end.div_ceil(MOST_PARTS).next_multiple_of(align))
}

/// The beginning of the stretch that holds `blocks` with the fewest of them in use, and at
/// most `most_free` that are not.
fn least_in_the_way(
    usable: &Runs,
    used: &Runs,
    blocks: u64,
    align: u64,
    most_free: u64,
) -> Option<u64> {
    let end = usable.end();
    let part = part(end, align);
    let parts = end.div_ceil(part);
    let mut best: Option<(u64, u64)> = None;
    let mut until = 0;
    for from in 0..parts {
        let start = usable.below(from * part);
        while until < parts && usable.below(until * part) - start < blocks {
            until += 1;
        }
        if usable.below(until * part) - start < blocks {
            break;
        }
        let in_use = used.below(until * part) - used.below(from * part);
        if usable.below(until * part) - start - in_use > most_free {
            continue;
        }
        if best.is_none_or(|(fewest, _)| in_use < fewest) {
            best = Some((in_use, from * part));
        }
    }
    best.map(|(_, start)| start)
}

/// Gives each item the next blocks from `start` on, or leaves it where it lies, if
/// that is there or a little behind; `None` when they do not suffice.
fn place(
    now: &Now,
    items: &[(ObjectId, MovedPart)],
    usable: &Runs,
    start: u64,
) -> Option<Assigned> {
    let mut at = start;
    let mut placed: Vec<Item> = Vec::with_capacity(items.len());
    let mut kept = Vec::new();
    let mut moving = HashSet::new();
    for (number, &(object, what)) in items.iter().enumerate() {
        let own = now.places(object, what);
        // A map that was brought in before, and grew, must not push aside the items behind it.
        let follows = items.get(number + 1).filter(|_| matches!(what, MovedPart::Map(_)));
        let stays = follows.is_some_and(|&(object, what)| {
            let own = now.places(object, what);
            is_next(usable, &own, what, at)
        });
        if stays && !is_next(usable, &own, what, at) {
            placed.push(Item { object, what, places: Vec::new(), is_kept: true });
            continue;
        }
        if is_next(usable, &own, what, at) {
            at = own.last().map_or(at, |run| run.end().get());
            kept.extend_from_slice(&own);
            placed.push(Item { object, what, places: own, is_kept: true });
            continue;
        }
        let mut places = Vec::new();
        let (mut left, before) = (what.blocks(), at);
        for run in usable.from(at) {
            let len = left.min(run.len);
            places.push(Extent::new(run.start, len));
            at = run.start.get() + len;
            left -= len;
            if left == 0 {
                break;
            }
        }
        match what {
            MovedPart::Data(_) if left > 0 => return None,
            MovedPart::Data(_) => {
                moving.insert(object);
            }
            // At the volume's end a map may stay where it is.
            MovedPart::Map(_) if left > 0 => {
                at = before;
                placed.push(Item { object, what, places: Vec::new(), is_kept: true });
                continue;
            }
            MovedPart::Map(_) => {}
        }
        placed.push(Item { object, what, places, is_kept: false });
    }
    // A map that is not there is not needed either, as long as no data moves.
    for item in &mut placed {
        let is_map = matches!(item.what, MovedPart::Map(_));
        let is_there = !now.map[&item.object].is_empty();
        item.is_kept |= is_map && !is_there && !moving.contains(&item.object);
    }
    kept.sort_unstable();
    Some((placed, kept))
}

/// Whether an item at `own` may stay there, as the next one from block `at` on. Unusable blocks in
/// between, such as the bitmaps of a group, are no gap.
fn is_next(usable: &Runs, own: &[Extent], what: MovedPart, at: u64) -> bool {
    let (Some(first), Some(last)) = (own.first(), own.last()) else { return false };
    let is_ascending = own.windows(2).all(|pair| pair[0].end() <= pair[1].start);
    let spans = || usable.below(last.end().get()) - usable.below(at);
    first.start.get() >= at && is_ascending && spans() <= what.blocks() + SLACK
}
