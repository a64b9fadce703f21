//! Damage anywhere in the metadata of a volume with snapshots: typed errors, and removals that leave
//! a sound volume or write nothing.

use super::by_hand::Raw;
use super::{NAMES, OWNER, SHAPES, bytes, volume};
use crate::live::shapes::options;
use crate::property::for_all;
use crate::replay::WALL;
use crate::slice::some_or_all;
use proptest::collection::vec;
use proptest::num::u8::ANY;
use proptest::prop_oneof;
use proptest::strategy::{Just, Strategy};
use seekless_cache::{Config, Discipline};
use seekless_device::{DeviceError, MemoryDevice, VirtualClock};
use seekless_ffs::{
    FfsLive, LiveOptions, check, open_snapshot, preen, release_snapshots, remove_snapshots, repair,
    snapshots, take_snapshot_in_use,
};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate};
use seekless_units::{ByteLen, Lba};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A place in the metadata, and its new bytes.
type Damage = (usize, Vec<u8>);

fn damage() -> impl Strategy<Value = Damage> {
    let word = prop_oneof![
        vec(ANY, 1..=1),
        vec(ANY, 4..=4),
        vec(ANY, 8..=8),
        Just(vec![0xFF; 8]),
        Just(vec![0; 16]),
        // Numbers of blocks, of which 1 and 2 are marks.
        (0..40u8).prop_map(|number| vec![number, 0, 0, 0, 0, 0, 0, 0]),
    ];
    (0..usize::MAX, word)
}

#[test]
fn damage_is_told_and_removals_are_whole() {
    for (kind, shape) in [(90, &SHAPES[2]), (91, &SHAPES[0])] {
        let made = volume(shape, kind);
        let sound = bytes(made.device.as_ref());
        let mut copy = sound.clone();
        let places = Raw::new(&mut copy).metadata(&made.inos.map(|ino| ino.get().into()));
        for_all((some_or_all(15, 40), kind), vec(damage(), 1..=3), |damages| {
            let mut harmed = sound.clone();
            for (place, with) in &damages {
                let at = places[place % places.len()];
                harmed[at..at + with.len()].copy_from_slice(with);
            }
            let device = Arc::new(MemoryDevice::new(harmed.clone()));
            for ignore_checksums in [false, true] {
                read_all(&device, OpenOptions { ignore_checksums, ..OpenOptions::default() });
            }
            let _ = check(device.clone());
            use_and_repair(&harmed);
            match remove_snapshots(device.clone(), None, WALL) {
                Err(_) => assert!(bytes(device.as_ref()) == harmed, "something was written"),
                Ok(_) => {
                    let left = check(device.clone()).expect("a superblock");
                    let is_old = |code| matches!(code, "superblock.copy" | "superblock.tuning");
                    let new = left.findings.iter().filter(|it| !is_old(it.code()));
                    assert_eq!(new.count(), 0, "{:#?}", left.findings);
                    assert_eq!(snapshots(device, OpenOptions::default()).unwrap(), []);
                }
            }
        });
    }
}

/// Changes copies of a damaged volume, takes a snapshot and repairs it, as far as that goes: nothing
/// panics.
fn use_and_repair(harmed: &[u8]) {
    let device = Arc::new(MemoryDevice::new(harmed.to_vec()));
    for repair in [preen, repair] {
        let _ = repair(device.clone());
    }
    if release_snapshots(device.clone()).is_ok() {
        assert_eq!(snapshots(device, OpenOptions::default()).unwrap_or_default(), []);
    }
    for ignore_checksums in [false, true] {
        let device = Arc::new(MemoryDevice::new(harmed.to_vec()));
        let how = LiveOptions { force: true, ignore_checksums, ..options() };
        let (clock, config) = (Arc::new(VirtualClock::new()), Config::new(Discipline::SoftUpdates));
        let Ok(mut live) = FfsLive::open(device, clock, config, how) else { continue };
        let mut names = Vec::new();
        let root = live.root();
        let _ = live.read_dir(root, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            ControlFlow::Continue(())
        });
        for name in names.iter().take(20) {
            if let Ok(Some(ino)) = live.lookup(root, name) {
                let _ = live.release_snapshot(ino);
            }
            let _ = live.unlink(root, name);
        }
        if let Ok(made) = live.make(root, b"made", NewFile::Regular, OWNER) {
            let _ = live.write(made.ino, ByteLen::ZERO, &[7; 100_000]);
        }
        let _ = take_snapshot_in_use(&mut live, b"/one-more");
        let _ = live.unmount();
    }
}

/// Lists and reads all snapshots, as far as that goes.
fn read_all(device: &Arc<MemoryDevice>, options: OpenOptions) {
    let _ = snapshots(device.clone(), options);
    for name in NAMES {
        let Ok(kept) = open_snapshot(device.clone(), name.as_bytes(), options) else { continue };
        let mut block = vec![0; 1 << 16];
        for at in (0..kept.len().get() / 512).step_by(block.len() / 512) {
            let read = kept.read(Lba::new(at), &mut block);
            let is_told = matches!(
                read,
                Ok(()) | Err(DeviceError::Damaged { .. } | DeviceError::OutOfRange { .. })
            );
            assert!(is_told, "{read:?}");
        }
        let _ = check(kept);
    }
}
