//! What is on the disk before what: flushes, and the order of rounds.

use crate::requests::{PER_BLOCK, Rig, run, soft_updates};
use seekless_cache::{Discipline, Kind, Role};

/// Data and a bitmap, a pointer that waits for both, a name that waits for it.
fn chain(rig: &mut Rig) -> [seekless_cache::ChangeId; 4] {
    let data = rig.fill_block(9, 1, Role::Data);
    let bitmap = rig.fill(40, 1, 1, Role::BitmapSet);
    let pointer = rig.put(32, 0, 1, Role::PointerSet, &[data, bitmap]);
    let name = rig.put(24, 0, 1, Role::EntryAdd, &[pointer]);
    rig.requests();
    [data, bitmap, pointer, name]
}

#[test]
fn the_device_is_flushed_between_a_write_and_what_depends_on_it() {
    let mut config = soft_updates();
    config.barriers = true;
    let mut rig = Rig::new(config);
    let [_, _, _, name] = chain(&mut rig);
    rig.cache.settle(&[name]).unwrap();
    assert_eq!(
        rig.requests(),
        ["write 40+1", "write 72+8", "flush", "write 32+1", "flush", "write 24+1", "flush"]
    );
    assert_eq!(rig.cache.blocks().counters().flushes, 3);
    chain(&mut rig);
    rig.cache.sync().unwrap();
    assert_eq!(
        rig.requests(),
        ["behind 40+1", "behind 72+8", "flush", "behind 32+1", "flush", "behind 24+1", "flush"]
    );
    rig.cache.sync().unwrap();
    assert_eq!(rig.requests(), [""; 0], "nothing was written, nothing is flushed");
}

#[test]
fn what_is_written_at_once_is_flushed_at_once() {
    for discipline in [Discipline::Sync, Discipline::Normal] {
        let mut config = soft_updates();
        config.discipline = discipline;
        config.barriers = true;
        let mut rig = Rig::new(config);
        rig.fill(8, 1, 1, Role::InodeInit);
        rig.fill(16, 1, 1, Role::EntryAdd);
        assert_eq!(rig.requests(), ["write 8+1", "flush", "write 16+1", "flush"], "{discipline}");
    }
}

#[test]
fn without_barriers_nothing_is_flushed() {
    let mut rig = Rig::new(soft_updates());
    let [_, _, _, name] = chain(&mut rig);
    rig.cache.settle(&[name]).unwrap();
    assert_eq!(rig.requests(), ["write 40+1", "write 72+8", "write 32+1", "write 24+1"]);
    assert_eq!(rig.cache.blocks().counters().flushes, 0);
}

/// The syncer writes the name first, without what it waits for.
#[test]
fn what_waits_is_undone_in_the_copy_and_stays_in_memory() {
    let mut rig = Rig::new(soft_updates());
    let [data, _, pointer, name] = chain(&mut rig);
    rig.put(24, 100, 5, Role::EntryRemove, &[]);
    rig.cache.write_some(|block| block == 3).unwrap();
    assert_eq!(rig.requests(), ["behind 24+1"]);
    assert_eq!((rig.disk.byte(24, 0), rig.disk.byte(24, 100)), (0, 5));
    assert_eq!(rig.read(24, 1)[0], 1);
    assert!([data, pointer, name].iter().all(|&id| !rig.cache.is_committed(id)));
    // Only the first of its conditions: the pointer still waits.
    rig.cache.settle(&[data]).unwrap();
    assert!(!rig.cache.write_some(|block| block == 4).unwrap());
    rig.cache.settle(&[name]).unwrap();
    assert_eq!(rig.disk.byte(24, 0), 1);
    assert!(!rig.cache.is_dirty());
}

