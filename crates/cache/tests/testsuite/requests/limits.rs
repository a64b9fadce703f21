//! When the graph of changes is full: the syncer is asked to hurry, then the
//! caller sleeps.

use crate::requests::counting::HEAD;
use crate::requests::{PER_BLOCK, Rig, SECOND, blocks, soft_updates};
use seekless_cache::{Cache, ChangeId, Commits, Config, Discipline, Kind, Piece, Role, Roles};
use seekless_device::{BlockDevice, Clock, DeviceError, Durable, Ticket, VirtualClock};
use seekless_units::{BlockNo, ByteLen, Lba, Nanos};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds of a tick: a hundredth of a second.
const TICK: u64 = SECOND / 100;

pub(super) fn limited(max_softdeps: usize) -> Config {
    let mut config = soft_updates();
    config.limits.max_softdeps = max_softdeps;
    config
}

/// Makes changes until so many are in the graph. One is of data, which is due
/// last; all others wait for it.
pub(super) fn grow(rig: &mut Rig, to: usize) -> ChangeId {
    let data = rig.fill_block(9, 1, Role::Data);
    for n in rig.cache.blocks().softdeps()..to {
        rig.put(0, n as u32 * 2, 1, Role::EntryAdd, &[data]);
    }
    assert_eq!(rig.cache.blocks().softdeps(), to);
    rig.requests();
    data
}

/// How often it asked the syncer to hurry, and how often it slept.
pub(super) fn asked(rig: &Rig) -> (u64, u64) {
    (rig.cache.blocks().counters().rush_requests, rig.cache.blocks().counters().max_limit_hit)
}

#[test]
fn three_quarters_are_full() {
    let mut rig = Rig::new(limited(400));
    grow(&mut rig, 300);
    rig.cache.begin().unwrap();
    assert_eq!(asked(&rig), (0, 0));
    grow(&mut rig, 301);
    rig.cache.begin().unwrap();
    assert_eq!(asked(&rig), (1, 0));
    assert_eq!(rig.clock.now(), Nanos::ZERO, "nobody slept");
    assert_eq!(rig.requests(), [""; 0], "and nothing is done before the next second");
}

/// Actions that wait are in the graph as well.
#[test]
fn actions_count_as_changes_do() {
    let mut rig = Rig::new(limited(400));
    let data = grow(&mut rig, 200);
    for n in 0..101 {
        assert_eq!(asked(&rig), (0, 0));
        rig.cache.changes().defer(&[data], Kind::NameRemoved, n);
        rig.cache.begin().unwrap();
    }
    assert_eq!(asked(&rig), (1, 0));
    rig.cache.sync().unwrap();
    assert_eq!(std::iter::from_fn(|| rig.cache.changes().next_ready()).count(), 101);
    rig.cache.begin().unwrap();
    assert_eq!(asked(&rig), (1, 0), "there is room again");
}

#[test]
fn fifteen_requests_may_be_unserved() {
    let mut config = limited(400);
    config.limits.tickdelay = 50;
    let mut rig = Rig::new(config);
    grow(&mut rig, 310);
    for n in 1..=15 {
        rig.cache.begin().unwrap();
        assert_eq!(asked(&rig), (n, 0));
    }
    assert_eq!(rig.requests(), [""; 0]);
    rig.cache.begin().unwrap();
    assert_eq!(asked(&rig), (15, 1), "and now it sleeps");
    assert_eq!(rig.clock.now(), Nanos::new(50 * TICK));
    // The syncer has come by the names, put them off, and then all was written
    // that may be: no names before the data.
    assert_eq!(rig.requests(), ["behind 72+8"]);
    assert!(rig.cache.blocks().softdeps() < 310);
}

/// Who sleeps waits for the slots that were asked for, and for more only where
/// they do not make room.
#[test]
fn a_sleep_does_the_slots_that_were_asked_for() {
    let mut rig = Rig::new(limited(400));
    rig.fill_block(20, 1, Role::Data);
    let bitmap = rig.fill_block(9, 1, Role::BitmapSet);
    for n in 0..310 {
        rig.put(0, n * 2, 1, Role::EntryAdd, &[bitmap]);
    }
    rig.requests();
    for _ in 0..16 {
        rig.cache.begin().unwrap();
    }
    assert_eq!(asked(&rig), (15, 1));
    // The bitmap is due at ten, the names that wait for it at fifteen.
    assert_eq!(rig.requests(), ["behind 72+8", "behind 0+1"]);
    assert_eq!(rig.cache.blocks().softdeps(), 1, "the contents of the file, due at thirty");
    assert_eq!(rig.clock.now(), Nanos::new(2 * TICK));
}

