//! What the cache keeps, and what it lets go.

use crate::requests::{BLOCK, PER_BLOCK, Rig, blocks, soft_updates};
use seekless_cache::Role;
use seekless_units::ByteLen;

fn rig(capacity: u64) -> Rig {
    let mut config = soft_updates();
    config.capacity = blocks(capacity);
    config.cluster = blocks(4);
    Rig::new(config)
}

#[test]
fn the_least_recently_used_go_first() {
    let mut rig = rig(8);
    for block in 0..8 {
        rig.read(block * PER_BLOCK, PER_BLOCK);
    }
    rig.read(0, 1);
    rig.requests();
    // One above what it may hold, which the next read makes good.
    for block in [8, 9, 10] {
        rig.read(block * PER_BLOCK, PER_BLOCK);
    }
    assert_eq!(rig.requests(), ["read 64+8", "read 72+8", "read 80+8"]);
    rig.read(0, 8);
    assert_eq!(rig.requests(), [""; 0], "read again a while ago");
    for block in [3, 4, 5, 6, 7, 8, 9, 10] {
        rig.read(block * PER_BLOCK, PER_BLOCK);
    }
    assert_eq!(rig.requests(), [""; 0], "no more went than had to");
    rig.read(8, 8);
    rig.read(16, 8);
    assert_eq!(rig.requests(), ["read 8+8", "read 16+8"]);
}

#[test]
fn reading_keeps_to_the_bound_and_to_what_is_dirty() {
    let mut rig = rig(16);
    for block in 0..4 {
        rig.fill_block(block, 7, Role::Data);
    }
    let data = rig.fill_block(4, 7, Role::Data);
    rig.put(5 * PER_BLOCK, 0, 7, Role::PointerSet, &[data]);
    rig.requests();
    for block in (10..200).step_by(5) {
        rig.read_run(block * PER_BLOCK, 5 * PER_BLOCK);
        let most = blocks(16).get() + 4 * BLOCK;
        assert!(rig.cache.blocks().bytes() <= most, "{} at {block}", rig.cache.blocks().bytes());
        let least = if block < 20 { 11 } else { 12 } * BLOCK;
        assert!(rig.cache.blocks().bytes() >= least, "{} at {block}", rig.cache.blocks().bytes());
        rig.read(3, 1);
    }
    for block in 210..250 {
        rig.read(block * PER_BLOCK, 1);
        assert!(rig.cache.blocks().bytes() <= blocks(17).get(), "{}", rig.cache.blocks().bytes());
    }
    assert!(rig.requests().iter().all(|request| request.starts_with("read ")));
    for block in 0..6 {
        assert_eq!(rig.read(block * PER_BLOCK, 1)[0], 7, "block {block}");
    }
    assert_eq!(rig.requests(), [""; 0], "what is dirty or waits was never let go");
}

/// A run far larger than the cache: what comes in pushes out what came before.
#[test]
fn a_long_run_stays_in_bounds() {
    let mut rig = rig(8);
    rig.read_run(0, 200 * PER_BLOCK);
    assert_eq!(rig.requests().len(), 50, "four blocks at a time");
    assert!(rig.cache.blocks().bytes() <= blocks(8 + 4).get(), "{}", rig.cache.blocks().bytes());
}

#[test]
fn an_operation_begins_with_room() {
    let mut rig = rig(16);
    for block in 0..40 {
        rig.fill_block(block, block as u8 + 1, Role::Data);
    }
    assert_eq!(rig.cache.blocks().bytes(), blocks(40).get(), "nothing is written meanwhile");
    assert_eq!(rig.requests(), [""; 0]);
    rig.cache.begin().unwrap();
    assert!(rig.cache.blocks().bytes() <= blocks(16).get(), "{}", rig.cache.blocks().bytes());
    assert!(rig.requests().iter().all(|request| request.starts_with("behind ")));
    let counters = rig.cache.blocks().counters();
    assert_eq!((counters.sync_writes, counters.written_bytes), (0, blocks(40).get()));
    for block in 0..40 {
        assert_eq!(rig.read(block * PER_BLOCK, 1)[0], block as u8 + 1);
    }
    // A cache that is within its bound writes nothing.
    let mut small = self::rig(16);
    for block in 0..16 {
        small.fill_block(block, 1, Role::Data);
    }
    small.cache.begin().unwrap();
    assert_eq!(small.requests(), [""; 0]);
}

