//! Decides where everything goes: what a trace touched first, in first-touch
//! order, then the rest in the order of a walk.
//!
//! The planner sees no bytes and no format, only a [`Demand`] and a [`Space`].
//! The order of preference is:
//!
//! 1. What was touched lies in one region that begins on a chunk's boundary:
//!    directory blocks, maps and file data in the order of their first touch.
//!    A large file's touched ranges may so lie apart from its other ones.
//!    Inodes that were touched take the first free numbers, in the same order.
//! 2. The rest follows in walk order. Directories of a stretch of it lie
//!    together before its files, so that a walk that only looks at names and
//!    attributes does not cross the data.
//! 3. Inodes of the rest keep the walk's order, each as near to its data as the
//!    order and the room in the tables allow.

use crate::replay::{Purpose, Replayed};
use seekless_fs::FsError;
use seekless_fs::plan::{Demand, ObjectId, Placed, Plan, Run, Space};
use seekless_units::{BlockNo, Extent, Ino, Lbn};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Something that a trace touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// What it belongs to.
    pub object: ObjectId,
    /// Which part.
    pub part: Part,
}

/// A part of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The inode.
    Inode,
    /// Blocks of its map or of its attributes.
    Overhead,
    /// Blocks of its contents.
    Blocks(Run),
}

/// What replays touched, as the planner takes it: what several of them touch
/// comes first, then the order of first touch. `object` finds an inode's
/// object; blocks are counted in units of `unit` file-system blocks.
#[must_use]
pub fn touches(
    replays: &[Replayed],
    object: &dyn Fn(Ino) -> Option<ObjectId>,
    unit: u64,
) -> Vec<Touch> {
    let mut users: HashMap<ObjectId, usize> = HashMap::new();
    let mut touches = Vec::new();
    for replay in replays {
        let from = touches.len();
        let inodes = replay.inodes.iter().filter_map(|&ino| object(ino));
        touches.extend(inodes.map(|object| Touch { object, part: Part::Inode }));
        for request in &replay.requests {
            let Some(object) = object(request.ino) else { continue };
            let part = match request.purpose {
                Purpose::Inode => continue,
                Purpose::Map | Purpose::Attribute => Part::Overhead,
                Purpose::Directory | Purpose::Data => {
                    let first = request.lbn.get() / unit;
                    let end = (request.lbn.get() + request.extent.len).div_ceil(unit);
                    Part::Blocks(Run { lbn: Lbn::new(first), len: end - first })
                }
            };
            touches.push(Touch { object, part });
        }
        let mut own: Vec<ObjectId> = touches[from..].iter().map(|touch| touch.object).collect();
        own.sort_unstable();
        own.dedup();
        for object in own {
            *users.entry(object).or_default() += 1;
        }
    }
    touches.sort_by_key(|touch| Reverse(users.get(&touch.object).copied().unwrap_or(0)));
    touches
}

/// Plans the layout of all that `demand` has. `hot` is in order of first touch
/// and may repeat itself; `align` is the chunk, in blocks, on whose boundary the
/// hot region begins (1: anywhere).
///
/// # Errors
/// [`FsError::NoSpace`] when blocks or inodes do not suffice.
pub fn plan(
    demand: &dyn Demand,
    space: &Space,
    hot: &[Touch],
    align: u64,
) -> Result<Plan, FsError> {
    let mut overhead = Overhead::estimate(demand);
    let sequence = Sequence::new(demand, space, hot);
    // Where a piece meets the end of a free run it becomes two, and its map may
    // grow by a block that nobody counted; then everything is placed again.
    for _ in 0..64 {
        let filled = Filled::new(demand, space, &sequence, &overhead, align)?;
        if !overhead.grow(demand, &filled) {
            let inodes = number_inodes(demand, space, hot, &filled)?;
            return Ok(filled.into_plan(demand, inodes));
        }
    }
    Err(FsError::NoSpace("the layout does not settle in the free space there is".into()))
}

/// Blocks for maps and attributes, by object.
struct Overhead(Vec<u32>);

