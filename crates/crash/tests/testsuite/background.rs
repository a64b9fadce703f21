//! Volumes that are used at once after a crash, and checked meanwhile: every state is opened for
//! changes, a snapshot of it is checked, and the corrections are made while the volume is used.

use crate::campaign::look;
use crate::ext::{self, Ext2};
use crate::slice::some_or_all;
use crate::ufs::Ufs;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::{Config, Discipline};
use seekless_crash::campaign::{Sequences, built_in};
use seekless_crash::{Extent, Live, Recovered, Search, Settings, Target};
use seekless_device::{BlockDevice, MemoryDevice, SnapshotOrigin, VirtualClock};
use seekless_ffs::Version;
use seekless_fs::check::{Class, Finding, Report};
use seekless_fs::corrections::{Correction, Corrections};
use seekless_fs::field::{index, wide};
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode, SetAttr};
use seekless_fs::{FileKind, FsError, Inspect};
use seekless_live::{Named, Recovery};
use seekless_units::{ByteLen, Ino, Lba};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A volume that is recovered while it is in use.
trait Recovering: Operate {
    fn is_under_way(&mut self) -> bool;

    fn correct(&mut self, correction: &Correction) -> Result<(), FsError>;

    fn end_recovery(&mut self, sound: bool) -> Result<(), FsError>;
}

impl<F: Named> Recovering for seekless_live::Live<F> {
    fn is_under_way(&mut self) -> bool {
        self.recovery().is_some_and(|recovery| recovery.is_under_way())
    }

    fn correct(&mut self, correction: &Correction) -> Result<(), FsError> {
        self.correct(correction)
    }

    fn end_recovery(&mut self, sound: bool) -> Result<(), FsError> {
        self.end_recovery(sound)
    }
}

type InUse = Box<dyn Recovering>;

/// Opens a volume that a crash has left, to be corrected while it is in use.
type Open = Box<dyn Fn(Arc<dyn BlockDevice>) -> Result<InUse, FsError> + Send + Sync>;

/// A format whose recovery after a crash takes place while the volume is in use.
pub(crate) struct InBackground {
    target: Box<dyn Target>,
    open: Open,
    corrections: fn(Arc<dyn BlockDevice>) -> Result<Corrections, FsError>,
    /// What another program finds in a volume that was recovered and is closed.
    judge: fn(&dyn BlockDevice) -> Option<String>,
    /// Whether a crash leaves nothing that cannot be corrected in use but moved directories.
    leaves_nothing: bool,
    /// States that were corrected in use.
    corrected: AtomicU64,
    /// States with findings that cannot be corrected in use.
    left: AtomicU64,
}

impl InBackground {
    pub(crate) fn of(version: Version) -> Self {
        let open = move |device| -> Result<InUse, FsError> {
            let live = Ufs::of(version).recovering(device, Arc::new(VirtualClock::new()))?;
            Ok(Box::new(live))
        };
        Self::new(Box::new(Ufs::of(version)), Box::new(open), seekless_ffs::corrections, |_| None)
    }

    /// `None` without the tools that judge it.
    fn ext2() -> Option<Self> {
        let open = |device| -> Result<InUse, FsError> {
            let config = Config::new(Discipline::SoftUpdates);
            Ok(Box::new(Ext2::live(device, Arc::new(VirtualClock::new()), config, true)?))
        };
        let target = Box::new(Ext2::new()?);
        let made = Self::new(target, Box::new(open), seekless_ext::corrections, ext::e2fsck);
        Some(Self { leaves_nothing: true, ..made })
    }

    fn new(
        target: Box<dyn Target>,
        open: Open,
        corrections: fn(Arc<dyn BlockDevice>) -> Result<Corrections, FsError>,
        judge: fn(&dyn BlockDevice) -> Option<String>,
    ) -> Self {
        let (corrected, left) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { target, open, corrections, judge, leaves_nothing: false, corrected, left }
    }

    /// Opens a volume. `None` if it cannot be opened before it is checked, or its superblock says
    /// that it is clean: a torn write of that.
    fn opened(&self, origin: Arc<dyn BlockDevice>) -> Result<Option<InUse>, FsError> {
        match (self.open)(origin) {
            // A torn superblock has another hash.
            Err(FsError::Refused(_) | FsError::Corrupt { .. }) => Ok(None),
            opened => {
                let mut live = opened?;
                Ok(live.is_under_way().then_some(live))
            }
        }
    }

