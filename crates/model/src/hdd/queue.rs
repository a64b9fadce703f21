//! Entries that wait for the heads, in the order of cylinders.

use super::Waiting;
use super::spec::{Policy, QueueSpec};
use crate::request::Op;
use seekless_units::Nanos;
use std::collections::{BTreeMap, VecDeque};
use std::iter::{from_fn, successors};
use std::ops::ControlFlow;

/// The key of a waiting entry: cylinder, then age. The cylinder is 0 for policies that ignore
/// cylinders.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct QueueKey {
    cylinder: u32,
    nth: u64,
}

/// Waiting entries, sorted by cylinder, so that the policy's next one is found near the heads
/// without examining all.
#[derive(Clone, Debug)]
pub(super) struct Sweep<T> {
    policy: Policy,
    pushed: u64,
    waiting: BTreeMap<QueueKey, T>,
}

impl<T> Sweep<T> {
    pub(super) fn new(policy: Policy) -> Self {
        Self { policy, pushed: 0, waiting: BTreeMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, cylinder: u32, one: T) {
        let cylinder = if self.policy == Policy::Fifo { 0 } else { cylinder };
        self.waiting.insert(QueueKey { cylinder, nth: self.pushed }, one);
        self.pushed += 1;
    }

    pub(super) fn find(&self, wanted: impl Fn(&T) -> bool) -> Option<QueueKey> {
        self.waiting.iter().find(|(_, one)| wanted(one)).map(|(&spot, _)| spot)
    }

    pub(super) fn get_mut(&mut self, spot: QueueKey) -> Option<&mut T> {
        self.waiting.get_mut(&spot)
    }

    pub(super) fn remove(&mut self, spot: QueueKey) -> Option<T> {
        self.waiting.remove(&spot)
    }

    /// The entry that can start first, with its time; among equals the one that the policy prefers,
    /// with the heads at `here`. Nothing starts before `soonest`: the search ends with the first
    /// entry that starts then.
    pub(super) fn earliest(
        &self,
        here: u32,
        soonest: Nanos,
        mut start: impl FnMut(&T) -> Option<Nanos>,
    ) -> Option<(Nanos, QueueKey)> {
        let mut best: Option<(Nanos, QueueKey)> = None;
        let look = |(&spot, one): (&QueueKey, &T)| {
            if let Some(at) = start(one)
                && best.is_none_or(|best| at < best.0)
            {
                best = Some((at, spot));
                if at <= soonest {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        };
        let _ = match self.policy {
            Policy::Fifo => self.waiting.iter().try_for_each(look),
            Policy::Sstf => self.nearest(here).try_for_each(look),
            Policy::CLook => self.from(here).chain(self.below(here)).try_for_each(look),
        };
        best
    }

    /// All entries on `cylinder` and above, rising.
    fn from(&self, cylinder: u32) -> impl DoubleEndedIterator<Item = (&QueueKey, &T)> {
        self.waiting.range(QueueKey { cylinder, nth: 0 }..)
    }

    /// All entries below `cylinder`, rising.
    fn below(&self, cylinder: u32) -> impl DoubleEndedIterator<Item = (&QueueKey, &T)> {
        self.waiting.range(..QueueKey { cylinder, nth: 0 })
    }

    /// All entries by their distance from a cylinder; the oldest first among equals.
    fn nearest(&self, here: u32) -> impl Iterator<Item = (&QueueKey, &T)> {
        let next_below =
            move |cylinder: u32| self.below(cylinder).next_back().map(|(spot, _)| spot.cylinder);
        let falling = successors(next_below(here), move |&cylinder| next_below(cylinder)).flat_map(
            |cylinder| {
                let last = QueueKey { cylinder, nth: u64::MAX };
                self.waiting.range(QueueKey { cylinder, nth: 0 }..=last)
            },
        );
        let (mut falling, mut rising) = (falling.peekable(), self.from(here).peekable());
        let rank = move |spot: &QueueKey| (spot.cylinder.abs_diff(here), spot.nth);
        from_fn(move || match (falling.peek(), rising.peek()) {
            (Some((low, _)), Some((high, _))) if rank(low) < rank(high) => falling.next(),
            (Some(_), None) => falling.next(),
            _ => rising.next(),
        })
    }
}

/// The requests that the drive has not started.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    /// Those among which it may choose, without flushes.
    seen: Sweep<Waiting>,
    /// The others, by age.
    outside: VecDeque<Waiting>,
    depth: usize,
}

impl Queue {
    pub(super) fn new(spec: &QueueSpec) -> Self {
        let seen = Sweep::new(spec.policy);
        Self { seen, outside: VecDeque::new(), depth: spec.depth as usize }
    }

    pub(super) fn len(&self) -> usize {
        self.seen.len() + self.outside.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The requests among which the drive may choose.
    pub(super) fn seen(&self) -> &Sweep<Waiting> {
        &self.seen
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.outside.push_back(waiting);
        self.fill();
    }

    pub(super) fn take(&mut self, spot: QueueKey) -> Option<Waiting> {
        let taken = self.seen.remove(spot);
        self.fill();
        taken
    }

    /// The flush at the front of the queue, once all requests before it are taken.
    pub(super) fn flush(&self) -> Option<&Waiting> {
        self.outside.front().filter(|_| self.seen.is_empty())
    }

    pub(super) fn take_flush(&mut self) -> Option<Waiting> {
        let flush = self.outside.pop_front();
        self.fill();
        flush
    }

    /// Makes as many requests visible as the drive can see, up to a flush.
    fn fill(&mut self) {
        while self.seen.len() < self.depth
            && let Some(&next) = self.outside.front()
            && next.request.op != Op::Flush
        {
            self.outside.pop_front();
            self.seen.push(next.cylinder, next);
        }
    }
}

#[cfg(test)]
impl<T> Sweep<T> {
    pub(super) fn get(&self, spot: QueueKey) -> &T {
        &self.waiting[&spot]
    }

    /// All entries by age, each with its key and the cylinder in it.
    pub(super) fn by_age(&self) -> Vec<(QueueKey, u32, &T)> {
        let mut all: Vec<_> =
            self.waiting.iter().map(|(&spot, one)| (spot, spot.cylinder, one)).collect();
        all.sort_by_key(|one| one.0.nth);
        all
    }
}