impl Overhead {
    fn estimate(demand: &dyn Demand) -> Self {
        let mut runs = Vec::new();
        Self(
            objects(demand)
                .map(|object| {
                    if demand.is_pinned(object) {
                        return 0;
                    }
                    runs.clear();
                    demand.runs(object, &mut runs);
                    demand.overhead_blocks(object, &Run::apart(&runs)) as u32
                })
                .collect(),
        )
    }

    /// Takes up what the objects need as they were placed; whether any needs
    /// more than it was given.
    fn grow(&mut self, demand: &dyn Demand, filled: &Filled) -> bool {
        let mut grown = false;
        for object in objects(demand) {
            let given = &mut self.0[object.index()];
            let pieces = filled.pieces(object);
            if pieces.len() <= 1 && *given == 0 {
                continue;
            }
            let needed = demand.overhead_blocks(object, pieces) as u32;
            if needed > *given {
                *given = needed;
                grown = true;
            }
        }
        grown
    }
}

fn objects(demand: &dyn Demand) -> impl Iterator<Item = ObjectId> + use<> {
    (0..demand.objects() as u32).map(ObjectId::new)
}

/// What to place next.
#[derive(Clone, Copy, Debug)]
struct Step {
    object: ObjectId,
    run: Run,
}

/// The order in which everything is placed.
struct Sequence {
    hot: Vec<Step>,
    cold: Vec<Step>,
    /// Objects whose overhead was touched although none of their blocks were.
    hot_overhead: Vec<ObjectId>,
}

impl Sequence {
    fn new(demand: &dyn Demand, space: &Space, hot: &[Touch]) -> Self {
        let mut touched = Touched::default();
        let mut steps: Vec<Step> = Vec::new();
        let mut hot_overhead = Vec::new();
        let mut runs = Vec::new();
        for touch in hot {
            if demand.is_pinned(touch.object) {
                continue;
            }
            match touch.part {
                Part::Inode => {}
                Part::Overhead => hot_overhead.push(touch.object),
                Part::Blocks(run) => {
                    runs.clear();
                    demand.runs(touch.object, &mut runs);
                    for own in &runs {
                        let from = own.lbn.max(run.lbn).get();
                        let to = (own.lbn.get() + own.len).min(run.lbn.get() + run.len);
                        touched.add(touch.object, from, to, &mut steps);
                    }
                }
            }
        }
        let cold = Self::cold(demand, space, &touched);
        Self { hot: steps, cold, hot_overhead }
    }

    /// The rest, stretch by stretch, a stretch's directories before its files.
    fn cold(demand: &dyn Demand, space: &Space, touched: &Touched) -> Vec<Step> {
        let stretch = space.tables.first().map_or(1 << 14, |table| table.group.len / 2).max(1);
        let (mut steps, mut files) = (Vec::new(), Vec::new());
        let mut runs = Vec::new();
        let mut blocks = 0;
        for object in demand.walk_order() {
            runs.clear();
            demand.runs(object, &mut runs);
            let into = if demand.is_directory(object) { &mut steps } else { &mut files };
            for &run in &runs {
                touched.rest(object, run, |run| {
                    into.push(Step { object, run });
                    blocks += run.len;
                });
            }
            if blocks >= stretch {
                steps.append(&mut files);
                blocks = 0;
            }
        }
        steps.append(&mut files);
        steps
    }
}

/// Which blocks of which objects are hot: sorted, disjoint ranges.
#[derive(Default)]
struct Touched(HashMap<ObjectId, Vec<(u64, u64)>>);

impl Touched {
    /// Marks `from..to` and appends steps for what was not marked before.
    fn add(&mut self, object: ObjectId, from: u64, to: u64, steps: &mut Vec<Step>) {
        if from >= to {
            return;
        }
        let ranges = self.0.entry(object).or_default();
        let (mut at, mut first) = (from, ranges.partition_point(|range| range.1 < from));
        let start = first;
        let (mut low, mut high) = (from, to);
        while let Some(&(have_from, have_to)) = ranges.get(first).filter(|range| range.0 <= to) {
            push_step(steps, object, at, have_from.max(at));
            at = at.max(have_to);
            low = low.min(have_from);
            high = high.max(have_to);
            first += 1;
        }
        push_step(steps, object, at, to);
        ranges.splice(start..first, [(low, high)]);
    }

