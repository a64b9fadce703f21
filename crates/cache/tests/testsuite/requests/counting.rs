//! The counters say what the device saw.

use crate::requests::device::Totals;
use crate::requests::{BLOCK, PER_BLOCK, Rig, SECOND, blocks, soft_updates};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::{Cache, Counters, Discipline, Kind, Role};
use seekless_device::Clock;
use seekless_units::{BlockNo, ByteLen, Nanos};

fn totals(counters: &Counters) -> Totals {
    Totals {
        reads: counters.reads,
        read_bytes: counters.read_bytes,
        waited: counters.sync_writes,
        behind: counters.async_writes,
        written_bytes: counters.written_bytes,
        flushes: counters.flushes,
    }
}

#[test]
fn only_the_missing_fragments_are_read_and_only_what_was_there_is_a_hit() {
    let mut rig = Rig::new(soft_updates());
    let read = |rig: &mut Rig, at, fragments| {
        let before = rig.cache.blocks().counters().hits;
        rig.read(at, fragments);
        (rig.requests().join(", "), rig.cache.blocks().counters().hits - before)
    };
    assert_eq!(read(&mut rig, 26, 2), ("read 26+2".into(), 0));
    assert_eq!(read(&mut rig, 27, 1), (String::new(), 1));
    // Both sides of what is there.
    assert_eq!(read(&mut rig, 24, 8), ("read 24+2, read 28+4".into(), 0));
    assert_eq!(read(&mut rig, 24, 8), (String::new(), 1));
    // Eight bytes are a fragment of the device.
    rig.cache.blocks_mut().read(BlockNo::new(40), 1000, 8).unwrap();
    assert_eq!(rig.requests(), ["read 40+1"]);
    let counters = rig.cache.blocks().counters();
    assert_eq!((counters.reads, counters.read_bytes, counters.hits), (4, 9 * 1024, 2));
}

#[test]
fn a_run_is_read_in_clusters_and_is_no_hit_before_it_is_there() {
    let mut config = soft_updates();
    config.cluster = blocks(2);
    let mut rig = Rig::new(config);
    rig.read_run(8, 5 * PER_BLOCK);
    assert_eq!(rig.requests(), ["read 8+16", "read 24+16", "read 40+8"]);
    assert_eq!(rig.cache.blocks().counters().hits, 0);
    rig.read_run(8, 5 * PER_BLOCK);
    assert_eq!(rig.requests(), [""; 0]);
    assert_eq!(rig.cache.blocks().counters().hits, 5);
    // What is there already is not read again, and ends a request.
    rig.read_run(0, 8 * PER_BLOCK);
    assert_eq!(rig.requests(), ["read 0+8", "read 48+16"]);
    let counters = rig.cache.blocks().counters();
    assert_eq!((counters.reads, counters.read_bytes, counters.hits), (5, 8 * BLOCK, 10));
    // A run that ends in a block reads no more of it than that.
    rig.read_run(80, PER_BLOCK + 3);
    assert_eq!(rig.requests(), ["read 80+8", "read 88+3"]);
}

#[test]
fn what_is_filled_is_not_read() {
    let mut rig = Rig::new(soft_updates());
    rig.fill(17, 2, 5, Role::Data);
    assert_eq!(rig.read(17, 2), [5; 2048]);
    assert_eq!(rig.requests(), [""; 0]);
    rig.put(20, 8, 1, Role::EntryAdd, &[]);
    assert_eq!(rig.requests(), ["read 20+1"]);
}

#[test]
fn a_write_is_sync_when_somebody_waits_for_it() {
    let mut rig = Rig::new(soft_updates());
    let id = rig.fill(8, 3, 1, Role::Data);
    rig.fill(64, 1, 2, Role::Data);
    rig.cache.settle(&[id]).unwrap();
    assert_eq!(rig.requests(), ["write 8+3"]);
    assert!(rig.cache.is_committed(id));
    let counters = *rig.cache.blocks().counters();
    assert_eq!((counters.sync_writes, counters.async_writes), (1, 0));
    assert_eq!(counters.written_bytes, 3 * 1024);
    rig.cache.sync().unwrap();
    assert_eq!(rig.requests(), ["behind 64+1"]);
    let counters = *rig.cache.blocks().counters();
    assert_eq!((counters.sync_writes, counters.async_writes), (1, 1));
    assert_eq!(counters.written_bytes, 4 * 1024);
    rig.cache.settle(&[id]).unwrap();
    rig.cache.sync().unwrap();
    assert_eq!(rig.requests(), [""; 0], "there is nothing left to write");
    assert_eq!(*rig.cache.blocks().counters(), counters);
}

