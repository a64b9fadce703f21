//! Free runs used up in order: where everything goes.

use super::base::{Held, Holes};
use super::sequence::{PlacementStep, Sequence};
use super::{Overhead, objects};
use seekless_fs::FsError;
use seekless_fs::plan::{Demand, ObjectId, Placed, Plan};
use seekless_units::{BlockNo, Extent, Ino};
use std::cmp::Reverse;

/// Free runs being used up from the front.
struct Filler {
    free: Vec<Extent>,
    at: usize,
    used: u64,
    /// Blocks that are left.
    left: u64,
}

impl Filler {
    fn new(free: Vec<Extent>) -> Self {
        let left = free.iter().map(|run| run.len).sum();
        Self { free, at: 0, used: 0, left }
    }

    /// Adds free runs behind the others.
    fn add(&mut self, runs: impl Iterator<Item = Extent>) {
        for run in runs {
            self.left += run.len;
            self.free.push(run);
        }
    }

    /// Takes up to `len` blocks in one run.
    fn take(&mut self, len: u64) -> Option<Extent> {
        loop {
            let run = self.free.get(self.at)?;
            debug_assert!(self.used <= run.len, "no more is used than there is");
            let left = run.len - self.used;
            if left == 0 {
                self.at += 1;
                self.used = 0;
                continue;
            }
            let n = left.min(len);
            let taken = Extent::new(run.start + self.used, n);
            self.used += n;
            self.left -= n;
            return Some(taken);
        }
    }

    fn take_all(&mut self, mut len: u64, mut visit: impl FnMut(Extent)) -> Result<(), FsError> {
        while len > 0 {
            let extent = self
                .take(len)
                .ok_or_else(|| FsError::NoSpace("not enough free blocks for the layout".into()))?;
            len -= extent.len;
            visit(extent);
        }
        Ok(())
    }

    /// The remaining runs, in order.
    fn rest(self) -> Vec<Extent> {
        let Self { free, at, used, .. } = self;
        free.into_iter()
            .enumerate()
            .skip(at)
            .map(|(index, run)| {
                let skip = if index == at { used } else { 0 };
                Extent::new(run.start + skip, run.len - skip)
            })
            .filter(|run| run.len > 0)
            .collect()
    }
}

/// Everything placed, sorted by object.
pub(super) struct Filled {
    data: Vec<Placed>,
    data_start: Vec<u32>,
    overhead: Vec<Extent>,
    overhead_start: Vec<u32>,
    /// Free space behind all that.
    left: Filler,
}

impl Filled {
    pub(super) fn new(
        demand: &dyn Demand,
        held: &Held,
        sequence: &Sequence,
        overhead: &Overhead,
        align: u64,
    ) -> Result<Self, FsError> {
        let Sequence { hot, cold } = sequence;
        let mut fill = Fill {
            overhead,
            held,
            has_overhead: vec![false; demand.objects()],
            data: Vec::with_capacity(hot.steps.len() + cold.len()),
            over: Vec::new(),
        };
        fill.hold(demand);
        let hot_blocks = hot.steps.iter().map(|step| step.run.len).sum::<u64>()
            + fill.overhead_of(&hot.steps, &hot.overhead);
        let free = held.behind_begin(held.space.free.clone());
        let (region, rest) = hot_region(held, free, hot_blocks, align);
        let mut filler = Filler::new(region);
        fill.steps(&hot.steps, &mut Holes::default(), &mut filler)?;
        for &object in &hot.overhead {
            fill.overhead(object, &mut filler)?;
        }
        let mut free = filler.rest();
        free.extend(rest);
        free.sort_unstable();
        let (mut holes, free) = held.holes(&free);
        let cold_blocks =
            cold.iter().map(|step| step.run.len).sum::<u64>() + fill.overhead_of(cold, &[]);
        let mut filler = Filler::new(held.in_few_chunks(free, cold_blocks, align));
        fill.steps(cold, &mut holes, &mut filler)?;
        filler.add(holes.rest());
        // Objects without blocks may have overhead too: attributes.
        for object in objects(demand) {
            fill.overhead(object, &mut filler)?;
        }
        Ok(fill.finish(demand.objects(), filler))
    }

    /// Gives every object the blocks for its map that it still lacks, from the free space behind
    /// everything.
    pub(super) fn supply(&mut self, demand: &dyn Demand) -> Result<(), FsError> {
        let mut all = Vec::with_capacity(self.overhead.len());
        let mut start = Vec::with_capacity(self.overhead_start.len());
        start.push(0);
        for object in objects(demand) {
            let at = object.index();
            let own = self.overhead_start[at] as usize..self.overhead_start[at + 1] as usize;
            let own = &self.overhead[own];
            let given: u64 = own.iter().map(|run| run.len).sum();
            all.extend_from_slice(own);
            if !demand.is_pinned(object) && (self.pieces(object).len() > 1 || given > 0) {
                let needed = demand.overhead_blocks(object, self.pieces(object));
                self.left.take_all(needed.saturating_sub(given), |extent| all.push(extent))?;
            }
            start.push(all.len() as u32);
        }
        self.overhead = all;
        self.overhead_start = start;
        Ok(())
    }

    pub(super) fn pieces(&self, object: ObjectId) -> &[Placed] {
        let at = object.index();
        &self.data[self.data_start[at] as usize..self.data_start[at + 1] as usize]
    }

