//! Which ranges of large files move.

use super::scattered::{FEW, LARGE, LEAST, Scattered, gather};
use super::{Part, Storage, StorageKind, Touch};
use seekless_fs::plan::{ObjectId, Run};
use seekless_units::{ByteLen, Lbn};

const BLOCK: u64 = 4096;
/// Blocks of a file of 100 MB.
const LEN: u64 = 25_600;

fn touch(object: u32, from: u64, len: u64) -> Touch {
    let run = Run { lbn: Lbn::new(from), len };
    Touch { object: ObjectId::new(object), part: Part::Blocks(run) }
}

fn on(kind: StorageKind, touches: &[Touch]) -> (Vec<(u64, u64)>, Vec<Scattered>) {
    let storage = Storage { kind, chunk: ByteLen::new(512 << 10) };
    let (moving, scattered) = gather(touches.to_vec(), storage, BLOCK, &|_| LEN);
    let runs = moving.iter().map(|touch| match touch.part {
        Part::Blocks(run) => (run.lbn.get(), run.len),
        part => panic!("{part:?} is no touch of blocks"),
    });
    (runs.collect(), scattered)
}

/// Single blocks all over the file, in an order without a pattern.
fn single(count: u64, apart: u64) -> Vec<Touch> {
    (0..count).map(|n| touch(0, (n * 7919 % count) * apart, 1)).collect()
}

#[test]
fn single_blocks_stay_but_for_the_first() {
    let touches = single(1000, 25);
    let (disk, scattered) = on(StorageKind::Disk, &touches);
    // A tenth of the time of 100 MB is that of six seeks.
    assert_eq!(disk, [(0, 1), (919 * 25, 1), (838 * 25, 1)]);
    let [file] = scattered[..] else { panic!("{scattered:?}") };
    assert_eq!((file.len.get(), file.ranges, file.bytes.get()), (LEN * BLOCK, 997, 997 * BLOCK));
    assert_eq!((file.seeks_if_moved(), file.chunks), (1994, 196));
    assert_eq!(file.chunks_if_moved(ByteLen::new(512 << 10)), 8);
    let (ssd, _) = on(StorageKind::Ssd, &touches);
    assert_eq!(ssd.len(), 104);
    let (lazy, scattered) = on(StorageKind::Lazy, &touches);
    assert_eq!((lazy.len(), scattered), (1000, vec![]));
}

#[test]
fn few_ranges_and_small_files_move_as_they_are_read() {
    let few = single(FEW as u64, 1000);
    assert_eq!(on(StorageKind::Disk, &few).0.len(), FEW);
    let many = single(FEW as u64 + 1, 1000);
    assert_eq!(on(StorageKind::Disk, &many).0.len(), 3);
    let storage = Storage { kind: StorageKind::Disk, chunk: ByteLen::new(1 << 20) };
    let below = gather(single(1000, 4), storage, BLOCK, &|_| LARGE / BLOCK - 1);
    assert_eq!((below.0.len(), below.1), (1000, vec![]));
}

#[test]
fn large_pieces_move_as_they_are_read() {
    let least = LEAST / BLOCK;
    let touches: Vec<Touch> = (0..500).map(|n| touch(0, (n * 7919 % 500) * 50, least)).collect();
    let (runs, scattered) = on(StorageKind::Disk, &touches);
    let wanted: Vec<(u64, u64)> = (0..500).map(|n| ((n * 7919 % 500) * 50, least)).collect();
    assert_eq!((runs, scattered), (wanted, vec![]));
}

/// Blocks close together move with all between them, in order of their offsets.
#[test]
fn dense_small_pieces_move_together() {
    let mut touches: Vec<Touch> = (0..40).map(|n| touch(0, 500 + n * 7919 % 40 * 2, 1)).collect();
    touches.extend((0..20).map(|n| touch(0, 10_000 + n * 900, 1)));
    let (runs, scattered) = on(StorageKind::Disk, &touches);
    assert!(runs[..40].iter().all(|&run| run == (500, 79)), "{runs:?}");
    assert_eq!((runs.len(), scattered[0].ranges), (43, 17));
    // All blocks, in an order without a pattern: in parts of ten seeks' time.
    let all: Vec<Touch> = (0..LEN).map(|n| touch(0, n * 7919 % LEN, 1)).collect();
    let (runs, scattered) = on(StorageKind::Disk, &all);
    assert_eq!(scattered, vec![]);
    assert!(runs.iter().all(|&(from, len)| from % 3662 == 0 && (len == 3662 || from + len == LEN)));
}

/// Pages of 16 KiB, all of them, in an order without a pattern, as a database may read its table.
#[test]
fn pages_of_a_database_move_in_order() {
    let pages = LEN / 4;
    let touches: Vec<Touch> = (0..pages).map(|n| touch(0, n * 7919 % pages * 4, 4)).collect();
    let (runs, scattered) = on(StorageKind::Disk, &touches);
    // In parts of ten seeks' time; a page on a boundary asks for two.
    let starts: std::collections::BTreeSet<u64> = runs.iter().map(|&(from, _)| from).collect();
    assert_eq!((starts.len(), scattered), (7, vec![]), "{starts:?}");
    assert!(starts.iter().all(|start| start % 3662 == 0), "{starts:?}");
}

/// A file that is read in large pieces beside one that is read in small ones.
#[test]
fn files_are_judged_alone() {
    let mut touches = single(1000, 25);
    touches.extend((0..100).map(|n| touch(1, n * 64, 64)));
    let (runs, scattered) = on(StorageKind::Disk, &touches);
    assert_eq!((runs.len(), scattered.len()), (103, 1));
}
