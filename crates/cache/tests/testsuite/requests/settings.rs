//! Limits that change while the cache is in use.

use crate::requests::limits::{asked, grow, limited};
use crate::requests::{BLOCK, PER_BLOCK, Rig, SECOND, blocks, soft_updates};
use seekless_cache::{Limits, Role};
use seekless_device::Clock;
use seekless_units::{ByteLen, Nanos};

/// Nanoseconds of a tick: a hundredth of a second.
const TICK: u64 = SECOND / 100;

fn set_limits(rig: &mut Rig, change: impl FnOnce(&mut Limits)) {
    let (mut limits, capacity) = {
        let config = rig.cache.blocks().config();
        (config.limits, config.capacity)
    };
    change(&mut limits);
    rig.cache.blocks_mut().adjust(limits, capacity);
}

fn set_capacity(rig: &mut Rig, capacity: ByteLen) {
    let limits = rig.cache.blocks().config().limits;
    rig.cache.blocks_mut().adjust(limits, capacity);
}

#[test]
fn a_lower_limit_makes_the_next_operations_ask_the_syncer_to_hurry_until_it_is_raised() {
    let mut rig = Rig::new(soft_updates());
    grow(&mut rig, 310);
    for _ in 0..20 {
        rig.cache.begin().unwrap();
    }
    assert_eq!(asked(&rig), (0, 0));
    set_limits(&mut rig, |limits| limits.max_softdeps = 400);
    for n in 1..=7 {
        rig.cache.begin().unwrap();
        assert_eq!(asked(&rig), (n, 0));
    }
    set_limits(&mut rig, |limits| limits.max_softdeps = 416);
    for _ in 0..20 {
        rig.cache.begin().unwrap();
    }
    assert_eq!(asked(&rig), (7, 0), "310 are no more than three quarters");
    assert_eq!(rig.clock.now(), Nanos::ZERO, "nobody slept");
    set_limits(&mut rig, |limits| limits.max_softdeps = 412);
    for _ in 0..9 {
        rig.cache.begin().unwrap();
    }
    assert_eq!(asked(&rig), (15, 1), "requests that were not served count on");
}

/// All that was pending reaches the disk, and no more than twice the limit stays pending.
#[test]
fn a_limit_far_below_what_is_pending_is_safe() {
    for most in [1, 2, 7, 100] {
        let mut rig = Rig::new(soft_updates());
        grow(&mut rig, 1000);
        set_limits(&mut rig, |limits| {
            limits.max_softdeps = most;
            limits.tickdelay = 5;
        });
        rig.cache.begin().unwrap();
        assert_eq!(asked(&rig), (1, 1), "{most}");
        assert_eq!(rig.cache.blocks().counters().slept, Nanos::new(5 * TICK), "{most}");
        assert!(rig.cache.blocks().softdeps() <= most * 2, "{most}");
        for n in 1000..1040 {
            rig.cache.begin().unwrap();
            let data = rig.fill_block(9, 2, Role::Data);
            rig.put(0, n * 2, 1, Role::EntryAdd, &[data]);
        }
        rig.cache.sync().unwrap();
        assert_eq!(rig.cache.blocks().softdeps(), 0, "{most}");
        // The changes beside the first one, of 999 and 40 bytes.
        let written = (0..BLOCK as u32).filter(|at| rig.disk.byte(0, *at) == 1);
        assert_eq!(written.count(), 999 + 40, "{most}");
    }
}

#[test]
fn a_sleep_takes_the_tickdelay_of_its_beginning() {
    let mut rig = Rig::new(limited(400));
    for (ticks, all) in [(100, 100), (20, 120), (2, 122), (30, 152)] {
        set_limits(&mut rig, |limits| limits.tickdelay = ticks);
        grow(&mut rig, 400);
        rig.cache.begin().unwrap();
        assert_eq!(rig.cache.blocks().counters().slept, Nanos::new(all * TICK), "{ticks}");
        rig.cache.sync().unwrap();
    }
}

#[test]
fn memory_to_undo_changes_with_can_be_limited_and_granted_again() {
    let mut rig = Rig::new(soft_updates());
    grow(&mut rig, 200);
    let undo = rig.cache.blocks().undo_bytes().get();
    rig.cache.begin().unwrap();
    assert_eq!(asked(&rig), (0, 0));
    set_limits(&mut rig, |limits| limits.max_undo = ByteLen::new(undo + 8));
    rig.cache.begin().unwrap();
    assert_eq!(asked(&rig), (1, 0));
    set_limits(&mut rig, |limits| limits.max_undo = ByteLen::new(undo * 2));
    rig.cache.begin().unwrap();
    assert_eq!(asked(&rig), (1, 0));
    set_limits(&mut rig, |limits| limits.max_undo = ByteLen::new(undo - 1));
    rig.cache.begin().unwrap();
    assert_eq!(asked(&rig), (2, 1), "more is kept than may be");
    assert!(rig.cache.blocks().undo_bytes().get() < undo);
}

/// Dirty blocks are written before they go, and a larger cache keeps more again.
#[test]
fn a_cache_shrinks_and_grows_while_blocks_are_dirty() {
    let mut rig = Rig::new(soft_updates());
    let fill = |rig: &mut Rig, byte: u8| {
        for block in 0..64 {
            rig.cache.begin().unwrap();
            rig.fill_block(block, byte + block as u8, Role::Data);
        }
    };
    fill(&mut rig, 1);
    assert_eq!(rig.cache.blocks().bytes(), 64 * BLOCK);
    set_capacity(&mut rig, blocks(8));
    rig.cache.begin().unwrap();
    assert!(rig.cache.blocks().bytes() <= 8 * BLOCK, "{}", rig.cache.blocks().bytes());
    for block in 0..64 {
        let bytes = rig.read(block * PER_BLOCK, PER_BLOCK);
        assert!(bytes.iter().all(|byte| *byte == 1 + block as u8), "block {block}");
    }
    fill(&mut rig, 101);
    assert!(rig.cache.blocks().bytes() <= 9 * BLOCK, "{}", rig.cache.blocks().bytes());
    set_capacity(&mut rig, blocks(40));
    fill(&mut rig, 51);
    let kept = rig.cache.blocks().bytes();
    assert!((39 * BLOCK..=41 * BLOCK).contains(&kept), "{kept}");
    rig.cache.sync().unwrap();
    for block in 0..64 {
        let is_there = |at| rig.disk.byte(block * PER_BLOCK, at) == 51 + block as u8;
        assert!((0..BLOCK as u32).all(is_there), "block {block}");
    }
}

/// The counters of pending dependencies stay.
#[test]
fn counters_become_zero_but_for_what_is_pending() {
    let mut rig = Rig::new(limited(400));
    grow(&mut rig, 400);
    rig.cache.begin().unwrap();
    rig.cache.sync().unwrap();
    grow(&mut rig, 150);
    let before = *rig.cache.blocks().counters();
    assert!(before.most_softdeps == 400 && before.max_limit_hit == 1 && before.async_writes > 0);
    let undo = rig.cache.blocks().undo_bytes();
    rig.cache.blocks_mut().zero_counters();
    let after = *rig.cache.blocks().counters();
    let wanted = seekless_cache::Counters {
        live: before.live,
        dropped: before.dropped,
        most_softdeps: 150,
        most_undo: undo,
        ..Default::default()
    };
    assert_eq!(after, wanted);
    rig.cache.sync().unwrap();
    assert!(rig.cache.blocks().counters().live.iter().all(|live| *live == 0));
}