    /// Uses a volume while it is corrected, and removes the files made for that. False if it
    /// cannot be opened.
    fn correct(&self, origin: Arc<dyn BlockDevice>, found: &Corrections) -> Result<bool, FsError> {
        let Some(mut live) = self.opened(origin)? else { return Ok(false) };
        let all = found.all.len();
        for (done, correction) in found.all.iter().enumerate() {
            if done == 0 || done == all / 2 {
                use_it(&mut *live, done)?;
            }
            live.correct(correction)?;
        }
        remove_it(&mut *live)?;
        live.end_recovery(true)?;
        live.unmount()?;
        Ok(true)
    }

    /// Uses a copy of a volume in every way but for removing and renaming directories while it is
    /// corrected, each file by chance. It must be in order in the end.
    fn use_at_random(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        let mut bytes = vec![0; index(device.len().get())];
        device.read(Lba::ZERO, &mut bytes)?;
        let seed = bytes.chunks(8).fold(1u64, |sum, chunk| {
            chunk
                .iter()
                .fold(sum, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
        });
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let copy = Arc::new(MemoryDevice::new(bytes));
        let (origin, snapshot) = SnapshotOrigin::take(copy.clone(), None);
        let found = (self.corrections)(Arc::new(snapshot))?;
        let Some(mut live) = self.opened(Arc::new(origin))? else { return Ok(()) };
        let mut done = Vec::new();
        for correction in &found.all {
            if below(&mut random, 5) < 2 {
                done.push(one_operation(&mut *live, &mut random)?);
            }
            live.correct(correction)?;
            done.push(format!("{correction:?}"));
        }
        live.end_recovery(true)?;
        live.unmount()?;
        let report = self.target.check(copy.clone())?;
        assert!(report.is_clean(), "{:#?}\nafter {done:#?}", report.findings);
        let said = (self.judge)(copy.as_ref());
        assert!(said.is_none(), "{}\nafter {done:#?}", said.unwrap_or_default());
        Ok(())
    }
}

/// A directory, a name in it, and the inode of that.
type FileName = (Ino, Vec<u8>, Ino);

/// All names of files, and all directories.
fn everything(live: &mut dyn Recovering) -> Result<(Vec<FileName>, Vec<Ino>), FsError> {
    let (mut files, mut dirs) = (Vec::new(), vec![live.root()]);
    let mut next = 0;
    while next < dirs.len() {
        let dir = dirs[next];
        next += 1;
        let mut names = Vec::new();
        live.read_dir(dir, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            ControlFlow::Continue(())
        })?;
        // Snapshots are there.
        let is_used = |name: &Vec<u8>| !matches!(&name[..], b"." | b".." | b"lost+found");
        for name in names.into_iter().filter(is_used) {
            let ino = live.lookup(dir, &name)?.expect("it is listed");
            match live.attr(ino)?.kind {
                // It may have two names.
                FileKind::Directory if !dirs.contains(&ino) => dirs.push(ino),
                FileKind::Directory => {}
                _ => files.push((dir, name, ino)),
            }
        }
    }
    Ok((files, dirs))
}

fn below(random: &mut Pcg64Mcg, end: usize) -> usize {
    random.next_u32() as usize % end
}

fn one_operation(live: &mut dyn Recovering, random: &mut Pcg64Mcg) -> Result<String, FsError> {
    let owner = Ownership { uid: 0, gid: 0, perm: 0o755 };
    let (files, dirs) = everything(live)?;
    let to = (dirs[below(random, dirs.len())], random.next_u32().to_string());
    let to = (to.0, to.1.as_bytes());
    let what = below(random, 8);
    if files.is_empty() || what < 2 {
        let kind = [NewFile::Regular, NewFile::Directory][what % 2];
        no_space_is_no_matter(live.make(to.0, to.1, kind, owner).map(drop))?;
        return Ok(format!("make {kind:?}"));
    }
    let (dir, name, ino) = &files[below(random, files.len())];
    let is_regular = live.attr(*ino)?.kind == FileKind::Regular;
    let place = below(random, 90_000) as u64;
    let done = match what {
        2 | 3 if is_regular => live.write(*ino, ByteLen::new(place), &[7; 5000]).map(drop),
        4 | 5 if is_regular => {
            let set = SetAttr { size: Some(place), ..SetAttr::default() };
            live.set_attr(*ino, &set).map(drop)
        }
        6 => live.unlink(*dir, name),
        7 => live.rename((*dir, name), to, RenameMode::Replace),
        _ => live.link(*ino, to.0, to.1).map(drop),
    };
    no_space_is_no_matter(done)?;
    Ok(format!("operation {what} of inode {ino} at {place}"))
}

