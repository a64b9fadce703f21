//! Changes that are taken back, and blocks whose contents matter no more.

use crate::requests::counting::HEAD;
use crate::requests::{PER_BLOCK, Rig, run, soft_updates};
use seekless_cache::{ChangeId, Kind, Owner, Piece, Role, Seal};
use seekless_units::{BlockNo, ByteLen};
use std::sync::{Arc, Mutex};

#[test]
fn what_is_forgotten_is_not_written() {
    let mut rig = Rig::new(soft_updates());
    rig.fill_block(3, 1, Role::Data);
    rig.fill_block(4, 1, Role::Data);
    assert!(rig.cache.is_unwritten(run(24, 16)));
    rig.cache.changes().forget(run(24, 12), ChangeId::COMMITTED);
    assert!(rig.cache.is_unwritten(run(36, 4)));
    assert!(!rig.cache.is_unwritten(run(32, 8)), "a half of it is");
    rig.cache.sync().unwrap();
    assert_eq!(rig.requests(), ["behind 36+4"]);
    assert!(!rig.cache.is_dirty());
    rig.read(24, 8);
    assert_eq!(rig.requests(), ["read 24+8"], "nor known");
}

/// What something else waits for is written all the same.
#[test]
fn what_is_waited_for_is_not_forgotten() {
    let mut rig = Rig::new(soft_updates());
    let data = rig.fill_block(3, 1, Role::Data);
    rig.put(80, 0, 1, Role::EntryAdd, &[data]);
    rig.requests();
    rig.cache.changes().forget(run(24, 8), ChangeId::COMMITTED);
    rig.cache.sync().unwrap();
    assert_eq!(rig.requests(), ["behind 24+8", "behind 80+1"]);
}

#[test]
fn actions_wait_for_what_took_a_run_out_of_its_file() {
    let mut rig = Rig::new(soft_updates());
    let data = rig.fill_block(3, 1, Role::Data);
    rig.cache.changes().defer(&[data], Kind::FreeBlocks, 1);
    let clear = rig.fill(80, 1, 1, Role::PointerClear);
    rig.cache.changes().forget(run(24, 8), clear);
    assert_eq!((rig.cache.changes().next_ready(), rig.cache.blocks().softdeps()), (None, 2));
    rig.cache.settle(&[clear]).unwrap();
    assert_eq!(rig.requests(), ["write 80+1"]);
    assert_eq!((rig.cache.changes().next_ready(), rig.cache.blocks().softdeps()), (Some(1), 0));
}

#[test]
fn what_is_taken_back_leaves_no_trace() {
    let mut rig = Rig::new(soft_updates());
    let data = rig.fill_block(3, 1, Role::Data);
    let name = rig.put(80, 0, 1, Role::EntryAdd, &[data]);
    rig.cache.changes().defer(&[name], Kind::NameRemoved, 1);
    rig.requests();
    assert!(rig.cache.changes().revert(name));
    assert_eq!(rig.cache.changes().next_ready(), Some(1));
    assert_eq!(
        (rig.cache.blocks().softdeps(), rig.cache.blocks().undo_bytes()),
        (1, ByteLen::ZERO)
    );
    assert_eq!(rig.read(80, 1)[0], 0);
    rig.cache.sync().unwrap();
    assert_eq!(rig.requests(), ["behind 24+8"], "nothing of the block has changed");
}

#[test]
fn what_others_build_upon_is_not_taken_back() {
    let mut rig = Rig::new(soft_updates());
    let data = rig.fill_block(3, 1, Role::Data);
    let pointer = rig.put(80, 0, 1, Role::PointerSet, &[data]);
    assert!(!rig.cache.can_revert(data), "it may be written at any time");
    assert!(rig.cache.can_revert(pointer));
    let name = rig.put(88, 0, 1, Role::EntryAdd, &[pointer]);
    assert!(!rig.cache.can_revert(pointer) && !rig.cache.changes().revert(pointer));
    assert!(rig.cache.changes().revert(name));
    assert!(rig.cache.can_revert(pointer));
    // A later change to the same byte, which waits for no more than the first.
    assert_eq!(rig.put(80, 0, 2, Role::PointerSet, &[data]), pointer);
    assert!(!rig.cache.can_revert(pointer), "it would take the later one along");
    assert!(rig.cache.changes().discard(pointer));
    assert_eq!(rig.read(80, 1)[0], 0);
}

/// Only what would never be on the disk was replaced.
#[test]
fn a_change_that_asks_for_nothing_new_replaces_nothing() {
    let mut rig = Rig::new(soft_updates());
    let data = rig.fill_block(3, 1, Role::Data);
    let other = rig.fill_block(4, 1, Role::Data);
    let pointer = rig.put(80, 0, 1, Role::PointerSet, &[data]);
    let piece = [Piece { offset: 0, bytes: &[2] }];
    let mut replace = |after| {
        let at = BlockNo::new(80);
        let changed =
            rig.cache.changes().replace(at, &piece, Role::PointerSet, &[after], &[data]).unwrap();
        (changed.id, changed.replaced)
    };
    assert_eq!(replace(data), (pointer, false));
    assert_eq!(replace(other), (pointer, true));
    rig.requests();
    rig.cache.settle(&[pointer]).unwrap();
    assert_eq!(rig.requests(), ["write 32+8", "write 80+1"], "the old contents are not asked for");
}

