//! Volumes that grow while they are in use: they are those that grow when they are not, files stay open
//! meanwhile, and a growth that is refused or fails loses nothing.

use super::{KINDS, OWNER, change_in_use, files, in_use, is_sound, longer, numbers};
use crate::live::failing::Failing;
use crate::slice::some_or_all;
use crate::words::volume::bytes_of;
use seekless_cache::Discipline;
use seekless_device::{MemoryDevice, SparseDevice};
use seekless_ffs::{FfsLive, Outcome, check, grow, make, preen, repair, take_snapshot_in_use};
use seekless_fs::FsError;
use seekless_fs::operate::{NewFile, Operate};
use seekless_live::plan_growth;
use seekless_units::{ByteLen, Ino};
use std::sync::Arc;

const DISCIPLINES: [Discipline; 4] =
    [Discipline::SoftUpdates, Discipline::Normal, Discipline::Sync, Discipline::Async];

/// A volume with a device that is longer, and the length to which it grows.
fn short(n: usize) -> (Arc<MemoryDevice>, ByteLen) {
    let kind = KINDS[n];
    let device = kind.made(470 * u64::from(kind.block));
    let fs = numbers(&device);
    let len = ((fs.size() + 5 * fs.fpg() / 2) * fs.fsize()) as u64;
    (longer(&device, len), ByteLen::new(len))
}

fn contents(live: &mut FfsLive, ino: Ino, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let got = live.read(ino, ByteLen::ZERO, &mut bytes).unwrap();
    bytes.truncate(got);
    bytes
}

#[test]
fn it_becomes_the_volume_that_grows_when_it_is_not_in_use() {
    for (n, kind) in KINDS.into_iter().enumerate() {
        for (d, discipline) in DISCIPLINES.into_iter().enumerate() {
            if !some_or_all(d == n % 4, true) {
                continue;
            }
            let (device, len) = short(n);
            let other = Arc::new(MemoryDevice::new(bytes_of(&device)));
            let mut live = in_use(device.clone(), discipline);
            change_in_use(&mut live, 3, 60);
            let planned = plan_growth(&mut live, Some(len)).unwrap();
            let before = live.space();
            let growth = seekless_live::grow(&mut live, Some(len)).unwrap();
            assert_eq!(planned, growth);
            let after = live.space();
            assert!(after.blocks > before.blocks && after.free > before.free, "{kind:?}");
            change_in_use(&mut live, 4, 1000);
            live.unmount().unwrap();
            is_sound(&device, false);

            let mut live = in_use(other.clone(), discipline);
            change_in_use(&mut live, 3, 60);
            live.unmount().unwrap();
            assert_eq!(grow(other.clone(), len, super::WALL).unwrap(), growth, "{kind:?}");
            let mut live = in_use(other.clone(), discipline);
            change_in_use(&mut live, 4, 1000);
            live.unmount().unwrap();
            assert!(files(&device) == files(&other), "{kind:?} {discipline}: places differ");
            let differ = bytes_of(&device) != bytes_of(&other);
            assert!(!differ, "{kind:?} {discipline}");
        }
    }
}

#[test]
fn files_stay_open_and_those_without_a_name_go_when_it_is_unmounted() {
    for n in 0..KINDS.len() {
        let (device, len) = short(n);
        let mut live = in_use(device.clone(), Discipline::SoftUpdates);
        let root = live.root();
        let bytes: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
        let [gone, stays] = [&b"gone"[..], b"stays"].map(|name| {
            let ino = live.make(root, name, NewFile::Regular, OWNER).unwrap().ino;
            live.write(ino, ByteLen::ZERO, &bytes).unwrap();
            live.hold(ino).unwrap();
            ino
        });
        live.unlink(root, b"gone").unwrap();
        seekless_live::grow(&mut live, Some(len)).unwrap();
        for ino in [gone, stays] {
            assert!(contents(&mut live, ino, 200_000) == bytes, "{n}: inode {ino}");
            live.write(ino, ByteLen::new(100_000), &bytes).unwrap();
            assert_eq!(contents(&mut live, ino, 300_000).len(), 200_000);
        }
        live.unmount().unwrap();
        is_sound(&device, false);
        assert_eq!(files(&device).len(), 1, "{n}: the file with a name");
    }
}