    /// Calls `visit` with the parts of `run` that are not marked.
    fn rest(&self, object: ObjectId, run: Run, mut visit: impl FnMut(Run)) {
        let (mut at, end) = (run.lbn.get(), run.lbn.get() + run.len);
        let ranges = self.0.get(&object).map(Vec::as_slice).unwrap_or_default();
        for &(from, to) in &ranges[ranges.partition_point(|range| range.1 <= at)..] {
            if from >= end {
                break;
            }
            if from > at {
                visit(Run { lbn: Lbn::new(at), len: from - at });
            }
            at = at.max(to);
        }
        if at < end {
            visit(Run { lbn: Lbn::new(at), len: end - at });
        }
    }
}

fn push_step(steps: &mut Vec<Step>, object: ObjectId, from: u64, to: u64) {
    if from >= to {
        return;
    }
    if let Some(last) = steps.last_mut()
        && last.object == object
        && last.run.lbn.get() + last.run.len == from
    {
        last.run.len += to - from;
        return;
    }
    steps.push(Step { object, run: Run { lbn: Lbn::new(from), len: to - from } });
}

/// Free runs being used up from the front.
struct Filler {
    free: Vec<Extent>,
    at: usize,
    used: u64,
}

impl Filler {
    fn new(free: Vec<Extent>) -> Self {
        Self { free, at: 0, used: 0 }
    }

    /// Takes up to `len` blocks in one run.
    fn take(&mut self, len: u64) -> Option<Extent> {
        loop {
            let run = self.free.get(self.at)?;
            let left = run.len - self.used;
            if left == 0 {
                self.at += 1;
                self.used = 0;
                continue;
            }
            let n = left.min(len);
            let taken = Extent::new(run.start.saturating_add(self.used), n);
            self.used += n;
            return Some(taken);
        }
    }

    fn take_all(&mut self, mut len: u64, mut visit: impl FnMut(Extent)) -> Result<(), FsError> {
        while len > 0 {
            let extent = self.take(len).ok_or_else(|| {
                FsError::NoSpace("the free blocks do not suffice for the layout".into())
            })?;
            len -= extent.len;
            visit(extent);
        }
        Ok(())
    }

    /// What is left, in order.
    fn rest(self) -> Vec<Extent> {
        let Self { free, at, used } = self;
        free.into_iter()
            .enumerate()
            .skip(at)
            .map(|(index, run)| {
                let skip = if index == at { used } else { 0 };
                Extent::new(run.start.saturating_add(skip), run.len - skip)
            })
            .filter(|run| run.len > 0)
            .collect()
    }
}

/// Everything placed, sorted by object.
struct Filled {
    data: Vec<Placed>,
    data_start: Vec<u32>,
    overhead: Vec<Extent>,
    overhead_start: Vec<u32>,
}

impl Filled {
    fn new(
        demand: &dyn Demand,
        space: &Space,
        sequence: &Sequence,
        overhead: &Overhead,
        align: u64,
    ) -> Result<Self, FsError> {
        let mut fill = Fill {
            overhead,
            has_overhead: vec![false; demand.objects()],
            data: Vec::with_capacity(sequence.hot.len() + sequence.cold.len()),
            over: Vec::new(),
        };
        let hot_blocks = sequence.hot.iter().map(|step| step.run.len).sum::<u64>()
            + fill.overhead_of(&sequence.hot, &sequence.hot_overhead);
        let (region, rest) = hot_region(&space.free, hot_blocks, align);
        let mut filler = Filler::new(region);
        fill.steps(&sequence.hot, &mut filler)?;
        for &object in &sequence.hot_overhead {
            fill.overhead(object, &mut filler)?;
        }
        let mut free = filler.rest();
        free.extend(rest);
        free.sort_unstable();
        let mut filler = Filler::new(free);
        fill.steps(&sequence.cold, &mut filler)?;
        // Objects without blocks may have overhead too: attributes.
        for object in objects(demand) {
            fill.overhead(object, &mut filler)?;
        }
        Ok(fill.finish(demand.objects()))
    }

