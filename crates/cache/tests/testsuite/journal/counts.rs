//! When a journal commits and makes room, by what it counts.

use crate::journal::model::{BLOCK, DEVICE, Model, recover};
use crate::journal::run::{Run, until_it_fails};
use seekless_cache::{Cache, CommitReason, Commits, Config, Discipline, JournalMode, Piece, Role};
use seekless_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use seekless_fs::FsError;
use seekless_units::{BlockNo, Extent, Lba, Nanos};
use std::sync::Arc;

fn cache(mode: JournalMode) -> (Cache<u64>, Arc<VirtualClock>) {
    let device = Arc::new(MemoryDevice::new(vec![0; DEVICE]));
    let clock = Arc::new(VirtualClock::new());
    let config = Config::new(Discipline::Journal(mode));
    let mut cache =
        Cache::new(device.clone(), clock.clone(), BLOCK as u32, BLOCK as u32, config).unwrap();
    cache.transactions().open_log(Box::new(Model::new(device))).unwrap();
    (cache, clock)
}

fn touch(cache: &mut Cache<u64>, block: u64, role: Role) {
    let write = |bytes: &mut [u8]| {
        bytes[0] = bytes[0].wrapping_add(1);
        Ok(())
    };
    cache.changes().edit(BlockNo::new(block), 0, 8, role, write).unwrap();
}

fn operation(cache: &mut Cache<u64>, blocks: std::ops::Range<u64>) {
    cache.begin_with(blocks.end - blocks.start).unwrap();
    blocks.for_each(|block| touch(cache, block, Role::EntryAdd));
    cache.end().unwrap();
}

#[test]
fn what_has_changed_is_committed_after_five_seconds() {
    let (mut cache, clock) = cache(JournalMode::Ordered);
    assert_eq!(cache.next_due(), None);
    clock.sleep(Nanos::new(1_500_000_000));
    operation(&mut cache, 0..2);
    assert_eq!(cache.next_due(), Some(Nanos::new(6_500_000_000)));
    clock.sleep(Nanos::new(4_999_999_999));
    cache.tick().unwrap();
    assert_eq!(cache.blocks().counters().journal.commits(), 0);
    clock.sleep(Nanos::new(1));
    cache.tick().unwrap();
    let counted = cache.blocks().counters().journal;
    assert_eq!((counted.timed_commits, counted.commits(), counted.logged), (1, 1, 2));
    assert_eq!(cache.next_due(), None, "nothing is due at home");
    // Somebody else's commits are only begun.
    cache.transactions().set_commits(Commits::Apart);
    operation(&mut cache, 0..1);
    clock.sleep(Nanos::new(5_000_000_000));
    cache.tick().unwrap();
    let mut parts = 0;
    while let Some(work) = cache.transactions().commit_work().unwrap() {
        operation(&mut cache, 0..1);
        parts += 1;
        work.perform();
    }
    assert_eq!(parts, 2, "copies, and the record");
    assert_eq!(cache.blocks().counters().journal.frozen, 1);
}

#[test]
fn a_quarter_of_the_log_is_a_transaction_and_three_quarters_a_checkpoint() {
    let (mut cache, _) = cache(JournalMode::Ordered);
    // Of 96 blocks a transaction has 24, two of which are not copies.
    for block in 0..22 {
        operation(&mut cache, block..block + 1);
    }
    assert_eq!(cache.blocks().counters().journal.commits(), 0);
    operation(&mut cache, 22..23);
    let counted = cache.blocks().counters().journal;
    assert_eq!((counted.full_commits, counted.logged, counted.waits), (1, 22, 1));
    for block in 23..50 {
        operation(&mut cache, block..block + 1);
    }
    assert_eq!(cache.blocks().counters().journal.checkpoints, 0, "two transactions and a part");
    let mut block = 0;
    while cache.blocks().counters().journal.checkpoints == 0 {
        operation(&mut cache, block % 50..block % 50 + 1);
        block += 1;
    }
    let counted = cache.blocks().counters().journal;
    assert!((3..=4).contains(&counted.full_commits), "{counted:?}");
    assert!(counted.retired >= 1 && counted.retired < counted.commits(), "{counted:?}");
    assert!(counted.checkpointed > 0 && counted.checkpointed <= counted.logged, "{counted:?}");
}

