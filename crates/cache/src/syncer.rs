//! The syncer: a wheel of one-second slots that dirty blocks are hung on when
//! they first become dirty (trickle sync, `vfs_subr.c`), and what happens when
//! the graph of changes is full.
//!
//! There is no thread here. Whoever uses the cache calls [`Cache::tick`] now
//! and then, and [`Cache::begin`] before each operation that changes something.

use crate::cache::Cache;
use crate::change::Role;
use seekless_fs::FsError;
use seekless_units::Nanos;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;
/// A tick of the clock that delays are given in (`hz` = 100).
const TICK: u64 = SECOND / 100;
/// Most slots that rush requests may let the wheel run ahead before callers
/// sleep: half of `syncdelay`, which is 30.
const MOST_RUSHES: u32 = 15;
/// Slots for which a block with something that waits is put off, as a lazy
/// `ffs_syncvnode` does.
const PATIENCE: u8 = 5;
/// Free places in the graph that an operation may count on once it has begun.
const RESERVE: usize = 64;

/// Dirty blocks by the slot in which they are due.
pub(crate) struct Wheel {
    slots: BTreeMap<u64, Vec<u64>>,
    /// The slot to be done next; ahead of the clock when rushed.
    position: u64,
    /// The second up to which the clock has been followed.
    second: u64,
    /// Slots to be done ahead of time.
    rushes: u32,
}

impl Wheel {
    pub(crate) fn new(now: Nanos) -> Self {
        let second = now.get() / SECOND;
        Self { slots: BTreeMap::new(), position: second, second, rushes: 0 }
    }

    fn hang(&mut self, block: u64, delay: u32) -> u64 {
        let due = self.position + u64::from(delay.max(1));
        self.slots.entry(due).or_default().push(block);
        due
    }

    /// Moves on by one slot and gives what hung there.
    fn turn(&mut self) -> (u64, Vec<u64>) {
        self.position += 1;
        (self.position, self.slots.remove(&self.position).unwrap_or_default())
    }
}

impl<A> Cache<A> {
    /// Hangs a block on the wheel, unless it hangs there.
    pub(crate) fn schedule(&mut self, block: u64, role: Role) {
        let delay = self.config.ages.of(role.age());
        let Some(buffer) = self.buffers.get_mut(block) else { return };
        if buffer.due.is_none() && buffer.holds_changes() {
            buffer.due = Some(self.wheel.hang(block, delay));
        }
    }

    /// Does what is due by the clock.
    ///
    /// # Errors
    /// [`FsError::Device`] when a write fails.
    pub fn tick(&mut self) -> Result<(), FsError> {
        let second = self.clock.now().get() / SECOND;
        while self.wheel.second < second {
            self.wheel.second += 1;
            // A slot that was done ahead of time is not done again.
            if self.wheel.position < self.wheel.second {
                self.turn()?;
            }
            self.serve_rush()?;
        }
        Ok(())
    }

    fn serve_rush(&mut self) -> Result<bool, FsError> {
        if self.wheel.rushes == 0 {
            return Ok(false);
        }
        self.wheel.rushes -= 1;
        self.turn()?;
        Ok(true)
    }

    /// Does one slot: writes what may be written, and hangs what still waits
    /// for something on the next.
    fn turn(&mut self) -> Result<(), FsError> {
        let (slot, blocks) = self.wheel.turn();
        let mut due = Vec::new();
        for block in blocks {
            let Some(buffer) = self.buffers.get_mut(block) else { continue };
            if buffer.due != Some(slot) {
                continue;
            }
            buffer.due = None;
            // What waits is better written in whole a little later.
            let waits = !buffer.blocked.is_empty() && buffer.put_off < PATIENCE;
            if waits || buffer.dirty == 0 {
                buffer.put_off = buffer.put_off.saturating_add(1);
                buffer.due = buffer.holds_changes().then(|| self.wheel.hang(block, 1));
            } else {
                due.push(block);
            }
        }
        let written = self.write_with_neighbours(&due);
        for block in due {
            let Some(buffer) = self.buffers.get_mut(block) else { continue };
            if buffer.due.is_none() && buffer.holds_changes() {
                buffer.due = Some(self.wheel.hang(block, 1));
            }
        }
        written
    }

    /// To be called before an operation that changes something: does what is
    /// due, makes room in the cache and in the graph. Nothing is written while
    /// an operation is under way, but by disciplines that write at once.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`] after a write has failed, [`FsError::Device`] when
    /// one fails now.
    pub fn begin(&mut self) -> Result<(), FsError> {
        self.check_writable()?;
        self.tick()?;
        self.make_room()?;
        if self.graph_is_full() { self.wait_for_the_graph() } else { Ok(()) }
    }

    /// Whether the graph holds three quarters of what it may.
    fn graph_is_full(&self) -> bool {
        let limits = &self.config.limits;
        self.graph.len() > limits.max_softdeps / 4 * 3
            || self.graph.undo_bytes().get() > limits.max_undo.get() / 4 * 3
    }

    /// Asks the syncer to hurry; when it was asked too often, or there is no
    /// room at all, sleeps while it works (`request_cleanup` in
    /// `ffs_softdep.c`).
    fn wait_for_the_graph(&mut self) -> Result<(), FsError> {
        if self.wheel.rushes < MOST_RUSHES {
            self.wheel.rushes += 1;
            self.counters.rush_requests += 1;
            if !self.graph_is_at_its_cap() {
                return Ok(());
            }
        }
        self.counters.max_limit_hit += 1;
        let began = self.clock.now();
        let delay = u64::from(self.config.limits.tickdelay.max(2)) * TICK;
        while self.serve_rush()? {}
        if self.graph_is_full() {
            // What hangs on the wheel is too young, or waits for what is.
            self.sync_round()?;
        }
        let spent = self.clock.now().saturating_since(began);
        self.clock.sleep(Nanos::new(delay.saturating_sub(spent)));
        let slept = self.clock.now().saturating_since(began);
        self.counters.slept = self.counters.slept.saturating_add(slept);
        self.tick()
    }

    fn graph_is_at_its_cap(&self) -> bool {
        let limits = &self.config.limits;
        self.graph.len() + RESERVE.min(limits.max_softdeps / 8) > limits.max_softdeps
            || self.graph.undo_bytes() > limits.max_undo
    }
}