    fn pieces(&self, object: ObjectId) -> &[Placed] {
        let at = object.index();
        &self.data[self.data_start[at] as usize..self.data_start[at + 1] as usize]
    }

    fn into_plan(self, demand: &dyn Demand, inodes: Vec<Ino>) -> Plan {
        let mut plan = Plan {
            inodes,
            data: self.data,
            data_start: self.data_start,
            overhead: Vec::with_capacity(self.overhead.len()),
            overhead_start: Vec::with_capacity(demand.objects() + 1),
        };
        // What was set aside and is not needed after all stays free.
        plan.overhead_start.push(0);
        for object in objects(demand) {
            let at = object.index();
            let range = self.overhead_start[at] as usize..self.overhead_start[at + 1] as usize;
            if !range.is_empty() {
                let mut left = demand.overhead_blocks(object, plan.data(object));
                for run in &self.overhead[range] {
                    let len = run.len.min(left);
                    left -= len;
                    if len > 0 {
                        plan.overhead.push(Extent::new(run.start, len));
                    }
                }
            }
            plan.overhead_start.push(plan.overhead.len() as u32);
        }
        plan
    }
}

/// The free runs for the hot part, and the others: the first run that holds it
/// all from a chunk's boundary on; if there is none, all of them, each cut at
/// its first boundary.
fn hot_region(free: &[Extent], blocks: u64, align: u64) -> (Vec<Extent>, Vec<Extent>) {
    if blocks == 0 {
        return (Vec::new(), free.to_vec());
    }
    let cut = |run: &Extent| {
        let start = run.start.get().next_multiple_of(align.max(1)).min(run.end().get());
        let head = start - run.start.get();
        (Extent::new(run.start, head), Extent::new(BlockNo::new(start), run.len - head))
    };
    let fits = |run: &&Extent| cut(run).1.len >= blocks;
    let chosen: Vec<Extent> = match free.iter().find(fits) {
        Some(run) => vec![*run],
        None => free.to_vec(),
    };
    let (mut region, mut rest) = (Vec::new(), Vec::new());
    for run in free {
        if chosen.contains(run) {
            let (head, tail) = cut(run);
            rest.push(head);
            region.push(tail);
        } else {
            rest.push(*run);
        }
    }
    region.retain(|run| run.len > 0);
    rest.retain(|run| run.len > 0);
    if region.iter().map(|run| run.len).sum::<u64>() < blocks {
        // There is no room for boundaries this far apart.
        return (free.to_vec(), Vec::new());
    }
    (region, rest)
}

/// Placing under way.
struct Fill<'a> {
    overhead: &'a Overhead,
    has_overhead: Vec<bool>,
    data: Vec<(ObjectId, Placed)>,
    over: Vec<(ObjectId, Extent)>,
}

impl Fill<'_> {
    /// Blocks that the overhead of all these objects takes.
    fn overhead_of(&self, steps: &[Step], more: &[ObjectId]) -> u64 {
        let mut objects: Vec<ObjectId> =
            steps.iter().map(|step| step.object).chain(more.iter().copied()).collect();
        objects.sort_unstable();
        objects.dedup();
        objects.iter().map(|object| u64::from(self.overhead.0[object.index()])).sum()
    }

    fn steps(&mut self, steps: &[Step], filler: &mut Filler) -> Result<(), FsError> {
        for step in steps {
            // The map lies right before what it leads to first.
            self.overhead(step.object, filler)?;
            let mut lbn = step.run.lbn;
            let data = &mut self.data;
            filler.take_all(step.run.len, |extent| {
                data.push((step.object, Placed { lbn, extent }));
                lbn = lbn.saturating_add(extent.len);
            })?;
        }
        Ok(())
    }

    fn overhead(&mut self, object: ObjectId, filler: &mut Filler) -> Result<(), FsError> {
        if std::mem::replace(&mut self.has_overhead[object.index()], true) {
            return Ok(());
        }
        let over = &mut self.over;
        filler.take_all(u64::from(self.overhead.0[object.index()]), |extent| {
            over.push((object, extent));
        })
    }

    fn finish(mut self, objects: usize) -> Filled {
        self.data.sort_unstable_by_key(|(object, placed)| (*object, placed.lbn));
        self.data.dedup_by(|(object, later), (owner, earlier)| {
            let joins = object == owner
                && earlier.extent.end() == later.extent.start
                && earlier.lbn.saturating_add(earlier.extent.len) == later.lbn;
            if joins {
                earlier.extent.len += later.extent.len;
            }
            joins
        });
        self.over.sort_by_key(|(object, _)| *object);
        Filled {
            data_start: starts(objects, self.data.iter().map(|(object, _)| *object)),
            data: self.data.into_iter().map(|(_, placed)| placed).collect(),
            overhead_start: starts(objects, self.over.iter().map(|(object, _)| *object)),
            overhead: self.over.into_iter().map(|(_, extent)| extent).collect(),
        }
    }
}