#[test]
fn to_settle_writes_what_is_waited_for_and_nothing_else() {
    let mut rig = Rig::new(soft_updates());
    let [_, bitmap, pointer, name] = chain(&mut rig);
    let other = rig.fill_block(20, 1, Role::Data);
    rig.cache.settle(&[bitmap]).unwrap();
    assert_eq!(rig.requests(), ["write 40+1"]);
    rig.cache.settle(&[pointer]).unwrap();
    assert_eq!(rig.requests(), ["write 72+8", "write 32+1"]);
    assert!(!rig.cache.is_committed(name) && !rig.cache.is_committed(other));
    rig.cache.settle_runs(&[run(24, 1), run(200, 8)]).unwrap();
    assert_eq!(rig.requests(), ["write 24+1"]);
    assert!(rig.cache.is_committed(name));
    assert!(rig.cache.is_unwritten(run(160, 8)), "nobody asked for it");
}

#[test]
fn to_settle_runs_writes_what_no_order_is_kept_of() {
    let mut config = soft_updates();
    config.discipline = Discipline::Async;
    let mut rig = Rig::new(config);
    rig.fill_block(1, 1, Role::Data);
    rig.fill(16, 2, 2, Role::Data);
    rig.fill_block(3, 3, Role::Data);
    rig.cache.settle_runs(&[run(8, 9)]).unwrap();
    assert_eq!(rig.requests(), ["write 8+10"]);
    // A fragment of a block that is dirty elsewhere.
    rig.fill(32, 1, 1, Role::Data);
    rig.cache.settle_runs(&[run(33, 7)]).unwrap();
    assert_eq!(rig.requests(), [""; 0]);
}

#[test]
fn blocks_in_which_nothing_waits_go_first() {
    let mut rig = Rig::new(soft_updates());
    let data = rig.fill_block(9, 1, Role::Data);
    for block in 0..4 {
        rig.put(block * PER_BLOCK, 0, 1, Role::PointerSet, &[data]);
        rig.put(block * PER_BLOCK, 100, 1, Role::EntryRemove, &[]);
    }
    rig.requests();
    assert!(rig.cache.sync_round().unwrap());
    assert_eq!(rig.requests(), ["behind 72+8"]);
    assert!(rig.cache.sync_round().unwrap());
    let wanted = ["behind 0+1", "behind 8+1", "behind 16+1", "behind 24+1"];
    assert_eq!(rig.requests(), wanted, "in order of place");
    assert!(!rig.cache.sync_round().unwrap());
    assert_eq!(rig.cache.blocks().counters().rollbacks, 0, "so nothing had to be undone");
}

#[test]
fn actions_come_when_the_last_change_is_on_the_disk_in_order() {
    let mut rig = Rig::new(soft_updates());
    let [data, bitmap, pointer, name] = chain(&mut rig);
    rig.cache.changes().defer(&[name], Kind::NameRemoved, 4);
    rig.cache.changes().defer(&[pointer], Kind::FreeBlocks, 3);
    rig.cache.changes().defer(&[data, bitmap], Kind::FreeInode, 2);
    rig.cache.changes().defer(&[data], Kind::FreeInode, 1);
    rig.cache.changes().defer(&[data], Kind::FreeInode, 5);
    let mut done = Vec::new();
    for block in [9, 5, 4, 3] {
        assert_eq!(rig.cache.changes().next_ready(), None);
        rig.cache.write_some(|at| at == block).unwrap();
        done.extend(
            std::iter::from_fn(|| rig.cache.changes().next_ready()).map(|action| (block, action)),
        );
    }
    assert_eq!(done, [(9, 1), (9, 5), (5, 2), (4, 3), (3, 4)]);
    assert_eq!(rig.cache.blocks().softdeps(), 0);
}

/// Everything is written until an action is ready: it may change more.
#[test]
fn a_sync_stops_for_actions() {
    let mut rig = Rig::new(soft_updates());
    let [data, ..] = chain(&mut rig);
    rig.cache.changes().defer(&[data], Kind::FreeInode, 1);
    rig.cache.sync().unwrap();
    assert_eq!(rig.requests(), ["behind 40+1", "behind 72+8"]);
    assert_eq!(rig.cache.changes().next_ready(), Some(1));
    rig.cache.sync().unwrap();
    assert_eq!(rig.requests(), ["behind 32+1", "behind 24+1"]);
    assert!(!rig.cache.is_dirty());
}

fn with_barriers(discipline: Discipline) -> Rig {
    let mut config = soft_updates();
    config.discipline = discipline;
    config.barriers = true;
    Rig::new(config)
}