fn name_of(number: usize) -> Vec<u8> {
    [USED, number.to_string().as_bytes()].concat()
}

/// How the names of directories begin that are made in the meantime.
const USED: &[u8] = b"while-it-is-checked-";

/// Makes a file of several blocks in a new directory.
fn use_it(live: &mut dyn Recovering, number: usize) -> Result<(), FsError> {
    let owner = Ownership { uid: 0, gid: 0, perm: 0o755 };
    let root = live.root();
    let mut used = || -> Result<(), FsError> {
        let dir = live.make(root, &name_of(number), NewFile::Directory, owner)?.ino;
        let file = live.make(dir, b"f", NewFile::Regular, owner)?.ino;
        live.write(file, ByteLen::ZERO, &[7; 5000]).map(drop)
    };
    match used() {
        // An earlier recovery that was cut off has made it.
        Err(FsError::Exists(_)) => Ok(()),
        done => no_space_is_no_matter(done),
    }
}

/// Workloads may have filled the volume.
fn no_space_is_no_matter(done: Result<(), FsError>) -> Result<(), FsError> {
    if matches!(done, Err(FsError::NoSpace(_))) { Ok(()) } else { done }
}

fn remove_it(live: &mut dyn Recovering) -> Result<(), FsError> {
    let root = live.root();
    // Also those of an earlier recovery that was cut off.
    let mut names = Vec::new();
    live.read_dir(root, 0, &mut |entry| {
        names.extend(entry.name.starts_with(USED).then(|| entry.name.to_vec()));
        ControlFlow::Continue(())
    })?;
    for name in names {
        let Some(dir) = live.lookup(root, &name)? else { continue };
        if live.lookup(dir, b"f")?.is_some() {
            live.unlink(dir, b"f")?;
        }
        live.rmdir(root, &name)?;
    }
    Ok(())
}

impl Target for InBackground {
    fn name(&self) -> &str {
        self.target.name()
    }

    fn has_xattrs(&self) -> bool {
        self.target.has_xattrs()
    }

    fn image_len(&self) -> ByteLen {
        self.target.image_len()
    }

    fn make(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        self.target.make(device)
    }

    fn mount(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
    ) -> Result<Box<dyn Live>, FsError> {
        self.target.mount(device, clock, config)
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
        self.target.check(device)
    }

    fn preen(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        let (origin, snapshot) = SnapshotOrigin::take(Arc::clone(&device), None);
        let mut found = (self.corrections)(Arc::new(snapshot))?;
        if found.report.is_clean() {
            return Ok(Recovered { report: found.report, changed: false });
        }
        // Of three states, for it takes its time.
        if found.left.is_empty() && found.report.total().is_multiple_of(3) {
            self.use_at_random(device.as_ref())?;
        }
        if found.left.is_empty() && self.correct(Arc::new(origin), &found)? {
            let said = (self.judge)(device.as_ref());
            assert!(said.is_none(), "{}\nafter {:#?}", said.unwrap_or_default(), found.all);
            self.corrected.fetch_add(1, Ordering::Relaxed);
            // Some of them a check asks about, and a recovery in use does not.
            found.report.findings.retain(|finding| finding.class == Class::Expected);
            found.report.unexpected = 0;
            return Ok(Recovered { report: found.report, changed: true });
        }
        self.left.fetch_add(u64::from(!found.left.is_empty()), Ordering::Relaxed);
        if self.leaves_nothing && !found.left.is_empty() {
            // They are violations, whatever a preen makes of them.
            let unexpected = |finding| Finding { class: Class::Unexpected, ..finding };
            let findings: Vec<Finding> = found.left.into_iter().map(unexpected).collect();
            let report = Report { unexpected: wide(findings.len()), findings, ..Report::default() };
            return Ok(Recovered { report, changed: false });
        }
        let mut recovered = self.target.preen(Arc::clone(&device))?;
        // Without its mark, which a torn write took away, a check asks about moved directories.
        if self.leaves_nothing && recovered.report.unexpected > 0 {
            recovered = self.target.repair(device)?;
            recovered.report.findings.retain(|finding| finding.class == Class::Expected);
            recovered.report.unexpected = 0;
        }
        Ok(recovered)
    }

