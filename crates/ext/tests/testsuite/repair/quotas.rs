//! Limits that are set on a volume that is not in use: in place or with the whole file, cut off after
//! any write, and on volumes that are refused.

use crate::damage::{images, quotas::sound};
use crate::holes;
use crate::repair::judge::bytes_of;
use seekless_device::{BlockDevice, DeviceError, MemoryDevice};
use seekless_ext::{change_quotas, check, quotas, repair};
use seekless_fs::check::Outcome;
use seekless_fs::format::OpenOptions;
use seekless_fs::quota::{
    LimitChange, OwnerKind, OwnerQuota, QuotaBook, QuotaChange, QuotaSelection,
};
use seekless_fs::{FsError, Timestamp};
use seekless_units::{ByteLen, Lba};
use std::sync::{Arc, Mutex};

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };
/// An owner in no quota file, whose entry needs another leaf.
const NEW: u32 = 77_777_777;

/// A byte of the superblock.
const fn at_field(field: usize) -> usize {
    1024 + field
}

/// One step of a device's use.
#[derive(Clone)]
enum Step {
    Write(Lba, Vec<u8>),
    Flush,
}

/// A device that logs writes and flushes.
struct Logged {
    inner: MemoryDevice,
    log: Mutex<Vec<Step>>,
}

impl BlockDevice for Logged {
    fn len(&self) -> ByteLen {
        self.inner.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.log.lock().expect("log").push(Step::Write(at, buf.to_vec()));
        self.inner.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.log.lock().expect("log").push(Step::Flush);
        Ok(())
    }
}

fn limits(id: u32, n: u64) -> QuotaChange {
    let limit = |soft, hard| LimitChange { soft: Some(soft), hard: Some(hard) };
    QuotaChange::Limits { id, space: limit(n << 20, (n + 1) << 20), inodes: limit(n * 7, n * 9) }
}

fn set(device: Arc<dyn BlockDevice>, kind: OwnerKind, change: &QuotaChange) -> Result<(), FsError> {
    change_quotas(device, &QuotaSelection::default(), kind, change, NOW)
}

fn books(device: Arc<dyn BlockDevice>) -> Vec<QuotaBook> {
    quotas(device, &QuotaSelection::default(), OpenOptions::default()).expect("quotas")
}

/// The quotas of a kind, without those of the new owner.
fn others(book: &QuotaBook) -> Vec<OwnerQuota> {
    book.quotas.iter().filter(|quota| quota.id != NEW).copied().collect()
}

fn quota_of(device: &Arc<MemoryDevice>, at: usize, id: u32) -> OwnerQuota {
    let books = books(device.clone());
    *books[at].quotas.iter().find(|quota| quota.id == id).expect("an owner with quotas")
}

/// The volume with limits of some owners of each kind.
fn limited() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(sound()));
    for (at, kind) in OwnerKind::ALL.into_iter().enumerate() {
        let ids: Vec<u32> = books(device.clone())[at].quotas.iter().map(|quota| quota.id).collect();
        for (n, id) in (1..).zip(ids) {
            set(device.clone(), kind, &limits(id, n)).expect("an entry in place");
        }
    }
    device
}

#[test]
fn an_entry_is_changed_in_place_and_only_that() {
    let device = limited();
    for (at, kind) in OwnerKind::ALL.into_iter().enumerate() {
        let ids: Vec<u32> = books(device.clone())[at].quotas.iter().map(|quota| quota.id).collect();
        for (n, id) in (1..).zip(ids) {
            let quota = quota_of(&device, at, id);
            let (space, inodes) = (quota.space, quota.inodes);
            assert_eq!([space.soft, space.hard], [n << 20, (n + 1) << 20], "{kind:?} {id}");
            assert_eq!([inodes.soft, inodes.hard], [n * 7, n * 9], "{kind:?} {id}");
            // One limit is changed, and the others stay.
            let before = bytes_of(device.as_ref());
            let hard = LimitChange { hard: Some(5001), soft: None };
            let one = QuotaChange::Limits { id, space: hard, inodes: LimitChange::default() };
            set(device.clone(), kind, &one).expect("in place");
            let after = quota_of(&device, at, id);
            assert_eq!((after.space.hard, after.space.soft), (5 << 10, space.soft));
            assert_eq!(after.inodes, inodes);
            let now = bytes_of(device.as_ref());
            let differ: Vec<usize> = (0..now.len()).filter(|&at| now[at] != before[at]).collect();
            let reach = differ.last().expect("a limit") - differ[0];
            assert!(reach < 8, "{kind:?} {id}: {reach} bytes apart");
            // The same again.
            set(device.clone(), kind, &one).expect("in place");
            assert!(bytes_of(device.as_ref()) == now, "{kind:?} {id}: something was written");
        }
        // An owner without an entry has no limits to remove.
        let none = LimitChange { soft: Some(0), hard: Some(0) };
        let before = bytes_of(device.as_ref());
        set(device.clone(), kind, &QuotaChange::Limits { id: NEW, space: none, inodes: none })
            .expect("nothing to do");
        assert!(bytes_of(device.as_ref()) == before, "{kind:?}: something was written");
    }
    let report = check(device).expect("check");
    assert!(report.is_clean(), "{report:#?}");
}

/// Writes some steps to a volume.
fn replayed<'a>(start: &[u8], steps: impl Iterator<Item = &'a Step>) -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(holes::copy(start));
    for step in steps {
        if let Step::Write(at, bytes) = step {
            device.write(*at, bytes).expect("memory");
        }
    }
    Arc::new(device)
}