#[test]
fn what_is_too_long_is_refused_before_it_begins() {
    let (mut cache, _) = cache(JournalMode::Ordered);
    let refused = cache.begin_with(40);
    assert!(matches!(refused, Err(FsError::NoSpace(_))), "{refused:?}");
    operation(&mut cache, 0..20);
    // Within an operation it can be asked for more, as long as there is room.
    cache.begin_with(1).unwrap();
    assert!(!cache.extend(20));
    touch(&mut cache, 30, Role::EntryAdd);
    assert_eq!(cache.credits_left(), Some(0));
    assert!(cache.extend(1));
    assert_eq!(cache.credits_left(), Some(1));
    cache.end().unwrap();
    // One that asks for less than it takes is never committed.
    cache.begin_with(1).unwrap();
    (30..60).for_each(|block| touch(&mut cache, block, Role::EntryAdd));
    assert!(matches!(cache.end(), Err(FsError::NoSpace(_))));
    assert!(matches!(cache.transactions().commit(CommitReason::Asked), Err(FsError::ReadOnly(_))));
    assert_eq!(cache.blocks().counters().journal.commits(), 0);
}

#[test]
fn contents_go_home_at_their_own_time() {
    let (mut cache, clock) = cache(JournalMode::Writeback);
    cache.begin().unwrap();
    touch(&mut cache, 40, Role::Data);
    touch(&mut cache, 3, Role::EntryAdd);
    cache.end().unwrap();
    clock.sleep(Nanos::new(6_000_000_000));
    cache.tick().unwrap();
    let run = |block| Extent::new(BlockNo::new(block), 1);
    assert!(cache.is_unsettled(run(40)) && !cache.is_unsettled(run(3)));
    clock.sleep(Nanos::new(31_000_000_000));
    cache.tick().unwrap();
    assert!(!cache.is_unsettled(run(40)));
    // All of the log stays until there is need of room.
    assert_eq!(cache.blocks().counters().journal.checkpoints, 0);
    cache.transactions().close_log().unwrap();
    assert_eq!(cache.blocks().counters().journal.checkpointed, 1);
    assert!(cache.begin().is_err(), "the log is closed");
}

#[test]
fn a_device_that_fails_stops_all_changes() {
    let runs = [|| Run::new(JournalMode::Ordered), || Run::late(JournalMode::Ordered, 5)];
    for (n, writes) in (0..12).flat_map(|writes| [(0, writes), (1, writes)]) {
        let (mut run, error) = until_it_fails(runs[n](), writes);
        assert!(error.to_string().contains("worn out"), "{error}");
        assert!(matches!(run.cache.begin_with(1), Err(FsError::ReadOnly(_))));
        assert!(matches!(run.cache.transactions().close_log(), Err(FsError::ReadOnly(_))));
        assert!(crate::journal::model::is_marked(&run.disk.bytes()), "to be recovered");
    }
}

#[test]
fn a_commit_that_is_given_up_is_a_failure() {
    let (mut cache, _) = cache(JournalMode::Ordered);
    operation(&mut cache, 0..1);
    assert!(cache.transactions().begin_commit(CommitReason::Asked).unwrap());
    drop(cache.transactions().commit_work().unwrap().expect("a part"));
    assert!(cache.transactions().commit(CommitReason::Asked).is_err());
    assert!(matches!(cache.begin(), Err(FsError::ReadOnly(_))));
}

#[test]
fn who_needs_a_commit_waits_for_who_performs_it() {
    let (mut cache, _) = cache(JournalMode::Ordered);
    operation(&mut cache, 0..1);
    assert!(cache.transactions().begin_commit(CommitReason::Asked).unwrap());
    let work = cache.transactions().commit_work().unwrap().expect("a part");
    assert!(cache.transactions().commit_work().unwrap().is_none(), "it is under way");
    let other = std::thread::spawn(move || work.perform());
    operation(&mut cache, 0..1);
    cache.transactions().commit(CommitReason::Asked).unwrap();
    other.join().unwrap();
    assert_eq!(cache.blocks().counters().journal.commits(), 2);
    assert!(!cache.is_dirty());
}

