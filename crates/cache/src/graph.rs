//! The graph of changes: who waits for whom.
//!
//! Records live in a slab and are named by slot and generation, so that a name
//! kept too long is known to be of something that is on the disk. Edges lead to
//! older records, and a record that takes in a later change takes in no new
//! edges with it; only a pointer that has moved may come to wait for newer ones,
//! the contents and the bitmap of its new place, which wait for nothing. So the
//! graph has no cycles, and some record can always be written.
//!
//! There are two kinds of edge. A record **after** another in a different
//! place waits until the other is on the disk. A record **on** another, which
//! changes some of the same bytes, waits only until the other may be written:
//! they go in the same write, or are undone together.

use crate::change::{ChangeId, Kind, Role};
use crate::config::{Counters, Dropped};
use hashbrown::HashSet;
use seekless_units::ByteLen;
use smallvec::SmallVec;
use std::num::NonZeroU32;

/// Bytes as they were before a change.
#[derive(Clone, Debug)]
pub(crate) struct Undo {
    /// From the start of the block.
    pub(crate) offset: u32,
    pub(crate) bytes: SmallVec<[u8; 32]>,
}

impl Undo {
    pub(crate) fn end(&self) -> u32 {
        debug_assert!(self.bytes.len() <= (u32::MAX - self.offset) as usize, "out of its block");
        self.offset + self.bytes.len() as u32
    }

    /// Appends what of it lies outside some fragments, in as few parts as there
    /// are.
    fn outside(self, fragment: u32, mask: u64, kept: &mut Undos) {
        let own = kept.len();
        let mut at = self.offset;
        while at < self.end() {
            let number = at / fragment;
            let end = ((number + 1) * fragment).min(self.end());
            if mask & (1 << number) == 0 {
                let from = (at - self.offset) as usize..(end - self.offset) as usize;
                let bytes = &self.bytes[from];
                match kept[own..].last_mut() {
                    Some(last) if last.end() == at => last.bytes.extend_from_slice(bytes),
                    _ => kept.push(Self { offset: at, bytes: SmallVec::from_slice(bytes) }),
                }
            }
            at = end;
        }
    }
}

pub(crate) type Undos = SmallVec<[Undo; 2]>;

/// What an edge leads from: something that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waiter {
    /// A change that goes after.
    After(ChangeId),
    /// A change to the same bytes.
    On(ChangeId),
    /// An action for when all it waits for is on the disk.
    Action(u32),
}

/// What goes too early since an order was forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Early {
    Change(ChangeId),
    Action(u32),
}

/// A change in the graph.
#[derive(Debug)]
pub(crate) struct Record {
    /// The buffer it changed.
    pub(crate) block: u64,
    pub(crate) role: Role,
    /// The fragments of the block that it touches.
    pub(crate) mask: u64,
    /// What it undoes; empty when it needs no undoing.
    pub(crate) undo: Undos,
    /// How many records it still waits for. Zero: it may be written.
    pub(crate) waiting: u32,
    /// What it waits for or waited for.
    pub(crate) after: SmallVec<[ChangeId; 3]>,
    /// Those under it in the same bytes.
    pub(crate) on: SmallVec<[ChangeId; 2]>,
    pub(crate) waiters: SmallVec<[Waiter; 3]>,
    /// It has taken in later changes: undoing it would undo those too.
    pub(crate) took_in: bool,
}

impl Record {
    fn undo_bytes(&self) -> u64 {
        self.undo.iter().map(|undo| undo.bytes.len() as u64).sum()
    }
}

struct Slot {
    generation: NonZeroU32,
    record: Option<Record>,
}

struct Deferred<A> {
    waiting: u32,
    kind: Kind,
    action: A,
}

/// The graph, and the actions that wait for it.
pub(crate) struct Graph<A> {
    slots: Vec<Slot>,
    free: Vec<u32>,
    actions: Vec<Option<Deferred<A>>>,
    free_actions: Vec<u32>,
    /// Actions that need wait no longer, in the order they became so.
    ready: std::collections::VecDeque<A>,
    records: usize,
    deferred: usize,
    undo: u64,
    /// The number of the order that is forgotten.
    drop: Option<u64>,
    /// The change that the order just forgotten would have waited for.
    lost: Option<ChangeId>,
    /// A change that goes too early, and what it should have waited for.
    misled: Option<(Early, ChangeId)>,
}

