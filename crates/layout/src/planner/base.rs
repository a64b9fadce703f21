//! The places that objects keep from an older layout.

use super::objects;
use seekless_fs::extents::{difference, intersection};
use seekless_fs::plan::{Base, Demand, ObjectId, Placed, Plan, Run, Space};
use seekless_units::{BlockNo, Extent, Ino, Lbn};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The parts of an older layout that the new one keeps, and the space besides.
pub(super) struct Held {
    /// The places of objects that have any; inode 0 for those without a number.
    plan: Plan,
    /// Free space that nothing keeps.
    pub(super) space: Space,
    /// Free blocks that the older volume used: they differ from its blocks in any case.
    vacated: Vec<Extent>,
    begin: Option<BlockNo>,
    /// Whether the older volume has any files.
    pub(super) is_grown: bool,
    keeps_freed: bool,
    inode_reserve: Option<u32>,
}

impl Held {
    /// Nothing is kept.
    pub(super) fn none(space: &Space) -> Self {
        Self {
            plan: Plan::default(),
            space: space.clone(),
            vacated: Vec::new(),
            begin: None,
            is_grown: false,
            keeps_freed: false,
            inode_reserve: None,
        }
    }

    /// Keeps places that lie in free space and are still needed. Of objects that claim the same blocks or
    /// number, the first has them.
    pub(super) fn new(demand: &dyn Demand, space: &Space, base: &Base) -> Self {
        let mut free = FreeSet::new(space.free.iter().map(|run| (run.start.get(), run.len)));
        let mut numbers =
            FreeSet::new(space.inodes.iter().map(|&(first, n)| (u64::from(first.get()), n.into())));
        let mut plan = Plan::default();
        let mut runs = Vec::new();
        for object in objects(demand) {
            if demand.is_pinned(object) || base.plan.inodes.len() <= object.index() {
                plan.push(Ino::ZERO, [], []);
                continue;
            }
            runs.clear();
            demand.runs(object, &mut runs);
            let mut data = Vec::new();
            for &placed in base.plan.data(object) {
                for part in needed(placed, &runs) {
                    free.take(part.extent.start.get(), part.extent.len, |start, len| {
                        let skip = start - part.extent.start.get();
                        let extent = Extent::new(BlockNo::new(start), len);
                        data.push(Placed { lbn: part.lbn + skip, extent });
                    });
                }
            }
            let mut overhead = Vec::new();
            for run in base.plan.overhead_extents(object) {
                free.take(run.start.get(), run.len, |start, len| {
                    overhead.push(Extent::new(BlockNo::new(start), len));
                });
            }
            let wanted = base.plan.inodes[object.index()];
            let mut ino = Ino::ZERO;
            if demand.fixed_ino(object).is_none() {
                numbers.take(u64::from(wanted.get()), 1, |_, _| ino = wanted);
            }
            plan.push(ino, data, overhead);
        }
        let free: Vec<Extent> = free.runs(|start, len| Extent::new(BlockNo::new(start), len));
        let inodes = numbers.runs(|first, count| (Ino::new(first as u32), count as u32));
        let vacated = intersection(&free, &base.used);
        Self {
            plan,
            space: Space { free, inodes, ..space.clone() },
            vacated,
            begin: base.begin,
            is_grown: !base.used.is_empty(),
            keeps_freed: base.keeps_freed,
            inode_reserve: base.inode_reserve,
        }
    }

    /// Whether an object takes one of the first free inode numbers.
    pub(super) fn gathers(&self, is_directory: bool) -> bool {
        self.inode_reserve.is_some() && (self.is_grown || is_directory)
    }

    /// How many inode numbers are to be left free before the objects that do not.
    pub(super) fn inode_reserve(&self) -> Option<u32> {
        self.inode_reserve.filter(|_| !self.is_grown)
    }

    /// The number that an object keeps.
    pub(super) fn ino(&self, object: ObjectId) -> Option<Ino> {
        self.plan.inodes.get(object.index()).copied().filter(|&ino| ino != Ino::ZERO)
    }

    /// The places of an object's data that it keeps, sorted by logical block.
    pub(super) fn data(&self, object: ObjectId) -> &[Placed] {
        if self.plan.is_empty() { &[] } else { self.plan.data(object) }
    }

    /// The blocks for its map and attributes that an object keeps.
    pub(super) fn overhead(&self, object: ObjectId) -> &[Extent] {
        if self.plan.is_empty() { &[] } else { self.plan.overhead_extents(object) }
    }

    /// Puts the free space behind the place first where new objects begin, if there is one.
    pub(super) fn behind_begin(&self, mut free: Vec<Extent>) -> Vec<Extent> {
        let Some(begin) = self.begin else { return free };
        let mut at = free.partition_point(|run| run.end() <= begin);
        if let Some(run) = free.get(at).copied().filter(|run| run.start < begin) {
            let head = Extent::new(run.start, begin - run.start);
            free.splice(at..=at, [head, Extent::new(begin, run.end() - begin)]);
            at += 1;
        }
        free.rotate_left(at);
        free
    }

