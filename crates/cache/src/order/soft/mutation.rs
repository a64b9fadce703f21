//! Forgets one order between changes, to test whether a search of crash states would notice
//! ([`Config::drop_order`](crate::Config::drop_order)). It watches a graph, decides which order is
//! forgotten, and describes the consequences; without it a graph counts its orders and nothing
//! else.

use super::graph::Graph;
use super::record::Record;
use super::undo::Undo;
use crate::change::ChangeId;
use crate::config::{Counters, Dropped};
use hashbrown::HashSet;

/// The change or action that goes too early since an order was forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Early {
    Change(ChangeId),
    Action(u32),
}

/// The order to be forgotten, and its fate.
pub(super) struct Mutation {
    /// Its number, as [`Counters::orders`] counts.
    number: u64,
    /// The change that the order just forgotten would have waited for, until its waiter is known.
    lost: Option<ChangeId>,
    /// The one that goes too early, and the change it should have waited for.
    misled: Option<(Early, ChangeId)>,
}

impl Mutation {
    pub(super) fn new(number: u64) -> Self {
        Self { number, lost: None, misled: None }
    }

    /// Whether the order with this number, for something to wait for `id`, is to
    /// be forgotten.
    pub(super) fn forgets(&mut self, number: u64, id: ChangeId) -> bool {
        let forgotten = number == self.number;
        if forgotten {
            self.lost = Some(id);
        }
        forgotten
    }

    /// The change that something no longer waits for, if the order was just
    /// forgotten.
    pub(super) fn take_lost(&mut self) -> Option<ChangeId> {
        self.lost.take()
    }

    /// From now on this goes too early.
    pub(super) fn watch(&mut self, early: Early, late: ChangeId) {
        self.misled = Some((early, late));
    }

    /// Notes that a change is on the disk: whether it is there too early, and whether others wait
    /// for it.
    pub(super) fn note_commit<A>(
        &self,
        graph: &Graph<A>,
        id: ChangeId,
        waited_for: bool,
        counters: &mut Counters,
    ) {
        let Some((Early::Change(early), late)) = self.misled else { return };
        let Some(dropped) = &mut counters.dropped else { return };
        if early == id && graph.get(late).is_some() {
            dropped.shown = true;
            dropped.misled |= waited_for;
        }
    }

    /// Notes that an action is ready: whether it is too early.
    pub(super) fn note_ready<A>(&self, graph: &Graph<A>, slot: u32, counters: &mut Counters) {
        let Some((Early::Action(early), late)) = self.misled else { return };
        let Some(dropped) = &mut counters.dropped else { return };
        dropped.shown |= early == slot && graph.get(late).is_some();
    }

    /// Notes that a change gets other orders, or will never be on the disk: before it was, or
    /// before the change that it should have waited for was.
    pub(super) fn note_moot<A>(&self, graph: &Graph<A>, id: ChangeId, counters: &mut Counters) {
        let Some((Early::Change(early), late)) = self.misled else { return };
        let Some(dropped) = &mut counters.dropped else { return };
        let in_time = graph.get(early).is_some() && graph.get(late).is_some();
        dropped.moot |= in_time && (id == early || id == late);
    }

    /// A change was undone: it goes nowhere, and not too early either.
    pub(super) fn note_undone(&mut self, id: ChangeId) {
        if self.misled.is_some_and(|(early, _)| early == Early::Change(id)) {
            self.misled = None;
        }
    }
}

/// The consequences of the loss of an order for its waiter, a change or an action, which still
/// waits for `others`.
pub(super) fn describe<A>(
    graph: &Graph<A>,
    lost: ChangeId,
    others: &[ChangeId],
    waiter: Option<&Record>,
) -> Option<Dropped> {
    let before = graph.get(lost)?;
    let inseparable = waiter.is_some_and(|waiter| {
        before.waiting == 0
            && before.block == waiter.block
            && (before.mask | waiter.mask).count_ones() == 1
    });
    let covers = |undo: Undo<'_>| before.undo.covers(undo.offset as usize, undo.end() as usize);
    let covered =
        waiter.is_some_and(|waiter| waiter.block == before.block && waiter.undo.iter().all(covers));
    let waited_for = closure(graph, others);
    // A writable change goes with any other in its block.
    let goes_along = |id: &ChangeId| {
        before.waiting == 0 && graph.get(*id).is_some_and(|other| other.block == before.block)
    };
    let implied = waited_for.contains(&lost) || waited_for.iter().any(goes_along);
    Some(Dropped {
        before: before.role,
        after: waiter.map(|waiter| waiter.role),
        implied,
        inseparable,
        covered,
        misled: false,
        shown: false,
        moot: false,
        late: late(graph, lost, &waited_for),
    })
}

/// Some changes, and all that they wait for.
pub(super) fn closure<A>(graph: &Graph<A>, ids: &[ChangeId]) -> HashSet<ChangeId> {
    let mut seen = HashSet::new();
    let mut stack = ids.to_vec();
    while let Some(id) = stack.pop() {
        let Some(record) = graph.get(id).filter(|_| seen.insert(id)) else { continue };
        stack.extend_from_slice(record.waits());
    }
    seen
}

/// Blocks that keep a change from the disk if they are late, and not those of
/// `others`.
fn late<A>(graph: &Graph<A>, lost: ChangeId, others: &HashSet<ChangeId>) -> [Option<u64>; 4] {
    let writable = |id: &ChangeId| graph.get(*id).filter(|record| record.waiting == 0);
    let needed: HashSet<u64> = others.iter().filter_map(writable).map(|r| r.block).collect();
    let mut blocks: Vec<u64> =
        closure(graph, &[lost]).iter().filter_map(writable).map(|r| r.block).collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks.retain(|block| !needed.contains(block));
    blocks.truncate(3);
    blocks.extend(graph.get(lost).map(|record| record.block));
    blocks.dedup();
    let mut late = [None; 4];
    late.iter_mut().zip(blocks).for_each(|(to, block)| *to = Some(block));
    late
}
