//! Volumes that are used at once after a crash, and checked meanwhile: every state is opened for
//! changes, corrected by what a check of its snapshot finds, and used while that is done.

use crate::campaign::look;
use crate::ufs::Ufs;
use seekless_cache::{Config, Discipline};
use seekless_crash::campaign::{Sequences, built_in};
use seekless_crash::{Extent, Live, Recovered, Search, Settings, Target};
use seekless_device::{BlockDevice, SnapshotOrigin, VirtualClock};
use seekless_ffs::{FfsLive, Version, corrections, preen};
use seekless_fs::check::Report;
use seekless_fs::corrections::Corrections;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_fs::{FsError, Inspect};
use seekless_live::Recovery;
use seekless_units::ByteLen;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// UFS, whose recovery after a crash takes place while the volume is in use.
pub(crate) struct InBackground {
    ufs: Ufs,
    /// States that were corrected in use.
    corrected: AtomicU64,
    /// States with findings that cannot be corrected in use.
    left: AtomicU64,
}

impl InBackground {
    fn of(version: Version) -> Self {
        Self { ufs: Ufs::of(version), corrected: AtomicU64::new(0), left: AtomicU64::new(0) }
    }

    /// Uses a volume while it is corrected. What is made for that is removed again. False if it
    /// cannot be opened before it is checked, or its superblock says that it is clean: a torn
    /// write of that.
    fn correct(&self, origin: Arc<dyn BlockDevice>, found: &Corrections) -> Result<bool, FsError> {
        let opened = self.ufs.recovering(origin, Arc::new(VirtualClock::new()));
        let mut live = match opened {
            // A torn superblock has another hash.
            Err(FsError::Refused(_) | FsError::Corrupt { .. }) => return Ok(false),
            opened => opened?,
        };
        if !live.recovery().is_some_and(|recovery| recovery.is_under_way()) {
            return Ok(false);
        }
        let all = found.all.len();
        for (done, correction) in found.all.iter().enumerate() {
            if done == 0 || done == all / 2 {
                use_it(&mut live, done)?;
            }
            live.correct(correction)?;
        }
        remove_it(&mut live, all)?;
        live.recovery().expect("it was opened for that").end(true);
        live.unmount()?;
        Ok(true)
    }
}

fn name_of(number: usize) -> Vec<u8> {
    format!("while-it-is-checked-{number}").into_bytes()
}

/// Makes a file of several blocks in a new directory.
fn use_it(live: &mut FfsLive, number: usize) -> Result<(), FsError> {
    let owner = Ownership { uid: 0, gid: 0, perm: 0o755 };
    let root = live.root();
    let mut used = || -> Result<(), FsError> {
        let dir = live.make(root, &name_of(number), NewFile::Directory, owner)?.ino;
        let file = live.make(dir, b"f", NewFile::Regular, owner)?.ino;
        live.write(file, ByteLen::ZERO, &[7; 5000]).map(drop)
    };
    no_space_is_no_matter(used())
}

/// Workloads may have filled the volume.
fn no_space_is_no_matter(done: Result<(), FsError>) -> Result<(), FsError> {
    if matches!(done, Err(FsError::NoSpace(_))) { Ok(()) } else { done }
}

fn remove_it(live: &mut FfsLive, all: usize) -> Result<(), FsError> {
    let root = live.root();
    for number in [0, all / 2] {
        let Some(dir) = live.lookup(root, &name_of(number))? else { continue };
        if live.lookup(dir, b"f")?.is_some() {
            live.unlink(dir, b"f")?;
        }
        live.rmdir(root, &name_of(number))?;
    }
    Ok(())
}

impl Target for InBackground {
    fn name(&self) -> &str {
        self.ufs.name()
    }

    fn has_xattrs(&self) -> bool {
        self.ufs.has_xattrs()
    }

    fn image_len(&self) -> ByteLen {
        self.ufs.image_len()
    }

    fn make(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        self.ufs.make(device)
    }

    fn mount(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
    ) -> Result<Box<dyn Live>, FsError> {
        self.ufs.mount(device, clock, config)
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
        self.ufs.check(device)
    }

    fn preen(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        let (origin, snapshot) = SnapshotOrigin::take(Arc::clone(&device), None);
        let found = corrections(Arc::new(snapshot))?;
        if found.report.is_clean() {
            return Ok(Recovered { report: found.report, changed: false });
        }
        if found.left.is_empty() && self.correct(Arc::new(origin), &found)? {
            self.corrected.fetch_add(1, Ordering::Relaxed);
            return Ok(Recovered { report: found.report, changed: true });
        }
        self.left.fetch_add(u64::from(!found.left.is_empty()), Ordering::Relaxed);
        let repaired = preen(device)?;
        Ok(Recovered { changed: repaired.writes > 0, report: repaired.report })
    }

    fn is_used_but_free(&self, code: &str) -> bool {
        self.ufs.is_used_but_free(code)
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Inspect>, FsError> {
        self.ufs.open(device)
    }
}

/// Looks at states of some workloads. Returns how many were corrected in use, and how many had to
/// be checked first.
fn states(version: Version, workload: &str, every: usize, sample: u64) -> (u64, u64) {
    let target = InBackground::of(version);
    let sequences = Sequences { count: 30, seed: 5 };
    let scripts = built_in(workload, target.has_xattrs(), sequences).unwrap().expect("known");
    let scripts: Vec<_> = scripts.into_iter().step_by(every).collect();
    let search = Search { extent: Extent::Sample(sample), ..Search::exhaustive(1) };
    let settings =
        Settings { discipline: Discipline::SoftUpdates, search, schedules: 2, queue: false };
    let (wrong, _) = look(&target, settings, &scripts);
    assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    (target.corrected.into_inner(), target.left.into_inner())
}

#[test]
fn single_operations() {
    for version in [Version::Ufs1, Version::Ufs2] {
        let (corrected, left) = states(version, "singles", 1, 40);
        println!("{version:?}: {corrected} corrected in use, {left} left");
        assert!(corrected > 10 * left, "{corrected} corrected in use, {left} left");
    }
}

#[test]
fn random_sequences() {
    for version in [Version::Ufs1, Version::Ufs2] {
        let (corrected, left) = states(version, "random:10", 3, 40);
        println!("{version:?}: {corrected} corrected in use, {left} left");
        assert!(corrected > 4 * left, "{corrected} corrected in use, {left} left");
    }
}
