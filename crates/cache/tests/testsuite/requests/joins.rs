//! One name for several changes.

use crate::requests::{Rig, run, soft_updates};
use seekless_cache::{ChangeId, Config, Discipline, Kind, Role};

#[test]
fn a_join_is_on_the_disk_with_the_last_of_its_changes() {
    let mut rig = Rig::new(soft_updates());
    let one = rig.fill_block(3, 1, Role::Data);
    let other = rig.fill_block(5, 1, Role::Data);
    let join = rig.cache.changes().join(&[one, other, one, ChangeId::COMMITTED]);
    let &[join] = join.as_slice() else { panic!("{join:?}") };
    rig.put(80, 0, 1, Role::EntryAdd, &[join]);
    rig.cache.changes().defer(&[join], Kind::FreeInode, 7);
    assert_eq!(rig.cache.blocks().softdeps(), 4, "a join is no change: three, and an action");
    rig.requests();
    rig.cache.settle(&[one]).unwrap();
    assert_eq!(
        (rig.requests().join(", "), rig.cache.changes().next_ready()),
        ("write 24+8".into(), None)
    );
    assert!(!rig.cache.is_committed(join));
    // What is on the disk is left out, and what is left needs no other name.
    assert_eq!(rig.cache.changes().join(&[one, other]).as_slice(), [other]);
    rig.cache.settle(&[join]).unwrap();
    assert_eq!(
        (rig.requests().join(", "), rig.cache.changes().next_ready()),
        ("write 40+8".into(), Some(7))
    );
    assert!(rig.cache.is_committed(join));
    assert!(rig.cache.changes().join(&[one, other, join]).is_empty());
    rig.cache.sync().unwrap();
    assert_eq!(
        (rig.requests().join(", "), rig.cache.blocks().softdeps()),
        ("behind 80+1".into(), 0)
    );
}

/// Changes that each go after all before them, ten thousand of them, ask for two orders each;
/// and when the first is on the disk, all joins are told without the depth of a call for each.
#[test]
fn who_waits_for_ever_more_changes_waits_for_one_join() {
    const COUNT: u64 = 10_000;
    let mut rig = Rig::new(soft_updates());
    let first = rig.fill(0, 1, 1, Role::Data);
    let mut joined = vec![first];
    for n in 0..COUNT {
        let name = rig.put(8, (n % 1024) as u32, 1, Role::EntryAdd, &joined);
        // Of the same block: none is written before another.
        let more = rig.put(1, (n % 1024) as u32, n as u8, Role::LinkCount, &[first]);
        joined.push(more);
        joined = rig.cache.changes().join(&joined).to_vec();
        assert_eq!((joined.len(), rig.cache.is_committed(name)), (1, false));
    }
    let orders = rig.cache.blocks().counters().orders;
    assert!(orders <= 4 * COUNT, "{orders} orders of {COUNT} changes and names");
    rig.cache.settle(&joined).unwrap();
    assert!(rig.cache.is_committed(joined[0]));
    assert_eq!(rig.cache.broken_invariant(), None);
    rig.cache.sync().unwrap();
    assert_eq!(rig.cache.blocks().softdeps(), 0);
}

#[test]
fn where_no_order_is_kept_nobody_waits_for_a_join() {
    for discipline in [Discipline::Sync, Discipline::Normal, Discipline::Async] {
        let mut rig = Rig::new(Config::new(discipline));
        let one = rig.fill_block(3, 1, Role::Data);
        let other = rig.fill_block(5, 1, Role::Data);
        assert!(rig.cache.changes().join(&[one, other]).is_empty(), "{discipline}");
    }
}

/// What a change is joined with is on the disk, and the change itself matters no more once
/// something else is: who waits for both waits for that.
#[test]
fn what_is_forgotten_is_waited_for_behind_a_join_as_well() {
    let mut rig = Rig::new(soft_updates());
    let gone = rig.put(0, 100, 2, Role::EntryRemove, &[]);
    let data = rig.fill_block(9, 1, Role::Data);
    let moved = rig.put(8, 0, 1, Role::PointerMove, &[data]);
    let join = rig.cache.changes().join(&[gone, moved]);
    rig.cache.changes().defer(&join, Kind::NameRemoved, 7);
    let cleared = rig.put(16, 0, 1, Role::PointerClear, &[]);
    rig.cache.changes().forget(run(0, 1), cleared);
    assert_eq!(rig.cache.broken_invariant(), None);
    rig.cache.settle(&[moved]).unwrap();
    assert_eq!(rig.cache.changes().next_ready(), None, "the disk may have the name still");
    rig.cache.settle(&[cleared]).unwrap();
    assert_eq!(rig.cache.changes().next_ready(), Some(7));
    assert_eq!(rig.cache.broken_invariant(), None);
}
