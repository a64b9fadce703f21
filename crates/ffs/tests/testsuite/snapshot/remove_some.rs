//! Removing some of several snapshots: the others stay as they are, byte by byte.

use super::taken::{Taken, held, is_in_order, kept, live, ordinary, put};
use super::{NAMES, SHAPES, bytes, open, tree, volume};
use crate::live::recount::recount;
use crate::live::shapes::{image, through};
use crate::property::for_all;
use crate::replay::{WALL, ops};
use crate::slice::some_or_all;
use seekless_cache::Discipline;
use seekless_device::{BlockDevice, MemoryDevice};
use seekless_ffs::{FfsImage, FfsLive, remove_snapshots, snapshots, take_snapshot_in_use};
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::operate::Operate;
use seekless_fs::{FsError, Inspect, Mapping};
use seekless_units::{ByteLen, Ino};
use std::sync::Arc;

fn remove(device: &Arc<MemoryDevice>, names: &[&[u8]]) -> Result<u64, FsError> {
    let names: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
    remove_snapshots(device.clone(), Some(&names), WALL)
}

fn copy(device: &Arc<MemoryDevice>) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(bytes(device.as_ref())))
}

/// The paths of the snapshots, oldest first.
fn listed(device: &Arc<MemoryDevice>) -> Vec<Vec<u8>> {
    let found = snapshots(device.clone(), OpenOptions::default()).unwrap();
    found.into_iter().map(|it| it.path.unwrap()).collect()
}

/// Writes files until there is no room, so that each block that is free by mistake is overwritten.
fn fill(device: &Arc<MemoryDevice>) {
    let device: Arc<dyn BlockDevice> = device.clone();
    let mut volume = live(&device);
    let full = put(&mut volume, "filler", 20_000, 0xEE);
    assert!(matches!(full, Err(FsError::NoSpace(_))), "{full:?}");
    volume.unmount().unwrap();
}

#[test]
fn snapshots_that_stay_are_as_they_were() {
    const NAMES: [&[u8]; 3] = [b"/.one", b"/.two", b"/.three"];
    for (n, shape) in SHAPES.iter().enumerate() {
        let some = || ops(200, false);
        for_all((some_or_all(3, 8), n), [some(), some(), some(), some()], |lists| {
            let device = image(shape);
            let mut shaped =
                through(device.clone(), device.clone(), shape, Discipline::SoftUpdates);
            let mut taken: Vec<Taken> = Vec::new();
            for (list, name) in lists.iter().zip(NAMES) {
                shaped.run(list);
                shaped.live.sync().unwrap();
                let files = ordinary(tree(&open(&device)));
                take_snapshot_in_use(&mut shaped.live, name).unwrap();
                taken.push(Taken { name, files, image: bytes(kept(&device, name).as_ref()) });
            }
            shaped.run(&lists[3]);
            let device = shaped.finish();
            let files = ordinary(tree(&open(&device)));
            for gone in [&[0][..], &[1], &[2], &[1, 0]] {
                let device = copy(&device);
                let names: Vec<&[u8]> = gone.iter().map(|&at| NAMES[at]).collect();
                assert_eq!(remove(&device, &names).unwrap(), names.len() as u64);
                is_in_order(&device);
                recount(&device);
                assert!(ordinary(tree(&open(&device))) == files, "{shape:?}: {gone:?}");
                let left: Vec<&Taken> =
                    taken.iter().filter(|taken| !names.contains(&taken.name)).collect();
                assert!(listed(&device).iter().eq(left.iter().map(|taken| taken.name)));
                left.iter().for_each(|taken| taken.check(&device, shape));
                fill(&device);
                left.iter().for_each(|taken| taken.check(&device, shape));
                is_in_order(&device);
            }
        });
    }
}

/// Makes a snapshot of a volume in use an ordinary file, and removes it.
fn remove_in_use(live: &mut FfsLive, name: &[u8]) -> Result<(), FsError> {
    let (root, name) = (live.root(), &name[1..]);
    let ino = live.lookup(root, name)?.unwrap();
    live.release_snapshot(ino)?;
    live.unlink(root, name)
}

