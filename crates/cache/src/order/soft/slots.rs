//! Places for records, each with a generation.
//!
//! Thousands of records become free at once and are taken again one by one. They are taken in order
//! of address, whatever order they became free in: the processor prefetches the next ones, and
//! those made one after the other, which mostly go one after the other too, stay neighbours.

use super::record::Record;
use crate::change::ChangeId;
use std::num::NonZeroU32;

/// A place for a record, in whole lines of a processor's cache.
#[repr(align(64))]
struct Slot(Option<Record>);

const _: () = assert!(size_of::<Slot>() == 128, "two lines, as is said of a record");

/// If fewer than one in this many slots is free, more are made, to shorten the search.
const SPARE: usize = 8;

/// Records by slot and generation.
#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// Of each slot, apart from it: most names that are looked up are of changes on the disk by
    /// now, and these generations lie close together.
    generations: Vec<NonZeroU32>,
    /// A bit for each, set where the slot is free.
    free: Vec<u64>,
    /// How many are set.
    spare: usize,
    /// The word that is looked at next.
    at: usize,
}

impl Slots {
    /// Whether something lies under a name, or will.
    pub(super) fn has(&self, id: ChangeId) -> bool {
        let generation = self.generations.get(id.slot as usize);
        generation.is_some_and(|&generation| Some(generation) == id.generation)
    }

    pub(super) fn get(&self, id: ChangeId) -> Option<&Record> {
        if self.has(id) { self.slots.get(id.slot as usize)?.0.as_ref() } else { None }
    }

    pub(super) fn get_mut(&mut self, id: ChangeId) -> Option<&mut Record> {
        if self.has(id) { self.slots.get_mut(id.slot as usize)?.0.as_mut() } else { None }
    }

    /// All records, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ChangeId, &Record)> {
        self.slots.iter().zip(&self.generations).enumerate().filter_map(|(at, (slot, of))| {
            // Slots are numbered in 32 bits.
            let id = ChangeId { slot: at as u32, generation: Some(*of) };
            Some((id, slot.0.as_ref()?))
        })
    }

    /// A name for a record, whose place is taken from now on.
    pub(super) fn take(&mut self) -> ChangeId {
        if self.spare <= self.slots.len() / SPARE {
            return self.make();
        }
        while self.free[self.at] == 0 {
            self.at = (self.at + 1) % self.free.len();
        }
        let word = &mut self.free[self.at];
        let slot = self.at * 64 + word.trailing_zeros() as usize;
        *word &= *word - 1;
        self.spare -= 1;
        debug_assert!(self.slots[slot].0.is_none(), "a free place holds nothing");
        ChangeId { slot: slot as u32, generation: Some(self.generations[slot]) }
    }

    fn make(&mut self) -> ChangeId {
        let slot = self.slots.len();
        debug_assert!(slot < u32::MAX as usize, "no number is left");
        self.slots.push(Slot(None));
        self.generations.push(NonZeroU32::MIN);
        self.free.resize(self.slots.len().div_ceil(64), 0);
        ChangeId { slot: slot as u32, generation: Some(NonZeroU32::MIN) }
    }

    /// Lays a record where its name says.
    pub(super) fn put(&mut self, id: ChangeId, record: Record) {
        debug_assert!(self.has(id), "its place is not taken");
        let slot = &mut self.slots[id.slot as usize];
        debug_assert!(slot.0.is_none(), "something lies there");
        // Nothing is dropped, so that the place need not be fetched to see that.
        std::mem::forget(slot.0.replace(record));
    }

    /// Takes the record of a name out. Old copies of the name find nothing from now on, which
    /// counts as on the disk.
    pub(super) fn remove(&mut self, id: ChangeId) -> Option<Record> {
        if !self.has(id) {
            return None;
        }
        let generation = &mut self.generations[id.slot as usize];
        *generation = generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        let (word, bit) = (id.slot as usize / 64, id.slot % 64);
        debug_assert_eq!(self.free[word] >> bit & 1, 0, "it was free");
        self.free[word] |= 1 << bit;
        self.spare += 1;
        self.slots[id.slot as usize].0.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Role;
    use crate::property::for_all;
    use proptest::collection::vec;
    use proptest::prelude::{Just, Strategy, any};
    use proptest::prop_oneof;

    /// A record is put, or one of those held is removed.
    #[derive(Clone, Debug)]
    enum Op {
        Put,
        Remove(u16),
    }

    fn put(slots: &mut Slots, mask: u64) -> ChangeId {
        let id = slots.take();
        slots.put(id, Record::new(1, mask, Role::Data));
        id
    }

    /// Whatever order they became free in, slots are taken in order of address, and an old name
    /// never finds a later record.
    #[test]
    fn places_are_taken_in_order_under_new_names() {
        let mut slots = Slots::default();
        let old: Vec<ChangeId> = (0..1000).map(|n| put(&mut slots, n)).collect();
        assert!(old.iter().enumerate().all(|(at, id)| id.slot as usize == at));
        for &id in old.iter().rev().chain(&old) {
            let found = slots.remove(id).map(|record| record.mask);
            assert!(found.is_none_or(|mask| mask == u64::from(id.slot)));
        }
        assert_eq!(slots.iter().count(), 0);
        let new: Vec<ChangeId> = (0..800).map(|n| put(&mut slots, 5000 + n)).collect();
        assert!(new.windows(2).all(|pair| pair[0].slot + 1 == pair[1].slot));
        assert!(old.iter().all(|&id| slots.get(id).is_none()));
        let found: Vec<u64> = new.iter().filter_map(|&id| Some(slots.get(id)?.mask)).collect();
        assert_eq!(found, (5000..5800).collect::<Vec<u64>>());
    }

    /// There are never many more places than the most records at a time.
    #[test]
    fn places_are_used_again() {
        let op = prop_oneof![2 => Just(Op::Put), 1 => any::<u16>().prop_map(Op::Remove)];
        for_all(10, vec(op, 0..=4000), |ops| {
            let mut slots = Slots::default();
            let (mut held, mut most) = (Vec::new(), 0);
            for (round, op) in ops.into_iter().enumerate() {
                match op {
                    Op::Put if held.len() <= 500 => held.push(put(&mut slots, round as u64)),
                    Op::Remove(at) if !held.is_empty() => {
                        let id = held.swap_remove(usize::from(at) % held.len());
                        assert!(
                            slots.remove(id).is_some() && slots.remove(id).is_none(),
                            "{round}"
                        );
                    }
                    _ => {}
                }
                most = most.max(held.len());
                let places = slots.slots.len();
                assert!(places <= (most + 1) * SPARE / (SPARE - 1) + 1, "{places} of {most}");
            }
            assert_eq!(slots.iter().count(), held.len());
        });
    }
}