/// A change that waits lies in two fragments, and one of them goes. Whatever
/// comes there is another's, and must not be undone with it.
#[test]
fn what_lay_in_forgotten_fragments_is_not_undone() {
    let mut rig = Rig::new(soft_updates());
    let data = rig.fill_block(9, 1, Role::Data);
    let long = [1; 64];
    let pieces = [
        Piece { offset: 8, bytes: &[1; 8] },
        // Across the border of the fragments, and behind it.
        Piece { offset: 1000, bytes: &long },
        Piece { offset: 1100, bytes: &[1; 8] },
    ];
    let change =
        rig.cache.changes().change(BlockNo::new(8), &pieces, Role::EntryAdd, &[data]).unwrap();
    // Of the long one zeros are undone, which are not kept.
    assert_eq!(rig.cache.blocks().undo_bytes(), ByteLen::new(3 * HEAD + 16));
    rig.requests();
    rig.cache.changes().forget(run(9, 1), ChangeId::COMMITTED);
    assert_eq!(rig.cache.blocks().undo_bytes(), ByteLen::new(2 * HEAD + 8));
    rig.fill(9, 1, 7, Role::Data);
    rig.put(8, 500, 2, Role::EntryRemove, &[]);
    rig.cache.write_some(|block| block == 1).unwrap();
    assert_eq!(rig.requests(), ["behind 8+2"]);
    let bytes = [8, 500, 1000].map(|offset| rig.disk.byte(8, offset));
    assert_eq!(bytes, [0, 2, 0], "the change waits");
    assert!((0..1024).all(|offset| rig.disk.byte(9, offset) == 7), "these bytes do not");
    rig.cache.settle(&[change]).unwrap();
    let bytes = [8, 500, 1000].map(|offset| rig.disk.byte(8, offset));
    assert_eq!(bytes, [1, 2, 1]);
    assert!((0..1024).all(|offset| rig.disk.byte(9, offset) == 7));
}

/// The order with a certain number is forgotten, and no other: what should have
/// waited is neither undone nor kept to be undone.
#[test]
fn one_order_can_be_forgotten() {
    for (number, pointer, name) in [(None, 0, 0), (Some(0), 1, 0), (Some(1), 0, 1), (Some(2), 0, 0)]
    {
        let mut config = soft_updates();
        config.drop_order = number;
        let mut rig = Rig::new(config);
        let data = rig.fill_block(9, 1, Role::Data);
        rig.put(24, 0, 1, Role::PointerSet, &[data]);
        rig.put(32, 0, 1, Role::EntryAdd, &[data]);
        assert_eq!(
            rig.cache.blocks().undo_bytes().get(),
            (HEAD + 1) * (2 - pointer - name),
            "{number:?}"
        );
        assert_eq!(rig.cache.blocks().counters().orders, 2);
        rig.cache.write_some(|block| block != 9).unwrap();
        assert_eq!([24, 32].map(|at| u64::from(rig.disk.byte(at, 0))), [pointer, name]);
        let dropped = rig.cache.blocks().counters().dropped;
        let roles = dropped.map(|dropped| (dropped.before, dropped.after));
        let after = [Role::PointerSet, Role::EntryAdd];
        let wanted = number.and_then(|n| after.get(n as usize));
        assert_eq!(roles, wanted.map(|&after| (Role::Data, Some(after))));
        assert!(dropped.is_none_or(|dropped| dropped.shown && dropped.matters()));
        rig.cache.sync().unwrap();
        assert!(!rig.cache.is_dirty());
    }
}

/// First fragments of blocks, and what was to be sealed of each.
type Given = Vec<(u64, Vec<u8>)>;

/// Keeps what it was given to seal.
struct Keeper(Arc<Mutex<Given>>);

impl Seal for Keeper {
    fn seal(&self, at: BlockNo, _: Option<Owner>, bytes: &mut [u8]) {
        self.0.lock().unwrap().push((at.get(), bytes.to_vec()));
        bytes[0] = 0xee;
    }
}

#[test]
fn metadata_are_sealed_and_contents_are_not() {
    let mut rig = Rig::new(soft_updates());
    let sealed = Arc::new(Mutex::default());
    rig.cache.blocks_mut().set_seal(Box::new(Keeper(Arc::clone(&sealed))));
    rig.fill_block(1, 5, Role::Data);
    rig.fill_block(3, 6, Role::InodeInit);
    let id = rig.fill_block(5, 7, Role::BitmapSet);
    rig.put(24, 9, 1, Role::PointerSet, &[id]);
    rig.cache.write_some(|block| block < 5).unwrap();
    let (at, bytes) = sealed.lock().unwrap().pop().unwrap();
    assert_eq!((at, bytes[0], bytes[9]), (24, 6, 6), "as it is written, with what is undone");
    assert!(sealed.lock().unwrap().is_empty());
    assert_eq!([8, 24].map(|at| rig.disk.byte(at, 0)), [5, 0xee]);
    assert_eq!(rig.read(24, 1)[0], 6, "the seal is the disk's alone");
}

