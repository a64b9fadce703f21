//! The syncer: dirty blocks hang on a wheel since they first became dirty, and are written as it
//! turns (trickle sync, `vfs_subr.c`); and the handling of a full graph of changes.
//!
//! There is no thread here. The cache's user calls [`Cache::tick`] now and then, and
//! [`Cache::begin`] before each operation that makes changes.

use crate::cache::Cache;
use crate::wheel::SECOND;
use seekless_fs::FsError;
use seekless_units::Nanos;

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

/// Quarters of its limit above which a graph is full.
const FULL: u64 = 3;
/// Quarters of its limit above which no caller is granted memory.
const TWICE_ITS_CAP: u64 = 8;

impl<A> Cache<A> {
    /// Writes the blocks that are due by the clock. Seconds without due blocks take no time,
    /// however many there are.
    ///
    /// # Errors
    /// [`FsError::Device`] when a write fails.
    pub fn tick(&mut self) -> Result<(), FsError> {
        self.blocks.poll()?;
        self.tick_wheel()?;
        self.transactions().commit_when_due()
    }

    fn tick_wheel(&mut self) -> Result<(), FsError> {
        let second = self.blocks.clock.now().get() / SECOND;
        if self.blocks.memory.wheel.second >= second {
            return Ok(());
        }
        loop {
            self.blocks.memory.wheel.skip_idle(second);
            if self.blocks.memory.wheel.second >= second {
                // Writes completed since the last slot.
                return self.blocks.barrier_if_idle();
            }
            self.blocks.memory.wheel.second += 1;
            // A slot that was done ahead of time is not done again.
            if self.blocks.memory.wheel.position < self.blocks.memory.wheel.second {
                self.turn()?;
            }
            self.serve_rush()?;
        }
    }

    /// When [`Cache::tick`] has something to do next, by the clock; `None` when
    /// nothing is due at any time. Until then ticks may be left out.
    #[must_use]
    pub fn next_due(&self) -> Option<Nanos> {
        let under_way = !self.blocks.flights.are_over(self.blocks.config.barriers)
            || self.blocks.order.steps_commit();
        let soon = under_way.then_some(self.blocks.memory.wheel.second + 1);
        let due = self.blocks.memory.wheel.next_due().into_iter().chain(soon).min();
        let due = due.map(|second| Nanos::new(second * SECOND));
        due.into_iter().chain(self.journal_due()).min()
    }

    fn serve_rush(&mut self) -> Result<bool, FsError> {
        if self.blocks.memory.wheel.rushes == 0 {
            return Ok(false);
        }
        self.blocks.memory.wheel.rushes -= 1;
        self.turn()?;
        Ok(true)
    }

    /// Turns by one slot: writes the writable blocks, and hangs those that wait or are being
    /// written on the next. The device is flushed once for all writes completed by then.
    fn turn(&mut self) -> Result<(), FsError> {
        let (slot, blocks) = self.blocks.memory.wheel.turn();
        let mut due = Vec::new();
        for block in blocks {
            // Blocks are not taken off the wheel when they are written for other reasons, or when
            // they are dropped.
            let Some(buffer) = self.blocks.memory.buffers.get_mut(block) else { continue };
            if buffer.due != Some(slot) {
                continue;
            }
            buffer.due = None;
            if buffer.is_under_way() && buffer.dirty != 0 {
                buffer.due = Some(self.blocks.memory.wheel.hang(block, 1));
                continue;
            }
            // A block with blocked changes is better written in whole a little later.
            let waits = buffer.held.waits() && buffer.put_off < PATIENCE;
            if waits || buffer.dirty == 0 {
                buffer.put_off = buffer.put_off.saturating_add(1);
                buffer.due =
                    buffer.holds_changes().then(|| self.blocks.memory.wheel.hang(block, 1));
            } else {
                due.push(block);
            }
        }
        let written =
            self.blocks.write_with_neighbours(&due).and_then(|()| self.blocks.barrier_if_idle());
        for block in due {
            let Some(buffer) = self.blocks.memory.buffers.get_mut(block) else { continue };
            if buffer.due.is_none() && buffer.holds_changes() {
                buffer.due = Some(self.blocks.memory.wheel.hang(block, 1));
            }
        }
        written
    }