    fn repair(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        self.target.repair(device)
    }

    fn is_used_but_free(&self, code: &str) -> bool {
        self.target.is_used_but_free(code)
    }

    fn swaps_names(&self) -> bool {
        self.target.swaps_names()
    }

    fn asks_of_moves(&self, code: &str) -> bool {
        self.target.asks_of_moves(code)
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Inspect>, FsError> {
        self.target.open(device)
    }
}

/// Looks at states of some workloads, of every `every`th script. Returns how many were corrected in
/// use, and how many had to be checked first.
fn states(
    target: &InBackground,
    (workload, sequences): (&str, Sequences),
    every: usize,
    sample: u64,
) -> (u64, u64) {
    let scripts = built_in(workload, target.has_xattrs(), sequences).unwrap().expect("known");
    let scripts: Vec<_> = scripts.into_iter().step_by(every).collect();
    let search = Search { extent: Extent::Sample(sample), ..Search::exhaustive(1) };
    let settings =
        Settings { discipline: Discipline::SoftUpdates, search, schedules: 2, queue: false };
    let (wrong, _) = look(target, settings, &scripts);
    assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    let (corrected, left) = (&target.corrected, &target.left);
    let found = (corrected.load(Ordering::Relaxed), left.load(Ordering::Relaxed));
    println!("{}: {} corrected in use, {} left", target.name(), found.0, found.1);
    found
}

const FEW: Sequences = Sequences { count: 30, seed: 5 };

#[test]
fn single_operations() {
    for version in [Version::Ufs1, Version::Ufs2] {
        let (corrected, left) =
            states(&InBackground::of(version), ("singles", FEW), 1, some_or_all(15, 40));
        assert!(corrected > 10 * left, "{corrected} corrected in use, {left} left");
    }
}

#[test]
fn random_sequences() {
    for version in [Version::Ufs1, Version::Ufs2] {
        let (corrected, left) =
            states(&InBackground::of(version), ("random:10", FEW), some_or_all(6, 3), 40);
        assert!(corrected > 4 * left, "{corrected} corrected in use, {left} left");
    }
}

/// On ext2 nothing at all is left but a directory that took the name of another in the same parent:
/// used blocks and inodes are marked, and no file has too few links.
#[test]
fn single_operations_on_ext2() {
    let Some(target) = InBackground::ext2() else { return };
    let (corrected, left) = states(&target, ("singles", FEW), 1, some_or_all(10, 25));
    assert!(
        corrected > some_or_all(80, 200) && corrected > 50 * left,
        "{corrected} corrected in use, {left} left"
    );
}

/// Eight minutes.
#[test]
#[ignore = "a campaign"]
fn many_on_ext2() {
    let Some(target) = InBackground::ext2() else { return };
    let many = |count, seed| Sequences { count, seed };
    for (workload, sequences, every, sample) in [
        ("singles", many(0, 1), 1, 300),
        ("random:12", many(300, 11), 1, 40),
        ("moves:10", many(60, 5), 1, 40),
        ("pairs", many(0, 1), 7, 15),
    ] {
        let (corrected, left) = states(&target, (workload, sequences), every, sample);
        assert!(corrected > 50 * left, "{corrected} corrected in use, {left} left");
    }
}

#[test]
fn random_sequences_on_ext2() {
    let Some(target) = InBackground::ext2() else { return };
    let (corrected, left) = states(&target, ("random:10", FEW), some_or_all(5, 2), 20);
    assert!(
        corrected > some_or_all(40, 100) && corrected > 50 * left,
        "{corrected} corrected in use, {left} left"
    );
}
