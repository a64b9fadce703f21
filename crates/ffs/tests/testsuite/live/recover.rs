//! Volumes that are corrected while they are in use, after states that crashes leave.

use super::SHAPES;
use super::shapes::{image, options};
use crate::rules::freebsd;
use crate::slice::some_or_all;
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
        // A new file may get these blocks, which must not be freed again.
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

/// Damage of a volume that says that it was in use: nothing panics, and a volume for which all
/// corrections succeed is in order. `RECOVER_STEP=1` damages each byte.
#[test]
fn damaged_volumes_are_in_order_or_refused() {
    let shape = &SHAPES[1];
    let device = image(shape);
    let mut live = open(device.clone(), false);
    for name in 0..12u32 {
        let root = live.root();
        let dir = live.make(root, name.to_string().as_bytes(), NewFile::Directory, OWNER).unwrap();
        let file = live.make(dir.ino, b"file", NewFile::Regular, OWNER).unwrap().ino;
        live.write(file, ByteLen::ZERO, &vec![7; 3000 * (name as usize + 1)]).unwrap();
        live.link(file, root, format!("link{name}").as_bytes()).unwrap();
    }
    live.sync().unwrap();
    let whole = crashed(&device);
    let mut bytes = vec![0; whole.len().get() as usize];
    whole.read(Lba::ZERO, &mut bytes).unwrap();
    // Metadata and names: all that is not zero and not contents. The superblock stays.
    let places: Vec<usize> = (0..bytes.len())
        .filter(|&at| !matches!(bytes[at], 0 | 7) && !(65_536..73_728).contains(&at))
        .collect();
    let (mut sound, mut left) = (0, 0);
    let step = std::env::var("RECOVER_STEP").ok().and_then(|step| step.parse().ok());
    let step = step.unwrap_or(places.len() / some_or_all(250, 600));
    for (n, &at) in places.iter().enumerate().step_by(step) {
        let mut damaged = bytes.clone();
        damaged[at] ^= [0x01, 0x10, 0xFF][n % 3];
        let device = Arc::new(MemoryDevice::new(damaged));
        match try_recover(&device) {
            Some(true) => {
                sound += 1;
                let report = seekless_ffs::check(device).unwrap();
                assert!(report.is_clean(), "byte {at}: {:#?}", report.findings);
            }
            Some(false) | None => left += 1,
        }
    }
    assert!(
        sound > some_or_all(8, 20) && left > some_or_all(40, 100),
        "{sound} are sound, {left} are left"
    );
}

/// Whether a volume is sound after its recovery; `None` if it is not opened or not checked.
fn try_recover(device: &Arc<MemoryDevice>) -> Option<bool> {
    let (origin, snapshot) = SnapshotOrigin::take(device.clone(), None);
    let found = corrections(Arc::new(snapshot)).ok()?;
    let clock = Arc::new(VirtualClock::new());
    let options = LiveOptions { recover: true, ..options() };
    let config = Config::new(Discipline::SoftUpdates);
    let mut live = FfsLive::open(Arc::new(origin), clock, config, options).ok()?;
    let mut sound = found.are_complete();
    for correction in &found.all {
        sound &= live.correct(correction).is_ok();
    }
    live.end_recovery(sound).ok()?;
    live.unmount().ok()?;
    Some(sound)
}
