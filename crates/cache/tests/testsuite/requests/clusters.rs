//! Neighbours go in one request, as far as a cluster goes.

use crate::requests::{PER_BLOCK, Rig, blocks, soft_updates};
use seekless_cache::Role;
use seekless_units::ByteLen;

fn rig(cluster: ByteLen) -> Rig {
    let mut config = soft_updates();
    config.cluster = cluster;
    Rig::new(config)
}

#[test]
fn neighbours_join_up_to_a_cluster() {
    for (cluster, wanted) in [
        (blocks(4), &["behind 16+32", "behind 48+32", "behind 80+16"][..]),
        (blocks(16), &["behind 16+80"]),
        // Half a block more is no block more.
        (ByteLen::new(blocks(5).get() + 4096), &["behind 16+40", "behind 56+40"]),
    ] {
        let mut rig = rig(cluster);
        // In no order.
        for block in [7, 2, 11, 4, 3, 9, 5, 10, 6, 8] {
            rig.fill_block(block, 1, Role::Data);
        }
        rig.cache.sync().unwrap();
        assert_eq!(rig.requests(), wanted, "{cluster}");
    }
    let mut rig = rig(ByteLen::ZERO);
    rig.fill_block(2, 1, Role::Data);
    rig.fill_block(3, 1, Role::Data);
    rig.cache.sync().unwrap();
    assert_eq!(rig.requests(), ["behind 16+8", "behind 24+8"], "without clusters");
}

#[test]
fn what_somebody_waits_for_joins_as_well() {
    let mut rig = rig(blocks(4));
    let ids: Vec<_> = [4, 2, 3, 9].map(|block| rig.fill_block(block, 1, Role::Data)).into();
    rig.fill_block(5, 1, Role::Data);
    rig.cache.settle(&ids).unwrap();
    assert_eq!(rig.requests(), ["write 16+24", "write 72+8"], "and nothing nobody asked for");
}

#[test]
fn nothing_joins_across_what_is_clean_or_missing() {
    let mut rig = rig(blocks(16));
    rig.read(3 * PER_BLOCK, PER_BLOCK);
    rig.requests();
    for block in [2, 4, 6] {
        rig.fill_block(block, 9, Role::Data);
    }
    rig.cache.sync().unwrap();
    assert_eq!(rig.requests(), ["behind 16+8", "behind 32+8", "behind 48+8"]);
    assert_eq!([3, 5].map(|block| rig.disk.byte(block * PER_BLOCK, 0)), [0, 0]);
}

#[test]
fn parts_of_blocks_join_where_they_touch() {
    let mut rig = rig(blocks(16));
    rig.fill(22, 2, 1, Role::Data);
    rig.fill(24, 3, 2, Role::Data);
    // A hole that is not known lies between.
    rig.fill(32, 2, 3, Role::Data);
    rig.fill(36, 2, 4, Role::Data);
    // Between these lies what is known, and is written along with them.
    rig.read(40, 8);
    rig.fill(41, 1, 5, Role::Data);
    rig.fill(45, 1, 6, Role::Data);
    rig.requests();
    rig.cache.sync().unwrap();
    assert_eq!(rig.requests(), ["behind 22+5", "behind 32+2", "behind 36+2", "behind 41+5"]);
    let bytes = [22, 24, 32, 34, 36, 41, 43, 45].map(|at| rig.disk.byte(at, 0));
    assert_eq!(bytes, [1, 2, 3, 0, 4, 5, 0, 6]);
}

/// Inodes are due at 10 seconds, contents of files at 30: what lies beside a
/// block that is due goes along with it.
fn due_at_ten(rig: &mut Rig, early: &[u64], late: &[u64]) -> Vec<String> {
    for &block in late {
        rig.fill_block(block, 2, Role::Data);
    }
    for &block in early {
        rig.fill_block(block, 1, Role::InodeInit);
    }
    let requests = rig.pass(10);
    assert!(requests.iter().all(|(second, _)| *second == 10), "{requests:?}");
    requests.into_iter().map(|(_, request)| request).collect()
}

#[test]
fn a_block_that_is_due_takes_its_dirty_neighbours_along() {
    let mut rig = rig(blocks(8));
    let requests = due_at_ten(&mut rig, &[10], &[7, 8, 9, 11, 12, 14, 20]);
    assert_eq!(requests, ["behind 56+48"], "no further than the gap");
    let rest: Vec<_> = rig.pass(40);
    assert_eq!(rest, [(30, "behind 112+8".into()), (30, "behind 160+8".into())]);
    assert!(!rig.cache.is_dirty());
}

#[test]
fn neighbours_that_are_clean_dirty_in_part_or_wait_are_left() {
    let mut rig = rig(blocks(8));
    let data = rig.fill_block(40, 1, Role::Data);
    rig.read(11 * PER_BLOCK, PER_BLOCK);
    rig.fill_block(19, 1, Role::Data);
    // Block 19 is dirty, and something in it waits.
    rig.put(19 * PER_BLOCK, 0, 1, Role::PointerSet, &[data]);
    rig.fill(29 * PER_BLOCK, 7, 1, Role::Data);
    rig.requests();
    let requests = due_at_ten(&mut rig, &[10, 20, 30], &[12, 18, 28]);
    assert_eq!(requests, ["behind 80+8", "behind 160+8", "behind 240+8"]);
}

#[test]
fn neighbours_go_along_no_further_than_a_cluster() {
    for cluster in [2, 3, 4] {
        let mut rig = rig(blocks(cluster));
        let late: Vec<u64> = (1..60).filter(|&block| block != 30).collect();
        due_at_ten(&mut rig, &[30], &late);
        let written = (0..60).filter(|block| rig.disk.byte(block * PER_BLOCK, 0) != 0);
        assert_eq!(written.collect::<Vec<_>>(), (30 - cluster..=30 + cluster).collect::<Vec<_>>());
    }
}

/// Blocks whose neighbours are wanted as well are written once each.
#[test]
fn neighbours_of_two_are_written_once() {
    let mut rig = rig(blocks(16));
    let requests = due_at_ten(&mut rig, &[10, 13, 14], &[11, 12, 15, 9]);
    assert_eq!(requests, ["behind 72+56"]);
    assert_eq!(rig.cache.blocks().counters().written_bytes, blocks(7).get());
}
