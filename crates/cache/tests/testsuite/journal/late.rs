//! What counts as being on the disk, where writes complete late.

use crate::journal::disk::{Disk, stable};
use crate::journal::model::{BLOCK, DEVICE, Model};
use seekless_cache::{
    Cache, ChangeId, CommitReason, Commits, Config, Discipline, JournalMode, Role,
};
use seekless_device::{Clock, VirtualClock};
use seekless_units::{BlockNo, Extent, Nanos};
use std::sync::Arc;

fn cache() -> (Cache<u64>, Arc<Disk>) {
    let (cache, disk, _) = timed_cache();
    (cache, disk)
}

fn timed_cache() -> (Cache<u64>, Arc<Disk>, Arc<VirtualClock>) {
    let disk = Arc::new(Disk::new(vec![0; DEVICE]));
    let config = Config::new(Discipline::Journal(JournalMode::Ordered));
    let clock = Arc::new(VirtualClock::new());
    let mut cache =
        Cache::new(disk.clone(), clock.clone(), BLOCK as u32, BLOCK as u32, config).expect("cache");
    cache.transactions().open_log(Box::new(Model::new(disk.clone()))).expect("log");
    (cache, disk, clock)
}

fn write(cache: &mut Cache<u64>, block: u64, byte: u8, role: Role) -> ChangeId {
    cache.begin_with(1).expect("begin");
    let fill = |bytes: &mut [u8]| {
        bytes.fill(byte);
        Ok(())
    };
    let ((), id) = cache.changes().edit(BlockNo::new(block), 0, BLOCK, role, fill).expect("edit");
    cache.end().expect("end");
    id
}

/// The first byte of a block if the power is lost now, with all that may be lost.
fn kept(disk: &Disk, block: usize) -> u8 {
    let (base, requests) = disk.requests();
    stable(&base, &requests)[block * BLOCK]
}

/// A flush that somebody else performed before contents were written is not one of
/// theirs.
#[test]
fn a_commit_flushes_what_had_completed_before() {
    let (mut cache, disk) = cache();
    write(&mut cache, 3, 1, Role::EntryAdd);
    assert!(cache.transactions().begin_commit(CommitReason::Asked).expect("commit"));
    cache.transactions().commit_work().expect("part").expect("copies").perform();
    write(&mut cache, 40, 2, Role::Data);
    cache.settle_runs(&[Extent::new(BlockNo::new(40), 1)]).expect("settle");
    assert_eq!(kept(&disk, 40), 2);
    // What was written before the part does not need another flush.
    write(&mut cache, 41, 4, Role::Data);
    cache.complete_runs(&[Extent::new(BlockNo::new(41), 1)]).expect("write");
    write(&mut cache, 3, 3, Role::EntryAdd);
    let flushes = cache.blocks().counters().flushes;
    cache.transactions().commit(CommitReason::Asked).expect("commit");
    assert_eq!(kept(&disk, 41), 4);
    cache.blocks_mut().flush().expect("flush");
    assert_eq!(
        cache.blocks().counters().flushes,
        flushes + 1,
        "of the copies, and of what was before"
    );
}

/// Contents that are written again and again are on the disk once the last write has
/// completed and was flushed.
#[test]
fn what_is_written_again_is_not_on_the_disk() {
    let (mut cache, disk) = cache();
    disk.complete_late(7);
    let mut committed = 0;
    for round in 0..600u32 {
        let byte = (round % 250 + 1) as u8;
        let id = write(&mut cache, 40, byte, Role::Data);
        for _ in 0..3 {
            cache.write_some(|_| true).expect("write");
            assert_eq!(cache.broken_invariant(), None);
            if cache.is_committed(id) {
                assert_eq!(kept(&disk, 40), byte, "round {round}");
                committed += 1;
            }
        }
    }
    assert!(committed > 50, "{committed}");
}

/// As above, of blocks that go home from the log.
#[test]
fn what_is_logged_again_is_not_at_home() {
    let (mut cache, disk) = cache();
    disk.complete_late(8);
    for round in 0..600u32 {
        let byte = (round % 250 + 1) as u8;
        write(&mut cache, 3, byte, Role::EntryAdd);
        cache.transactions().commit(CommitReason::Asked).expect("commit");
        for _ in 0..round % 4 {
            cache.write_some(|_| true).expect("write");
            assert_eq!(cache.broken_invariant(), None);
        }
        if round % 5 == 0 {
            cache.transactions().close_log().expect("close");
            assert_eq!(kept(&disk, 3), byte, "round {round}");
            cache.transactions().open_log(Box::new(Model::new(disk.clone()))).expect("log");
        }
    }
    assert!(cache.blocks().counters().journal.checkpoints > 100);
}

/// The cache performs commits itself, and nobody waits for their writes: not when one is
/// due, and not when a transaction is full.
#[test]
fn commits_go_on_beside_operations() {
    let (mut cache, disk, clock) = timed_cache();
    disk.complete_late(9);
    cache.transactions().set_commits(Commits::Beside);
    let commits = |cache: &Cache<u64>| cache.blocks().counters().journal.commits();
    let mut beside = 0;
    for round in 0..20u64 {
        let byte = (round + 1) as u8;
        let id = write(&mut cache, 3, byte, Role::EntryAdd);
        clock.sleep(Nanos::new(5_000_000_000));
        let mut other = 4;
        while !cache.is_committed(id) {
            write(&mut cache, other, byte, Role::EntryAdd);
            beside += u64::from(commits(&cache) > round && !cache.is_committed(id));
            other += 1;
        }
        assert_eq!(cache.broken_invariant(), None);
        // What is stable now is of this round, through the log or at home.
        let (base, requests) = disk.requests();
        let mut bytes = stable(&base, &requests);
        crate::journal::model::recover(&mut bytes);
        assert_eq!(bytes[3 * BLOCK], byte, "round {round}");
        cache.transactions().commit(CommitReason::Asked).expect("commit");
        cache.transactions().close_log().expect("close");
        cache.transactions().open_log(Box::new(Model::new(disk.clone()))).expect("log");
    }
    assert!(beside > 40, "{beside} operations");
    // Of 96 blocks a transaction has 24: the second one that is full waits for the first.
    let full = |cache: &Cache<u64>| cache.blocks().counters().journal.full_commits;
    let before = full(&cache);
    for block in 3..40 {
        write(&mut cache, block, 1, Role::EntryAdd);
    }
    assert_eq!(full(&cache), before + 1);
    assert!(cache.next_due().is_some());
    cache.transactions().commit(CommitReason::Asked).expect("commit");
}
