//! Crash states while one of several snapshots is removed: the others read as before, also after a
//! recovery, and the removal can be started again.

use crate::background::InBackground;
use crate::slice::some_or_all;
use crate::snapshots::bytes;
use crate::ufs::Ufs;
use seekless_cache::{Config, Discipline};
use seekless_crash::Target;
use seekless_crash::log::{Log, Step};
use seekless_crash::recorder::{Completion, Recorder};
use seekless_crash::states::states;
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_ffs::{
    FfsLive, Version, check, open_snapshot, remove_snapshots, snapshots, take_snapshot_in_use,
};
use seekless_fs::check::Finding;
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_fs::{FsError, Timestamp};
use seekless_units::ByteLen;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };
/// In a directory that the recovery in use leaves alone.
const NAMES: [&[u8]; 3] = [b"/lost+found/one", b"/lost+found/two", b"/lost+found/three"];
const NOW: Timestamp = Timestamp { secs: 1_700_000_100, nanos: 0 };

/// States of each part of the removal between two flushes.
const STATES: u64 = 10;

fn file(live: &mut FfsLive, name: &str, blocks: u64, with: u8) {
    let ino = live.make(live.root(), name.as_bytes(), NewFile::Regular, OWNER).unwrap().ino;
    for n in 0..blocks {
        live.write(ino, ByteLen::new(n * 4096), &[with; 4096]).unwrap();
    }
    // A fragment at the end.
    live.write(ino, ByteLen::new(blocks * 4096), &[with; 700]).unwrap();
}

fn over(live: &mut FfsLive, name: &str, with: u8) {
    let ino = live.lookup(live.root(), name.as_bytes()).unwrap().unwrap();
    live.write(ino, ByteLen::new(2 << 12), &[with; 3 * 4096]).unwrap();
}

/// A volume with three snapshots. Each of them has taken over blocks that newer ones need, and has
/// copies of its own.
fn volume(ufs: &Ufs, len: usize) -> Arc<MemoryDevice> {
    let memory = Arc::new(MemoryDevice::new(vec![0; len]));
    ufs.make(memory.as_ref()).unwrap();
    let (clock, config) = (Arc::new(VirtualClock::new()), Config::new(Discipline::SoftUpdates));
    let mut live = ufs.live(memory.clone(), clock, config).unwrap();
    let root = live.root();
    if live.lookup(root, b"lost+found").unwrap().is_none() {
        live.make(root, b"lost+found", NewFile::Directory, OWNER).unwrap();
    }
    for (n, name) in (1u8..).zip(NAMES) {
        file(&mut live, &format!("removed-{n}"), 12, n);
        file(&mut live, &format!("written-{n}"), 8, n);
        take_snapshot_in_use(&mut live, name).unwrap();
        for written in 1..=n {
            over(&mut live, &format!("written-{written}"), 100 + 10 * n + written);
        }
    }
    for n in 1..=3 {
        live.unlink(root, format!("removed-{n}").as_bytes()).unwrap();
    }
    live.unmount().unwrap();
    assert!(check(memory.clone()).unwrap().is_clean());
    memory
}

fn copy(device: &MemoryDevice) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(bytes(device).unwrap()))
}

fn image(device: &Arc<MemoryDevice>, name: &[u8]) -> Result<Vec<u8>, FsError> {
    bytes(open_snapshot(device.clone(), name, OpenOptions::default())?.as_ref())
}

/// The others, with their images.
type Kept<'a> = [(&'a [u8], Vec<u8>)];

/// Compares the images. A crash may tear the superblock, so that no snapshot is found by its name.
fn look(device: &Arc<MemoryDevice>, kept: &Kept<'_>, may_be_torn: bool, state: &str) {
    for (name, before) in kept {
        match image(device, name) {
            Err(FsError::Corrupt { .. }) if may_be_torn => {}
            now => assert!(now.unwrap() == *before, "{state}: {}", String::from_utf8_lossy(name)),
        }
    }
}

/// Applies all steps of the log before one.
fn apply(device: &MemoryDevice, log: &Log, steps: std::ops::Range<usize>) {
    for step in &log.steps[steps] {
        let written = match step {
            Step::Write { at, bytes, .. } => Some((at, bytes)),
            Step::Complete { submit } => match &log.steps[*submit] {
                Step::Submit { at, bytes, .. } => Some((at, bytes)),
                _ => None,
            },
            _ => None,
        };
        if let Some((at, bytes)) = written {
            device.write(*at, bytes).unwrap();
        }
    }
}

