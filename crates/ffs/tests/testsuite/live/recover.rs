//! Volumes that are corrected while they are in use, after states that crashes leave.

use super::SHAPES;
use super::shapes::{image, options};
use crate::rules::freebsd;
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, MemoryDevice, SnapshotOrigin, VirtualClock};
use seekless_ffs::{FfsLive, LiveOptions, Version, corrections};
use seekless_fs::corrections::Correction;
use seekless_fs::operate::{NewFile, Operate, Ownership, XattrMode};
use seekless_units::{ByteLen, Lba};
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o755 };

fn open(device: Arc<dyn BlockDevice>, recover: bool) -> FfsLive {
    let clock = Arc::new(VirtualClock::new());
    let options = LiveOptions { recover, ..options() };
    FfsLive::open(device, clock, Config::new(Discipline::SoftUpdates), options).unwrap()
}

/// The device as a crash leaves it now.
fn crashed(device: &MemoryDevice) -> Arc<MemoryDevice> {
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(Lba::ZERO, &mut bytes).unwrap();
    Arc::new(MemoryDevice::new(bytes))
}

/// Recovers a volume, which is used by `meanwhile` before the first correction.
fn recover(device: &Arc<MemoryDevice>, meanwhile: impl FnOnce(&mut FfsLive)) -> Vec<Correction> {
    let (origin, snapshot) = SnapshotOrigin::take(device.clone(), None);
    let found = corrections(Arc::new(snapshot)).unwrap();
    assert!(found.are_complete(), "{:#?}", found.left);
    let mut live = open(Arc::new(origin), true);
    meanwhile(&mut live);
    for correction in &found.all {
        live.correct(correction).unwrap();
    }
    live.end_recovery(true).unwrap();
    live.unmount().unwrap();
    let report = seekless_ffs::check(device.clone()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    let verdict = freebsd::judge(device.as_ref(), false);
    assert!(verdict.wrong.is_empty(), "{:#?}", verdict.wrong);
    found.all
}

/// A directory that was removed while somebody held it has no length and no blocks, and still its
/// attributes: they are freed once.
#[test]
fn a_held_directory_with_attributes() {
    for shape in SHAPES.iter().filter(|shape| shape.version == Version::Ufs2) {
        let device = image(shape);
        let mut live = open(device.clone(), false);
        let dir = live.make(live.root(), b"dir", NewFile::Directory, OWNER).unwrap().ino;
        live.set_xattr(dir, b"user.large", &[7; 3000], XattrMode::Any).unwrap();
        live.sync().unwrap();
        live.hold(dir).unwrap();
        live.rmdir(live.root(), b"dir").unwrap();
        live.sync().unwrap();
        let crashed = crashed(&device);
        // Whoever gets its blocks is not harmed by a second free.
        let made = recover(&crashed, |live| {
            let file = live.make(live.root(), b"file", NewFile::Regular, OWNER).unwrap().ino;
            live.write(file, ByteLen::ZERO, &[8; 300_000]).unwrap();
        });
        assert!(made.contains(&Correction::Delete(dir)), "{made:?}");
        let freed = made.iter().any(|made| matches!(made, Correction::FreeRun(_)));
        assert!(!freed, "its blocks go with it: {made:?}");
    }
}

/// A file may be deleted, and another get its number, before a correction that is about it is made.
#[test]
fn corrections_of_a_number_that_another_file_has() {
    for shape in &SHAPES {
        let device = image(shape);
        let mut live = open(device.clone(), false);
        let file = live.make(live.root(), b"file", NewFile::Regular, OWNER).unwrap().ino;
        let block = u64::from(shape.block);
        live.write(file, ByteLen::ZERO, &vec![7; shape.block as usize * 20]).unwrap();
        live.sync().unwrap();
        let crashed = crashed(&device);
        let mut live = open(crashed.clone(), true);
        live.unlink(live.root(), b"file").unwrap();
        live.sync().unwrap();
        let new = live.make(live.root(), b"other", NewFile::Regular, OWNER).unwrap().ino;
        live.write(new, ByteLen::new(block * 5), &[9; 100]).unwrap();
        let before = live.attr(new).unwrap();
        for correction in [Correction::Shorten(new), Correction::Sectors(new)] {
            live.correct(&correction).unwrap();
        }
        let after = live.attr(new).unwrap();
        assert_eq!((after.size, after.sectors), (before.size, before.sectors));
        live.unmount().unwrap();
        let report = seekless_ffs::check(crashed).unwrap();
        let not_clean =
            |finding: &seekless_fs::check::Finding| finding.code() == "superblock.not-clean";
        assert!(report.findings.iter().all(not_clean), "{:#?}", report.findings);
    }
}

/// One that is not sound is marked at once, for the next mount to refuse it.
#[test]
fn what_needs_a_check_is_marked_before_the_unmount() {
    let device = image(&SHAPES[1]);
    let mut live = open(device.clone(), false);
    live.make(live.root(), b"dir", NewFile::Directory, OWNER).unwrap();
    live.sync().unwrap();
    let crashed = crashed(&device);
    let mut live = open(crashed.clone(), true);
    live.end_recovery(false).unwrap();
    drop(live);
    let clock = Arc::new(VirtualClock::new());
    let options = LiveOptions { recover: true, ..options() };
    let config = Config::new(Discipline::SoftUpdates);
    let refused = FfsLive::open(crashed, clock, config, options).err().expect("it is marked");
    assert!(refused.to_string().contains("must be checked"), "{refused}");
}
