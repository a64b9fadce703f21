//! Changes that are held back, and their effect on earlier ones to the same bytes.

use super::record::{Record, Waiters};
use super::undo::{SpareUndos, Undos};
use super::{ChangeId, Memory, Soft};
use crate::change::Changed;
use crate::order::block_changes::Blocked;
use crate::order::change::Change;
use crate::shape::{Place, hull};
use smallvec::SmallVec;

/// The undo data and waiters of changes that were made void.
#[derive(Default)]
struct Void {
    /// Their undo data, the newest first.
    undo: Vec<Undos>,
    waiters: Waiters,
}

impl<A> Soft<A> {
    pub(in crate::order) fn touches_blocked(&self, memory: &Memory, place: Place) -> bool {
        self.under(memory, place.block, &[place]).next().is_some()
    }

    /// Makes a change, in these steps:
    ///
    /// 1. changes under it that it makes void go, and it takes over their undo data;
    /// 2. the newest change under it takes it in, if that asks for nothing new;
    /// 3. nothing lies under it and nothing precedes it: it may be written, and no
    ///    undo is kept;
    /// 4. otherwise it becomes a record that waits.
    pub(in crate::order) fn changed(
        &mut self,
        memory: &mut Memory,
        change: &Change<'_>,
    ) -> Changed {
        let &Change { block, places, pieces, role, after, replace } = change;
        let mask = change.mask();
        let after: SmallVec<[ChangeId; 3]> =
            after.iter().copied().filter(|&id| self.graph.has(id)).collect();
        let makes_void = after.is_empty() && role.makes_void();
        let mut under = if makes_void || replace.is_some() {
            self.under(memory, block, places).collect()
        } else {
            self.nearest_under(memory, block, places)
        };
        // Before the newest takes it in, which would keep void changes alive.
        let voided =
            if makes_void { self.void(memory, block, &mut under, places) } else { Void::default() };
        if let Some(&id) = under.first()
            && voided.undo.is_empty()
            && let Some(changed) = self.take_in(memory, id, &under, places, &after, replace)
        {
            memory.put(block, places, pieces);
            return changed;
        }
        if after.is_empty() && under.is_empty() {
            memory.put(block, places, pieces);
            memory.mark_dirty(block, mask, role);
            let id = self.open_record(memory, block, mask, role);
            self.graph.wait_instead(id, &voided.waiters);
            return Changed { id, replaced: false };
        }
        let mut undo = keep(memory, block, places, &mut self.graph.spare);
        voided.undo.iter().for_each(|old| undo.lay_over(old));
        memory.put(block, places, pieces);
        let on = self.uppermost(&under);
        let mut record = Record::new(block, mask, role);
        record.undo = undo;
        record.wait_for(&after, &on);
        let (id, waits) = self.graph.insert(record, &mut memory.counters);
        self.graph.wait_instead(id, &voided.waiters);
        if let Some(buffer) = memory.buffers.get_mut(block) {
            if waits {
                let (start, end) = hull(places);
                let parts = memory.shape.parts(start, end);
                let fragments = memory.shape.mask(start as usize, end as usize);
                buffer.held.block(Blocked { id, start, end }, parts, fragments);
            } else {
                buffer.held.open.push(id)
            }
            buffer.dirty |= if waits { 0 } else { mask };
            buffer.metadata |= !role.is_contents();
            if buffer.due.is_none() {
                memory.schedule(block, role);
            }
        }
        Changed { id, replaced: false }
    }