/// Keeps the owners of what it was given to seal.
struct Owners(Arc<Mutex<Vec<Option<Owner>>>>);

impl Seal for Owners {
    fn seal(&self, _: BlockNo, owner: Option<Owner>, _: &mut [u8]) {
        self.0.lock().unwrap().push(owner);
    }
}

#[test]
fn a_block_has_its_owner_until_it_is_another() {
    let mut config = soft_updates();
    config.capacity = ByteLen::new(1);
    let mut rig = Rig::new(config);
    let sealed = Arc::new(Mutex::default());
    rig.cache.blocks_mut().set_seal(Box::new(Owners(Arc::clone(&sealed))));
    let (at, owner) = (BlockNo::new(8), Owner { kind: 1, number: 12, generation: 7 });
    rig.fill_block(1, 5, Role::DirectoryInit);
    assert_eq!(rig.cache.blocks().owner(at), None);
    rig.cache.blocks_mut().set_owner(at, owner);
    rig.cache.sync().unwrap();
    assert_eq!(sealed.lock().unwrap().pop(), Some(Some(owner)));
    // Its memory is free for others, and it is read anew.
    rig.cache.begin().unwrap();
    assert_eq!((rig.cache.blocks().owner(at), rig.read(8, 1)[0]), (None, 5));
    rig.cache.blocks_mut().set_owner(at, owner);
    rig.fill_block(1, 6, Role::DirectoryInit);
    assert_eq!(rig.cache.blocks().owner(at), None, "it holds something else");
    rig.cache.sync().unwrap();
    assert_eq!(sealed.lock().unwrap().pop(), Some(None));
}

/// Parts that are not in memory are zero in what is sealed, whatever the
/// memory held before.
#[test]
fn what_is_not_in_memory_is_zero_where_it_is_sealed() {
    let mut config = soft_updates();
    config.capacity = ByteLen::new(1);
    let mut rig = Rig::new(config);
    rig.fill_block(1, 9, Role::Data);
    rig.cache.begin().unwrap();
    assert_eq!(rig.cache.blocks().bytes(), 0, "its memory is free for others");
    let sealed = Arc::new(Mutex::default());
    rig.cache.blocks_mut().set_seal(Box::new(Keeper(Arc::clone(&sealed))));
    rig.fill(3 * PER_BLOCK + 2, 1, 6, Role::InodeInit);
    rig.cache.sync().unwrap();
    let (_, bytes) = sealed.lock().unwrap().pop().unwrap();
    let wanted: Vec<u8> = (0..8192).map(|at| if at / 1024 == 2 { 6 } else { 0 }).collect();
    assert!(bytes == wanted, "something of another block was given to be sealed");
}

/// A new inode of which the disk may have the first change keeps all of them: whoever waits
/// for a later one is not told.
#[test]
fn changes_are_taken_back_together_or_not_at_all() {
    for init_waits in [true, false] {
        let mut rig = Rig::new(soft_updates());
        let bitmap = rig.put(40, 0, 1, Role::InodeBitmapSet, &[]);
        let init = rig.put(0, 8, 1, Role::InodeInit, &[bitmap]);
        if !init_waits {
            rig.cache.settle(&[bitmap]).unwrap();
        }
        let data = rig.fill_block(9, 1, Role::Data);
        let moved = rig.put(0, 8, 2, Role::PointerMove, &[data]);
        rig.cache.changes().defer(&[moved], Kind::FreeFragments, 7);
        assert_eq!(rig.cache.changes().discard_all(&[init, moved]), init_waits);
        assert_eq!(rig.cache.changes().next_ready(), init_waits.then_some(7));
        assert_eq!(rig.cache.is_committed(moved), init_waits);
        assert_eq!(rig.cache.broken_invariant(), None);
        rig.cache.sync().unwrap();
        assert_eq!(rig.disk.byte(0, 8), if init_waits { 0 } else { 2 });
    }
}

/// Nor are changes that another stands on which is not among them.
#[test]
fn changes_that_others_build_upon_are_not_taken_back_together() {
    let mut rig = Rig::new(soft_updates());
    let bitmap = rig.put(40, 0, 1, Role::InodeBitmapSet, &[]);
    let init = rig.put(0, 8, 1, Role::InodeInit, &[bitmap]);
    let data = rig.fill_block(9, 1, Role::Data);
    let pointer = rig.put(0, 8, 2, Role::PointerSet, &[data]);
    let name = rig.put(24, 0, 1, Role::EntryAdd, &[init]);
    assert!(!rig.cache.changes().discard_all(&[init, pointer]));
    assert!(!rig.cache.is_committed(pointer));
    assert!(rig.cache.changes().revert(name) && rig.cache.changes().discard_all(&[init, pointer]));
    rig.cache.sync().unwrap();
    assert_eq!([rig.disk.byte(0, 8), rig.disk.byte(24, 0)], [0, 0]);
}
