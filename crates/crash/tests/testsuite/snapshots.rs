//! Crash states of volumes with snapshots: no crash and no recovery changes the image in a
//! snapshot.

use crate::background::InBackground;
use crate::campaign::look;
use crate::slice::some_or_all;
use crate::ufs::{InUse, Ufs};
use seekless_cache::{Config, Discipline};
use seekless_crash::campaign::{Sequences, built_in};
use seekless_crash::{Extent, Live, Recovered, Search, Settings, Target};
use seekless_device::{BlockDevice, VirtualClock};
use seekless_ffs::{Version, open_snapshot, snapshots, take_snapshot_in_use};
use seekless_fs::check::Report;
use seekless_fs::field::index;
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_fs::{FsError, Inspect};
use seekless_units::{ByteLen, Lba};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// UFS. Each mount takes a snapshot.
struct WithSnapshots {
    ufs: Ufs,
    recovery: InBackground,
    /// The image in each snapshot when it was taken, by path.
    images: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// Number of images compared.
    seen: AtomicU64,
}

const HOME: &str = "lost+found";

pub(crate) fn bytes(device: &dyn BlockDevice) -> Result<Vec<u8>, FsError> {
    let mut bytes = vec![0; index(device.len().get())];
    device.read(Lba::ZERO, &mut bytes)?;
    Ok(bytes)
}

impl WithSnapshots {
    fn of(version: Version) -> Self {
        Self {
            ufs: Ufs::of(version),
            recovery: InBackground::of(version),
            images: Mutex::default(),
            seen: AtomicU64::new(0),
        }
    }

    /// Compares the images in all snapshots with those from when they were taken. If `may_be_torn`,
    /// snapshots that cannot be reached are skipped: a crash may tear the superblock or a directory.
    fn look_at(&self, device: &Arc<dyn BlockDevice>, may_be_torn: bool) -> Result<(), FsError> {
        let images = self.images.lock().unwrap();
        let listed = match snapshots(Arc::clone(device), OpenOptions::default()) {
            Err(FsError::Corrupt { .. }) if may_be_torn => return Ok(()),
            listed => listed?,
        };
        for found in listed {
            let Some(path) = found.path else {
                assert!(may_be_torn, "inode {} has no name", found.ino);
                continue;
            };
            let kept = open_snapshot(Arc::clone(device), &path, OpenOptions::default())?;
            assert!(images[&path] == bytes(kept.as_ref())?, "{}", String::from_utf8_lossy(&path));
            self.seen.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Target for WithSnapshots {
    fn name(&self) -> &str {
        self.ufs.name()
    }

    fn has_xattrs(&self) -> bool {
        self.ufs.has_xattrs()
    }

    fn image_len(&self) -> ByteLen {
        ByteLen::new(4 << 20)
    }

    fn make(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        self.ufs.make(device)
    }

    fn prepared_under(&self) -> Discipline {
        Discipline::SoftUpdates
    }

    fn mount(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
    ) -> Result<Box<dyn Live>, FsError> {
        let mut live = self.ufs.live(Arc::clone(&device), clock, config)?;
        let root = live.root();
        if live.lookup(root, HOME.as_bytes())?.is_none() {
            let owner = Ownership { uid: 0, gid: 0, perm: 0o700 };
            live.make(root, HOME.as_bytes(), NewFile::Directory, owner)?;
        }
        let count = snapshots(Arc::clone(&device), OpenOptions::default())?.len();
        let path = format!("/{HOME}/{count}").into_bytes();
        take_snapshot_in_use(&mut live, &path)?;
        let kept = open_snapshot(device, &path, OpenOptions::default())?;
        self.images.lock().unwrap().insert(path, bytes(kept.as_ref())?);
        Ok(Box::new(InUse(live)))
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
        self.look_at(&device, true)?;
        self.ufs.check(device)
    }

    fn preen(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        self.look_at(&device, true)?;
        let recovered = self.recovery.preen(Arc::clone(&device))?;
        self.look_at(&device, false)?;
        Ok(recovered)
    }

    fn is_used_but_free(&self, code: &str) -> bool {
        self.ufs.is_used_but_free(code)
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Inspect>, FsError> {
        self.look_at(&device, false)?;
        self.ufs.open(device)
    }
}

/// Looks at states of some workloads.
fn states(version: Version, workload: &str, every: usize, sample: u64) {
    let target = WithSnapshots::of(version);
    let sequences = Sequences { count: 30, seed: 5 };
    let scripts = built_in(workload, target.has_xattrs(), sequences).unwrap().expect("known");
    let scripts: Vec<_> = scripts.into_iter().step_by(every).collect();
    let search = Search { extent: Extent::Sample(sample), ..Search::exhaustive(1) };
    let settings =
        Settings { discipline: Discipline::SoftUpdates, search, schedules: 2, queue: false };
    let (wrong, states) = look(&target, settings, &scripts);
    assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    let (seen, states) = (target.seen.into_inner(), states.iter().sum::<u64>());
    println!("{version:?}: {seen} snapshots in {states} states");
    assert!(seen > states * 3, "{seen} snapshots in {states} states");
}

#[test]
fn single_operations() {
    for version in [Version::Ufs1, Version::Ufs2] {
        states(version, "singles", some_or_all(2, 1), 6);
    }
}

#[test]
fn random_sequences() {
    for version in [Version::Ufs1, Version::Ufs2] {
        states(version, "random:10", some_or_all(6, 3), 15);
    }
}