    /// The waiting changes to any of these bytes, newest first.
    fn under<'a>(
        &'a self,
        memory: &'a Memory,
        block: u64,
        places: &'a [Place],
    ) -> impl Iterator<Item = ChangeId> + 'a {
        let (start, end) = hull(places);
        let parts = memory.shape.parts(start, end);
        let blocked = memory.buffers.get(block).map_or(&[][..], |b| b.held.blocked_near(parts));
        let near = move |blocked: &&Blocked| blocked.start < end && blocked.end > start;
        let touches = move |id: &ChangeId| {
            self.graph
                .get(*id)
                .is_some_and(|record| record.undo.iter().any(|undo| undo.touches(places)))
        };
        blocked.iter().rev().filter(near).map(|blocked| blocked.id).filter(touches)
    }

    /// The newest of [`Soft::under`], up to one that touches all of these bytes.
    /// The others need not be known: each lies under that one, at once or by way
    /// of others, since it was there when that was made. Where one name goes and
    /// comes many times there may be thousands of them.
    fn nearest_under(
        &self,
        memory: &Memory,
        block: u64,
        places: &[Place],
    ) -> SmallVec<[ChangeId; 4]> {
        let mut found = SmallVec::new();
        for id in self.under(memory, block, places) {
            found.push(id);
            if self.graph.get(id).is_some_and(|record| record.undo.covers_all(places)) {
                break;
            }
        }
        found
    }

    /// Of changes to the same bytes, newest first, those that do not lie under
    /// another of them.
    fn uppermost(&self, under: &[ChangeId]) -> SmallVec<[ChangeId; 2]> {
        let mut covered = SmallVec::<[ChangeId; 8]>::new();
        let mut top = SmallVec::new();
        for &id in under {
            if !covered.contains(&id) {
                top.push(id);
            }
            if let Some(record) = self.graph.get(id) {
                covered.extend_from_slice(record.on());
            }
        }
        top
    }

    /// Takes out the waiting changes that a change to `places` makes void, because it covers all
    /// their bytes: their dependencies need not be on the disk any more. The newest come first, and
    /// none goes while a change upon it stays.
    fn void(
        &mut self,
        memory: &mut Memory,
        block: u64,
        under: &mut SmallVec<[ChangeId; 4]>,
        places: &[Place],
    ) -> Void {
        let mut voided = Void::default();
        let mut stay = SmallVec::new();
        for &id in under.iter() {
            let Some(record) = self.graph.get(id) else { continue };
            let covered = record.undo.iter().all(|undo| undo.lies_within(places));
            if !covered || self.graph.has_change_on(record) {
                stay.push(id);
                continue;
            }
            let Some(record) = self.graph.take_back(id, &mut memory.counters) else { continue };
            voided.undo.push(record.undo);
            record.waiters.iter().for_each(|waiter| voided.waiters.push(waiter));
            if let Some(buffer) = memory.buffers.get_mut(block) {
                buffer.held.unblock(&[id]);
            }
        }
        *under = stay;
        voided
    }

    /// Lets the newest waiting change `id` take in a change to some of its own
    /// bytes, when that asks for nothing new; or when it shall be replaced.
    /// Nothing newer touches these bytes, so nothing newer undoes to them.
    fn take_in(
        &mut self,
        memory: &mut Memory,
        id: ChangeId,
        under: &[ChangeId],
        places: &[Place],
        after: &[ChangeId],
        replace: Option<&[ChangeId]>,
    ) -> Option<Changed> {
        let record = self.graph.get_mut(id)?;
        if !record.undo.covers_all(places) {
            return None;
        }
        if after.iter().all(|wanted| record.after().contains(wanted)) {
            record.took_in = true;
            return Some(Changed { id, replaced: false });
        }
        // Changes under it with other pieces would still be waited for.
        let dropped = replace.filter(|_| under.len() == 1)?;
        let mut wanted: SmallVec<[ChangeId; 3]> = SmallVec::from_slice(after);
        let kept = record.after().iter().filter(|id| !dropped.contains(id) && !after.contains(id));
        wanted.extend(kept.copied());
        let mut freed = Vec::new();
        self.graph.rewire(id, &wanted, &mut freed, &mut memory.counters);
        self.unblock(memory, &freed);
        Some(Changed { id, replaced: true })
    }
}

/// The bytes at some places as they are.
fn keep(memory: &Memory, block: u64, places: &[Place], spare: &mut SpareUndos) -> Undos {
    let Some(buffer) = memory.buffers.get(block) else {
        debug_assert!(false, "its pieces were loaded");
        return Undos::default();
    };
    spare.copy(&buffer.bytes, places)
}