/// Bytes before those of a piece that may have to be undone.
pub(crate) const HEAD: u64 = 5;

#[test]
fn what_is_undone_is_counted_by_change_and_by_write() {
    let mut rig = Rig::new(soft_updates());
    let data = rig.fill_block(9, 7, Role::Data);
    for offset in [8, 16, 24] {
        rig.put(0, offset, 1, Role::PointerSet, &[data]);
    }
    rig.put(0, 100, 2, Role::EntryRemove, &[]);
    rig.put(8, 0, 1, Role::PointerSet, &[data]);
    let counters = *rig.cache.blocks().counters();
    assert_eq!((counters.rollbacks, counters.rolled_back_writes), (0, 0));
    assert_eq!(counters.most_undo, ByteLen::new(4 * (HEAD + 1)));
    assert_eq!(rig.cache.blocks().undo_bytes(), ByteLen::new(4 * (HEAD + 1)));
    rig.requests();
    // The block with three changes that wait; the other has nothing to write.
    assert!(rig.cache.write_some(|block| block < 2).unwrap());
    assert_eq!(rig.requests(), ["behind 0+1"]);
    let seen = [8, 16, 24, 100].map(|offset| rig.disk.byte(0, offset));
    assert_eq!(seen, [0, 0, 0, 2], "what waits is undone, and nothing else");
    let counters = *rig.cache.blocks().counters();
    assert_eq!((counters.rollbacks, counters.rolled_back_writes), (3, 1));
    rig.cache.sync().unwrap();
    assert_eq!(rig.requests(), ["behind 72+8", "behind 0+1", "behind 8+1"]);
    let counters = *rig.cache.blocks().counters();
    assert_eq!((counters.rollbacks, counters.rolled_back_writes), (3, 1));
    assert_eq!(counters.most_undo, ByteLen::new(4 * (HEAD + 1)));
    assert_eq!(rig.cache.blocks().undo_bytes(), ByteLen::ZERO);
}

#[test]
fn dependencies_are_counted_by_kind_and_orders_one_by_one() {
    let mut rig = Rig::new(soft_updates());
    let kind = |counts: &[u64; Kind::ALL.len()], kind: Kind| counts[kind as usize];
    let bitmap = rig.fill(8, 1, 1, Role::BitmapSet);
    let data = rig.fill(16, 1, 1, Role::Data);
    let pointer = rig.put(24, 0, 1, Role::PointerSet, &[bitmap, data]);
    let name = rig.put(32, 0, 1, Role::EntryAdd, &[pointer]);
    rig.cache.changes().defer(&[name, data], Kind::NameRemoved, 1);
    let counters = *rig.cache.blocks().counters();
    assert_eq!(counters.orders, 5);
    assert_eq!((rig.cache.blocks().softdeps(), counters.most_softdeps), (5, 5));
    for (which, made) in [
        (Kind::Bitmap, 1),
        (Kind::NewBlock, 1),
        (Kind::Pointer, 1),
        (Kind::NameAdded, 1),
        (Kind::NameRemoved, 1),
        (Kind::Directory, 0),
    ] {
        assert_eq!(kind(&counters.made, which), made, "{which:?}");
        assert_eq!(kind(&counters.live, which), made, "{which:?}");
    }
    // More of what is open is no further change; a change that lies in one
    // that waits is none either.
    assert_eq!(rig.fill(16, 1, 2, Role::Data), data);
    assert_eq!(rig.put(24, 0, 2, Role::PointerSet, &[data]), pointer);
    assert_eq!(rig.cache.blocks().softdeps(), 5);
    rig.cache.sync().unwrap();
    assert_eq!(rig.cache.changes().next_ready(), Some(1));
    assert_eq!(rig.cache.changes().next_ready(), None);
    let after = *rig.cache.blocks().counters();
    assert_eq!((rig.cache.blocks().softdeps(), after.most_softdeps), (0, 5));
    assert_eq!((after.made, after.live), (counters.made, [0; Kind::ALL.len()]));
    // Nobody waits for times and counts.
    rig.fill(40, 1, 1, Role::Attributes);
    rig.fill(48, 1, 1, Role::Summary);
    assert_eq!(
        (rig.cache.blocks().softdeps(), rig.cache.blocks().counters().made),
        (0, counters.made)
    );
    // Nothing waits for what is on the disk.
    rig.put(24, 0, 3, Role::PointerSet, &[bitmap, data]);
    rig.cache.changes().defer(&[bitmap], Kind::NameRemoved, 2);
    assert_eq!(rig.cache.changes().next_ready(), Some(2));
    assert_eq!(rig.cache.blocks().counters().orders, 5);
    assert_eq!(kind(&rig.cache.blocks().counters().made, Kind::NameRemoved), 2);
    assert_eq!(kind(&rig.cache.blocks().counters().live, Kind::NameRemoved), 0);
}