/// As the documentation has them.
#[test]
fn the_defaults_are_those_that_are_documented() {
    let config = Config::new(seekless_cache::Discipline::SoftUpdates);
    let limits = config.limits;
    assert_eq!((limits.max_softdeps, limits.tickdelay), (400_000, 2));
    assert_eq!((config.capacity.get(), limits.max_undo.get()), (64 << 20, 64 << 20));
    assert_eq!(config.cluster.get(), 128 << 10);
    assert!(config.barriers && config.page.is_none());
    assert_eq!((config.later, config.at_once), (Roles::NONE, Roles::NONE));
}

/// A slot of the wheel is done a second early.
#[test]
fn a_request_lets_the_wheel_run_ahead_by_a_slot() {
    for (requests, second) in [(0, 2), (1, 1), (2, 1)] {
        let mut config = limited(40);
        config.ages.inode = 2;
        let mut rig = Rig::new(config);
        grow(&mut rig, 31);
        rig.fill(240, 1, 1, Role::Attributes);
        for _ in 0..requests {
            rig.cache.begin().unwrap();
        }
        assert_eq!(asked(&rig), (requests, 0));
        assert_eq!(rig.pass(3), [(second, "behind 240+1".into())], "{requests} requests");
    }
}

#[test]
fn at_the_cap_the_caller_sleeps_at_once() {
    let mut rig = Rig::new(limited(400));
    // An eighth of the limit, at most 64, is kept for what has begun.
    grow(&mut rig, 350);
    rig.cache.begin().unwrap();
    assert_eq!(asked(&rig), (1, 0));
    grow(&mut rig, 351);
    rig.cache.begin().unwrap();
    assert_eq!(asked(&rig), (2, 1));
    assert!(rig.cache.blocks().counters().most_softdeps <= 351);
    let mut rig = Rig::new(limited(10_000));
    for block in 0..20 {
        let data = rig.fill_block(50 + block, 1, Role::Data);
        for n in 0..500 {
            rig.put(block * PER_BLOCK, n, 1, Role::EntryAdd, &[data]);
        }
        if rig.cache.blocks().softdeps() > 9936 - 501 {
            break;
        }
    }
    let data = rig.fill_block(90, 1, Role::Data);
    let more = 9936 - rig.cache.blocks().softdeps();
    for n in 0..more {
        rig.put(800, n as u32, 1, Role::EntryAdd, &[data]);
    }
    rig.cache.begin().unwrap();
    assert_eq!(asked(&rig), (1, 0), "64 places are left");
    rig.put(808, 0, 1, Role::EntryAdd, &[data]);
    rig.cache.begin().unwrap();
    assert_eq!(asked(&rig), (2, 1), "63 are left");
}

#[test]
fn a_sleep_takes_tickdelay_hundredths_of_a_second() {
    for (tickdelay, ticks) in [(0, 2), (1, 2), (2, 2), (3, 3), (20, 20), (100, 100)] {
        let mut config = limited(400);
        config.limits.tickdelay = tickdelay;
        let mut rig = Rig::new(config);
        grow(&mut rig, 360);
        rig.cache.begin().unwrap();
        assert_eq!(asked(&rig), (1, 1));
        assert_eq!(rig.cache.blocks().counters().slept, Nanos::new(ticks * TICK), "{tickdelay}");
        assert_eq!(rig.clock.now(), Nanos::new(ticks * TICK), "{tickdelay}");
    }
}

