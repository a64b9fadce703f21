//! A change in the graph, and how those are kept that it waits for and that wait
//! for it.
//!
//! There may be hundreds of thousands of records, and each is looked at when it is
//! made, when it may be written and when it is on the disk: by then it is in no
//! processor's cache. So a record with its generation has 128 bytes, two lines of
//! such a cache, and a usual one has no memory elsewhere.

use super::undo::Undos;
use crate::change::{ChangeId, Role};
use smallvec::SmallVec;
use std::num::NonZeroU32;

/// The waiter of an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waiter {
    /// A change that goes after.
    After(ChangeId),
    /// A change to the same bytes.
    On(ChangeId),
    /// An action for when all it waits for is on the disk.
    Action(u32),
}

impl Waiter {
    /// The change, if it is one.
    pub(super) fn change(self) -> Option<ChangeId> {
        match self {
            Self::After(id) | Self::On(id) => Some(id),
            Self::Action(_) => None,
        }
    }
}

/// A [`Waiter`] in eight bytes: its kind is in the two highest bits of the slot or number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PackedWaiter {
    slot: u32,
    generation: Option<NonZeroU32>,
}

const KIND: u32 = 0b11 << 30;
const AFTER: u32 = 0;
const ON: u32 = 0b01 << 30;
const ACTION: u32 = 0b10 << 30;

impl PackedWaiter {
    fn new(waiter: Waiter) -> Self {
        let (kind, ChangeId { slot, generation }) = match waiter {
            Waiter::After(id) => (AFTER, id),
            Waiter::On(id) => (ON, id),
            Waiter::Action(slot) => (ACTION, ChangeId { slot, generation: None }),
        };
        debug_assert_eq!(slot & KIND, 0, "a graph of 2^30 records has 128 GiB");
        Self { slot: slot | kind, generation }
    }

    fn waiter(self) -> Waiter {
        let slot = self.slot & !KIND;
        let id = ChangeId { slot, generation: self.generation };
        match self.slot & KIND {
            AFTER => Waiter::After(id),
            ON => Waiter::On(id),
            _ => Waiter::Action(slot),
        }
    }
}

/// Waiters for a change, in the order in which they began to wait.
#[derive(Clone, Default)]
pub(super) struct Waiters(SmallVec<[PackedWaiter; 2]>);

impl Waiters {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Waiter> + '_ {
        self.0.iter().map(|packed| packed.waiter())
    }

    /// All of them, so many at a time.
    pub(super) fn in_parts(
        &self,
        len: usize,
    ) -> impl Iterator<Item = impl ExactSizeIterator<Item = Waiter> + Clone + '_> + '_ {
        self.0.chunks(len).map(|some| some.iter().map(|packed| packed.waiter()))
    }

    pub(super) fn push(&mut self, waiter: Waiter) {
        self.0.push(PackedWaiter::new(waiter));
    }

    /// Takes every mention of a waiter out, and says how many there were.
    pub(super) fn take_out(&mut self, waiter: Waiter) -> u32 {
        let (before, packed) = (self.0.len(), PackedWaiter::new(waiter));
        self.0.retain(|at| *at != packed);
        (before - self.0.len()) as u32
    }

    /// Takes out the changes to the same bytes.
    pub(super) fn take_on(&mut self) -> SmallVec<[ChangeId; 4]> {
        let mut on = SmallVec::new();
        self.0.retain(|at| {
            if let Waiter::On(id) = at.waiter() {
                on.push(id);
                return false;
            }
            true
        });
        on
    }
}

impl std::fmt::Debug for Waiters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// No block of a device: one has fewer bytes.
const NO_BLOCK: u64 = u64::MAX;

/// A change in the graph.
#[derive(Debug)]
pub(super) struct Record {
    /// The buffer it changed; [`NO_BLOCK`] if it is a join.
    pub(super) block: u64,
    /// The fragments of the block that it touches.
    pub(super) mask: u64,
    /// How many records it still waits for. Zero: it may be written.
    pub(super) waiting: u32,
    pub(super) role: Role,
    /// It has taken in later changes: undoing it would undo those too.
    pub(super) took_in: bool,
    /// How many of `waits` lie under it.
    on: u16,
    /// Its undo data; empty when it needs no rollback.
    pub(super) undo: Undos,
    /// Its present and past dependencies: first those it goes after, then those under it in the
    /// same bytes.
    waits: SmallVec<[ChangeId; 3]>,
    pub(super) waiters: Waiters,
}