    pub(super) fn into_plan(self, demand: &dyn Demand, inodes: Vec<Ino>) -> Plan {
        let mut plan = Plan {
            inodes,
            data: self.data,
            data_start: self.data_start,
            overhead: Vec::with_capacity(self.overhead.len()),
            overhead_start: Vec::with_capacity(demand.objects() + 1),
        };
        // Reserved blocks that are not needed after all stay free.
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
/// its first boundary, or, beside an older layout, the longest ones.
fn hot_region(
    held: &Held,
    free: Vec<Extent>,
    blocks: u64,
    align: u64,
) -> (Vec<Extent>, Vec<Extent>) {
    if blocks == 0 {
        return (Vec::new(), free);
    }
    let cut = |run: &Extent| {
        let start = run.start.get().next_multiple_of(align.max(1)).min(run.end().get());
        let head = start - run.start.get();
        (Extent::new(run.start, head), Extent::new(BlockNo::new(start), run.len - head))
    };
    let fits = |run: &&Extent| cut(run).1.len >= blocks;
    let chosen = free.iter().position(|run| fits(&run));
    if chosen.is_none() && held.is_grown {
        return longest(free, blocks);
    }
    let (mut region, mut rest) = (Vec::new(), Vec::new());
    for (at, run) in free.iter().enumerate() {
        if chosen.is_none_or(|chosen| chosen == at) {
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
        return (free, Vec::new());
    }
    (region, rest)
}

/// The longest runs that have `blocks` blocks together, in their order, and the others.
fn longest(free: Vec<Extent>, blocks: u64) -> (Vec<Extent>, Vec<Extent>) {
    let mut by_len: Vec<usize> = (0..free.len()).collect();
    by_len.sort_by_key(|&at| Reverse(free[at].len));
    let mut is_chosen = vec![false; free.len()];
    let mut room = 0;
    for at in by_len {
        if room >= blocks {
            break;
        }
        room += free[at].len;
        is_chosen[at] = true;
    }
    let (chosen, rest): (Vec<_>, Vec<_>) =
        free.into_iter().zip(is_chosen).partition(|&(_, is_chosen)| is_chosen);
    let runs = |part: Vec<(Extent, bool)>| part.into_iter().map(|(run, _)| run).collect();
    (runs(chosen), runs(rest))
}

/// Placing under way.
struct Fill<'a> {
    overhead: &'a Overhead,
    held: &'a Held,
    has_overhead: Vec<bool>,
    data: Vec<(ObjectId, Placed)>,
    over: Vec<(ObjectId, Extent)>,
}

impl Fill<'_> {
    /// Blocks that the overhead of all these objects takes.
    fn overhead_of(&self, steps: &[PlacementStep], more: &[ObjectId]) -> u64 {
        let mut objects: Vec<ObjectId> =
            steps.iter().map(|step| step.object).chain(more.iter().copied()).collect();
        objects.sort_unstable();
        objects.dedup();
        objects.iter().map(|&object| self.missing(object)).sum()
    }

    /// Puts everything that keeps its place there.
    fn hold(&mut self, demand: &dyn Demand) {
        for object in objects(demand) {
            self.data.extend(self.held.data(object).iter().map(|&placed| (object, placed)));
            self.over.extend(self.held.overhead(object).iter().map(|&extent| (object, extent)));
        }
    }

    /// Blocks for an object's map and attributes that have no place yet.
    fn missing(&self, object: ObjectId) -> u64 {
        let held: u64 = self.held.overhead(object).iter().map(|run| run.len).sum();
        // More may have been kept than is needed; the rest is free again in the finished plan.
        u64::from(self.overhead.0[object.index()]).saturating_sub(held)
    }

    /// Places runs: each in the smallest hole that holds it, else in the free space of `filler`,
    /// and at last in the holes piece by piece.
    fn steps(
        &mut self,
        steps: &[PlacementStep],
        holes: &mut Holes,
        filler: &mut Filler,
    ) -> Result<(), FsError> {
        for step in steps {
            let map = match self.has_overhead[step.object.index()] {
                true => 0,
                false => self.missing(step.object),
            };
            let mut hole = holes.take(map + step.run.len).map(|hole| Filler::new(vec![hole]));
            if hole.is_none() && filler.left < map + step.run.len {
                filler.add(std::mem::take(holes).rest());
            }
            let filler = hole.as_mut().unwrap_or(filler);
            // The map lies right before the first block it leads to.
            self.overhead(step.object, filler)?;
            let mut lbn = step.run.lbn;
            let data = &mut self.data;
            filler.take_all(step.run.len, |extent| {
                data.push((step.object, Placed { lbn, extent }));
                lbn += extent.len;
            })?;
        }
        Ok(())
    }

    fn overhead(&mut self, object: ObjectId, filler: &mut Filler) -> Result<(), FsError> {
        if std::mem::replace(&mut self.has_overhead[object.index()], true) {
            return Ok(());
        }
        let missing = self.missing(object);
        let over = &mut self.over;
        filler.take_all(missing, |extent| over.push((object, extent)))
    }

    fn finish(mut self, objects: usize, left: Filler) -> Filled {
        self.data.sort_unstable_by_key(|(object, placed)| (*object, placed.lbn));
        self.data.dedup_by(|(object, later), (owner, earlier)| {
            let joins = object == owner
                && earlier.extent.end() == later.extent.start
                && earlier.lbn + earlier.extent.len == later.lbn;
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
            left,
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
