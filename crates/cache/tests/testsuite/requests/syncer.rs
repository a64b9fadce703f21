//! When the syncer comes for a block.

use crate::requests::{PER_BLOCK, Rig, SECOND, soft_updates};
use seekless_cache::{Ages, Discipline, Role, Roles};
use seekless_device::Clock;
use seekless_units::Nanos;

fn at(second: u64, request: &str) -> (u64, String) {
    (second, request.into())
}

/// What each role is counted as: inode, directory, file.
const AGES: [(&[Role], usize); 3] = [
    (
        &[
            Role::InodeInit,
            Role::BitmapSet,
            Role::PointerSet,
            Role::IndirectInit,
            Role::Attributes,
            Role::Summary,
            Role::LinkCount,
        ],
        0,
    ),
    (&[Role::DirectoryInit, Role::EntryAdd, Role::EntryChange, Role::EntryRemove], 1),
    (&[Role::Data, Role::DataMove], 2),
];

#[test]
fn each_age_has_its_delay() {
    for discipline in [Discipline::SoftUpdates, Discipline::Async] {
        for (ages, delays) in [
            (Ages::CLASSIC, [10, 15, 30]),
            (Ages::FREEBSD, [28, 29, 30]),
            (Ages { inode: 7, directory: 3, file: 5 }, [7, 3, 5]),
            (Ages { inode: 0, directory: 1, file: 2 }, [1, 1, 2]),
        ] {
            for (roles, age) in AGES {
                for &role in roles {
                    let mut config = soft_updates();
                    config.ages = ages;
                    config.discipline = discipline;
                    let mut rig = Rig::new(config);
                    rig.pass(3);
                    rig.fill(8, 1, 1, role);
                    let due = Nanos::new((3 + delays[age]) * SECOND);
                    assert_eq!(rig.cache.next_due(), Some(due), "{role:?}");
                    let requests = rig.pass(40);
                    assert_eq!(requests, [at(3 + delays[age], "behind 8+1")], "{role:?} {ages:?}");
                    assert_eq!(rig.cache.next_due(), None);
                }
            }
        }
    }
}

#[test]
fn a_block_that_is_changed_again_is_not_put_off() {
    let mut rig = Rig::new(soft_updates());
    rig.fill(8, 1, 1, Role::InodeInit);
    rig.pass(9);
    rig.fill(8, 1, 2, Role::InodeInit);
    assert_eq!(rig.pass(1), [at(10, "behind 8+1")]);
    assert_eq!(rig.disk.byte(8, 0), 2);
    // Written, it begins anew.
    rig.fill(8, 1, 3, Role::InodeInit);
    assert_eq!(rig.pass(30), [at(20, "behind 8+1")]);
}

/// It is due as what was changed first.
#[test]
fn the_first_change_decides() {
    let mut rig = Rig::new(soft_updates());
    rig.fill(8, 1, 1, Role::Data);
    rig.fill(9, 1, 1, Role::InodeInit);
    rig.fill(16, 1, 1, Role::InodeInit);
    rig.fill(17, 1, 1, Role::Data);
    assert_eq!(rig.pass(40), [at(10, "behind 16+2"), at(30, "behind 8+2")]);
}

/// Written for somebody who waited, it is not written again when it was due.
#[test]
fn what_was_settled_is_due_no_more() {
    let mut rig = Rig::new(soft_updates());
    let id = rig.fill(8, 1, 1, Role::InodeInit);
    rig.pass(4);
    rig.cache.settle(&[id]).unwrap();
    rig.requests();
    assert_eq!(rig.pass(5), []);
    rig.fill(8, 1, 2, Role::InodeInit);
    assert_eq!(rig.pass(40), [at(19, "behind 8+1")]);
}

/// A block with something that waits is put off for five seconds, and then
/// written with that undone.
#[test]
fn what_waits_is_put_off_five_times() {
    let mut rig = Rig::new(soft_updates());
    let data = rig.fill_block(9, 1, Role::Data);
    rig.put(8, 0, 1, Role::EntryAdd, &[data]);
    rig.put(8, 100, 1, Role::EntryRemove, &[]);
    rig.requests();
    assert_eq!(rig.pass(25), [at(20, "behind 8+1")]);
    assert_eq!((rig.disk.byte(8, 0), rig.disk.byte(8, 100)), (0, 1));
    assert_eq!(rig.cache.blocks().counters().rollbacks, 1);
    // Without anything to write it is looked at every second, and never
    // written; once it need not wait it goes at the next slot.
    assert_eq!(rig.pass(10), [at(30, "behind 72+8"), at(31, "behind 8+1")]);
    assert_eq!(rig.disk.byte(8, 0), 1);
    assert!(!rig.cache.is_dirty());
    assert_eq!(rig.cache.blocks().counters().rollbacks, 1);
}