/// A write that failed has committed nothing, and is not counted.
#[test]
fn a_round_that_fails_commits_nothing() {
    let mut rig = Rig::new(soft_updates());
    let first = rig.fill(8, 1, 1, Role::Data);
    let second = rig.fill(24, 1, 1, Role::Data);
    rig.disk.fail_after(1);
    rig.cache.sync_round().unwrap_err();
    assert_eq!(rig.requests(), ["behind 8+1"]);
    assert!(!rig.cache.is_committed(first) && !rig.cache.is_committed(second));
    assert!(rig.cache.is_unwritten(crate::requests::run(8, 1)));
    assert!(rig.cache.is_dirty());
    assert_eq!(totals(rig.cache.blocks().counters()), rig.disk.totals());
    assert_eq!(rig.cache.blocks().counters().async_writes, 1);
}

/// Random work under every discipline, with flushes and without, in blocks and
/// in pieces: the device has the same figures.
#[test]
fn the_device_counts_the_same() {
    for (n, discipline) in Discipline::ALL.into_iter().enumerate() {
        for (barriers, page) in [(false, None), (true, None), (true, Some(ByteLen::new(4096)))] {
            let mut config = soft_updates();
            config.discipline = discipline;
            config.capacity = blocks(40);
            config.cluster = blocks(4);
            (config.barriers, config.page) = (barriers, page);
            let mut rig = Rig::new(config);
            let mut rng = Pcg64Mcg::seed_from_u64(n as u64);
            let mut below = |n: u32| u64::from(rng.next_u32() % n);
            // Changes that wait lie below block 100, what is filled above.
            let half = 100 * PER_BLOCK;
            let mut last = Vec::new();
            for _ in 0..2000 {
                let at = below(half as u32);
                match below(10) {
                    0 => drop(rig.read_run(2 * at, below(40) + 1)),
                    1 => rig.clock.sleep(Nanos::new(SECOND)),
                    2 => rig.cache.settle(&last).unwrap(),
                    3..5 => last = vec![rig.put(at, 8, 1, Role::EntryAdd, &last)],
                    5 => last = vec![rig.put(at, 8, 1, Role::LinkDrop, &[])],
                    n => {
                        let role = [Role::Data, Role::DataMove, Role::InodeInit];
                        let len = PER_BLOCK - at % PER_BLOCK;
                        last = vec![rig.fill(half + at, len, 3, role[n as usize % 3])];
                    }
                }
                rig.cache.begin().unwrap();
            }
            rig.cache.sync().unwrap();
            assert_eq!(
                totals(rig.cache.blocks().counters()),
                rig.disk.totals(),
                "{discipline} {barriers}"
            );
            assert!(rig.disk.totals().reads > 100 && rig.disk.totals().written_bytes > 1 << 20);
        }
    }
}

/// Where blocks are their own fragments, the last one comes in the request of the others,
/// though not all of it is asked for.
#[test]
fn a_run_of_small_blocks_takes_its_last_block_along() {
    let mut rig = Rig::new(soft_updates());
    let (disk, clock) = (rig.disk.clone(), rig.clock.clone());
    rig.cache = Cache::new(disk, clock, 1024, 1024, soft_updates()).unwrap();
    rig.cache.blocks_mut().read_run(BlockNo::new(8), 0, &mut [0; 2500]).unwrap();
    assert_eq!(rig.requests(), ["read 8+3"]);
    rig.cache.blocks_mut().read_run(BlockNo::new(20), 1000, &mut [0; 1048]).unwrap();
    assert_eq!(rig.requests(), ["read 20+2"]);
    rig.cache.blocks_mut().read_run(BlockNo::new(30), 0, &mut [0; 2048]).unwrap();
    assert_eq!(rig.requests(), ["read 30+2"]);
}
