//! Parts of blocks as buffers of their own: written each by itself, counted in
//! whole pages.

use crate::requests::{Rig, blocks, run, soft_updates};
use seekless_cache::{Config, Discipline, Role, Roles};
use seekless_units::ByteLen;

fn paged(discipline: Discipline) -> Config {
    let mut config = soft_updates();
    config.discipline = discipline;
    config.page = Some(ByteLen::new(4096));
    config
}

#[test]
fn a_write_at_once_leaves_the_other_pieces_dirty() {
    let mut rig = Rig::new(paged(Discipline::Normal));
    rig.fill(8, 2, 1, Role::Data);
    rig.fill(10, 3, 2, Role::DirectoryInit);
    assert_eq!(rig.requests(), ["write 10+3"], "and nothing of the other piece");
    assert_eq!([8, 10].map(|at| rig.disk.byte(at, 0)), [0, 2]);
    assert!(rig.cache.is_unwritten(run(8, 2)));
    assert!(!rig.cache.is_unwritten(run(10, 3)));
    assert!(rig.cache.is_dirty());
    rig.cache.sync().unwrap();
    assert_eq!(rig.requests(), ["behind 8+2"]);
    assert_eq!(rig.disk.byte(8, 0), 1);
    assert!(!rig.cache.is_dirty());
    let counters = rig.cache.blocks().counters();
    assert_eq!((counters.sync_writes, counters.async_writes), (1, 1));
}

/// A piece goes as a whole, with what of it would have been written later.
#[test]
fn a_write_at_once_takes_all_of_its_piece_along() {
    let mut rig = Rig::new(paged(Discipline::Normal));
    rig.read(16, 4);
    rig.put(16, 0, 1, Role::Data, &[]);
    assert_eq!(rig.requests(), ["read 16+4"]);
    rig.put(18, 0, 2, Role::EntryAdd, &[]);
    assert_eq!(rig.requests(), ["write 16+4"]);
    assert_eq!([16, 18].map(|at| rig.disk.byte(at, 0)), [1, 2]);
    assert!(!rig.cache.is_dirty());
    assert_eq!(rig.pass(40), [], "it is not written again");
}

/// What a write at once leaves behind is still due when it was.
#[test]
fn the_other_pieces_are_still_due() {
    let mut rig = Rig::new(paged(Discipline::Normal));
    rig.fill(8, 2, 1, Role::Data);
    rig.fill(10, 3, 2, Role::DirectoryInit);
    rig.requests();
    assert_eq!(rig.pass(40), [(30, "behind 8+2".into())]);
}

#[test]
fn a_block_without_pieces_is_written_as_one() {
    let mut config = paged(Discipline::Normal);
    config.page = None;
    let mut rig = Rig::new(config);
    rig.fill(8, 2, 1, Role::Data);
    rig.fill(10, 3, 2, Role::DirectoryInit);
    assert_eq!(rig.requests(), ["write 8+5"]);
    assert!(!rig.cache.is_dirty());
}

#[test]
fn a_piece_is_written_whole_and_by_itself() {
    let mut rig = Rig::new(paged(Discipline::Async));
    rig.read(16, 4);
    rig.requests();
    // A byte of the piece of four, and a piece beside it.
    rig.put(17, 5, 9, Role::EntryAdd, &[]);
    rig.fill(20, 4, 8, Role::Data);
    rig.fill_block(3, 7, Role::Data);
    rig.cache.sync().unwrap();
    assert_eq!(rig.requests(), ["behind 16+4", "behind 20+4", "behind 24+8"]);
}

#[test]
fn a_change_across_two_pieces_writes_both() {
    let mut rig = Rig::new(paged(Discipline::Sync));
    rig.read(8, 1);
    rig.read(9, 1);
    rig.read(10, 1);
    rig.requests();
    let write = |bytes: &mut [u8]| {
        bytes.fill(6);
        Ok(())
    };
    rig.cache
        .changes()
        .edit(seekless_units::BlockNo::new(8), 1000, 100, Role::Data, write)
        .unwrap();
    assert_eq!(rig.requests(), ["write 8+1", "write 9+1"]);
    assert_eq!([rig.disk.byte(8, 1000), rig.disk.byte(9, 0)], [6, 6]);
    assert!(!rig.cache.is_dirty());
}