fn starts(objects: usize, owners: impl Iterator<Item = ObjectId>) -> Vec<u32> {
    let mut starts = vec![0u32; objects + 1];
    for owner in owners {
        starts[owner.index() + 1] += 1;
    }
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    starts
}

/// The free inode numbers, counted without listing them.
struct Slots<'a> {
    space: &'a Space,
    /// Free numbers before each range.
    before: Vec<u64>,
    total: u64,
}

impl<'a> Slots<'a> {
    fn new(space: &'a Space) -> Self {
        let mut before = Vec::with_capacity(space.inodes.len());
        let mut total = 0;
        for &(_, count) in &space.inodes {
            before.push(total);
            total += u64::from(count);
        }
        Self { space, before, total }
    }

    fn ino(&self, slot: u64) -> Ino {
        let at = self.before.partition_point(|&before| before <= slot) - 1;
        self.space.inodes[at].0.saturating_add((slot - self.before[at]) as u32)
    }

    /// The first slot whose number is not below `ino`.
    fn at_or_after(&self, ino: Ino) -> u64 {
        let at = self.space.inodes.partition_point(|&(first, _)| first <= ino);
        match at.checked_sub(1) {
            None => 0,
            Some(at) => {
                let (first, count) = self.space.inodes[at];
                self.before[at] + u64::from(ino.saturating_since(first).min(count))
            }
        }
    }
}

fn number_inodes(
    demand: &dyn Demand,
    space: &Space,
    hot: &[Touch],
    filled: &Filled,
) -> Result<Vec<Ino>, FsError> {
    let slots = Slots::new(space);
    let mut inodes = vec![Ino::ZERO; demand.objects()];
    let mut done = vec![false; demand.objects()];
    for object in objects(demand) {
        if demand.is_pinned(object) {
            done[object.index()] = true;
        } else if let Some(ino) = demand.fixed_ino(object) {
            inodes[object.index()] = ino;
            done[object.index()] = true;
        }
    }
    let mut remaining = done.iter().filter(|done| !**done).count() as u64;
    if remaining > slots.total {
        return Err(FsError::NoSpace(format!(
            "{remaining} inodes are needed, {} are free",
            slots.total
        )));
    }
    let mut next = 0;
    for touch in hot {
        let at = touch.object.index();
        if !std::mem::replace(&mut done[at], true) {
            inodes[at] = slots.ino(next);
            next += 1;
            remaining -= 1;
        }
    }
    let mut goal = next;
    for object in demand.inode_order() {
        let at = object.index();
        if std::mem::replace(&mut done[at], true) {
            continue;
        }
        if let Some(piece) = filled.pieces(object).first() {
            goal = near(space, &slots, piece.extent.start);
        }
        let slot = goal.max(next).min(slots.total - remaining);
        inodes[at] = slots.ino(slot);
        next = slot + 1;
        remaining -= 1;
    }
    Ok(inodes)
}

/// The first slot of the table of the group that holds `block`.
fn near(space: &Space, slots: &Slots<'_>, block: BlockNo) -> u64 {
    let at = space.tables.partition_point(|table| table.group.start <= block);
    match at.checked_sub(1).and_then(|at| space.tables.get(at)) {
        Some(table) => slots.at_or_after(table.first),
        None => 0,
    }
}
