//! Removing snapshots, at whatever write the removal is cut off.

use super::{Files, NAMES, SHAPES, Volume, bytes, open, tree, volume};
use crate::live::recount::recount;
use crate::live::shapes::options;
use crate::replay::WALL;
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, DeviceError, MemoryDevice, VirtualClock};
use seekless_ffs::{FfsLive, Outcome, preen, remove_snapshots, snapshots};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::Operate;
use seekless_fs::{FsError, check::Finding};
use seekless_units::{ByteLen, Lba};
use std::sync::{Arc, Mutex};

/// A device that remembers its writes.
struct Logged {
    device: MemoryDevice,
    writes: Mutex<Vec<(Lba, Vec<u8>)>>,
}

impl BlockDevice for Logged {
    fn len(&self) -> ByteLen {
        self.device.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.writes.lock().unwrap().push((at, buf.to_vec()));
        self.device.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }
}

fn names() -> Vec<Vec<u8>> {
    NAMES.iter().map(|name| name.as_bytes().to_vec()).collect()
}

/// All files but those that are, or were, snapshots: a preen may give one whose name is gone already
/// a name in `lost+found`.
fn others(device: &Arc<MemoryDevice>) -> Files {
    let mut files = tree(&open(device));
    let gone: [&[u8]; 3] = [b"/.snap/daily", b"/.snap/weekly", b"/lost+found"];
    files.retain(|path, _| !gone.iter().any(|gone| path.starts_with(gone)));
    files
}

fn listed(device: &Arc<MemoryDevice>) -> usize {
    snapshots(device.clone(), OpenOptions::default()).unwrap().len()
}

#[test]
fn a_volume_without_its_snapshots_can_be_changed() {
    for (n, shape) in SHAPES.iter().enumerate() {
        let Volume { device, .. } = volume(shape, 60 + n);
        let before = others(&device);
        remove_snapshots(device.clone(), &names(), WALL).unwrap();
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
        let logged = Arc::new(Logged {
            device: MemoryDevice::new(first.clone()),
            writes: Mutex::new(Vec::new()),
        });
        remove_snapshots(logged.clone(), &names(), WALL).unwrap();
        let writes = logged.writes.lock().unwrap();
        let state = |count: usize| {
            let device = Arc::new(MemoryDevice::new(first.clone()));
            for (at, bytes) in &writes[..count] {
                device.write(*at, bytes).unwrap();
            }
            device
        };
        // Each state before the list in the superblock is empty, then some.
        let unlisted = (0..=writes.len()).find(|&count| !is_listed(&state(count))).unwrap();
        println!("{shape:?}: {} writes, no list after {unlisted}", writes.len());
        assert!(unlisted > 4 && unlisted < writes.len());
        let later = (unlisted..=writes.len()).step_by((writes.len() / 30).max(1));
        for count in (0..unlisted).chain(later) {
            let device = state(count);
            if count < unlisted {
                let report = seekless_ffs::check(device.clone()).unwrap();
                let is_known = |it: &Finding| it.code() == "superblock.tuning";
                assert!(report.findings.iter().all(is_known), "{count}: {:#?}", report.findings);
                assert!(others(&device) == before, "{shape:?}, {count}");
                remove_snapshots(device.clone(), &names(), WALL).unwrap();
                assert!(tree(&open(&device)) == before, "{shape:?}, {count}: begun anew");
            } else {
                let preened = preen(device.clone()).unwrap();
                assert!(preened.outcome != Outcome::Left, "{count}: {:#?}", preened.report);
                assert!(others(&device) == before, "{shape:?}, {count}");
            }
            recount(&device);
        }
    }
}

/// Whether the superblock lists any inode.
fn is_listed(device: &Arc<MemoryDevice>) -> bool {
    let removed = remove_snapshots(device.clone(), &[b"/no such file".to_vec()], WALL);
    let some = remove_snapshots(device.clone(), &[], WALL);
    assert!(matches!(removed, Err(FsError::NotFound(_) | FsError::Unsupported(_))), "{removed:?}");
    matches!(some, Err(FsError::Unsupported(why)) if why.contains("snapshots"))
}

#[test]
fn nothing_is_written_where_not_all_can_be_removed() {
    let Volume { device, .. } = volume(&SHAPES[1], 80);
    let before = bytes(device.as_ref());
    let refused = |names: &[&str], says: &str| {
        let names: Vec<Vec<u8>> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
        let why = remove_snapshots(device.clone(), &names, WALL).unwrap_err().to_string();
        assert!(why.contains(says), "{names:?}: {why}");
        assert!(bytes(device.as_ref()) == before, "{names:?}: something was written");
    };
    refused(&["daily"], "remove all of them");
    refused(&["daily", "/.snap/daily"], "remove all of them");
    refused(&["daily", "weekly", "/made-2-3"], "/made-2-3 is not a snapshot");
    refused(&["daily", "monthly"], "/.snap/monthly");
    refused(&["daily", "/.snap"], "is not a snapshot");
}
