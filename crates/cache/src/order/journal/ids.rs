//! Names of changes: logged ones are named by their transaction, contents of files by their block.

use crate::change::{ChangeId, Role};
use hashbrown::{HashMap, HashSet};
use std::num::NonZeroU32;

/// Number of a transaction. They wrap; those in use lie close together.
pub(crate) type Number = NonZeroU32;

/// The number that follows another.
pub(crate) fn next_number(number: Number) -> Number {
    number.checked_add(1).unwrap_or(NonZeroU32::MIN)
}

/// Whether one transaction is later than another.
pub(crate) fn is_later(one: Number, other: Number) -> bool {
    one.get().wrapping_sub(other.get()).cast_signed() > 0
}

/// The slot of a change that is logged; its generation is the transaction.
const LOGGED: u32 = u32::MAX;

/// All changes of a transaction are one.
pub(super) fn of_transaction(number: Number) -> ChangeId {
    ChangeId { slot: LOGGED, generation: Some(number) }
}

/// The transaction that has a change.
pub(super) fn transaction_of(id: ChangeId) -> Option<Number> {
    id.generation.filter(|_| id.slot == LOGGED)
}

/// Names for blocks of contents that are not at home.
#[derive(Default)]
pub(super) struct DataIds {
    /// The block that a slot stands for, and which turn of the slot it is.
    slots: Vec<(u64, NonZeroU32)>,
    free: Vec<u32>,
    by_block: HashMap<u64, u32>,
    /// Blocks that take the place of others, or of a hole ([`Role::DataMove`]).
    moved: HashSet<u64>,
}

impl DataIds {
    /// The name of a block's present contents.
    pub(super) fn of_data(&mut self, block: u64, role: Role) -> ChangeId {
        if role == Role::DataMove {
            self.moved.insert(block);
        }
        let slot = if let Some(&slot) = self.by_block.get(&block) {
            slot
        } else {
            let slot = self.free.pop().unwrap_or_else(|| {
                debug_assert!(self.slots.len() < LOGGED as usize, "the last number means logged");
                self.slots.push((block, NonZeroU32::MIN));
                self.slots.len() as u32 - 1
            });
            self.slots[slot as usize].0 = block;
            self.by_block.insert(block, slot);
            slot
        };
        ChangeId { slot, generation: Some(self.slots[slot as usize].1) }
    }

    /// The name of a block's contents, if these are not at home.
    pub(super) fn known(&self, block: u64) -> Option<ChangeId> {
        let &slot = self.by_block.get(&block)?;
        Some(ChangeId { slot, generation: Some(self.slots[slot as usize].1) })
    }

    /// The block that a name stands for, as long as it is not at home.
    pub(super) fn block_of(&self, id: ChangeId) -> Option<u64> {
        let &(block, turn) = self.slots.get(id.slot as usize)?;
        (Some(turn) == id.generation).then_some(block)
    }

    /// Whether the contents of a block replace others, or zeros, that may have been seen.
    pub(super) fn is_moved(&self, block: u64) -> bool {
        self.moved.contains(&block)
    }

    /// A block needs no name any more.
    pub(super) fn forget(&mut self, block: u64) {
        self.moved.remove(&block);
        let Some(slot) = self.by_block.remove(&block) else { return };
        // The slot is used again: its old name must not stand for other contents.
        let turn = &mut self.slots[slot as usize].1;
        *turn = turn.checked_add(1).unwrap_or(NonZeroU32::MIN);
        self.free.push(slot);
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        self.by_block.keys().copied()
    }
}
