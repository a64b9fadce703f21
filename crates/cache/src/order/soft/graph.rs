//! The graph of changes and their dependencies.
//!
//! Records live in a slab and are named by slot and generation, so that a stale name is recognised,
//! and counts as on the disk. Edges lead to older records, and a record that takes in a later
//! change takes in no new edges with it; only a pointer that has moved may come to wait for newer
//! ones, the contents and the bitmap of its new place, which wait for nothing. So the graph has no
//! cycles, and some record can always be written.
//!
//! There are two kinds of edge. A record **after** another in a different
//! place waits until the other is on the disk. A record **on** another, which
//! changes some of the same bytes, waits only until the other may be written:
//! they go in the same write, or are undone together.
//!
//! A **join** stands for several changes at once: a record of no bytes, held by no block, that goes
//! after them and is gone with the last of them. It is made for changes that would wait for ever
//! more others, one after the other: each waits for the last join, which waits for the one before,
//! and not for all of the changes again.
//!
//! The invariants that comments name by number are argued in
//! docs/design/order.md.

use super::actions::Actions;
use super::mutation::{Early, Mutation, describe};
use super::record::{Record, Waiter, Waiters};
use super::slots::Slots;
use super::undo::SpareUndos;
use crate::change::{ChangeId, Kind};
use crate::config::Counters;
use hashbrown::HashSet;
use seekless_units::ByteLen;
use smallvec::SmallVec;

/// Changes that are fetched together into the processor's cache, as many as it can wait for
/// at the same time.
pub(super) const AT_ONCE: usize = 16;

/// Waiters of a change that are looked at with it ([`Graph::fetch`]).
const FEW: usize = 4;

/// The graph, and the actions that wait for it.
pub(super) struct Graph<A> {
    slots: Slots,
    pub(super) actions: Actions<A>,
    records: usize,
    /// Bytes of all that is undone (invariant 5).
    undo: u64,
    /// Joins with all changes on the disk, whose waiters are still to be told. Empty between calls.
    met: Vec<ChangeId>,
    /// Memory of undo data that is not needed any more.
    pub(super) spare: SpareUndos,
    mutation: Option<Box<Mutation>>,
}

impl<A> Graph<A> {
    /// An empty graph; it forgets the order with the number `drop`.
    pub(super) fn new(drop: Option<u64>) -> Self {
        Self {
            slots: Slots::default(),
            actions: Actions::new(),
            records: 0,
            undo: 0,
            met: Vec::new(),
            spare: SpareUndos::default(),
            mutation: drop.map(|number| Box::new(Mutation::new(number))),
        }
    }

    /// Changes and actions in the graph.
    pub(super) fn len(&self) -> usize {
        self.records + self.actions.len()
    }

    pub(super) fn undo_bytes(&self) -> ByteLen {
        ByteLen::new(self.undo)
    }

    pub(super) fn get(&self, id: ChangeId) -> Option<&Record> {
        self.slots.get(id)
    }

    /// Whether a change is not on the disk.
    pub(super) fn has(&self, id: ChangeId) -> bool {
        self.slots.has(id)
    }