/// Recovers a state, and removes the snapshots as far as that was not done.
fn recover(
    version: Version,
    device: &Arc<MemoryDevice>,
    gone: &[Vec<u8>],
    kept: &Kept<'_>,
    at: &str,
) {
    look(device, kept, true, at);
    let recovery = InBackground::of(version);
    // The next round repairs the damage that cannot be corrected in use.
    for _ in 0..3 {
        recovery.preen(device.clone()).unwrap_or_else(|error| panic!("{at}: {error}"));
        look(device, kept, false, at);
    }
    let report = check(device.clone()).unwrap();
    // A listed file that is no snapshot any more.
    let is_listed = |it: &Finding| it.code() == "superblock.tuning";
    assert!(report.findings.iter().all(is_listed), "{at}: {:#?}", report.findings);
    // All at once, and as far as some are ordinary files by now, or there are none, one by one.
    for names in [gone].into_iter().chain(gone.chunks(1)) {
        match remove_snapshots(device.clone(), Some(names), NOW) {
            Ok(_) | Err(FsError::Invalid(_) | FsError::NotFound(_)) => {}
            Err(error) => panic!("{at}: {error}"),
        }
    }
    let left = snapshots(device.clone(), OpenOptions::default()).unwrap();
    assert_eq!(left.len(), kept.len(), "{at}");
    look(device, kept, false, at);
    let report = check(device.clone()).unwrap();
    assert!(report.is_clean(), "{at}, removed: {:#?}", report.findings);
}

/// Removes snapshots of a volume that is in use, and changes it before, meanwhile and afterwards.
fn remove_in_use(ufs: &Ufs, device: Arc<dyn BlockDevice>, names: &[Vec<u8>]) {
    let (clock, config) = (Arc::new(VirtualClock::new()), Config::new(Discipline::SoftUpdates));
    let mut live = ufs.live(device, clock, config).unwrap();
    file(&mut live, "added", 5, 77);
    over(&mut live, "written-1", 78);
    for name in names {
        let name = name.rsplit(|&byte| byte == b'/').next().unwrap();
        let dir = live.lookup(live.root(), b"lost+found").unwrap().unwrap();
        let ino = live.lookup(dir, name).unwrap().unwrap();
        live.release_snapshot(ino).unwrap();
        over(&mut live, "written-2", 79);
        live.unlink(dir, name).unwrap();
        over(&mut live, "written-3", 80);
    }
    live.unlink(live.root(), b"added").unwrap();
    live.unmount().unwrap();
}

/// The way in which snapshots are removed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Volume {
    NotInUse,
    InUse,
}

impl Volume {
    /// Bytes of the volume: after a crash in use, the reserve for copies is lost until the recovery
    /// has found it, which needs room for copies of its own.
    const fn len(self) -> usize {
        match self {
            Self::NotInUse => 4 << 20,
            Self::InUse => 6 << 20,
        }
    }
}

/// Looks at states while some snapshots are removed.
fn removals(version: Version, gone: &[usize], is: Volume) {
    let ufs = Ufs::of(version);
    let first = volume(&ufs, is.len());
    let gone: Vec<&[u8]> = gone.iter().map(|&at| NAMES[at]).collect();
    let kept: Vec<(&[u8], Vec<u8>)> = NAMES
        .into_iter()
        .filter(|name| !gone.contains(name))
        .map(|name| (name, image(&first, name).unwrap()))
        .collect();
    let recorder = Arc::new(Recorder::new(copy(&first), Completion::AtOnce));
    let names: Vec<Vec<u8>> = gone.iter().map(|name| name.to_vec()).collect();
    match is {
        Volume::NotInUse => drop(remove_snapshots(recorder.clone(), Some(&names), NOW).unwrap()),
        Volume::InUse => remove_in_use(&ufs, recorder.clone(), &names),
    }
    let log = recorder.take();
    let base = copy(&first);
    let (mut done, mut looked) = (0, 0);
    for (n, epoch) in (0u64..).zip(log.epochs(0)) {
        apply(&base, &log, done..epoch.steps.start);
        done = epoch.steps.start;
        let found = states(&log, &epoch, base.as_ref(), STATES, n).unwrap();
        for choice in found.choices.iter().step_by(some_or_all(3, 1)) {
            let device = copy(&base);
            found.apply(&log, choice, device.as_ref()).unwrap();
            let at = format!("{version:?}, part {n}\n{}", found.describe(&log, choice).join("\n"));
            recover(version, &device, &names, &kept, &at);
            looked += 1;
        }
    }
    println!("{version:?}: {looked} states in {} steps", log.steps.len());
    assert!(looked > some_or_all(13, 40), "{looked} states");
}

#[test]
fn the_oldest() {
    removals(Version::Ufs1, &[0], Volume::NotInUse);
    removals(Version::Ufs2, &[0], Volume::NotInUse);
}

#[test]
fn one_between_others() {
    removals(Version::Ufs1, &[1], Volume::NotInUse);
    removals(Version::Ufs2, &[1], Volume::NotInUse);
}

#[test]
fn the_newest() {
    removals(Version::Ufs2, &[2], Volume::NotInUse);
}

#[test]
fn two_of_three() {
    removals(Version::Ufs1, &[0, 1], Volume::NotInUse);
    removals(Version::Ufs2, &[0, 2], Volume::NotInUse);
}

#[test]
fn the_oldest_in_use() {
    removals(Version::Ufs2, &[0], Volume::InUse);
}

#[test]
fn two_of_three_in_use() {
    removals(Version::Ufs1, &[2, 1], Volume::InUse);
}

#[test]
fn all_in_use() {
    removals(Version::Ufs2, &[1, 0, 2], Volume::InUse);
}