#[test]
fn snapshots_are_removed_while_the_volume_changes() {
    const NAMES: [&[u8]; 4] = [b"/.one", b"/.two", b"/.three", b"/.four"];
    for (n, shape) in SHAPES.iter().enumerate() {
        let some = || ops(120, false);
        for_all((some_or_all(1, 3), n), [some(), some(), some(), some(), some()], |lists| {
            for gone in [&[0][..], &[1, 2], &[2, 0], &[0, 1, 2]] {
                let device = image(shape);
                let mut shaped =
                    through(device.clone(), device.clone(), shape, Discipline::SoftUpdates);
                let mut taken: Vec<Taken> = Vec::new();
                let take = |live: &mut FfsLive, name, taken: &mut Vec<Taken>| {
                    live.sync().unwrap();
                    let files = ordinary(tree(&open(&device)));
                    take_snapshot_in_use(live, name).unwrap();
                    taken.push(Taken { name, files, image: bytes(kept(&device, name).as_ref()) });
                };
                for (list, name) in lists.iter().zip(&NAMES[..3]) {
                    shaped.run(list);
                    take(&mut shaped.live, name, &mut taken);
                }
                shaped.run(&lists[3]);
                for &at in gone {
                    remove_in_use(&mut shaped.live, NAMES[at]).unwrap();
                    shaped.run(&lists[at]);
                }
                // A new one, after the last one of the list.
                take(&mut shaped.live, NAMES[3], &mut taken);
                shaped.run(&lists[4]);
                let device = shaped.finish();
                taken.retain(|taken| gone.iter().all(|&at| NAMES[at] != taken.name));
                is_in_order(&device);
                recount(&device);
                assert!(listed(&device).iter().eq(taken.iter().map(|taken| taken.name)));
                taken.iter().for_each(|taken| taken.check(&device, shape));
                fill(&device);
                taken.iter().for_each(|taken| taken.check(&device, shape));
                is_in_order(&device);
            }
        });
    }
}

/// Of a volume in use, only a snapshot that nobody else has open becomes an ordinary file; the last
/// one also where the volume is full.
#[test]
fn a_snapshot_in_use_stays() {
    let (memory, images) = with_a_removed_file(1);
    let device: Arc<dyn BlockDevice> = memory.clone();
    let mut volume = live(&device);
    let root = volume.root();
    let ino = volume.lookup(root, b".two").unwrap().unwrap();
    volume.hold(ino).unwrap();
    volume.hold(ino).unwrap();
    let refused = volume.release_snapshot(ino);
    assert!(matches!(refused, Err(FsError::Refused(_))), "{refused:?}");
    volume.release(ino).unwrap();
    let plain = volume.release_snapshot(root);
    assert!(matches!(plain, Err(FsError::Invalid(_))), "{plain:?}");
    // Its name goes at once, its blocks when it is closed.
    volume.release_snapshot(ino).unwrap();
    volume.unlink(root, b".two").unwrap();
    let again = volume.release_snapshot(ino);
    assert!(matches!(again, Err(FsError::Invalid(_))), "{again:?}");
    volume.release(ino).unwrap();
    // Both that are left take all that is free.
    let full = put(&mut volume, "filler", 20_000, 0xEE);
    assert!(matches!(full, Err(FsError::NoSpace(_))), "{full:?}");
    let free = volume.space().free;
    remove_in_use(&mut volume, b"/.one").unwrap();
    volume.sync().unwrap();
    assert!(volume.space().free > free, "{free}, {}", volume.space().free);
    // The last one has taken over the blocks of the removed file.
    let held = volume.snapshots().unwrap()[0].held.get();
    assert!(held > 500 * 4096, "{held} bytes");
    assert!(bytes(kept(&memory, b"/.three").as_ref()) == images[2]);
    let full = put(&mut volume, "more", 20_000, 0xEE);
    assert!(matches!(full, Err(FsError::NoSpace(_))), "{full:?}");
    assert!(bytes(kept(&memory, b"/.three").as_ref()) == images[2]);
    let free = volume.space().free;
    remove_in_use(&mut volume, b"/.three").unwrap();
    volume.sync().unwrap();
    assert!(volume.space().free > free + 500, "{free}, {}", volume.space().free);
    volume.unmount().unwrap();
    is_in_order(&memory);
    recount(&memory);
    assert_eq!(listed(&memory).len(), 0);
}