/// More blocks than are looked at in one go wait for the one that was used last.
#[test]
fn room_is_made_by_writing_what_is_waited_for() {
    let mut rig = rig(8);
    let data = rig.fill_block(0, 1, Role::Data);
    for block in 1..150 {
        rig.put(block * PER_BLOCK, 0, 1, Role::PointerSet, &[data]);
    }
    rig.read(0, 1);
    rig.requests();
    rig.cache.begin().unwrap();
    assert!(rig.cache.blocks().bytes() <= blocks(8).get(), "{}", rig.cache.blocks().bytes());
    assert_eq!(rig.requests()[0], "behind 0+8");
    assert!((0..150).all(|block| rig.disk.byte(block * PER_BLOCK, 0) == 1));
    assert_eq!(rig.cache.blocks().counters().rollbacks, 0);
}

/// The oldest are written, not everything: 128 blocks are looked at in one go.
#[test]
fn what_was_used_last_is_not_written_for_room() {
    let mut rig = rig(190);
    for block in 0..200 {
        // No neighbours, so that none goes along.
        rig.fill(block * PER_BLOCK, 1, 1, Role::Data);
    }
    rig.cache.begin().unwrap();
    assert!(rig.cache.blocks().bytes() <= blocks(190).get());
    let written: Vec<u64> =
        (0..200).filter(|block| rig.disk.byte(block * PER_BLOCK, 0) == 1).collect();
    assert_eq!(written, (0..128).collect::<Vec<_>>());
    // What was written is dropped in parts: a sixteenth of the cache.
    assert_eq!(rig.cache.blocks().bytes(), blocks(200 - 190 / 16).get());
}

/// Younger blocks go along with their neighbours, as far as a cluster goes.
#[test]
fn neighbours_go_along_when_room_is_made() {
    let mut rig = rig(190);
    for block in 0..200 {
        rig.fill_block(block, 1, Role::Data);
    }
    rig.cache.begin().unwrap();
    let written = (0..200).filter(|block| rig.disk.byte(block * PER_BLOCK, 0) == 1);
    assert_eq!(written.collect::<Vec<_>>(), (0..128 + 4).collect::<Vec<_>>());
    assert_eq!(rig.cache.blocks().counters().async_writes, 33);
}

/// Pages count, not blocks.
#[test]
fn pieces_count_in_pages_against_the_bound() {
    let mut config = soft_updates();
    config.capacity = ByteLen::new(8 * 4096);
    config.page = Some(ByteLen::new(4096));
    let mut rig = Rig::new(config);
    for block in 0..8 {
        rig.read(block * PER_BLOCK, 1);
    }
    rig.requests();
    for block in 0..8 {
        rig.read(block * PER_BLOCK, 1);
    }
    assert_eq!(rig.requests(), [""; 0], "eight pages fit");
    for block in 8..20 {
        rig.read(block * PER_BLOCK, 1);
        assert!(rig.cache.blocks().bytes() <= 9 * 4096);
    }
}

/// Memory that held another block shows nothing of it.
#[test]
fn what_is_used_again_shows_nothing_of_before() {
    let mut rig = rig(2);
    for block in 0..10 {
        rig.fill_block(block, 9, Role::Data);
        rig.cache.begin().unwrap();
    }
    rig.cache.sync().unwrap();
    for block in 20..30 {
        assert_eq!(rig.read(block * PER_BLOCK + 3, 2), [0; 2048]);
        rig.fill(block * PER_BLOCK, 1, 3, Role::Data);
        rig.cache.sync().unwrap();
        assert_eq!(rig.read(block * PER_BLOCK + 1, 2), [0; 2048]);
    }
}
