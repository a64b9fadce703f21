//! Removing snapshots, at whatever write the removal is cut off.

use super::by_hand::Raw;
use super::{Files, NAMES, OWNER, SHAPES, Volume, bytes, open, tree, tree_without, volume};
use crate::live::recount::recount;
use crate::live::shapes::options;
use crate::replay::WALL;
use seekless_cache::{Config, Discipline};
use seekless_crash::recorder::Completion;
use seekless_crash::{Recorder, Step};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_ffs::{FfsLive, Outcome, preen, remove_snapshots, repair, snapshots};
use seekless_fs::check::Finding;
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate};
use seekless_fs::{FsError, Inspect};
use seekless_units::{ByteLen, Ino};
use std::sync::Arc;

fn names() -> Vec<Vec<u8>> {
    NAMES.iter().map(|name| name.as_bytes().to_vec()).collect()
}

/// All files but those that are, or were, snapshots: a preen may give one whose name is gone already
/// a name in `lost+found`.
fn others(device: &Arc<MemoryDevice>) -> Files {
    tree_without(&open(device), &[b"/.snap/daily", b"/.snap/weekly", b"/lost+found"])
}

fn listed(device: &Arc<MemoryDevice>) -> usize {
    snapshots(device.clone(), OpenOptions::default()).unwrap().len()
}

#[test]
fn a_volume_without_its_snapshots_can_be_changed() {
    for (n, shape) in SHAPES.iter().enumerate() {
        let Volume { device, .. } = volume(shape, 60 + n);
        let before = others(&device);
        remove_snapshots(device.clone(), Some(&names()), WALL).unwrap();
        assert_eq!(listed(&device), 0);
        let report = seekless_ffs::check(device.clone()).unwrap();
        assert!(report.is_clean(), "{shape:?}: {:#?}", report.findings);
        recount(&device);
        let after = tree(&open(&device));
        assert!(after == before, "{shape:?}");
        let config = Config::new(Discipline::SoftUpdates);
        let clock = Arc::new(VirtualClock::new());
        let mut live = FfsLive::open(device.clone(), clock, config, options()).unwrap();
        let root = live.root();
        let home = live.lookup(root, b".snap").unwrap().expect("a directory");
        live.unlink(home, b"large-2").unwrap();
        live.unmount().unwrap();
        recount(&device);
    }
}

#[test]
fn a_removal_can_be_cut_off() {
    for (n, shape) in [(0, &SHAPES[0]), (1, &SHAPES[2])] {
        let Volume { device, .. } = volume(shape, 70 + n);
        let (first, before) = (bytes(device.as_ref()), others(&device));
        let removed = Arc::new(MemoryDevice::new(first.clone()));
        let recorder = Arc::new(Recorder::new(removed, Completion::AtOnce));
        remove_snapshots(recorder.clone(), Some(&names()), WALL).unwrap();
        let write = |step| match step {
            Step::Write { at, bytes, .. } => Some((at, bytes)),
            _ => None,
        };
        let writes: Vec<_> = recorder.take().steps.into_iter().filter_map(write).collect();
        let state = |count: usize| {
            let device = Arc::new(MemoryDevice::new(first.clone()));
            for (at, bytes) in &writes[..count] {
                device.write(*at, bytes).unwrap();
            }
            device
        };
        let codes = |count: usize| -> Vec<&'static str> {
            let report = seekless_ffs::check(state(count)).unwrap();
            report.findings.iter().map(Finding::code).collect()
        };
        let is_released = |count: usize| !is_listed(&state(count)) && codes(count).is_empty();
        // Each state before both are ordinary files, then some.
        let released = (0..=writes.len()).find(|&count| is_released(count)).unwrap();
        println!("{shape:?}: {} writes, ordinary files after {released}", writes.len());
        assert!(released > 4 && released < writes.len());
        assert!((1..released).all(|count| !is_listed(&state(count))), "the list is written first");
        let later = (released..=writes.len()).step_by((writes.len() / 30).max(1));
        for count in (0..released).chain(later) {
            let device = state(count);
            if count < released {
                let codes = codes(count);
                assert!(codes.iter().all(|&code| code == "inode.snapshot"), "{count}: {codes:?}");
                assert!(others(&device) == before, "{shape:?}, {count}");
                changes(&state(count), count > 0);
                match remove_snapshots(device.clone(), Some(&names()), WALL) {
                    Ok(2) => assert!(tree(&open(&device)) == before, "{shape:?}, {count}: by name"),
                    // The flag of one of them is cleared already.
                    Err(FsError::Invalid(_)) if codes.len() == 1 => {}
                    other => panic!("{shape:?}, {count}: {other:?}"),
                }
                let device = state(count);
                remove_snapshots(device.clone(), None, WALL).unwrap();
                let others_stay = match codes.len() {
                    1 => others(&device) == before,
                    _ => tree(&open(&device)) == before,
                };
                assert!(others_stay, "{shape:?}, {count}: all");
                recount(&device);
                let device = state(count);
                let preened = preen(device.clone()).unwrap();
                assert!(preened.outcome != Outcome::Left, "{count}: {:#?}", preened.report);
                assert!(others(&device) == before, "{shape:?}, {count}: preened");
            } else {
                let preened = preen(device.clone()).unwrap();
                assert!(preened.outcome != Outcome::Left, "{count}: {:#?}", preened.report);
                assert!(others(&device) == before, "{shape:?}, {count}");
            }
            recount(&device);
        }
    }
}