/// A snapshot whose map has the number of metadata, or of a block twice, is left as it is.
#[test]
fn a_damaged_map_is_refused_in_use() {
    let (memory, _) = with_a_removed_file(1);
    let before = bytes(memory.as_ref());
    let image = FfsImage::open(memory.clone(), OpenOptions::default()).unwrap();
    let [one, two] = [&b"/.one"[..], b"/.two"].map(|name| resolve(&image, name).unwrap());
    let map = image.block_map(one).unwrap();
    // A copy that an indirect block has the number of.
    let leaf = map.index.last().unwrap().block.get() * 1024;
    let number = |at: usize| u64::from_be_bytes(before[at..at + 8].try_into().unwrap());
    let used: Vec<usize> = (0..512)
        .map(|n| leaf as usize + n * 8)
        .filter(|&at| {
            let has = |run: &Mapping| {
                run.extent.start.get() <= number(at) && number(at) < run.extent.end().get()
            };
            map.runs.iter().any(has)
        })
        .collect();
    // The blocks of inodes of the first group, and another copy.
    for wrong in [88, number(used[1])] {
        let mut damaged = before.clone();
        damaged[used[0]..used[0] + 8].copy_from_slice(&wrong.to_be_bytes());
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(damaged));
        let mut volume = live(&device);
        let refused = volume.release_snapshot(one);
        assert!(matches!(refused, Err(FsError::Corrupt { .. })), "{wrong}: {refused:?}");
        assert_eq!(volume.snapshots().unwrap().len(), 3, "{wrong}");
        volume.release_snapshot(two).unwrap();
        assert_eq!(volume.snapshots().unwrap().len(), 2, "{wrong}");
    }
}

/// Snapshots `one`, `two` and `three` of a volume with a large file, which is removed afterwards: the
/// oldest takes over its blocks.
fn with_a_removed_file(shape: usize) -> (Arc<MemoryDevice>, [Vec<u8>; 3]) {
    let memory = image(&SHAPES[shape]);
    let device: Arc<dyn BlockDevice> = memory.clone();
    let mut volume = live(&device);
    put(&mut volume, "large", 500, 7).unwrap();
    let names: [&[u8]; 3] = [b"/.one", b"/.two", b"/.three"];
    for name in names {
        take_snapshot_in_use(&mut volume, name).unwrap();
    }
    let images = names.map(|name| bytes(kept(&memory, name).as_ref()));
    volume.unlink(volume.root(), b"large").unwrap();
    volume.unmount().unwrap();
    (memory, images)
}

/// Bytes that each snapshot has.
fn all_held(device: &Arc<MemoryDevice>) -> Vec<u64> {
    let found = snapshots(device.clone(), OpenOptions::default()).unwrap();
    found.iter().map(|it| it.held.get()).collect()
}

#[test]
fn blocks_that_were_taken_over_are_passed_on() {
    const LARGE: u64 = 500 * 4096;
    let (device, images) = with_a_removed_file(1);
    let before = all_held(&device);
    assert!(before[0] > LARGE && before[1] < LARGE && before[2] < LARGE, "{before:?}");
    // The oldest one that stays gets them, each time.
    for (n, name) in [&b"/.one"[..], b"/.two"].into_iter().enumerate() {
        remove(&device, &[name]).unwrap();
        let after = all_held(&device);
        assert!(after[0] >= before[n + 1] + LARGE - 60 * 4096, "{before:?}, {after:?}");
        assert!(after[1..].iter().all(|&held| held < LARGE), "{after:?}");
        is_in_order(&device);
    }
    assert!(bytes(kept(&device, b"/.three").as_ref()) == images[2]);
    // The last one frees them.
    let free = |device: &Arc<MemoryDevice>| {
        let device: Arc<dyn BlockDevice> = device.clone();
        let mut volume = live(&device);
        let free = volume.space().free;
        volume.unmount().unwrap();
        free
    };
    let had = free(&device);
    assert_eq!(held(&device), all_held(&device)[0]);
    remove(&device, &[b"/.three"]).unwrap();
    assert!(free(&device) > had + LARGE / 1024);
    is_in_order(&device);
}