    /// Puts the free space first in which `blocks` blocks touch the fewest chunks, since each chunk
    /// that they touch is new: of the run that holds them or of its part from a chunk's boundary on;
    /// if no run does, of the chunks of which most is free. Without an older layout the order stays.
    pub(super) fn in_few_chunks(
        &self,
        mut free: Vec<Extent>,
        blocks: u64,
        align: u64,
    ) -> Vec<Extent> {
        if !self.is_grown || blocks == 0 {
            return free;
        }
        if self.begin.is_some() {
            return self.behind_begin(free);
        }
        let chunks = |start: u64| (start + blocks).div_ceil(align) - start / align;
        let starts = |(at, run): (usize, &Extent)| {
            let start = run.start.get();
            [start, start.next_multiple_of(align)].map(|from| (at, from))
        };
        let holds = |&(at, from): &(usize, u64)| from + blocks <= free[at].end().get();
        let best = free.iter().enumerate().flat_map(starts).filter(holds);
        let Some((at, from)) = best.min_by_key(|&(at, from)| (chunks(from), at, from)) else {
            return emptiest_first(&free, align);
        };
        let run = free.remove(at);
        let from = BlockNo::new(from);
        let head = Extent::new(run.start, from - run.start);
        free.insert(0, Extent::new(from, run.end() - from));
        free.extend(Some(head).filter(|head| head.len > 0));
        free
    }

    /// Divides free runs into those that the older volume used, as holes to be filled, and the
    /// others.
    /// Where free blocks keep the bytes of the older volume, all are alike.
    pub(super) fn holes(&self, free: &[Extent]) -> (Holes, Vec<Extent>) {
        if self.keeps_freed {
            return (Holes::default(), free.to_vec());
        }
        let holes = intersection(free, &self.vacated);
        let rest = difference(free, &holes);
        (Holes(holes.iter().map(|hole| (hole.len, hole.start)).collect()), rest)
    }
}

/// Free runs, cut where chunks of `align` blocks begin and end that are not wholly free: those of the
/// chunks of which most is free first, and runs of equally free chunks in order.
fn emptiest_first(free: &[Extent], align: u64) -> Vec<Extent> {
    // The free blocks of its chunk, and the piece.
    let mut pieces: Vec<(u64, Extent)> = Vec::new();
    let mut room: HashMap<u64, u64> = HashMap::new();
    for run in free {
        let (start, end) = (run.start.get(), run.end().get());
        // The chunks that are wholly free, if there are any, lie between a head and a tail.
        let first = start.next_multiple_of(align).min(end);
        let last = (end / align * align).max(first);
        for (from, to) in [(start, first), (first, last), (last, end)] {
            if from < to {
                let is_whole = from == first && to == last;
                if !is_whole {
                    *room.entry(from / align).or_default() += to - from;
                }
                let own = if is_whole { align } else { 0 };
                pieces.push((own, Extent::new(BlockNo::new(from), to - from)));
            }
        }
    }
    for (own, piece) in &mut pieces {
        if *own == 0 {
            *own = room[&(piece.start.get() / align)];
        }
    }
    pieces.sort_unstable_by_key(|&(own, piece)| (Reverse(own), piece.start));
    pieces.into_iter().map(|(_, piece)| piece).collect()
}

/// The parts of a placed run that belong to `runs`.
fn needed(placed: Placed, runs: &[Run]) -> impl Iterator<Item = Placed> + '_ {
    let (from, end) = (placed.lbn, placed.lbn + placed.extent.len);
    runs.iter().filter_map(move |run| {
        let lbn: Lbn = from.max(run.lbn);
        let stop = end.min(run.lbn + run.len);
        (lbn < stop).then(|| {
            let extent = Extent::new(placed.extent.start + (lbn - from), stop - lbn);
            Placed { lbn, extent }
        })
    })
}

/// Numbers that are free, as runs.
struct FreeSet(BTreeMap<u64, u64>);

impl FreeSet {
    fn new(runs: impl Iterator<Item = (u64, u64)>) -> Self {
        Self(runs.filter(|run| run.1 > 0).map(|(start, len)| (start, start + len)).collect())
    }

    /// Takes those of `len` numbers that are free, and calls `visit` with each run of them.
    fn take(&mut self, start: u64, len: u64, mut visit: impl FnMut(u64, u64)) {
        let end = start + len;
        let mut at = start;
        while at < end {
            let before = self.0.range(..=at).next_back().filter(|&(_, &stop)| stop > at);
            let next = before.or_else(|| self.0.range(at..end).next());
            let Some((&from, &to)) = next else { return };
            let (first, stop) = (from.max(at), to.min(end));
            self.0.remove(&from);
            if from < first {
                self.0.insert(from, first);
            }
            if stop < to {
                self.0.insert(stop, to);
            }
            visit(first, stop - first);
            at = stop;
        }
    }

    fn runs<T>(self, make: impl Fn(u64, u64) -> T) -> Vec<T> {
        self.0.into_iter().map(|(start, end)| make(start, end - start)).collect()
    }
}

/// Holes that a removed object left, by length.
#[derive(Default)]
pub(super) struct Holes(BTreeSet<(u64, BlockNo)>);

impl Holes {
    /// Takes `len` blocks from the smallest hole that has so many (best fit).
    pub(super) fn take(&mut self, len: u64) -> Option<Extent> {
        let hole = *self.0.range((len, BlockNo::ZERO)..).next()?;
        self.0.remove(&hole);
        let (have, start) = hole;
        if have > len {
            self.0.insert((have - len, start + len));
        }
        Some(Extent::new(start, len))
    }

    /// The holes that are left, the largest first.
    pub(super) fn rest(self) -> impl Iterator<Item = Extent> {
        self.0.into_iter().rev().map(|(len, start)| Extent::new(start, len))
    }
}