/// Fills a volume as it is, and takes a snapshot of it. `is_cut_off`: nothing needs room for copies.
fn changes(device: &Arc<MemoryDevice>, is_cut_off: bool) {
    let config = Config::new(Discipline::SoftUpdates);
    let clock = Arc::new(VirtualClock::new());
    let mut live = FfsLive::open(device.clone(), clock, config, options()).unwrap();
    let space = live.space();
    let free = space.available * u64::from(space.block_size);
    let ino = live.make(live.root(), b"filled", NewFile::Regular, OWNER).unwrap().ino;
    let mut at = 0;
    let full = loop {
        match live.write(ino, ByteLen::new(at), &[7; 4096]) {
            Ok(_) => at += 4096,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, FsError::NoSpace(_)), "{full}");
    if is_cut_off {
        assert!(at > free / 10 * 9, "{at} of {free} bytes");
    }
    live.unlink(live.root(), b"filled").unwrap();
    live.unmount().unwrap();
}

/// Whether the superblock lists any inode.
fn is_listed(device: &Arc<MemoryDevice>) -> bool {
    let mut bytes = bytes(device.as_ref());
    Raw::new(&mut bytes).listed(0) != 0
}

/// Removals that were cut off go on, whatever they are told to remove.
#[test]
fn a_removal_goes_on() {
    let made = volume(&SHAPES[2], 81);
    let before = others(&made.device);
    let [daily, weekly] = made.inos.map(|ino| ino.get().into());
    let all = names();
    for named in [None, Some(&all[..])] {
        for flags_gone in [&[weekly][..], &[daily, weekly]] {
            let mut bytes = bytes(made.device.as_ref());
            let mut raw = Raw::new(&mut bytes);
            for &ino in flags_gone {
                raw.unmark(ino);
            }
            let device = Arc::new(MemoryDevice::new(bytes));
            assert_eq!(remove_snapshots(device.clone(), named, WALL).unwrap(), 2);
            assert!(!is_listed(&device) && tree(&open(&device)) == before);
            recount(&device);
        }
    }
}

/// Entries of the list that are no snapshots are found by a check, and do not stop a removal.
#[test]
fn a_list_with_other_entries() {
    let made = volume(&SHAPES[3], 82);
    let before = others(&made.device);
    let ino = |path: &str| u64::from(before[path.as_bytes()].1);
    let twice = made.inos[0].get().into();
    for entry in [twice, 999_999_999, u32::MAX.into(), ino("/made-2-3"), ino("/.snap"), 1] {
        let mut bytes = bytes(made.device.as_ref());
        Raw::new(&mut bytes).list(2, entry);
        let device = Arc::new(MemoryDevice::new(bytes));
        assert_eq!(listed(&device), 2, "{entry}");
        let report = seekless_ffs::check(device.clone()).unwrap();
        let codes: Vec<_> = report.findings.iter().map(Finding::code).collect();
        assert_eq!(codes, ["superblock.tuning"], "{entry}");
        assert_eq!(remove_snapshots(device.clone(), None, WALL).unwrap(), 2, "{entry}");
        assert!(!is_listed(&device) && tree(&open(&device)) == before, "{entry}");
        recount(&device);
    }
    // An image out of a newer snapshot lists older ones, which are empty files there.
    let mut state = made.states[1].clone();
    let empty = tree(&open(&Arc::new(MemoryDevice::new(state.clone()))))[&b"/made-0-0"[..]].1;
    Raw::new(&mut state).list(0, empty.into());
    let device = Arc::new(MemoryDevice::new(state));
    assert_eq!(remove_snapshots(device.clone(), None, WALL).unwrap(), 0);
    assert!(!is_listed(&device) && tree(&open(&device)).contains_key(&b"/made-0-0"[..]));
    recount(&device);
}