impl Record {
    /// A change that waits for nothing, and that none waits for.
    pub(super) fn new(block: u64, mask: u64, role: Role) -> Self {
        Self {
            block,
            mask,
            waiting: 0,
            role,
            took_in: false,
            on: 0,
            undo: Undos::default(),
            waits: SmallVec::new(),
            waiters: Waiters::default(),
        }
    }

    /// A join, which goes after several changes and has no bytes.
    pub(super) fn join(role: Role, after: &[ChangeId]) -> Self {
        let mut record = Self::new(NO_BLOCK, 0, role);
        record.wait_for(after, &[]);
        record
    }

    /// Whether it stands for the changes it goes after: it lies in no block, is in no
    /// list of one, and is on the disk as soon as they are.
    pub(super) fn is_join(&self) -> bool {
        self.block == NO_BLOCK
    }

    /// Sets the changes that it goes after, and those under it.
    pub(super) fn wait_for(&mut self, after: &[ChangeId], on: &[ChangeId]) {
        self.waits.clear();
        self.waits.extend_from_slice(after);
        self.waits.extend_from_slice(on);
        // A change lies over no more than its block has pieces. To go after those that
        // are too many to be counted asks for more than to lie on them.
        self.on = u16::try_from(on.len()).unwrap_or(u16::MAX);
    }

    /// The changes that it goes after.
    pub(super) fn after(&self) -> &[ChangeId] {
        &self.waits[..self.waits.len() - usize::from(self.on)]
    }

    /// Those under it in the same bytes.
    pub(super) fn on(&self) -> &[ChangeId] {
        &self.waits[self.waits.len() - usize::from(self.on)..]
    }

    /// Both, in that order.
    pub(super) fn waits(&self) -> &[ChangeId] {
        &self.waits
    }

    pub(super) fn push_after(&mut self, id: ChangeId) {
        self.waits.insert(self.after().len(), id);
    }

    /// It goes after these and no others; the changes under it stay.
    pub(super) fn set_after(&mut self, after: &[ChangeId]) {
        let on = SmallVec::<[ChangeId; 3]>::from_slice(self.on());
        self.wait_for(after, &on);
    }

    /// Takes one mention of a change out of those it goes after, or else of those under it.
    pub(super) fn take_out(&mut self, id: ChangeId) {
        let Some(at) = self.waits.iter().position(|&at| at == id) else { return };
        self.on -= u16::from(at >= self.after().len());
        self.waits.remove(at);
    }

    pub(super) fn waits_no_more(&mut self) {
        self.waits.clear();
        self.on = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(slot: u32) -> ChangeId {
        ChangeId { slot, generation: NonZeroU32::new(slot + 7) }
    }

    #[test]
    fn whoever_waits_is_kept_as_it_was_given() {
        let given = [
            Waiter::After(id(5)),
            Waiter::On(id(5)),
            Waiter::Action(5),
            Waiter::After(id((1 << 30) - 1)),
            Waiter::On(id(6)),
            Waiter::After(id(5)),
        ];
        let mut waiters = Waiters::default();
        given.iter().for_each(|&waiter| waiters.push(waiter));
        assert_eq!(waiters.iter().collect::<Vec<_>>(), given);
        assert_eq!(waiters.take_out(Waiter::After(id(5))), 2);
        assert_eq!(waiters.take_out(Waiter::After(id(5))), 0);
        assert_eq!(waiters.take_on().as_slice(), [id(5), id(6)]);
        let left: Vec<_> = waiters.iter().collect();
        assert_eq!(left, [Waiter::Action(5), Waiter::After(id((1 << 30) - 1))]);
    }

    #[test]
    fn what_it_goes_after_is_told_from_what_lies_under_it() {
        let mut record = Record::new(1, 1, Role::EntryAdd);
        record.wait_for(&[id(1), id(2)], &[id(3), id(1)]);
        record.push_after(id(4));
        assert_eq!(
            (record.after(), record.on()),
            (&[id(1), id(2), id(4)][..], &[id(3), id(1)][..])
        );
        record.take_out(id(1));
        assert_eq!((record.after(), record.on()), (&[id(2), id(4)][..], &[id(3), id(1)][..]));
        record.take_out(id(1));
        record.set_after(&[id(9)]);
        assert_eq!((record.after(), record.on()), (&[id(9)][..], &[id(3)][..]));
        let many = vec![id(8); usize::from(u16::MAX) + 2];
        record.wait_for(&[id(1)], &many);
        assert_eq!((record.after().len(), record.on().len()), (3, usize::from(u16::MAX)));
    }
}