/// Whoever waits for a transaction gets all that is to be done until it is committed, also
/// behind another that somebody commits; nobody keeps the cache while the device works.
#[test]
fn a_commit_is_waited_for_without_the_cache() {
    let (mut cache, clock) = cache(JournalMode::Ordered);
    assert_eq!(cache.last_uncommitted(), None);
    operation(&mut cache, 0..1);
    assert_eq!(cache.last_uncommitted(), None, "who needs a commit performs it");
    cache.transactions().set_commits(Commits::Apart);
    let run = |block| Extent::new(BlockNo::new(block), 1);
    clock.sleep(Nanos::new(6_000_000_000));
    cache.tick().unwrap();
    let by_the_ticker = cache.transactions().commit_work().unwrap().expect("a part");
    operation(&mut cache, 1..2);
    assert!(cache.await_commit(&[run(0)]) && cache.await_commit(&[run(5), run(1)]));
    assert!(!cache.await_commit(&[run(5)]));
    let number = cache.last_uncommitted().expect("a change");
    // What is dirty is written meanwhile, and flushed when that does not disturb.
    touch(&mut cache, 40, Role::Data);
    clock.sleep(Nanos::new(40_000_000_000));
    let (writes, flushes) =
        (cache.blocks().counters().async_writes, cache.blocks().counters().flushes);
    cache.tick().unwrap();
    assert_eq!(cache.blocks().counters().async_writes, writes + 1);
    assert_eq!(cache.blocks().counters().flushes, flushes, "a flush would wait for theirs");
    let waits = cache.transactions().work_towards(number).unwrap().expect("somebody to wait for");
    let other = std::thread::spawn(move || by_the_ticker.perform());
    waits.perform();
    other.join().unwrap();
    let mut parts = 0;
    while let Some(work) = cache.transactions().work_towards(number).unwrap() {
        operation(&mut cache, 2..3);
        work.perform();
        parts += 1;
    }
    assert!(!cache.await_commit(&[run(0), run(1)]) && cache.await_commit(&[run(2)]));
    assert!((3..=4).contains(&parts), "the rest of one commit, and another: {parts}");
    let counted = cache.blocks().counters().journal;
    assert_eq!((counted.timed_commits, counted.asked_commits, counted.commits()), (1, 1, 2));
    assert_eq!(counted.blocking_waits, 0);
    // Who does not ask first waits, and that is counted.
    cache.transactions().commit(CommitReason::Asked).unwrap();
    assert!(cache.blocks().counters().journal.blocking_waits > 0);
}

/// An operation that fits no more waits for the commit before; that is told ahead.
#[test]
fn an_operation_is_told_what_it_would_wait_for() {
    let (mut cache, _) = cache(JournalMode::Ordered);
    cache.transactions().set_commits(Commits::Apart);
    let mut block = 0;
    while cache.blocks().counters().journal.full_commits < 3 {
        let mut parts = 0;
        while let Some(work) = cache.transactions().work_before_operation().unwrap() {
            work.perform();
            parts += 1;
        }
        assert!(parts == 0 || parts <= 3, "{parts}");
        cache.begin().unwrap();
        touch(&mut cache, block % 20, Role::EntryAdd);
        cache.end().unwrap();
        block += 1;
    }
    assert_eq!(cache.blocks().counters().journal.blocking_waits, 0);
    assert!(cache.blocks().counters().journal.waits >= 3);
}

/// Contents that must not be there before a change that is logged are logged with it;
/// and what a recovery would bring home is not changed behind its back.
#[test]
fn contents_that_the_log_has_are_changed_through_the_log() {
    let device = Arc::new(MemoryDevice::new(vec![0; DEVICE]));
    let clock = Arc::new(VirtualClock::new());
    let config = Config::new(Discipline::Journal(JournalMode::Ordered));
    let mut cache: Cache<u64> =
        Cache::new(device.clone(), clock, BLOCK as u32, BLOCK as u32, config).unwrap();
    cache.transactions().open_log(Box::new(Model::new(device.clone()))).unwrap();
    let shown = || {
        let mut bytes = vec![0; DEVICE];
        device.read(Lba::new(0), &mut bytes).unwrap();
        let replayed = recover(&mut bytes);
        (bytes[3 * BLOCK], bytes[40 * BLOCK], replayed)
    };
    cache.begin_with(4).unwrap();
    let cut = [Piece { offset: 0, bytes: &[1; 8] }];
    let cut = cache.changes().change(BlockNo::new(3), &cut, Role::PointerCut, &[]).unwrap();
    let zeroed = [Piece { offset: 0, bytes: &[2; 8] }];
    cache.changes().change(BlockNo::new(40), &zeroed, Role::Data, &[cut]).unwrap();
    cache.end().unwrap();
    assert!(!cache.write_some(|_| true).unwrap(), "neither may be seen without the other");
    assert_eq!(shown(), (0, 0, 0));
    cache.transactions().commit(CommitReason::Asked).unwrap();
    assert_eq!(shown(), (1, 2, 1));
    // Contents alone, and the log has a copy that is older.
    cache.begin_with(4).unwrap();
    touch(&mut cache, 40, Role::Data);
    cache.end().unwrap();
    cache.sync().unwrap();
    assert_eq!(shown(), (1, 3, 2));
    cache.transactions().close_log().unwrap();
    assert_eq!(shown(), (1, 3, 0));
}