#[test]
fn nothing_is_written_where_not_all_can_be_removed() {
    let Volume { device, .. } = volume(&SHAPES[1], 80);
    let before = bytes(device.as_ref());
    let refused = |names: &[&str], says: &str| refused(&device, Some(names), says);
    refused(&["daily", "weekly", "/made-2-3"], "/made-2-3 is not a snapshot");
    refused(&["daily", "monthly"], "/.snap/monthly");
    refused(&["daily", "/.snap"], "is not a snapshot");
    refused(&["daily/..", "weekly"], "is not a snapshot");
    refused(&["daily/.", "weekly"], "is not a snapshot");
    assert!(bytes(device.as_ref()) == before);
    // A slash at the end of a name does no harm.
    let named = [b"daily/".to_vec(), b"/.snap//weekly".to_vec()];
    assert_eq!(remove_snapshots(device.clone(), Some(&named), WALL).unwrap(), 2);
    recount(&device);
}

/// The reason why a removal is refused; nothing is written.
fn refused(device: &Arc<MemoryDevice>, names: Option<&[&str]>, says: &str) {
    let before = bytes(device.as_ref());
    let names: Option<Vec<Vec<u8>>> =
        names.map(|names| names.iter().map(|name| name.as_bytes().to_vec()).collect());
    let why = remove_snapshots(device.clone(), names.as_deref(), WALL).unwrap_err().to_string();
    assert!(why.contains(says), "{names:?}: {why}");
    assert!(bytes(device.as_ref()) == before, "{names:?}: something was written");
}

#[test]
fn volumes_that_cannot_be_changed_are_left_alone() {
    const CLEAN: usize = 209;
    let made = volume(&SHAPES[2], 83);
    let [daily, weekly] = made.inos.map(|ino| u64::from(ino.get()));
    let home = open(&made.device).lookup(Ino::new(2), b".snap").unwrap().unwrap().get().into();
    let is = |says: &str, harm: &dyn Fn(&mut Raw<'_>)| {
        let mut bytes = bytes(made.device.as_ref());
        harm(&mut Raw::new(&mut bytes));
        refused(&Arc::new(MemoryDevice::new(bytes)), None, says);
    };
    // SF_IMMUTABLE, SF_APPEND of the directory.
    is("not permitted", &|raw| raw.set_flags(daily, 0x0022_0000));
    is("not permitted", &|raw| raw.set_flags(home, 0x0004_0000));
    is("not-clean", &|raw| raw.superblock(CLEAN, 1, 0));
    is("not-clean", &|raw| raw.superblock(1312, 4, 1));
    // Indirect blocks that are the superblock, or those of the other snapshot.
    is("inode", &|raw| raw.set_number(daily, 12, 32));
    is("inode", &|raw| {
        let other = raw.number(weekly, 12);
        raw.set_number(daily, 12, other);
    });
    is("di_blocks", &|raw| {
        let at = raw.inode(daily) + 24;
        raw.put(at, 8, 1 << 56);
        raw.seal(daily);
    });
}

/// A repair makes an ordinary file of a snapshot that is on no list: it keeps its name, its length and
/// its own blocks.
#[test]
fn a_repair_keeps_unlisted_snapshots() {
    for (kind, shape) in [(84, &SHAPES[0]), (85, &SHAPES[2])] {
        let made = volume(shape, kind);
        let (before, rest) = (tree(&open(&made.device)), others(&made.device));
        let held = |device: &Arc<MemoryDevice>, ino| open(device).attr(ino).unwrap().sectors;
        let mut bytes = bytes(made.device.as_ref());
        let mut raw = Raw::new(&mut bytes);
        raw.list(1, 0);
        raw.list(0, 0);
        let device = Arc::new(MemoryDevice::new(bytes));
        let repaired = repair(device.clone()).unwrap();
        assert_eq!(repaired.outcome, Outcome::Corrected, "{:#?}", repaired.report);
        recount(&device);
        assert!(others(&device) == rest, "{shape:?}");
        for (name, ino) in ["/.snap/daily", "/.snap/weekly"].into_iter().zip(made.inos) {
            let now = &tree(&open(&device))[name.as_bytes()];
            assert_eq!(now.2.len(), before[name.as_bytes()].2.len(), "{shape:?}, {name}");
            assert_eq!(held(&device, ino), held(&made.device, ino), "{shape:?}, {name}");
        }
    }
}
