//! The invariants of docs/design/order.md, as far as a state shows them: for
//! tests, which ask after every step. The time it takes grows with the graph.

use super::mutation::closure;
use super::record::Waiter;
use super::undo::{Undo, Undos};
use super::{ChangeId, Memory, Soft};
use hashbrown::HashMap;

/// The list of its block that a change is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Blocked,
    Open,
    /// Being written, or waiting for a flush.
    Written,
}

impl<A> Soft<A> {
    /// The first invariant that does not hold, in words.
    pub(in crate::order) fn broken_invariant(&self, memory: &Memory) -> Option<String> {
        self.lists_fit(memory)
            .or_else(|| self.counts_fit())
            .or_else(|| self.has_a_cycle())
            .or_else(|| self.lies_under_nothing_newer(memory))
    }

    /// 4 and 5: every record is in the one list of its block that matches its state, and its undo
    /// data is kept as long as it waits.
    fn lists_fit(&self, memory: &Memory) -> Option<String> {
        let mut listed = HashMap::new();
        for buffer in memory.buffers.iter() {
            let held = &buffer.held;
            let lists = held
                .blocked_ids()
                .map(|id| (id, List::Blocked))
                .chain(held.open.iter().map(|&id| (id, List::Open)))
                .chain(held.written_ids().map(|id| (id, List::Written)));
            for (id, list) in lists {
                if listed.insert(id, (buffer, list)).is_some() {
                    return Some(format!("4: {id:?} is held twice"));
                }
            }
            if !held.knows_where(memory.shape) {
                return Some(format!("4: a change is not looked for where it lies: {held:?}"));
            }
            if !held.sent.is_empty() && !buffer.is_under_way() {
                return Some(format!("4: nothing writes what was sent: {held:?}"));
            }
        }
        let mut undo = 0;
        for (id, record) in self.graph.iter() {
            if record.is_join() {
                if listed.contains_key(&id) || record.waiting == 0 {
                    return Some(format!("4: a join is held, or waits for nothing: {record:?}"));
                }
                continue;
            }
            let Some((buffer, list)) = listed.remove(&id) else {
                return Some(format!("4: {id:?} is held by no block"));
            };
            let waits = record.waiting > 0;
            if buffer.block != record.block || waits != (list == List::Blocked) {
                return Some(format!("4: {id:?} is held in the wrong place: {record:?}"));
            }
            if list == List::Open && buffer.dirty & record.mask != record.mask {
                return Some(format!("4: {id:?} may be written, and nothing writes it"));
            }
            if !waits && !record.undo.is_empty() {
                return Some(format!("5: {id:?} may be written, and is undone: {record:?}"));
            }
            let fragment = memory.shape.fragment as usize;
            let outside = |undo: Undo<'_>| {
                let (first, last) = (undo.offset as usize, undo.end() as usize);
                (first / fragment..last.div_ceil(fragment)).any(|n| record.mask & (1 << n) == 0)
            };
            if record.undo.iter().any(outside) {
                return Some(format!("5: {id:?} undoes what is not its own: {record:?}"));
            }
            undo += record.undo.len();
        }
        if let Some(id) = listed.keys().next() {
            return Some(format!("4: a block holds {id:?}, which is on the disk"));
        }
        let counted = self.graph.undo_bytes().get();
        (undo != counted).then(|| format!("5: {undo} bytes to undo, {counted} counted"))
    }

    /// 6 and 7: each waiter is told as often as it counts.
    fn counts_fit(&self) -> Option<String> {
        let mut changes: HashMap<ChangeId, u32> = HashMap::new();
        let mut actions: HashMap<u32, u32> = HashMap::new();
        for (_, record) in self.graph.iter() {
            for waiter in record.waiters.iter() {
                match waiter {
                    Waiter::After(id) | Waiter::On(id) => *changes.entry(id).or_default() += 1,
                    Waiter::Action(slot) => *actions.entry(slot).or_default() += 1,
                }
            }
        }
        for (id, record) in self.graph.iter() {
            let told = changes.get(&id).copied().unwrap_or(0);
            if told != record.waiting {
                return Some(format!("7: {id:?} is told {told} times: {record:?}"));
            }
        }
        for (slot, waiting) in self.graph.actions.iter() {
            let told = actions.remove(&slot).unwrap_or(0);
            if told != waiting {
                return Some(format!("7: action {slot} waits {waiting} times, told {told} times"));
            }
        }
        let unknown = actions.keys().next()?;
        Some(format!("6: action {unknown} is waited with and is not there"))
    }

    /// 1: by writing the writable changes, and then those that this makes writable, all come to the
    /// disk.
    fn has_a_cycle(&self) -> Option<String> {
        let mut waiting: HashMap<ChangeId, u32> =
            self.graph.iter().map(|(id, record)| (id, record.waiting)).collect();
        let mut writable: Vec<ChangeId> =
            waiting.iter().filter(|&(_, &waiting)| waiting == 0).map(|(&id, _)| id).collect();
        let mut written = 0;
        while let Some(id) = writable.pop() {
            written += 1;
            let Some(record) = self.graph.get(id) else { continue };
            for waiter in record.waiters.iter() {
                let (Waiter::After(next) | Waiter::On(next)) = waiter else { continue };
                let Some(left) = waiting.get_mut(&next) else { continue };
                *left -= 1;
                if *left == 0 {
                    writable.push(next);
                }
            }
        }
        let stuck = waiting.len() - written;
        (stuck > 0).then(|| format!("1: {stuck} changes wait for each other"))
    }

    /// 3: of two changes to the same bytes the newer waits for the older, at once
    /// or by way of others.
    fn lies_under_nothing_newer(&self, memory: &Memory) -> Option<String> {
        for buffer in memory.buffers.iter() {
            let held: Vec<ChangeId> = buffer.held.blocked_ids().collect();
            for (at, &newer) in held.iter().enumerate() {
                let waited_for = closure(&self.graph, &[newer]);
                let Some(over) = self.graph.get(newer) else { continue };
                let overlaps = |older: &&ChangeId| {
                    self.graph.get(**older).is_some_and(|older| overlap(&older.undo, &over.undo))
                };
                let strange = |older: &&ChangeId| !waited_for.contains(*older);
                if let Some(older) = held[..at].iter().filter(overlaps).find(strange) {
                    return Some(format!("3: {newer:?} lies over {older:?} and does not wait"));
                }
            }
        }
        None
    }
}

/// Whether two changes undo some of the same bytes.
fn overlap(one: &Undos, two: &Undos) -> bool {
    one.iter().any(|a| two.iter().any(|b| a.offset < b.end() && b.offset < a.end()))
}