    /// All records, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ChangeId, &Record)> {
        self.slots.iter()
    }

    /// Whether a change elsewhere waits for this one to be on the disk, at once or by
    /// way of joins: a join waits for itself alone.
    pub(super) fn is_waited_for(&self, record: &Record) -> bool {
        self.is_waited_for_besides(record, &[])
    }

    /// As [`Graph::is_waited_for`], by a change that is not among some.
    fn is_waited_for_besides(&self, record: &Record, some: &[ChangeId]) -> bool {
        let after = |record: &Record, joins: &mut SmallVec<[ChangeId; 4]>| {
            record.waiters.iter().any(|waiter| match waiter {
                Waiter::After(id) => self.get(id).is_some_and(|record| {
                    if record.is_join() {
                        joins.push(id);
                    }
                    !record.is_join() && !some.contains(&id)
                }),
                Waiter::On(_) | Waiter::Action(_) => false,
            })
        };
        let mut joins = SmallVec::new();
        let mut found = after(record, &mut joins);
        // Each join is made of the one before, so that none comes twice but where a
        // change was joined with a join that has it already.
        let mut seen = HashSet::new();
        while !found && let Some(id) = joins.pop() {
            found = seen.insert(id) && self.get(id).is_some_and(|join| after(join, &mut joins));
        }
        found
    }

    /// Whether a later change to the same bytes stands on this one.
    pub(super) fn has_change_on(&self, record: &Record) -> bool {
        self.has_change_on_besides(record, &[])
    }

    fn has_change_on_besides(&self, record: &Record, some: &[ChangeId]) -> bool {
        record.waiters.iter().any(|waiter| match waiter {
            Waiter::On(id) => self.has(id) && !some.contains(&id),
            Waiter::After(_) | Waiter::Action(_) => false,
        })
    }

    /// Whether nothing of some changes can be on the disk, and no other change builds
    /// upon them.
    pub(super) fn stand_alone(&self, some: &[ChangeId]) -> bool {
        some.iter().all(|&id| {
            self.get(id).is_some_and(|record| {
                record.waiting > 0
                    && !self.is_waited_for_besides(record, some)
                    && !self.has_change_on_besides(record, some)
            })
        })
    }

    /// Whether a change that still stands builds upon this one in either way.
    pub(super) fn is_built_upon(&self, record: &Record) -> bool {
        self.is_waited_for(record) || self.has_change_on(record)
    }

    pub(super) fn get_mut(&mut self, id: ChangeId) -> Option<&mut Record> {
        self.slots.get_mut(id)
    }

    /// Prefetches records that are about to go, and then those that wait for them. By now they are
    /// in no processor's cache: each would be waited for alone where one leads to the next, but
    /// here no load depends on the one before.
    pub(super) fn fetch(&self, ids: &[ChangeId]) {
        self.look_at(ids.iter().copied());
        let waiters = |&id: &ChangeId| self.get(id).map(|record| record.waiters.iter());
        // Longer lists are prefetched when they are told.
        let first = ids.iter().filter_map(waiters).flat_map(|waiters| waiters.take(FEW));
        self.look_at(first.filter_map(Waiter::change));
    }

    fn look_at(&self, ids: impl Iterator<Item = ChangeId>) {
        let look = |id: ChangeId| self.get(id).map_or(0, |record| record.waiting);
        std::hint::black_box(ids.map(look).fold(0, u32::wrapping_add));
    }

    /// Adds a record that waits for `after` and lies on `on`. Its name, and whether it
    /// waits for anything.
    pub(super) fn insert(
        &mut self,
        mut record: Record,
        counters: &mut Counters,
    ) -> (ChangeId, bool) {
        let undo = record.undo.len();
        let new = self.slots.take();
        // A change that is named twice is waited for twice, and tells so twice.
        let mut waiting = 0;
        for &id in record.after() {
            waiting += u32::from(self.order(id, Waiter::After(new), counters));
        }
        for &id in record.on() {
            waiting += u32::from(self.order(id, Waiter::On(new), counters));
        }
        record.waiting = waiting;
        if let Some(lost) = self.take_lost() {
            record.take_out(lost);
            counters.dropped = describe(self, lost, record.waits(), Some(&record));
            self.watch(Early::Change(new), lost);
        }
        // A change that may be written at once is never rolled back, so that no undo data is kept
        // for it: the disk may show it with the next write of its block.
        let waits = record.waiting > 0;
        if waits {
            self.undo += undo;
        } else {
            self.spare.give(&mut record.undo);
        }
        let kind = record.role.kind() as usize;
        counters.made[kind] += 1;
        counters.live[kind] += 1;
        self.slots.put(new, record);
        self.records += 1;
        self.note_high_water(counters);
        (new, waits)
    }

    /// One name for several changes, which are on the disk when it is. `None` if they
    /// are.
    ///
    /// It asks for no order by itself, is no change and is counted as neither: there
    /// are no more joins than there were changes since the oldest that is not on the
    /// disk, which the syncer writes in its time.
    pub(super) fn join(&mut self, after: &[ChangeId]) -> Option<ChangeId> {
        let mut left = SmallVec::<[ChangeId; 3]>::new();
        for &id in after {
            if self.get(id).is_some() && !left.contains(&id) {
                left.push(id);
            }
        }
        let &[first, _, ..] = left.as_slice() else { return left.first().copied() };
        let role = self.get(first)?.role;
        let new = self.slots.take();
        let mut record = Record::join(role, &left);
        for id in left {
            record.waiting += u32::from(self.wait(id, Waiter::After(new)));
        }
        debug_assert!(record.waiting > 1, "each is in the graph");
        self.slots.put(new, record);
        Some(new)
    }

    fn note_high_water(&self, counters: &mut Counters) {
        counters.most_softdeps = counters.most_softdeps.max(self.len());
        counters.most_undo = counters.most_undo.max(ByteLen::new(self.undo));
    }

    /// Makes `waiter` wait for `id`; false when it need not: because that is on
    /// the disk, or for a change on the same bytes because that may be written,
    /// and both then go with the same write of their block.
    fn wait(&mut self, id: ChangeId, waiter: Waiter) -> bool {
        let Some(record) = self.get_mut(id) else { return false };
        // Both are bytes of one block: no copy of it shows the later one without this one.
        if matches!(waiter, Waiter::On(_)) && record.waiting == 0 {
            return false;
        }
        record.waiters.push(waiter);
        true
    }

    /// As [`Graph::wait`], for an order that a format asks for: counts it, and
    /// forgets the one that shall be forgotten.
    fn order(&mut self, id: ChangeId, waiter: Waiter, counters: &mut Counters) -> bool {
        if self.mutation.is_some() && self.would_wait(id, waiter) {
            let number = counters.orders;
            if self.mutation.as_mut().is_some_and(|mutation| mutation.forgets(number, id)) {
                counters.orders += 1;
                return false;
            }
        }
        let waits = self.wait(id, waiter);
        counters.orders += u64::from(waits);
        waits
    }

    fn would_wait(&self, id: ChangeId, waiter: Waiter) -> bool {
        let needless = |record: &Record| matches!(waiter, Waiter::On(_)) && record.waiting == 0;
        self.get(id).is_some_and(|record| !needless(record))
    }

    fn take_lost(&mut self) -> Option<ChangeId> {
        self.mutation.as_mut()?.take_lost()
    }

    fn watch(&mut self, early: Early, late: ChangeId) {
        if let Some(mutation) = &mut self.mutation {
            mutation.watch(early, late);
        }
    }

    /// An action to be done once all of `after` is on the disk.
    pub(super) fn defer(
        &mut self,
        after: &[ChangeId],
        kind: Kind,
        action: A,
        counters: &mut Counters,
    ) {
        let slot = self.actions.number();
        let mut waiting = 0;
        for &id in after {
            waiting += u32::from(self.order(id, Waiter::Action(slot), counters));
        }
        if let Some(lost) = self.take_lost() {
            let mut others = SmallVec::<[ChangeId; 3]>::from_slice(after);
            others.iter().position(|&id| id == lost).map(|at| others.remove(at));
            counters.dropped = describe(self, lost, &others, None);
            self.watch(Early::Action(slot), lost);
        }
        counters.made[kind as usize] += 1;
        if self.actions.hold(slot, waiting, kind, action) {
            counters.live[kind as usize] += 1;
            self.note_high_water(counters);
        } else {
            self.note_ready(slot, counters);
        }
    }

    /// A record is on the disk, or as good as: takes it out and tells those
    /// that wait. Those that may now be written are appended to `freed`.
    pub(super) fn commit(
        &mut self,
        id: ChangeId,
        freed: &mut Vec<ChangeId>,
        counters: &mut Counters,
    ) {
        let Some(waiters) = self.take_waiters(id, counters) else { return };
        if let Some(mutation) = &self.mutation {
            mutation.note_commit(self, id, !waiters.is_empty(), counters);
        }
        self.tell(&waiters, freed, counters);
        self.tell_of_joins(freed, counters);
    }

    fn tell(&mut self, waiters: &Waiters, freed: &mut Vec<ChangeId>, counters: &mut Counters) {
        for some in waiters.in_parts(AT_ONCE) {
            // Fewer were touched before, together with their dependencies.
            if some.len() > FEW {
                self.look_at(some.clone().filter_map(Waiter::change));
            }
            for waiter in some {
                match waiter {
                    Waiter::After(id) | Waiter::On(id) => self.satisfy(id, freed),
                    Waiter::Action(slot) => self.satisfy_action(slot, counters),
                }
            }
        }
    }

    /// Joins with all changes on the disk count as on the disk too, and with them the joins that
    /// wait for nothing but those: thousands may, so that this does not recurse.
    fn tell_of_joins(&mut self, freed: &mut Vec<ChangeId>, counters: &mut Counters) {
        while let Some(id) = self.met.pop() {
            if let Some(waiters) = self.take_waiters(id, counters) {
                self.tell(&waiters, freed, counters);
            }
        }
    }

    fn note_ready(&self, slot: u32, counters: &mut Counters) {
        if let Some(mutation) = &self.mutation {
            mutation.note_ready(self, slot, counters);
        }
    }

    fn note_moot(&self, id: ChangeId, counters: &mut Counters) {
        if let Some(mutation) = &self.mutation {
            mutation.note_moot(self, id, counters);
        }
    }

    /// As [`Graph::commit`], but the actions that waited wait for `instead`, at once or by
    /// way of a join: no change waits behind one, or the record would be kept.
    pub(super) fn dissolve(
        &mut self,
        id: ChangeId,
        instead: ChangeId,
        freed: &mut Vec<ChangeId>,
        counters: &mut Counters,
    ) {
        self.note_moot(id, counters);
        let Some(record) = self.take(id, counters) else { return };
        for waiter in record.waiters.iter() {
            match waiter {
                Waiter::After(id) if self.get(id).is_some_and(Record::is_join) => {
                    if !self.wait(instead, waiter) {
                        self.satisfy(id, freed);
                    } else if let Some(join) = self.get_mut(id) {
                        join.push_after(instead);
                    }
                }
                Waiter::After(id) | Waiter::On(id) => self.satisfy(id, freed),
                Waiter::Action(slot) => {
                    if !self.wait(instead, Waiter::Action(slot)) {
                        self.satisfy_action(slot, counters);
                    }
                }
            }
        }
        self.tell_of_joins(freed, counters);
    }

    /// A record's undo data in some fragments of its block matters no more.
    pub(super) fn forget_undo(&mut self, id: ChangeId, fragment: u32, mask: u64) {
        let Some(record) = self.get_mut(id) else { return };
        let before = record.undo.len();
        record.undo = record.undo.outside(fragment, mask);
        // Two pieces may take more than the one that they are left of.
        let after = record.undo.len();
        debug_assert!(self.undo >= before, "what is kept to undo with was counted");
        self.undo = self.undo - before + after;
    }

    /// Takes a record out that will never be on the disk, without telling its waiters.
    pub(super) fn take_back(&mut self, id: ChangeId, counters: &mut Counters) -> Option<Record> {
        self.note_moot(id, counters);
        self.take(id, counters)
    }

    /// As [`Graph::commit`], of a record that was undone.
    pub(super) fn revoke(
        &mut self,
        id: ChangeId,
        freed: &mut Vec<ChangeId>,
        counters: &mut Counters,
    ) {
        self.note_moot(id, counters);
        if let Some(mutation) = &mut self.mutation {
            mutation.note_undone(id);
        }
        self.commit(id, freed, counters);
    }

    /// Takes a record or a join out, without telling its waiters.
    fn remove(&mut self, id: ChangeId, counters: &mut Counters) -> Option<Record> {
        let record = self.slots.remove(id)?;
        debug_assert!(self.undo >= record.undo.len(), "what is kept to undo with was counted");
        self.undo -= record.undo.len();
        if !record.is_join() {
            self.records -= 1;
            counters.live[record.role.kind() as usize] -= 1;
        }
        Some(record)
    }

    /// As [`Graph::remove`], but returns only the waiters.
    fn take_waiters(&mut self, id: ChangeId, counters: &mut Counters) -> Option<Waiters> {
        let mut record = self.remove(id, counters)?;
        self.spare.give(&mut record.undo);
        Some(record.waiters)
    }

    /// Takes a record out, without telling its waiters.
    fn take(&mut self, id: ChangeId, counters: &mut Counters) -> Option<Record> {
        let record = self.remove(id, counters)?;
        debug_assert!(!record.is_join(), "no block holds it, so that nobody takes it out");
        Some(record)
    }

    /// A change has one dependency less. A change that was taken back meanwhile is still named by
    /// its former dependencies.
    fn satisfy(&mut self, id: ChangeId, freed: &mut Vec<ChangeId>) {
        let Some(record) = self.get_mut(id) else { return };
        debug_assert!(record.waiting > 0, "told more often than it waits");
        record.waiting -= 1;
        if record.waiting > 0 {
            return;
        }
        if record.is_join() {
            self.met.push(id);
        } else {
            self.set_free(id, freed);
        }
    }

    /// A record may be written: it needs no undo any more, nor do those that
    /// lie on it wait for it.
    fn set_free(&mut self, id: ChangeId, freed: &mut Vec<ChangeId>) {
        let Some(record) = self.slots.get_mut(id) else {
            debug_assert!(false, "only what waits becomes free");
            return;
        };
        debug_assert_eq!(record.waiting, 0, "it still waits");
        let undo = record.undo.len();
        self.spare.give(&mut record.undo);
        record.waits_no_more();
        let on = record.waiters.take_on();
        debug_assert!(self.undo >= undo, "what is kept to undo with was counted");
        self.undo -= undo;
        freed.push(id);
        for id in on {
            self.satisfy(id, freed);
        }
    }

    fn satisfy_action(&mut self, slot: u32, counters: &mut Counters) {
        if let Some(kind) = self.actions.satisfy(slot) {
            self.note_ready(slot, counters);
            counters.live[kind as usize] -= 1;
        }
    }

    /// Lets those that waited for something else wait for `id`. That was taken
    /// out without telling them, so that they go on counting it: as `id` now.
    pub(super) fn wait_instead(&mut self, id: ChangeId, waiters: &Waiters) {
        debug_assert!(waiters.is_empty() || self.get(id).is_some(), "nobody would ever tell them");
        for waiter in waiters.iter() {
            let alive = match waiter {
                Waiter::After(waiting) => match self.get_mut(waiting) {
                    Some(record) => {
                        record.push_after(id);
                        true
                    }
                    None => false,
                },
                Waiter::Action(_) => true,
                // Changes that others stand on are not made void.
                Waiter::On(waiting) => {
                    debug_assert!(self.get(waiting).is_none(), "it would wait for ever");
                    false
                }
            };
            if let Some(record) = self.get_mut(id).filter(|_| alive) {
                record.waiters.push(waiter);
            }
        }
    }

    /// A waiting record shall wait for `after` and nothing else (the changes it lies on excepted).
    /// Those that may now be written are appended to `freed`.
    pub(super) fn rewire(
        &mut self,
        id: ChangeId,
        after: &[ChangeId],
        freed: &mut Vec<ChangeId>,
        counters: &mut Counters,
    ) {
        self.note_moot(id, counters);
        let Some(record) = self.get_mut(id) else { return };
        debug_assert!(record.waiting > 0, "what may be written waits for nothing more");
        let before = SmallVec::<[ChangeId; 3]>::from_slice(record.after());
        record.set_after(&[]);
        let waiter = Waiter::After(id);
        // Changes that are on the disk have told it so already, and are no longer counted; of all
        // others, every mention goes.
        let mut gone = 0;
        for old in before {
            if let Some(old) = self.get_mut(old) {
                gone += old.waiters.take_out(waiter);
            }
        }
        let mut new = 0;
        for &order in after {
            new += u32::from(self.order(order, waiter, counters));
        }
        let lost = self.take_lost();
        let Some(record) = self.get_mut(id) else { return };
        record.set_after(after);
        if let Some(lost) = lost {
            record.take_out(lost);
        }
        // The changes it lies on are counted as well, and stay.
        debug_assert!(record.waiting >= gone, "more waited for than was counted");
        let waiting = record.waiting - gone + new;
        record.waiting = waiting;
        if let (Some(lost), Some(record)) = (lost, self.get(id)) {
            counters.dropped = describe(self, lost, record.waits(), Some(record));
        }
        if waiting == 0 {
            self.set_free(id, freed);
        }
    }
}