/// Contents that change while they are on their way home are waited for as they are
/// now.
#[test]
fn who_waits_for_contents_gets_the_last_of_them() {
    let (mut cache, _) = cache(JournalMode::Ordered);
    let write = |cache: &mut Cache<u64>, byte: u8| {
        let fill = |bytes: &mut [u8]| {
            bytes.fill(byte);
            Ok(())
        };
        cache.changes().edit(BlockNo::new(40), 0, 8, Role::Data, fill).unwrap().1
    };
    cache.begin_with(2).unwrap();
    let data = write(&mut cache, 1);
    let pointer = [Piece { offset: 0, bytes: &[1; 8] }];
    cache.changes().change(BlockNo::new(3), &pointer, Role::PointerSet, &[data]).unwrap();
    cache.end().unwrap();
    assert!(cache.transactions().begin_commit(CommitReason::Asked).unwrap());
    let contents = cache.transactions().commit_work().unwrap().expect("contents");
    let newer = write(&mut cache, 2);
    assert!(!cache.write_some(|block| block == 40).unwrap(), "it must not overtake");
    contents.perform();
    cache.settle(&[newer]).unwrap();
    assert!(cache.is_committed(newer) && !cache.is_dirty());
    assert_eq!(cache.blocks().counters().journal.ordered, 1);
}

/// As a kernel's writeback does: thirty seconds after the first of them was committed, all
/// blocks go home that no transaction holds.
#[test]
fn blocks_go_home_when_they_are_old() {
    let device = Arc::new(MemoryDevice::new(vec![0; DEVICE]));
    let clock = Arc::new(VirtualClock::new());
    let mut config = Config::new(Discipline::Journal(JournalMode::Ordered));
    config.home_after = Some(30);
    let mut cache: Cache<u64> =
        Cache::new(device.clone(), clock.clone(), BLOCK as u32, BLOCK as u32, config).unwrap();
    cache.transactions().open_log(Box::new(Model::new(device.clone()))).unwrap();
    let home = |block: usize| {
        let mut bytes = vec![0; DEVICE];
        device.read(Lba::new(0), &mut bytes).unwrap();
        bytes[block * BLOCK]
    };
    let second = |cache: &mut Cache<u64>| {
        clock.sleep(Nanos::new(1_000_000_000));
        cache.tick().unwrap();
    };
    operation(&mut cache, 3..5);
    (0..5).for_each(|_| second(&mut cache));
    assert_eq!(cache.blocks().counters().journal.commits(), 1);
    assert_eq!(cache.next_due(), Some(Nanos::new(35_000_000_000)));
    (0..29).for_each(|_| second(&mut cache));
    // One is in the running transaction, another is committed just before the sweep.
    operation(&mut cache, 4..5);
    operation(&mut cache, 6..7);
    cache.transactions().commit(CommitReason::Asked).unwrap();
    operation(&mut cache, 4..5);
    assert_eq!((home(3), home(4), home(6), cache.blocks().counters().journal.swept), (0, 0, 0, 0));
    second(&mut cache);
    assert!(home(3) != 0 && home(4) == 0 && home(6) != 0);
    assert_eq!(cache.blocks().counters().journal.swept, 2);
    cache.transactions().commit(CommitReason::Asked).unwrap();
    (0..30).for_each(|_| second(&mut cache));
    assert!(home(4) != 0);
    assert_eq!(cache.blocks().counters().journal.swept, 3);
    cache.transactions().close_log().unwrap();
}