/// What the writes take is part of the sleep.
#[test]
fn a_sleep_is_as_long_as_the_writes_at_least() {
    for (service, slept) in [(1, 20), (15, 20), (20, 20), (35, 35)] {
        let mut config = limited(400);
        config.limits.tickdelay = 20;
        let mut rig = Rig::new(config);
        rig.disk.take_time(service * TICK);
        grow(&mut rig, 360);
        rig.cache.begin().unwrap();
        assert_eq!(rig.requests(), ["behind 72+8"]);
        assert_eq!(rig.cache.blocks().counters().slept, Nanos::new(slept * TICK), "{service}");
        assert_eq!(rig.clock.now(), Nanos::new(slept * TICK), "{service}");
    }
}

/// Nobody else flushes while a caller sleeps.
#[test]
fn a_sleep_makes_room_where_flushes_are_performed_apart() {
    let mut config = limited(400);
    config.barriers = true;
    let mut rig = Rig::new(config);
    rig.cache.transactions().set_commits(Commits::Apart);
    grow(&mut rig, 360);
    let mut sleeps = 0;
    while rig.cache.blocks().softdeps() > 300 {
        rig.cache.begin().unwrap();
        sleeps += 1;
        assert!(sleeps < 4, "{} are left", rig.cache.blocks().softdeps());
    }
    assert_eq!(rig.clock.now(), Nanos::new(sleeps * 2 * TICK));
}

/// No write completes before it is waited for.
#[derive(Default)]
struct Busy {
    submitted: AtomicU64,
    waited: AtomicU64,
}

impl BlockDevice for Busy {
    fn len(&self) -> ByteLen {
        ByteLen::new(1 << 20)
    }

    fn read(&self, _at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        buf.fill(0);
        Ok(())
    }

    fn write(&self, _at: Lba, _buf: &[u8]) -> Result<(), DeviceError> {
        panic!("nothing is written at once");
    }

    fn submit(&self, _: Lba, _: &[u8], _: Durable) -> Result<Option<Ticket>, DeviceError> {
        Ok(Some(Ticket::new(self.submitted.fetch_add(1, Ordering::Relaxed))))
    }

