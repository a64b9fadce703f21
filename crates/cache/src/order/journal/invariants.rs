//! The invariants of docs/design/journal.md, as far as a state shows them: for tests,
//! which ask after every step.

use super::Journal;
use crate::memory::Memory;

impl<A> Journal<A> {
    /// The first invariant that does not hold, in words.
    pub(in crate::order) fn broken_invariant(&self, memory: &Memory) -> Option<String> {
        self.blocks_fit(memory).or_else(|| self.log_fits(memory)).or_else(|| self.room_fits())
    }

    /// J1, J2, J6: a block goes home only as committed; flags and lists say the same.
    fn blocks_fit(&self, memory: &Memory) -> Option<String> {
        for buffer in memory.buffers.iter() {
            let (block, held) = (buffer.block, buffer.held.journal);
            if buffer.dirty != 0 && buffer.held.waits() {
                return Some(format!("J1: block {block} would be written early: {held:?}"));
            }
            if held.logged && (buffer.dirty == 0 || buffer.held.waits()) {
                return Some(format!("J1: block {block} is not what the log has: {held:?}"));
            }
            if buffer.valid == 0 && !buffer.is_kept() {
                return Some(format!("J2: block {block} is kept for nothing"));
            }
            if held.running != self.running.blocks.contains(&block) {
                return Some(format!("J2: block {block}: {held:?}"));
            }
            let committing = self.committing.as_ref();
            if held.committing != committing.is_some_and(|c| c.blocks.contains(&block))
                || held.writing != committing.is_some_and(|c| c.contents.contains(&block))
            {
                return Some(format!("J2: block {block} in a commit: {held:?}"));
            }
            if held.homing && (!held.sent || !self.in_log.contains_key(&block)) {
                return Some(format!("J3: block {block} is on its way home: {held:?}"));
            }
            let is_sent = held.sent && !held.homing && !held.running && !held.committing;
            let is_data = (buffer.dirty != 0 || is_sent) && !held.logged;
            if is_data != self.ids.known(block).is_some() && !held.writing {
                return Some(format!("J6: the name of block {block}: {held:?}"));
            }
        }
        let lost = |block: &u64| memory.buffers.get(*block).is_none_or(|b| b.valid == 0);
        let all = self.running.blocks.iter().copied().chain(self.ids.blocks());
        all.into_iter().find(lost).map(|block| format!("J2: block {block} is not in memory"))
    }

    /// J3, J4: each block that the log would bring home is at home, in memory, or revoked.
    fn log_fits(&self, memory: &Memory) -> Option<String> {
        for (&block, known) in &self.in_log {
            let held = memory.buffers.get(block).map(|buffer| buffer.held.journal);
            let kept = held
                .is_some_and(|held| held.running || held.committing || held.logged || held.homing);
            if !known.home && !kept && known.revoked_by.is_none() {
                return Some(format!("J3: block {block} is only in the log: {known:?}"));
            }
            let revoked = known.revoked_by == Some(self.running.number);
            if revoked != self.running.revokes.contains(&block) {
                return Some(format!("J4: block {block}: {known:?}"));
            }
            let committing = self.committing.as_ref().map(|committing| committing.number);
            if !self.live.contains(&known.newest) && committing != Some(known.newest) {
                return Some(format!("J3: block {block} is not in the log: {known:?}"));
            }
        }
        let unknown = |block: &&u64| {
            !self.in_log.contains_key(*block) || self.running.blocks.contains(*block)
        };
        let wrong = self.running.revokes.iter().find(unknown);
        wrong.map(|block| format!("J4: block {block} is revoked for nothing"))
    }

    /// J5: the running transaction fits the log.
    fn room_fits(&self) -> Option<String> {
        let log = self.log.as_ref()?;
        let cost = self.cost_with(0);
        (cost > log.free() || self.running_cost() > log.most())
            .then(|| format!("J5: a transaction of {cost}, and {} are free", log.free()))
    }
}