/// It must be as usable as before.
fn goes_on(mut live: FfsLive, device: &Arc<MemoryDevice>) {
    let root = live.root();
    live.make(root, b"afterwards", NewFile::Regular, OWNER).unwrap();
    live.unmount().unwrap();
    let report = check(device.clone()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert!(files(device).keys().any(|path| path.ends_with("afterwards")));
}

#[test]
fn a_growth_that_is_refused_changes_nothing() {
    let refused = |n: usize, size: Option<u64>, prepare: &dyn Fn(&mut FfsLive)| {
        let (device, _) = short(n);
        let mut live = in_use(device.clone(), Discipline::SoftUpdates);
        change_in_use(&mut live, 5, 30);
        prepare(&mut live);
        let size = size.map(ByteLen::new);
        let why = seekless_live::grow(&mut live, size).expect_err("grown");
        let fs = numbers(&device);
        assert_eq!(fs.size() as u64, 470 * u64::from(KINDS[n].block) / fs.fsize() as u64);
        goes_on(live, &device);
        why
    };
    let (_, len) = short(1);
    let why = refused(1, Some(4096), &|_| {});
    assert!(matches!(why, FsError::Invalid(_)), "{why}");
    let why = refused(1, Some(len.get() + 4096), &|_| {});
    assert!(matches!(why, FsError::NoSpace(_)) && why.to_string().contains("device"), "{why}");
    for size in [470 * 4096, 1 << 40] {
        let why = refused(1, Some(size), &|_| {});
        assert!(matches!(why, FsError::NoSpace(_)), "{why}");
    }
    let why = refused(1, None, &|live| {
        take_snapshot_in_use(live, b"then").unwrap();
    });
    assert!(matches!(why, FsError::Unsupported(_)), "{why}");
}

/// A volume that was not clean, and is used by force, must be checked first.
#[test]
fn an_unclean_volume_does_not_grow() {
    let (device, len) = short(1);
    let mut live = in_use(device.clone(), Discipline::SoftUpdates);
    change_in_use(&mut live, 5, 30);
    live.sync().unwrap();
    drop(live);
    let config = seekless_cache::Config::new(Discipline::SoftUpdates);
    let options = seekless_ffs::LiveOptions { force: true, ..super::options() };
    let clock = Arc::new(seekless_device::VirtualClock::new());
    let mut live = FfsLive::open(device.clone(), clock, config, options).unwrap();
    let why = seekless_live::grow(&mut live, Some(len)).unwrap_err();
    assert!(matches!(why, FsError::Refused(_)), "{why}");
    live.unmount().unwrap();
    assert!(preen(device).unwrap().outcome == Outcome::Corrected);
}

#[test]
fn a_device_that_fails_leaves_all_files() {
    let mut seen = [0; 2];
    for writes in (0..).step_by(some_or_all(3, 1)) {
        let (device, len) = short(0);
        let failing = Failing::of(device.clone(), false);
        let mut live = in_use(failing.clone(), Discipline::SoftUpdates);
        change_in_use(&mut live, 6, 40);
        live.sync().unwrap();
        let before = files(&device);
        failing.leave(writes);
        let done = seekless_live::grow(&mut live, Some(len));
        failing.leave(i64::MAX);
        let Err(why) = done else { break };
        assert!(matches!(why, FsError::Device(_)), "{why}");
        let root = live.root();
        let made = live.make(root, b"afterwards", NewFile::Regular, OWNER);
        seen[usize::from(made.is_ok())] += 1;
        match made {
            Ok(_) => {
                live.unlink(root, b"afterwards").unwrap();
                live.unmount().unwrap();
                assert!(check(device.clone()).unwrap().is_clean(), "after {writes} writes");
            }
            Err(why) => {
                assert!(matches!(why, FsError::ReadOnly(_)), "{why}");
                // It cannot be written as a clean one.
                let _ = live.unmount();
                let mended = repair(device.clone()).unwrap();
                assert_eq!(mended.outcome, Outcome::Corrected, "after {writes} writes");
            }
        }
        assert!(files(&device) == before, "after {writes} writes");
    }
    println!("{seen:?}: read-only afterwards, and not");
    assert!(seen.iter().all(|&count| count > 2), "{seen:?}");
}

/// Many groups that were never written, so that the summary area moves, and a volume that is used on.
#[test]
fn a_volume_grows_a_thousandfold() {
    let kind = KINDS[1];
    let len = 8 << 30;
    let device = Arc::new(SparseDevice::new(ByteLen::new(len)));
    make(device.as_ref(), &kind.options(8 << 20)).unwrap();
    let mut live = in_use(device.clone(), Discipline::SoftUpdates);
    change_in_use(&mut live, 8, 100);
    let growth = seekless_live::grow(&mut live, None).unwrap();
    assert!(growth.moves_summary && growth.after.get() + growth.unused.get() == len);
    change_in_use(&mut live, 9, 100);
    live.unmount().unwrap();
    let report = check(device).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}