    /// Call before an operation that makes changes: writes due blocks, makes room in the cache, in
    /// the graph and in the log. Nothing is written while an operation is under way, but by
    /// disciplines that write at once.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`] after a write has failed, [`FsError::Device`] when
    /// one fails now.
    pub fn begin(&mut self) -> Result<(), FsError> {
        self.end()?;
        self.begin_any()?;
        self.transactions().join_transaction(0)
    }

    /// As [`Cache::begin`], but for the log.
    pub(crate) fn begin_any(&mut self) -> Result<(), FsError> {
        self.blocks.check_writable()?;
        self.tick()?;
        self.make_room()?;
        self.hold_dirty()?;
        if self.graph_holds(FULL) { self.wait_for_the_graph() } else { Ok(()) }
    }

    /// Whether the graph holds more than `quarters` quarters of its limit.
    fn graph_holds(&self, quarters: u64) -> bool {
        let limits = &self.blocks.config.limits;
        let over =
            |held: u64, most: u64| (most / 4).checked_mul(quarters).is_some_and(|most| held > most);
        over(self.blocks.order.len() as u64, limits.max_softdeps as u64)
            || over(self.blocks.order.undo_bytes().get(), limits.max_undo.get())
    }

    /// Asks the syncer to hurry; when it was asked too often, or there is no
    /// room at all, sleeps while it works (`request_cleanup` in
    /// `ffs_softdep.c`).
    fn wait_for_the_graph(&mut self) -> Result<(), FsError> {
        if self.blocks.memory.wheel.rushes < MOST_RUSHES {
            self.blocks.memory.wheel.rushes += 1;
            self.blocks.memory.counters.rush_requests += 1;
            if !self.graph_is_at_its_cap() {
                return Ok(());
            }
        }
        self.blocks.memory.counters.max_limit_hit += 1;
        let began = self.blocks.clock.now();
        let delay = u64::from(self.blocks.config.limits.tickdelay.max(2)) * TICK;
        let until = Nanos::new(began.get() + delay);
        // The syncer works meanwhile: it does all slots that were requested, each when the writes of
        // the last are completed, and writes everything if that makes no room.
        let mut has_begun_all = false;
        while self.blocks.clock.now() < until {
            self.blocks.poll()?;
            if !self.blocks.flights.are_over(false) {
                self.blocks.clock.sleep(Nanos::new(TICK));
                continue;
            }
            // Those that flush apart wait for the caller.
            self.blocks.barrier()?;
            if !self.serve_rush()? {
                if has_begun_all || !self.graph_holds(FULL) {
                    break;
                }
                // Blocks on the wheel are too young, or wait for some that are.
                self.start_round()?;
                has_begun_all = true;
            }
        }
        self.blocks.clock.sleep(Nanos::new(until.saturating_since(self.blocks.clock.now())));
        // Then the memory is granted, unless others were granted as much as the limit.
        while self.graph_holds(TWICE_ITS_CAP)
            && (self.blocks.wait_for_some()? || self.serve_rush()? || self.start_round()?)
        {}
        let slept = self.blocks.clock.now() - began;
        self.blocks.memory.counters.slept += slept;
        self.tick()
    }