/// Volumes after a loss of power: of the writes since the last flush, those before one are on the
/// disk, those before it and a half of it, all but one, or only one.
fn cut_off(start: &[u8], log: &[Step]) -> Vec<(String, Arc<MemoryDevice>)> {
    let mut found = Vec::new();
    for (at, step) in log.iter().enumerate() {
        let Step::Write(lba, bytes) = step else { continue };
        let epoch =
            log[..at].iter().rposition(|it| matches!(it, Step::Flush)).map_or(0, |it| it + 1);
        let end = log[at..]
            .iter()
            .position(|it| matches!(it, Step::Flush))
            .map_or(log.len(), |it| at + it);
        let half = bytes.len() / 1024 * 512;
        let torn = [
            Step::Write(*lba, bytes[..half].to_vec()),
            Step::Write(Lba::new(lba.get() + half as u64 / 512), bytes[half..].to_vec()),
        ];
        let before = || log[..at].iter();
        found.push((format!("before write {at}"), replayed(start, before())));
        if half > 0 {
            for part in &torn {
                let device = replayed(start, before().chain([part]));
                found.push((format!("within write {at}"), device));
            }
        }
        let rest = log[at + 1..end].iter();
        found.push((format!("all but write {at}"), replayed(start, before().chain(rest))));
        let only = log[..epoch].iter().chain([step]);
        found.push((format!("only write {at}"), replayed(start, only)));
    }
    found
}

/// A new owner needs another file. Whatever is lost, a repair leads to the limits of all others.
#[test]
fn limits_of_others_survive_a_loss_of_power() {
    let start = bytes_of(limited().as_ref());
    for (at, kind) in OwnerKind::ALL.into_iter().enumerate() {
        let before = books(Arc::new(MemoryDevice::new(holes::copy(&start))));
        let device = Arc::new(Logged {
            inner: MemoryDevice::new(holes::copy(&start)),
            log: Mutex::default(),
        });
        set(device.clone(), kind, &limits(NEW, 3)).expect("there is room");
        let after = books(device.clone());
        for (before, after) in before.iter().zip(&after) {
            assert_eq!((before.grace, others(before)), (after.grace, others(after)), "{kind:?}");
        }
        let new = after[at].quotas.iter().find(|quota| quota.id == NEW).expect("the new owner");
        assert_eq!([new.space.soft, new.space.hard], [3 << 20, 4 << 20]);
        assert_eq!([new.inodes.soft, new.inodes.hard], [21, 27]);
        assert!(check(device.clone()).expect("check").is_clean());
        let log = device.log.lock().expect("log").clone();
        let all = cut_off(&start, &log);
        assert!(all.len() > 20, "{}", all.len());
        for (what, device) in all {
            // A volume with findings is not marked as clean.
            let is_marked = bytes_of(device.as_ref())[at_field(0x3A)] & 1 != 0;
            let findings = check(device.clone()).expect(&what).findings;
            // Half a superblock has a wrong checksum.
            let is_told = !is_marked || what.starts_with("within");
            assert!(is_told || findings.is_empty(), "{kind:?}, {what}: {findings:#?}");
            let repaired = repair(device.clone()).expect(&what);
            assert_ne!(repaired.outcome, Outcome::Left, "{kind:?}, {what}: {repaired:#?}");
            let found = books(device.clone());
            for (before, found) in before.iter().zip(&found) {
                assert_eq!(others(before), others(found), "{kind:?}, {what}");
            }
            let entry = found[at].quotas.iter().find(|quota| quota.id == NEW);
            assert!(entry.is_none_or(|entry| entry == new), "{kind:?}, {what}: {entry:?}");
        }
    }
}

/// Volumes that are not in order stay as they are.
#[test]
fn volumes_are_refused_and_stay() {
    // Free inodes; not unmounted; multiple mount protection without its block.
    for (place, bits, wanted) in [
        (at_field(0x10), 1, "not in order"),
        (at_field(0x3A), 1, "not in order"),
        (at_field(0x61), 1, "not in order"),
    ] {
        let mut bytes = bytes_of(limited().as_ref());
        bytes[place] ^= bits;
        let sum = !crc32c::crc32c(&bytes[1024..2044]);
        bytes[2044..2048].copy_from_slice(&sum.to_le_bytes());
        let device = Arc::new(MemoryDevice::new(holes::copy(&bytes)));
        let grace = QuotaChange::Grace { space: Some(60), inodes: None };
        for change in [limits(1, 7), limits(NEW, 7), grace] {
            let why = set(device.clone(), OwnerKind::User, &change).expect_err(wanted).to_string();
            assert!(why.contains(wanted), "{change:?}: {why}");
            assert!(bytes_of(device.as_ref()) == bytes, "{wanted}: something was written");
        }
    }
    // Limits and times that the kernel would read as others.
    let device = limited();
    let before = bytes_of(device.as_ref());
    let most = LimitChange { soft: None, hard: Some(1 << 63) };
    let rounded = LimitChange { soft: None, hard: Some((1 << 63) - 1) };
    let none = LimitChange::default();
    for change in [
        QuotaChange::Limits { id: 1, space: most, inodes: none },
        QuotaChange::Limits { id: 1, space: rounded, inodes: none },
        QuotaChange::Limits { id: 1, space: none, inodes: most },
        QuotaChange::Grace { space: Some(1 << 32), inodes: None },
    ] {
        let why = set(device.clone(), OwnerKind::User, &change).expect_err("too large");
        assert!(matches!(why, FsError::Invalid(_)), "{change:?}: {why}");
        assert!(bytes_of(device.as_ref()) == before, "something was written");
    }
    // A volume without the feature.
    let device = Arc::new(MemoryDevice::new(images::named("ext4")));
    let why = set(device, OwnerKind::User, &limits(1, 7)).expect_err("no feature");
    assert!(matches!(why, FsError::Unsupported(_)), "{why}");
}