/// Five times for each write, not for each block.
#[test]
fn a_write_gives_new_patience() {
    let mut config = soft_updates();
    config.ages = Ages { inode: 10, directory: 15, file: 100 };
    let mut rig = Rig::new(config);
    let data = rig.fill_block(9, 1, Role::Data);
    rig.put(8, 0, 1, Role::EntryAdd, &[data]);
    rig.put(8, 100, 1, Role::EntryRemove, &[]);
    rig.requests();
    assert_eq!(rig.pass(20), [at(20, "behind 8+1")]);
    rig.put(8, 100, 2, Role::EntryRemove, &[]);
    assert_eq!(rig.pass(30), [at(26, "behind 8+1")]);
}

/// What comes due together goes in one round, in order of place.
#[test]
fn a_slot_is_written_in_order_of_place() {
    let mut rig = Rig::new(soft_updates());
    for block in [30, 4, 17, 8] {
        rig.fill(block * PER_BLOCK, 1, 1, Role::EntryRemove);
    }
    rig.pass(1);
    rig.fill(0, 1, 1, Role::EntryRemove);
    let wanted = ["behind 32+1", "behind 64+1", "behind 136+1", "behind 240+1"];
    let mut wanted: Vec<_> = wanted.iter().map(|request| at(15, request)).collect();
    wanted.push(at(16, "behind 0+1"));
    assert_eq!(rig.pass(20), wanted);
}

/// A tick after a long time does each slot that has passed, and none to come.
#[test]
fn a_late_tick_does_all_that_is_due() {
    let mut rig = Rig::new(soft_updates());
    rig.fill(8, 1, 1, Role::InodeInit);
    rig.fill(24, 1, 1, Role::DirectoryInit);
    rig.fill(40, 1, 1, Role::Data);
    rig.clock.sleep(Nanos::new(10 * SECOND - 1));
    rig.cache.tick().unwrap();
    assert_eq!(rig.requests(), [""; 0], "not a moment too early");
    rig.clock.sleep(Nanos::new(10 * SECOND));
    rig.cache.begin().unwrap();
    assert_eq!(rig.second(), 19);
    assert_eq!(rig.requests(), ["behind 8+1", "behind 24+1"]);
    rig.cache.tick().unwrap();
    assert_eq!(rig.requests(), [""; 0]);
    assert_eq!(rig.pass(20), [at(30, "behind 40+1")]);
}

/// Under the disciplines that write at once nothing is left for the syncer but
/// what they write later.
#[test]
fn what_was_written_at_once_is_not_due() {
    let mut config = soft_updates();
    config.discipline = Discipline::Normal;
    let mut rig = Rig::new(config);
    rig.fill(8, 1, 1, Role::InodeInit);
    rig.fill(24, 1, 1, Role::BitmapSet);
    rig.fill(40, 1, 1, Role::Data);
    assert_eq!(rig.requests(), ["write 8+1"]);
    assert_eq!(rig.pass(40), [at(10, "behind 24+1"), at(30, "behind 40+1")]);
}

/// BSD's kernels write bitmaps, times and counts later, whatever the mount
/// says.
#[test]
fn bitmaps_may_be_delayed_under_sync() {
    let delayed = [Role::BitmapSet, Role::BitmapClear, Role::Attributes, Role::Summary];
    for (roles, later) in [(Roles::NONE, 0), (Roles::of(&delayed), 4)] {
        let mut config = soft_updates();
        config.discipline = Discipline::Sync;
        config.later = roles;
        let mut rig = Rig::new(config);
        for (n, role) in delayed.into_iter().chain([Role::Data, Role::LinkDrop]).enumerate() {
            rig.fill(n as u64 * 16, 1, 1, role);
        }
        assert_eq!(rig.requests().len(), 6 - later, "{roles:?}");
        let requests = rig.pass(40);
        assert_eq!(requests.len(), later, "{requests:?}");
        assert!(requests.iter().all(|(second, _)| *second == 10), "{requests:?}");
    }
}