/// However much is due, and whoever waits for it.
#[test]
fn a_pass_of_the_syncer_has_one_flush() {
    for discipline in [Discipline::SoftUpdates, Discipline::Async] {
        let mut rig = with_barriers(discipline);
        for block in [3, 9, 20] {
            let bitmap = rig.fill(block * PER_BLOCK, 1, 1, Role::BitmapSet);
            rig.put(240, block as u32, 1, Role::PointerSet, &[bitmap]);
        }
        let mut requests: Vec<String> = rig.pass(10).into_iter().map(|(_, name)| name).collect();
        let last = requests.pop();
        assert_eq!(last.as_deref(), Some("flush"), "{discipline}");
        assert!(requests.len() >= 3 && !requests.contains(&"flush".into()), "{requests:?}");
        rig.cache.sync().unwrap();
        rig.requests();
        assert_eq!(rig.pass(10), [], "{discipline}: nothing was written since");
    }
}

/// Room is made by writing; nobody waits for that to be durable before the next
/// pass.
#[test]
fn what_makes_room_is_flushed_with_the_next_pass() {
    let mut config = soft_updates();
    config.discipline = Discipline::Async;
    config.barriers = true;
    config.capacity = crate::requests::blocks(8);
    let mut rig = Rig::new(config);
    for block in 0..40 {
        rig.cache.begin().unwrap();
        rig.fill_block(block, 1, Role::Data);
    }
    let requests = rig.requests();
    assert!(requests.len() > 2 && !requests.contains(&"flush".into()), "{requests:?}");
    assert_eq!(rig.cache.next_due(), Some(seekless_units::Nanos::new(crate::requests::SECOND)));
    assert_eq!(rig.pass(1), [(1, "flush".into())]);
}

/// As `fsync` does it: contents, then the inode, then names.
#[test]
fn what_does_not_depend_on_each_other_shares_a_flush() {
    let mut rig = with_barriers(Discipline::SoftUpdates);
    rig.fill_block(9, 1, Role::Data);
    rig.fill(32, 1, 1, Role::Attributes);
    rig.fill(24, 1, 1, Role::EntryRemove);
    rig.cache.complete_runs(&[run(72, 8)]).unwrap();
    rig.cache.complete_runs(&[run(32, 1), run(24, 1)]).unwrap();
    rig.cache.blocks_mut().flush().unwrap();
    assert_eq!(rig.requests(), ["write 72+8", "write 24+1", "write 32+1", "flush"]);
    rig.cache.complete_runs(&[run(72, 8)]).unwrap();
    rig.cache.blocks_mut().flush().unwrap();
    assert_eq!(rig.requests(), [""; 0], "the disk has all of it");
    // What waits for something is there after it all the same.
    let data = rig.fill_block(9, 2, Role::Data);
    let size = rig.put(32, 8, 1, Role::PointerSet, &[data]);
    rig.cache.complete_runs(&[run(72, 8)]).unwrap();
    assert!(!rig.cache.is_committed(data), "nobody has flushed");
    rig.cache.complete_runs(&[run(32, 1)]).unwrap();
    rig.cache.blocks_mut().flush().unwrap();
    assert_eq!(rig.requests(), ["write 72+8", "flush", "write 32+1", "flush"]);
    assert!(rig.cache.is_committed(size));
}

/// A flush that fails may have lost anything: the next that does not fail says
/// nothing of that.
#[test]
fn what_a_flush_has_failed_for_is_never_on_the_disk() {
    let mut rig = with_barriers(Discipline::SoftUpdates);
    let [_, _, _, name] = chain(&mut rig);
    rig.disk.fail_flushes(1);
    let error = rig.cache.settle(&[name]).unwrap_err().to_string();
    assert!(error.contains("worn out"), "{error}");
    rig.requests();
    assert!(rig.cache.settle(&[name]).is_err() && rig.cache.blocks_mut().flush().is_err());
    assert!(rig.cache.sync().is_err() && rig.cache.begin().is_err());
    assert!(!rig.cache.is_committed(name));
    assert_eq!((rig.requests(), rig.cache.broken_invariant()), (vec![], None));
}
