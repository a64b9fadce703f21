//! In which order everything is placed.

use super::base::Held;
use super::walk::TreeWalk;
use super::{Part, Touch, objects};
use seekless_fs::plan::{Demand, ObjectId, Run, Space};
use seekless_units::Lbn;
use std::collections::{BTreeMap, HashMap};

/// A step of the placement: the run to place next.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacementStep {
    pub(super) object: ObjectId,
    pub(super) run: Run,
}

/// The order in which everything is placed.
pub(super) struct Sequence {
    pub(super) hot: HotSequence,
    pub(super) cold: Vec<PlacementStep>,
}

impl Sequence {
    pub(super) fn new(demand: &dyn Demand, held: &Held, walk: &TreeWalk, hot: &[Touch]) -> Self {
        let hot = HotSequence::new(demand, held, hot);
        let cold = Self::cold(demand, walk, &held.space, &hot.touched);
        Self { hot, cold }
    }

    /// The rest, stretch by stretch, a stretch's directories before its files.
    fn cold(
        demand: &dyn Demand,
        walk: &TreeWalk,
        space: &Space,
        touched: &Touched,
    ) -> Vec<PlacementStep> {
        let stretch = space.tables.first().map_or(1 << 14, |table| table.group.len / 2).max(1);
        let (mut steps, mut files) = (Vec::new(), Vec::new());
        let mut runs = Vec::new();
        let mut blocks = 0;
        for object in walk.order() {
            runs.clear();
            demand.runs(object, &mut runs);
            let into = if demand.is_directory(object) { &mut steps } else { &mut files };
            for &run in &runs {
                touched.rest(object, run, |run| {
                    into.push(PlacementStep { object, run });
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

/// The order of what the traces touch.
pub(super) struct HotSequence {
    pub(super) steps: Vec<PlacementStep>,
    /// Objects whose overhead was touched although none of their blocks were.
    pub(super) overhead: Vec<ObjectId>,
    /// The blocks of the steps, and those that keep their places.
    touched: Touched,
}

impl HotSequence {
    pub(super) fn new(demand: &dyn Demand, held: &Held, hot: &[Touch]) -> Self {
        let mut touched = Touched::default();
        let mut steps: Vec<PlacementStep> = Vec::new();
        for object in objects(demand) {
            for placed in held.data(object) {
                let from = placed.lbn.get();
                touched.add(object, from, from + placed.extent.len, &mut steps);
            }
        }
        // They have their places.
        steps.clear();
        touched.add_all(demand, hot, &mut steps);
        let is_touched =
            |touch: &&Touch| touch.part == Part::Overhead && !demand.is_pinned(touch.object);
        let overhead = hot.iter().filter(is_touched).map(|touch| touch.object).collect();
        Self { steps, overhead, touched }
    }
}

/// Which blocks of which objects are hot: disjoint ranges, none next to another, by their starts.
#[derive(Default)]
pub(super) struct Touched(HashMap<ObjectId, BTreeMap<u64, u64>>);

impl Touched {
    /// Marks all blocks that are touched, and appends steps for the parts not marked before.
    pub(super) fn add_all(
        &mut self,
        demand: &dyn Demand,
        hot: &[Touch],
        steps: &mut Vec<PlacementStep>,
    ) {
        let mut runs = Vec::new();
        for touch in hot {
            let Part::Blocks(run) = touch.part else { continue };
            if demand.is_pinned(touch.object) {
                continue;
            }
            runs.clear();
            demand.runs(touch.object, &mut runs);
            for own in &runs {
                let from = own.lbn.max(run.lbn).get();
                let to = (own.lbn.get() + own.len).min(run.lbn.get() + run.len);
                self.add(touch.object, from, to, steps);
            }
        }
    }

    /// Marks `from..to` and appends steps for the parts not marked before.
    pub(super) fn add(
        &mut self,
        object: ObjectId,
        from: u64,
        to: u64,
        steps: &mut Vec<PlacementStep>,
    ) {
        if from >= to {
            return;
        }
        let ranges = self.0.entry(object).or_default();
        let (mut low, mut high) = (from, to);
        // Those that it touches are joined; the blocks between them are new.
        let before = ranges.range(..from).next_back().filter(|(_, have_to)| **have_to >= from);
        let first = before.map_or(from, |(&have_from, _)| have_from);
        let joined: Vec<(u64, u64)> =
            ranges.range(first..=to).map(|(&have_from, &have_to)| (have_from, have_to)).collect();
        let mut at = from;
        for (have_from, have_to) in joined {
            push_step(steps, object, at, have_from.max(at));
            at = at.max(have_to);
            low = low.min(have_from);
            high = high.max(have_to);
            ranges.remove(&have_from);
        }
        push_step(steps, object, at, to);
        ranges.insert(low, high);
    }

    /// The marked blocks of an object: sorted, disjoint ranges, none next to another.
    pub(super) fn ranges(&self, object: ObjectId) -> impl Iterator<Item = (u64, u64)> {
        self.0.get(&object).into_iter().flatten().map(|(&from, &to)| (from, to))
    }

    /// Calls `visit` with the parts of `run` that are not marked.
    pub(super) fn rest(&self, object: ObjectId, run: Run, mut visit: impl FnMut(Run)) {
        let (mut at, end) = (run.lbn.get(), run.lbn.get() + run.len);
        let ranges = self.0.get(&object).into_iter().flat_map(|ranges| {
            let start = run.lbn.get();
            let before = ranges.range(..=start).next_back().map_or(start, |(&from, _)| from);
            ranges.range(before..)
        });
        for (&from, &to) in ranges {
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

fn push_step(steps: &mut Vec<PlacementStep>, object: ObjectId, from: u64, to: u64) {
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
    steps.push(PlacementStep { object, run: Run { lbn: Lbn::new(from), len: to - from } });
}