/// A newer snapshot is removed: an older one has its own copies and blocks.
#[test]
fn a_newer_snapshot_gives_nothing_to_an_older_one() {
    let (device, images) = with_a_removed_file(0);
    let before = all_held(&device);
    remove(&device, &[b"/.three", b"/.two"]).unwrap();
    let after = all_held(&device);
    assert_eq!(listed(&device), [b"/.one"]);
    assert!(after[0] <= before[0] + 40 * 4096, "{before:?}, {after:?}");
    fill(&device);
    assert!(bytes(kept(&device, b"/.one").as_ref()) == images[0]);
    is_in_order(&device);
}

/// Snapshots whose maps were made by hand: numbers of blocks that were taken over, and marks.
#[test]
fn one_of_two_made_by_hand() {
    for (n, shape) in SHAPES.iter().enumerate() {
        let made = volume(shape, 100 + n);
        let image =
            |device: &Arc<MemoryDevice>, name: &str| bytes(kept(device, name.as_bytes()).as_ref());
        for (gone, stays) in [(NAMES[0], NAMES[1]), (NAMES[1], NAMES[0])] {
            let device = copy(&made.device);
            let before = image(&device, stays);
            assert_eq!(remove(&device, &[gone.as_bytes()]).unwrap(), 1);
            assert_eq!(listed(&device), [[b"/.snap/", stays.as_bytes()].concat()]);
            assert!(image(&device, stays) == before, "{shape:?}: {gone}");
            fill(&device);
            assert!(image(&device, stays) == before, "{shape:?}: {gone}, volume filled");
            is_in_order(&device);
        }
    }
}

/// A removal that was cut off is continued by name, also where another one is named first: the file
/// is an ordinary one then.
#[test]
fn a_removal_that_was_cut_off_and_another() {
    let made = volume(&SHAPES[2], 105);
    let mut harmed = bytes(made.device.as_ref());
    super::by_hand::Raw::new(&mut harmed).unmark(made.inos[1].get().into());
    let harmed = Arc::new(MemoryDevice::new(harmed));
    let before = bytes(kept(&harmed, b"daily").as_ref());
    let device = copy(&harmed);
    assert_eq!(remove(&device, &[b"weekly"]).unwrap(), 1);
    assert_eq!(listed(&device), [b"/.snap/daily"]);
    assert!(bytes(kept(&device, b"daily").as_ref()) == before);
    is_in_order(&device);
    let device = copy(&harmed);
    assert_eq!(remove(&device, &[b"daily"]).unwrap(), 1);
    assert_eq!(listed(&device), [b""; 0]);
    assert!(tree(&open(&device)).contains_key(&b"/.snap/weekly"[..]));
    is_in_order(&device);
}

/// The room for copies that changes leave suffices to remove a snapshot.
#[test]
fn one_is_removed_from_a_full_volume() {
    for gone in [&b"/.one"[..], b"/.two"] {
        let memory = image(&SHAPES[1]);
        let device: Arc<dyn BlockDevice> = memory.clone();
        let mut volume = live(&device);
        let old = put(&mut volume, "old", 3000, 1).unwrap();
        let names = [&b"/.one"[..], b"/.two"];
        for name in names {
            take_snapshot_in_use(&mut volume, name).unwrap();
        }
        spend_all(&mut volume, old);
        volume.unmount().unwrap();
        let stays = *names.iter().find(|name| **name != gone).unwrap();
        let image = bytes(kept(&memory, stays).as_ref());
        remove(&memory, &[gone]).unwrap();
        assert!(bytes(kept(&memory, stays).as_ref()) == image);
        is_in_order(&memory);
    }
}

/// Fills the volume, and then overwrites a file until there is no room for copies.
fn spend_all(volume: &mut FfsLive, old: Ino) {
    let full = put(volume, "filler", 20_000, 3).unwrap_err();
    assert!(matches!(full, FsError::NoSpace(_)), "{full}");
    let mut n = 0;
    while volume.write(old, ByteLen::new(n << 12), &[9; 4096]).is_ok() {
        volume.sync().unwrap();
        n += 1;
        assert!(n < 3000, "there is always room");
    }
}