    fn is_complete(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        Ok(ticket.number() < self.waited.load(Ordering::Relaxed))
    }

    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        self.waited.fetch_max(ticket.number() + 1, Ordering::Relaxed);
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// Who has slept gets its memory though the disk has not caught up, until twice the limit is taken.
#[test]
fn memory_is_granted_after_a_sleep() {
    let (disk, clock) = (Arc::new(Busy::default()), Arc::new(VirtualClock::new()));
    let mut config = limited(400);
    config.limits.tickdelay = 7;
    let mut cache: Cache<u64> =
        Cache::new(disk.clone(), clock.clone(), 8192, 1024, config).unwrap();
    let change = |cache: &mut Cache<u64>, at: u32, role, after: &[ChangeId]| {
        let piece = [Piece { offset: at % 8000, bytes: &[1] }];
        let block = if role == Role::Data { 72 } else { u64::from(at / 8000) * 8 };
        cache.changes().change(BlockNo::new(block), &piece, role, after).unwrap()
    };
    let data = change(&mut cache, 0, Role::Data, &[]);
    for n in 0..400 {
        change(&mut cache, n * 40, Role::EntryAdd, &[data]);
    }
    for sleeps in 1..=3 {
        cache.begin().unwrap();
        let counters = cache.blocks().counters();
        assert_eq!(counters.max_limit_hit, sleeps);
        assert_eq!(clock.now(), Nanos::new(sleeps * 7 * TICK), "as long as tickdelay, each time");
    }
    assert!(disk.submitted.load(Ordering::Relaxed) > 0, "the syncer works meanwhile");
    assert_eq!(disk.waited.load(Ordering::Relaxed), 0, "but nobody waits for it");
    assert!(cache.blocks().softdeps() > 400);
    for n in 400..820 {
        change(&mut cache, n * 40, Role::EntryAdd, &[data]);
    }
    cache.begin().unwrap();
    assert!(disk.waited.load(Ordering::Relaxed) > 0);
    assert!(cache.blocks().softdeps() <= 801, "{}", cache.blocks().softdeps());
}

/// Changes bytes after contents that are not on the disk, which are returned.
fn undo_of(rig: &mut Rig, bytes: usize) -> ChangeId {
    // Zeros would not be kept.
    rig.fill_block(0, 7, Role::Data);
    rig.cache.sync().unwrap();
    let data = rig.fill_block(9, 1, Role::Data);
    let undo = vec![3; bytes];
    let piece = [seekless_cache::Piece { offset: 0, bytes: &undo }];
    rig.cache
        .changes()
        .change(seekless_units::BlockNo::ZERO, &piece, Role::EntryAdd, &[data])
        .unwrap();
    rig.requests();
    data
}

#[test]
fn what_is_kept_to_undo_with_is_bounded_as_the_graph_is() {
    let mut config = soft_updates();
    config.limits.max_undo = ByteLen::new(1000);
    config.limits.tickdelay = 7;
    for (bytes, wanted) in [(750, (0, 0)), (751, (1, 0)), (1000, (1, 0)), (1001, (1, 1))] {
        let mut rig = Rig::new(config);
        undo_of(&mut rig, (bytes - HEAD) as usize);
        assert_eq!(rig.cache.blocks().undo_bytes(), ByteLen::new(bytes));
        rig.cache.begin().unwrap();
        assert_eq!(asked(&rig), wanted, "{bytes}");
        let slept = wanted.1 * 7 * TICK;
        assert_eq!(rig.cache.blocks().counters().slept, Nanos::new(slept), "{bytes}");
        // It slept while the data were written: the names wait no more.
        let left = if wanted.1 == 0 { bytes } else { 0 };
        assert_eq!(rig.cache.blocks().undo_bytes(), ByteLen::new(left), "{bytes}");
        assert_eq!(rig.cache.blocks().counters().most_undo, ByteLen::new(bytes));
        let before = asked(&rig);
        rig.cache.sync().unwrap();
        assert_eq!(rig.cache.blocks().undo_bytes(), ByteLen::ZERO, "{bytes}");
        rig.cache.begin().unwrap();
        assert_eq!(asked(&rig), before, "there is room again");
    }
}

/// Changes that need no undoing keep nothing; those taken back give it up.
#[test]
fn only_what_waits_is_kept_to_undo_with() {
    let mut rig = Rig::new(soft_updates());
    rig.put(0, 0, 1, Role::EntryAdd, &[]);
    assert_eq!(rig.cache.blocks().undo_bytes(), ByteLen::ZERO);
    let data = rig.fill_block(9, 1, Role::Data);
    let name = rig.put(8, 0, 1, Role::EntryAdd, &[data]);
    assert_eq!(rig.cache.blocks().undo_bytes(), ByteLen::new(HEAD + 1));
    assert!(rig.cache.changes().revert(name));
    assert_eq!(rig.cache.blocks().undo_bytes(), ByteLen::ZERO);
    let data = undo_of(&mut rig, 40);
    assert_eq!(rig.cache.blocks().undo_bytes(), ByteLen::new(HEAD + 40));
    rig.cache.settle(&[data]).unwrap();
    assert_eq!(rig.cache.blocks().undo_bytes(), ByteLen::ZERO, "it may be written now");
    assert!(rig.cache.is_dirty());
}

/// With three quarters of the limit dirty the oldest are written until half are left.
#[test]
fn the_oldest_dirty_buffers_are_written_when_there_are_many() {
    let mut config = Config::new(Discipline::Async);
    config.barriers = false;
    config.dirty = Some(32);
    config.cluster = blocks(1);
    let mut rig = Rig::new(config);
    // One that is changed again and again counts once.
    for _ in 0..200 {
        rig.cache.begin().unwrap();
        rig.fill_block(100, 1, Role::Data);
    }
    assert_eq!(rig.requests(), [""; 0]);
    for block in 0..24 {
        rig.cache.begin().unwrap();
        rig.fill_block(block * 2, 2, Role::Data);
    }
    rig.cache.begin().unwrap();
    assert_eq!(rig.requests().len(), 0, "24 and the first are looked at with the next");
    for block in 24..27 {
        rig.fill_block(block * 2, 2, Role::Data);
        rig.cache.begin().unwrap();
    }
    let written = rig.requests();
    assert!(written.contains(&"behind 800+8".to_string()), "the oldest: {written:?}");
    assert!(written.contains(&"behind 0+8".to_string()), "{written:?}");
    assert!((10..=12).contains(&written.len()), "half are left: {written:?}");
    assert!(!written.contains(&"behind 416+8".to_string()), "not the youngest");
}