    fn graph_is_at_its_cap(&self) -> bool {
        let limits = &self.blocks.config.limits;
        self.blocks.order.len() + RESERVE.min(limits.max_softdeps / 8) > limits.max_softdeps
            || self.blocks.order.undo_bytes() > limits.max_undo
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Role;
    use crate::wheel::Wheel;
    use crate::{Config, Discipline};
    use seekless_device::{BlockDevice, Clock, DeviceError, VirtualClock};
    use seekless_units::{BlockNo, ByteLen, Lba};
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    const YEAR: u64 = 365 * 86_400;

    /// Notes when it is written to, and takes three seconds for that.
    struct Slow(Arc<VirtualClock>, Mutex<Vec<(u64, u64)>>);

    impl BlockDevice for Slow {
        fn len(&self) -> ByteLen {
            ByteLen::new(1 << 20)
        }

        fn read(&self, _at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
            buf.fill(0);
            Ok(())
        }

        fn write(&self, at: Lba, _buf: &[u8]) -> Result<(), DeviceError> {
            self.1.lock().unwrap().push((self.0.now().get() / SECOND, at.get()));
            self.0.sleep(Nanos::new(3 * SECOND));
            Ok(())
        }

        fn flush(&self) -> Result<(), DeviceError> {
            Ok(())
        }
    }

    fn cache() -> (Cache<u64>, Arc<Slow>) {
        let clock = Arc::new(VirtualClock::new());
        let disk = Arc::new(Slow(clock.clone(), Mutex::default()));
        let config = Config::new(Discipline::SoftUpdates);
        (Cache::new(disk.clone(), clock, 8192, 1024, config).unwrap(), disk)
    }

    fn dirty(cache: &mut Cache<u64>, block: u64) {
        let zero = |bytes: &mut [u8]| {
            bytes.fill(1);
            Ok(())
        };
        cache.changes().edit(BlockNo::new(block * 8), 0, 8, Role::EntryRemove, zero).unwrap();
    }

    /// As [`Cache::tick`], a second after the other.
    fn tick_by_seconds(cache: &mut Cache<u64>) {
        let second = cache.blocks.clock.now().get() / SECOND;
        while cache.blocks.memory.wheel.second < second {
            cache.blocks.memory.wheel.second += 1;
            if cache.blocks.memory.wheel.position < cache.blocks.memory.wheel.second {
                cache.turn().unwrap();
            }
            cache.serve_rush().unwrap();
        }
    }

    #[test]
    fn idle_seconds_take_no_time() {
        let (mut cache, disk) = cache();
        let began = Instant::now();
        disk.0.sleep(Nanos::new(50 * YEAR * SECOND));
        cache.tick().unwrap();
        dirty(&mut cache, 7);
        let due = cache.next_due().unwrap();
        assert!(due > disk.0.now() && due.get() < (50 * YEAR + 60) * SECOND, "{due}");
        // Up to a moment before it is due nothing happens.
        disk.0.sleep(Nanos::new(due.get() - disk.0.now().get() - 1));
        cache.tick().unwrap();
        assert_eq!(*disk.1.lock().unwrap(), []);
        disk.0.sleep(Nanos::new(1));
        cache.tick().unwrap();
        assert_eq!(*disk.1.lock().unwrap(), [(due.get() / SECOND, 7 * 16)]);
        assert_eq!(cache.next_due(), None);
        disk.0.sleep(Nanos::new(50 * YEAR * SECOND));
        cache.tick().unwrap();
        assert_eq!(cache.blocks.memory.wheel.second, disk.0.now().get() / SECOND);
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    }

    #[test]
    fn what_is_skipped_changes_nothing() {
        let state = |cache: &Cache<u64>| {
            let Wheel { slots, position, second, rushes } = &cache.blocks.memory.wheel;
            (slots.clone(), *position, *second, *rushes)
        };
        let ((mut one, one_disk), (mut two, two_disk)) = (cache(), cache());
        for round in 0..400u64 {
            for cache in [&mut one, &mut two] {
                if round % 3 == 0 {
                    dirty(cache, round * 7 % 100);
                }
                cache.blocks.memory.wheel.rushes +=
                    u32::from(round % 29 == 0) * (round % 13) as u32;
                cache.blocks.clock.sleep(Nanos::new(round * round % 97 * SECOND / 3));
            }
            one.tick().unwrap();
            tick_by_seconds(&mut two);
            assert_eq!(state(&one), state(&two), "round {round}");
        }
        let writes = one_disk.1.lock().unwrap();
        assert!(writes.len() > 100, "{}", writes.len());
        assert_eq!(*writes, *two_disk.1.lock().unwrap());
    }
}