#[test]
fn a_piece_takes_whole_pages() {
    let mut rig = Rig::new(paged(Discipline::Async));
    rig.fill(8, 1, 1, Role::Data);
    assert_eq!(rig.cache.blocks().bytes(), 4096);
    rig.fill(9, 5, 1, Role::Data);
    assert_eq!(rig.cache.blocks().bytes(), 4096 + 8192, "one page, and five fragments in two");
    rig.fill_block(4, 1, Role::Data);
    assert_eq!(rig.cache.blocks().bytes(), 4096 + 2 * 8192);
    // Again the same, as one: five fragments and one.
    rig.fill(8, 6, 1, Role::Data);
    assert_eq!(rig.cache.blocks().bytes(), 2 * 8192);
    rig.cache.changes().forget(run(8, 6), seekless_cache::ChangeId::COMMITTED);
    assert_eq!(rig.cache.blocks().bytes(), 8192);
    rig.cache.changes().forget(run(32, 3), seekless_cache::ChangeId::COMMITTED);
    assert_eq!(rig.cache.blocks().bytes(), 8192, "five fragments are left");
    rig.cache.changes().forget(run(35, 2), seekless_cache::ChangeId::COMMITTED);
    assert_eq!(rig.cache.blocks().bytes(), 4096, "and three");
    let mut rig = Rig::new(soft_updates());
    rig.fill(8, 1, 1, Role::Data);
    assert_eq!(rig.cache.blocks().bytes(), blocks(1).get(), "without pages a block is a block");
}

/// What was written at once may still be in the device's cache.
#[test]
fn a_piece_written_at_once_is_flushed() {
    let mut config = paged(Discipline::Sync);
    config.barriers = true;
    let mut rig = Rig::new(config);
    rig.fill(8, 2, 1, Role::InodeInit);
    rig.fill(16, 1, 2, Role::EntryAdd);
    assert_eq!(rig.requests(), ["write 8+2", "flush", "write 16+1", "flush"]);
    assert_eq!(rig.cache.blocks().counters().flushes, 2);
}

/// Whole blocks go in one request, as far as a cluster reaches; parts of blocks do not.
#[test]
fn whole_blocks_are_gathered_into_clusters() {
    let requests = |cluster| {
        let mut config = paged(Discipline::Async);
        config.cluster = blocks(cluster);
        let mut rig = Rig::new(config);
        rig.fill(12, 4, 6, Role::Data);
        for block in 2..6 {
            rig.fill_block(block, 7, Role::Data);
        }
        rig.fill(48, 4, 8, Role::Data);
        rig.cache.sync().unwrap();
        rig.requests()
    };
    assert_eq!(requests(3), ["behind 12+4", "behind 16+24", "behind 40+8", "behind 48+4"]);
    let alone = ["behind 12+4", "behind 16+8", "behind 24+8", "behind 32+8", "behind 40+8"];
    assert_eq!(requests(1)[..5], alone);
}

/// As FreeBSD's ext2fs, which waits for names however it is mounted.
#[test]
fn what_a_discipline_writes_later_may_be_written_at_once() {
    let requests = |discipline, names| {
        let mut config = Config::new(discipline);
        config.barriers = false;
        if names {
            config.at_once = Roles::of(&[Role::EntryAdd, Role::IndirectInit]);
        }
        let mut rig = Rig::new(config);
        rig.fill(8, 2, 1, Role::InodeInit);
        rig.fill(16, 2, 2, Role::EntryAdd);
        rig.fill(24, 2, 3, Role::IndirectInit);
        rig.requests()
    };
    assert_eq!(requests(Discipline::Async, true), ["write 16+2", "write 24+2"]);
    assert_eq!(requests(Discipline::Async, false), [""; 0]);
    let normal = requests(Discipline::Normal, false);
    assert_eq!(requests(Discipline::Normal, true), normal);
}

/// BSD does not wait for contents that move.
#[test]
fn what_a_discipline_writes_at_once_may_be_written_later() {
    let requests = |later| {
        let mut config = Config::new(Discipline::Normal);
        config.barriers = false;
        if later {
            config.later = Roles::of(&[Role::DataMove, Role::PointerMove]);
        }
        let mut rig = Rig::new(config);
        rig.fill(8, 2, 1, Role::DataMove);
        rig.fill(16, 2, 2, Role::PointerMove);
        rig.fill(24, 2, 3, Role::InodeInit);
        rig.requests()
    };
    assert_eq!(requests(true), ["write 24+2"]);
    assert_eq!(requests(false), ["write 8+2", "write 16+2", "write 24+2"]);
}