impl<A> Graph<A> {
    pub(crate) fn new(drop: Option<u64>) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            actions: Vec::new(),
            free_actions: Vec::new(),
            ready: std::collections::VecDeque::new(),
            records: 0,
            deferred: 0,
            undo: 0,
            drop,
            lost: None,
            misled: None,
        }
    }

    /// Changes and actions in the graph.
    pub(crate) fn len(&self) -> usize {
        self.records + self.deferred
    }

    pub(crate) fn undo_bytes(&self) -> ByteLen {
        ByteLen::new(self.undo)
    }

    pub(crate) fn get(&self, id: ChangeId) -> Option<&Record> {
        let slot = self.slots.get(id.slot as usize)?;
        if Some(slot.generation) != id.generation {
            return None;
        }
        slot.record.as_ref()
    }

    /// Whether a change elsewhere waits for this one to be on the disk.
    pub(crate) fn is_waited_for(&self, record: &Record) -> bool {
        record.waiters.iter().any(|waiter| match *waiter {
            Waiter::After(id) => self.get(id).is_some(),
            Waiter::On(_) | Waiter::Action(_) => false,
        })
    }

    /// Whether a later change to the same bytes stands on this one.
    pub(crate) fn has_change_on(&self, record: &Record) -> bool {
        record.waiters.iter().any(|waiter| match *waiter {
            Waiter::On(id) => self.get(id).is_some(),
            Waiter::After(_) | Waiter::Action(_) => false,
        })
    }

    /// Whether a change that still stands builds upon this one in either way.
    pub(crate) fn is_built_upon(&self, record: &Record) -> bool {
        self.is_waited_for(record) || self.has_change_on(record)
    }

    pub(crate) fn get_mut(&mut self, id: ChangeId) -> Option<&mut Record> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if Some(slot.generation) != id.generation {
            return None;
        }
        slot.record.as_mut()
    }

    /// The name of what lies in a slot.
    pub(crate) fn id(&self, slot: u32) -> ChangeId {
        let generation = self.slots.get(slot as usize).map(|slot| slot.generation);
        ChangeId { slot, generation }
    }

    /// Adds a record that waits for `after` and lies on `on`.
    pub(crate) fn insert(&mut self, mut record: Record, counters: &mut Counters) -> ChangeId {
        let undo = record.undo_bytes();
        let slot = self.free.pop().unwrap_or_else(|| {
            debug_assert!(self.slots.len() < u32::MAX as usize, "no number is left");
            self.slots.push(Slot { generation: NonZeroU32::MIN, record: None });
            self.slots.len() as u32 - 1
        });
        debug_assert!(self.slots[slot as usize].record.is_none(), "a free slot holds nothing");
        let new = self.id(slot);
        // A change that is named twice is waited for twice, and tells so twice.
        record.waiting = 0;
        for &id in &record.after {
            record.waiting += u32::from(self.order(id, Waiter::After(new), counters));
        }
        for &id in &record.on {
            record.waiting += u32::from(self.order(id, Waiter::On(new), counters));
        }
        if let Some(lost) = self.lost.take() {
            if !take_out(&mut record.after, lost) {
                take_out(&mut record.on, lost);
            }
            let others: Vec<ChangeId> = record.after.iter().chain(&record.on).copied().collect();
            counters.dropped = self.describe(lost, &others, Some(&record));
            self.misled = Some((Early::Change(new), lost));
        }
        // What may be written at once is never undone, so that nothing is kept
        // for it: the disk may show it with the next write of its block.
        if record.waiting == 0 {
            record.undo.clear();
        } else {
            self.undo += undo;
        }
        let kind = record.role.kind() as usize;
        counters.made[kind] += 1;
        counters.live[kind] += 1;
        self.slots[slot as usize].record = Some(record);
        self.records += 1;
        self.note_high_water(counters);
        new
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
        if matches!(waiter, Waiter::On(_)) && record.waiting == 0 {
            return false;
        }
        record.waiters.push(waiter);
        true
    }

    /// As [`Graph::wait`], for an order that a format asks for: counts it, and
    /// forgets the one that shall be forgotten.
    fn order(&mut self, id: ChangeId, waiter: Waiter, counters: &mut Counters) -> bool {
        if self.drop.is_none() || self.get(id).is_none() {
            let waits = self.wait(id, waiter);
            counters.orders += u64::from(waits);
            return waits;
        }
        let needless = matches!(waiter, Waiter::On(_))
            && self.get(id).is_some_and(|record| record.waiting == 0);
        if needless {
            return false;
        }
        let number = counters.orders;
        counters.orders += 1;
        if self.drop == Some(number) {
            self.lost = Some(id);
            return false;
        }
        self.wait(id, waiter)
    }

    /// What the loss of an order means for who should have waited, besides for
    /// `others`: a change, or an action.
    fn describe(
        &self,
        lost: ChangeId,
        others: &[ChangeId],
        waiter: Option<&Record>,
    ) -> Option<Dropped> {
        let before = self.get(lost)?;
        let inseparable = waiter.is_some_and(|waiter| {
            before.waiting == 0
                && before.block == waiter.block
                && (before.mask | waiter.mask).count_ones() == 1
        });
        let covers = |undo: &Undo| {
            let within = |old: &Undo| old.offset <= undo.offset && undo.end() <= old.end();
            before.undo.iter().any(within)
        };
        let covered = waiter
            .is_some_and(|waiter| waiter.block == before.block && waiter.undo.iter().all(covers));
        let waited_for = self.closure(others);
        // What may be written goes with anything else in its block.
        let goes_along = |id: &ChangeId| {
            before.waiting == 0 && self.get(*id).is_some_and(|other| other.block == before.block)
        };
        let implied = waited_for.contains(&lost) || waited_for.iter().any(goes_along);
        let late = self.late(lost, &waited_for);
        let (before, after) = (before.role, waiter.map(|waiter| waiter.role));
        Some(Dropped {
            before,
            after,
            implied,
            inseparable,
            covered,
            misled: false,
            shown: false,
            moot: false,
            late,
        })
    }

    /// Some changes, and all that they wait for.
    fn closure(&self, ids: &[ChangeId]) -> HashSet<ChangeId> {
        let mut seen = HashSet::new();
        let mut stack = ids.to_vec();
        while let Some(id) = stack.pop() {
            let Some(record) = self.get(id).filter(|_| seen.insert(id)) else { continue };
            stack.extend(record.after.iter().chain(&record.on));
        }
        seen
    }

    /// Blocks that keep a change from the disk if they are late, and not those
    /// of `others`.
    fn late(&self, lost: ChangeId, others: &HashSet<ChangeId>) -> [Option<u64>; 4] {
        let writable = |id: &ChangeId| self.get(*id).filter(|record| record.waiting == 0);
        let needed: HashSet<u64> = others.iter().filter_map(writable).map(|r| r.block).collect();
        let mut blocks: Vec<u64> =
            self.closure(&[lost]).iter().filter_map(writable).map(|r| r.block).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks.retain(|block| !needed.contains(block));
        blocks.truncate(3);
        blocks.extend(self.get(lost).map(|record| record.block));
        blocks.dedup();
        let mut late = [None; 4];
        late.iter_mut().zip(blocks).for_each(|(to, block)| *to = Some(block));
        late
    }

    /// An action to be done once all of `after` is on the disk.
    pub(crate) fn defer(
        &mut self,
        after: &[ChangeId],
        kind: Kind,
        action: A,
        counters: &mut Counters,
    ) {
        let slot = self.free_actions.pop().unwrap_or_else(|| {
            debug_assert!(self.actions.len() < u32::MAX as usize, "no number is left");
            self.actions.push(None);
            self.actions.len() as u32 - 1
        });
        debug_assert!(self.actions[slot as usize].is_none(), "a free slot holds nothing");
        let mut waiting = 0;
        for &id in after {
            waiting += u32::from(self.order(id, Waiter::Action(slot), counters));
        }
        if let Some(lost) = self.lost.take() {
            let mut others = SmallVec::<[ChangeId; 3]>::from_slice(after);
            take_out(&mut others, lost);
            counters.dropped = self.describe(lost, &others, None);
            self.misled = Some((Early::Action(slot), lost));
        }
        counters.made[kind as usize] += 1;
        if waiting == 0 {
            self.note_too_early(slot, counters);
            self.free_actions.push(slot);
            self.ready.push_back(action);
            return;
        }
        counters.live[kind as usize] += 1;
        self.actions[slot as usize] = Some(Deferred { waiting, kind, action });
        self.deferred += 1;
        self.note_high_water(counters);
    }

    pub(crate) fn next_ready(&mut self) -> Option<A> {
        self.ready.pop_front()
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A record is on the disk, or as good as: takes it out and tells those
    /// that wait. Those that may now be written are appended to `freed`.
    pub(crate) fn commit(
        &mut self,
        id: ChangeId,
        freed: &mut Vec<ChangeId>,
        counters: &mut Counters,
    ) {
        let Some(record) = self.take(id, counters) else { return };
        self.note_misled(id, &record, counters);
        for waiter in record.waiters {
            match waiter {
                Waiter::After(id) | Waiter::On(id) => self.satisfy(id, freed),
                Waiter::Action(slot) => self.satisfy_action(slot, counters),
            }
        }
    }

    /// Notes whether a change goes too early, and whether somebody waits for it.
    fn note_misled(&self, id: ChangeId, record: &Record, counters: &mut Counters) {
        let Some((Early::Change(early), late)) = self.misled else { return };
        let Some(dropped) = &mut counters.dropped else { return };
        if early == id && self.get(late).is_some() {
            dropped.shown = true;
            dropped.misled |= !record.waiters.is_empty();
        }
    }

    /// Notes whether an action is done too early.
    fn note_too_early(&self, slot: u32, counters: &mut Counters) {
        let Some((Early::Action(early), late)) = self.misled else { return };
        let Some(dropped) = &mut counters.dropped else { return };
        dropped.shown |= early == slot && self.get(late).is_some();
    }

    /// Notes that a change gets other orders, or will never be on the disk,
    /// before it was or what it should have waited for was.
    fn note_moot(&self, id: ChangeId, counters: &mut Counters) {
        let Some((Early::Change(early), late)) = self.misled else { return };
        let Some(dropped) = &mut counters.dropped else { return };
        let in_time = self.get(early).is_some() && self.get(late).is_some();
        dropped.moot |= in_time && (id == early || id == late);
    }

    /// As [`Graph::commit`], but the actions that waited wait for `instead`.
    pub(crate) fn dissolve(
        &mut self,
        id: ChangeId,
        instead: ChangeId,
        freed: &mut Vec<ChangeId>,
        counters: &mut Counters,
    ) {
        self.note_moot(id, counters);
        let Some(record) = self.take(id, counters) else { return };
        for waiter in record.waiters {
            match waiter {
                Waiter::After(id) | Waiter::On(id) => self.satisfy(id, freed),
                Waiter::Action(slot) => {
                    if !self.wait(instead, Waiter::Action(slot)) {
                        self.satisfy_action(slot, counters);
                    }
                }
            }
        }
    }

    /// What a record undoes in some fragments of its block matters no more.
    pub(crate) fn forget_undo(&mut self, id: ChangeId, fragment: u32, mask: u64) {
        let Some(record) = self.get_mut(id) else { return };
        let before = record.undo_bytes();
        let mut kept = Undos::new();
        for undo in std::mem::take(&mut record.undo) {
            undo.outside(fragment, mask, &mut kept);
        }
        record.undo = kept;
        let gone = before - record.undo_bytes();
        self.undo -= gone;
    }

    /// Takes a record out that will never be on the disk, and tells nobody.
    pub(crate) fn take_back(&mut self, id: ChangeId, counters: &mut Counters) -> Option<Record> {
        self.note_moot(id, counters);
        self.take(id, counters)
    }

    /// As [`Graph::commit`], of a record that was undone.
    pub(crate) fn revoke(
        &mut self,
        id: ChangeId,
        freed: &mut Vec<ChangeId>,
        counters: &mut Counters,
    ) {
        self.note_moot(id, counters);
        if self.misled.is_some_and(|(early, _)| early == Early::Change(id)) {
            self.misled = None;
        }
        self.commit(id, freed, counters);
    }

    /// Takes a record out, and tells nobody.
    fn take(&mut self, id: ChangeId, counters: &mut Counters) -> Option<Record> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if Some(slot.generation) != id.generation {
            return None;
        }
        let record = slot.record.take()?;
        slot.generation = slot.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        self.free.push(id.slot);
        self.records -= 1;
        debug_assert!(self.undo >= record.undo_bytes(), "what is kept to undo with was counted");
        self.undo -= record.undo_bytes();
        counters.live[record.role.kind() as usize] -= 1;
        Some(record)
    }

    /// One thing less that a change waits for. A change that was taken back
    /// meanwhile is still named by what it waited for.
    fn satisfy(&mut self, id: ChangeId, freed: &mut Vec<ChangeId>) {
        let Some(record) = self.get_mut(id) else { return };
        debug_assert!(record.waiting > 0, "told more often than it waits");
        record.waiting -= 1;
        if record.waiting == 0 {
            self.set_free(id, freed);
        }
    }

    /// A record may be written: it needs no undo any more, nor do those that
    /// lie on it wait for it.
    fn set_free(&mut self, id: ChangeId, freed: &mut Vec<ChangeId>) {
        let Some(record) = self.get_mut(id) else {
            debug_assert!(false, "only what waits becomes free");
            return;
        };
        debug_assert_eq!(record.waiting, 0, "it still waits");
        let undo = record.undo_bytes();
        record.undo.clear();
        record.after.clear();
        record.on.clear();
        let mut on = SmallVec::<[ChangeId; 4]>::new();
        record.waiters.retain(|waiter| {
            if let Waiter::On(id) = *waiter {
                on.push(id);
                return false;
            }
            true
        });
        debug_assert!(self.undo >= undo, "what is kept to undo with was counted");
        self.undo -= undo;
        freed.push(id);
        for id in on {
            self.satisfy(id, freed);
        }
    }

    fn satisfy_action(&mut self, slot: u32, counters: &mut Counters) {
        // Unlike changes actions are never taken back, so that whoever names one
        // names one that waits.
        let entry = self.actions.get_mut(slot as usize);
        debug_assert!(entry.as_ref().is_some_and(|entry| entry.is_some()), "it was done before");
        let Some(entry) = entry else { return };
        let Some(deferred) = entry else { return };
        debug_assert!(deferred.waiting > 0, "told more often than it waits");
        deferred.waiting -= 1;
        if deferred.waiting > 0 {
            return;
        }
        let taken = entry.take();
        self.note_too_early(slot, counters);
        if let Some(deferred) = taken {
            counters.live[deferred.kind as usize] -= 1;
            self.free_actions.push(slot);
            self.deferred -= 1;
            self.ready.push_back(deferred.action);
        }
    }

    /// Lets those that waited for something else wait for `id`. That was taken
    /// out without telling them, so that they go on counting it: as `id` now.
    pub(crate) fn wait_instead(&mut self, id: ChangeId, waiters: &[Waiter]) {
        debug_assert!(waiters.is_empty() || self.get(id).is_some(), "nobody would ever tell them");
        for &waiter in waiters {
            let alive = match waiter {
                Waiter::After(waiting) => match self.get_mut(waiting) {
                    Some(record) => {
                        record.after.push(id);
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

    /// A record that waits shall wait for `after` and nothing else (what it
    /// lies on excepted). Those that may now be written are appended to `freed`.
    pub(crate) fn rewire(
        &mut self,
        id: ChangeId,
        after: &[ChangeId],
        freed: &mut Vec<ChangeId>,
        counters: &mut Counters,
    ) {
        self.note_moot(id, counters);
        let Some(record) = self.get_mut(id) else { return };
        debug_assert!(record.waiting > 0, "what may be written waits for nothing more");
        let before = std::mem::take(&mut record.after);
        let waiter = Waiter::After(id);
        // What is on the disk has told it so already, and is no longer counted;
        // of what is not, every mention goes.
        let mut gone = 0;
        for old in before {
            if let Some(old) = self.get_mut(old) {
                let kept = old.waiters.len();
                old.waiters.retain(|at| *at != waiter);
                gone += (kept - old.waiters.len()) as u32;
            }
        }
        let mut new = 0;
        for &order in after {
            new += u32::from(self.order(order, waiter, counters));
        }
        let lost = self.lost.take();
        let Some(record) = self.get_mut(id) else { return };
        record.after.extend_from_slice(after);
        if let Some(lost) = lost {
            take_out(&mut record.after, lost);
        }
        // What it lies on is counted as well, and stays.
        debug_assert!(record.waiting >= gone, "more waited for than was counted");
        let waiting = record.waiting - gone + new;
        record.waiting = waiting;
        if let (Some(lost), Some(record)) = (lost, self.get(id)) {
            let others: Vec<ChangeId> = record.after.iter().chain(&record.on).copied().collect();
            counters.dropped = self.describe(lost, &others, Some(record));
        }
        if waiting == 0 {
            self.set_free(id, freed);
        }
    }
}

/// Takes one mention of a change out of a list; false when there is none.
fn take_out<const N: usize>(list: &mut SmallVec<[ChangeId; N]>, id: ChangeId) -> bool
where
    [ChangeId; N]: smallvec::Array<Item = ChangeId>,
{
    let found = list.iter().position(|&at| at == id);
    if let Some(at) = found {
        list.remove(at);
    }
    found.is_some()
}
