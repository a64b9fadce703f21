//! A server that is killed while it makes or removes many files: what the device has then is
//! repaired by `fsck.fat -a`, and by our preen, which frees what has no name.

use super::target::{fsck, has_judge, options};
use super::{WIDTHS, skip};
use crate::slice::some_or_all;
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, Clock, DeviceError, MemoryDevice, VirtualClock};
use seekless_fat::{FatLive, FatWidth, LostChains, MakeOptions, check, preen};
use seekless_fs::FsError;
use seekless_fs::check::{Outcome, Report};
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_units::{ByteLen, Ino, Lba, Nanos};
use std::sync::{Arc, Mutex};

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };
/// Chains that may have no name: the bound, and those of the operation that is under way.
const MOST: usize = 64 + 16;

/// A device that keeps what it holds after some of its writes.
struct Watched {
    inner: MemoryDevice,
    /// The state of a generator, and what was kept.
    kept: Mutex<(u64, Vec<Vec<u8>>)>,
    /// Of so many writes one is kept.
    every: u64,
}

impl BlockDevice for Watched {
    fn len(&self) -> ByteLen {
        self.inner.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(at, buf)?;
        let mut kept = self.kept.lock().unwrap();
        kept.0 = kept.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        if (kept.0 >> 33).is_multiple_of(self.every) && kept.1.len() < some_or_all(8, 24) {
            let mut bytes = vec![0; self.inner.len().get() as usize];
            self.inner.read(Lba::ZERO, &mut bytes)?;
            kept.1.push(bytes);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A volume in use, and its clock.
struct Mounted {
    device: Arc<Watched>,
    live: FatLive,
    clock: Arc<VirtualClock>,
}

impl Mounted {
    fn new(width: FatWidth, discipline: Discipline, seed: u64, every: u64) -> Self {
        let len = ByteLen::new(if width == FatWidth::Fat16 { 6 << 20 } else { 2 << 20 });
        let inner = MemoryDevice::new(vec![0; len.get() as usize]);
        let mut make = MakeOptions::new(Some(width), len);
        make.cluster = Some(1);
        seekless_fat::make(&inner, &make).unwrap();
        let device = Arc::new(Watched { inner, kept: Mutex::new((seed, Vec::new())), every });
        let clock = Arc::new(VirtualClock::new());
        let config = Config::new(discipline);
        let live = FatLive::open(device.clone(), clock.clone(), config, options()).unwrap();
        Self { device, live, clock }
    }

    fn pass(&mut self, millis: u64) {
        self.clock.sleep(Nanos::new(millis * 1_000_000));
        self.live.tick().unwrap();
    }

    fn file(&mut self, dir: Ino, name: &str, len: usize) {
        let ino = self.live.make(dir, name.as_bytes(), NewFile::Regular, OWNER).unwrap().ino;
        self.live.write(ino, ByteLen::ZERO, &vec![b'x'; len]).unwrap();
    }

    fn directory(&mut self, dir: Ino, name: &str) -> Ino {
        self.live.make(dir, name.as_bytes(), NewFile::Directory, OWNER).unwrap().ino
    }

    fn kept(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.device.kept.lock().unwrap().1)
    }
}

fn lost(report: &Report) -> usize {
    report.findings.iter().filter(|finding| finding.code() == "chain.lost").count()
        + report.more as usize
}

/// Repairs what a kill has left, in both ways.
fn repair(states: &[Vec<u8>], what: &str) -> usize {
    let mut most = 0;
    for (n, state) in states.iter().enumerate() {
        let what = format!("{what}, state {n}");
        let report = check(Arc::new(MemoryDevice::new(state.clone()))).unwrap();
        assert_eq!(report.unexpected, 0, "{what}: {report:#?}");
        most = most.max(lost(&report));
        let (after, code, said) = fsck(state, "-a");
        assert!(matches!(code, 0 | 1), "{what}: {said}");
        let (_, code, said) = fsck(&after, "-n");
        assert_eq!(code, 0, "{what}: {said}");
        let device = Arc::new(MemoryDevice::new(state.clone()));
        let preened = preen(device.clone(), LostChains::ByMark).unwrap();
        assert_ne!(preened.outcome, Outcome::Left, "{what}: {:#?}", preened.report);
        let mut bytes = vec![0; state.len()];
        device.read(Lba::ZERO, &mut bytes).unwrap();
        let (_, code, said) = fsck(&bytes, "-n");
        assert_eq!(code, 0, "{what}: {said}");
        let made = bytes.chunks(32).filter(|slot| slot.starts_with(b"FSCK")).count();
        assert_eq!(made, 0, "{what}: {made} files were made of what was being written");
    }
    assert!(most <= MOST, "{what}: {most} chains without a name");
    most
}

#[test]
fn a_killed_server_leaves_few_chains_without_a_name() {
    if !has_judge() {
        skip::skip("fsck.fat: not found");
        return;
    }
    for (seed, width) in (1..).zip(WIDTHS) {
        let what = format!("{width:?}");
        let mut volume = Mounted::new(width, Discipline::SoftUpdates, seed, 12);
        let root = volume.live.root();
        let dir = volume.directory(root, "many");
        for n in 0..1500 {
            volume.file(dir, &format!("file-{n}"), 100);
            if n % 10 == 9 {
                volume.pass(93);
            }
        }
        let making = volume.kept();
        volume.live.sync().unwrap();
        volume.kept();
        for n in 0..1500 {
            volume.live.unlink(dir, format!("file-{n}").as_bytes()).unwrap();
            if n % 10 == 9 {
                volume.pass(93);
            }
        }
        let removing = volume.kept();
        assert!(making.len() > 5 && removing.len() > 3, "{} {}", making.len(), removing.len());
        let most = repair(&making, &format!("{what}, making"));
        assert!(most > 0, "{what}: no chain is without a name while files are made");
        repair(&removing, &format!("{what}, removing"));
    }
}

/// Files of many sectors of the FAT, and a root directory with little room.
#[test]
fn large_files_and_a_full_root_are_bounded_too() {
    if !has_judge() {
        skip::skip("fsck.fat: not found");
        return;
    }
    let mut volume = Mounted::new(FatWidth::Fat16, Discipline::SoftUpdates, 9, 12);
    let root = volume.live.root();
    let dir = volume.directory(root, "sub");
    for n in 0..480 {
        volume.file(root, &format!("F{n}"), 0);
    }
    volume.live.sync().unwrap();
    volume.kept();
    for round in 0..6 {
        for n in 0..30 {
            volume.file(dir, &format!("small-{round}-{n}"), 600);
        }
        volume.file(dir, &format!("large-{round}"), 700_000);
        volume.pass(4000);
        if round % 2 == 1 {
            volume.live.unlink(dir, format!("large-{round}").as_bytes()).unwrap();
            let name = format!("large-{}", round - 1);
            let ino = volume.live.lookup(dir, name.as_bytes()).unwrap().unwrap();
            let size = Some(1000);
            let set = seekless_fs::operate::SetAttr { size, ..Default::default() };
            volume.live.set_attr(ino, &set).unwrap();
            volume.pass(9000);
        }
    }
    let states = volume.kept();
    assert!(states.len() > 5, "{}", states.len());
    repair(&states, "a full root");
}

/// What `async` leaves is kept: nothing says that it has only parts of files.
#[test]
fn chains_are_kept_where_no_order_was() {
    for width in WIDTHS {
        let mut volume = Mounted::new(width, Discipline::Async, 5, 3);
        let root = volume.live.root();
        for n in 0..40 {
            volume.file(root, &format!("file-{n}"), 100);
            volume.pass(700);
        }
        let mut kept = 0;
        for state in volume.kept() {
            let device = Arc::new(MemoryDevice::new(state));
            match seekless_fat::repair(device.clone(), LostChains::ByMark) {
                Ok(repaired) => assert_ne!(repaired.outcome, Outcome::Left),
                Err(FsError::Unsupported(why)) => panic!("{why}"),
                Err(error) => panic!("{error}"),
            }
            let mut bytes = vec![0; device.len().get() as usize];
            device.read(Lba::ZERO, &mut bytes).unwrap();
            kept += bytes.chunks(32).filter(|slot| slot.starts_with(b"FSCK")).count();
        }
        assert!(kept > 0, "{width:?}: no chain was kept");
    }
}
