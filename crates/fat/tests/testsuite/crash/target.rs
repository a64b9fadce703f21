//! FAT as a target whose states are recovered by fsck.fat.

use seekless_cache::{Config, Counters, Discipline};
use seekless_crash::{Live, Recovered, Target};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_fat::{FatImage, FatLive, FatWidth, LiveOptions, LostChains, MakeOptions};
use seekless_fs::check::{Class, Finding, Preen, Problem, Report};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::Operate;
use seekless_fs::{FsError, Inspect, Location, Timestamp};
use seekless_units::{ByteLen, Lba};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };
const SECTOR: usize = 512;

/// A problem that fsck.fat finds.
const fn of_judge(code: &'static str) -> Problem {
    Problem { code, phase: 0, preen: Preen::Stops, text: "", question: None, repair: "" }
}

const FSCK_LEFT: &Problem = &of_judge("fsck.left");
const FSCK_AFTER_US: &Problem = &of_judge("fsck.after-us");
const JUDGES_DISAGREE: &Problem = &of_judge("judges.disagree");

/// A width of FAT.
pub(crate) struct Fat(pub(crate) FatWidth);

fn scratch() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("seekless-fat-crash-{}-{next}", std::process::id()))
}

fn bytes_of(device: &dyn BlockDevice) -> Result<Vec<u8>, FsError> {
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(Lba::ZERO, &mut bytes)?;
    Ok(bytes)
}

/// What fsck.fat makes of bytes, and its exit code.
pub(crate) fn fsck(bytes: &[u8], how: &str) -> (Vec<u8>, i32, String) {
    let path = scratch();
    std::fs::write(&path, bytes).unwrap();
    let program = ["/usr/sbin/fsck.fat", "/sbin/fsck.fat"]
        .into_iter()
        .find(|path| std::path::Path::new(path).exists())
        .unwrap_or("fsck.fat");
    let done = Command::new(program).arg(how).arg(&path).output().unwrap();
    let after = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    (after, done.status.code().unwrap_or(99), said)
}

/// Whether there is a fsck.fat.
pub(crate) fn has_judge() -> bool {
    let paths = ["/usr/sbin/fsck.fat", "/sbin/fsck.fat"];
    paths.iter().any(|path| std::path::Path::new(path).exists())
}

fn finding(problem: &'static Problem, what: String) -> Finding {
    let location = Location::of("image");
    Finding { problem, class: Class::Unexpected, what, location, values: None, repaired: false }
}

/// A file system in use.
struct InUse(FatLive);

impl Live for InUse {
    fn operate(&mut self) -> &mut dyn Operate {
        &mut self.0
    }

    fn write_some(&mut self, pick: &mut dyn FnMut(u64) -> bool) -> Result<bool, FsError> {
        self.0.write_some(pick)
    }

    fn counters(&self) -> &Counters {
        self.0.counters()
    }
}

pub(crate) fn options() -> LiveOptions {
    let wall = Box::new(|| NOW);
    LiveOptions { clusters: None, seed: 1, zone: 0, force: false, wall }
}

/// An image without the files that fsck.fat has made of chains without names: whose they were
/// nobody knows.
fn without_leaks(bytes: Vec<u8>) -> Result<Vec<u8>, FsError> {
    let device = Arc::new(MemoryDevice::new(bytes));
    let clock = Arc::new(VirtualClock::new());
    let config = Config::new(Discipline::Async);
    let mut live = FatLive::open(device.clone(), clock, config, options())?;
    let root = live.root();
    let mut found = Vec::new();
    live.read_dir(root, 0, &mut |entry| {
        if entry.name.starts_with(b"FSCK") && entry.name.ends_with(b".REC") {
            found.push(entry.name.to_vec());
        }
        ControlFlow::Continue(())
    })?;
    for name in found {
        live.unlink(root, &name)?;
    }
    live.unmount()?;
    bytes_of(device.as_ref())
}

impl Fat {
    /// Has fsck.fat recover a device, in as many runs as are allowed. What it leaves, and
    /// what our check finds then, become findings.
    fn recover(device: &dyn BlockDevice, runs: u32) -> Result<Recovered, FsError> {
        let before = bytes_of(device)?;
        let mut report = Report::default();
        let mut after = before.clone();
        for _ in 0..runs {
            after = fsck(&after, "-a").0;
        }
        let (_, code, said) = fsck(&after, "-n");
        if code != 0 {
            report.findings.push(finding(FSCK_LEFT, said));
            return Ok(Recovered { report, changed: false });
        }
        let after = without_leaks(after)?;
        let (_, code, said) = fsck(&after, "-n");
        if code != 0 {
            report.findings.push(finding(FSCK_AFTER_US, said));
        }
        let ours = seekless_fat::check(Arc::new(MemoryDevice::new(after.clone())))?;
        // A first piece of a long name without its second fsck.fat leaves where it is.
        let mut ours = ours.findings.iter().filter(|found| found.code() != "name.pieces");
        if let Some(found) = ours.next() {
            report.findings.push(finding(JUDGES_DISAGREE, found.what.clone()));
        }
        for (n, (old, new)) in before.chunks(SECTOR).zip(after.chunks(SECTOR)).enumerate() {
            if old != new {
                device.write(Lba::new(n as u64), new)?;
            }
        }
        Ok(Recovered { report, changed: before != after })
    }
}

impl Target for Fat {
    fn name(&self) -> &str {
        match self.0 {
            FatWidth::Fat12 => "fat12",
            FatWidth::Fat16 => "fat16",
            FatWidth::Fat32 => "fat32",
        }
    }

    fn has_xattrs(&self) -> bool {
        false
    }

    fn has_inodes(&self) -> bool {
        false
    }

    fn image_len(&self) -> ByteLen {
        ByteLen::new(if self.0 == FatWidth::Fat16 { 4 << 20 } else { 2 << 20 })
    }

    fn make(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        let mut options = MakeOptions::new(Some(self.0), device.len());
        options.cluster = Some(1);
        seekless_fat::make(device, &options).map(drop)
    }

    fn mount(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
    ) -> Result<Box<dyn Live>, FsError> {
        Ok(Box::new(InUse(FatLive::open(device, clock, config, options())?)))
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
        seekless_fat::check(device)
    }

    fn preen(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        Self::recover(device.as_ref(), 1)
    }

    fn is_used_but_free(&self, _: &str) -> bool {
        false
    }

    /// Of a directory with two names fsck.fat leaves something for a second run, and pieces
    /// of a long name for a third.
    fn asks_of_moves(&self, code: &str) -> bool {
        code == "fsck.left"
    }

    fn repair(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        Self::recover(device.as_ref(), 3)
    }

    /// What we write back is not in the order in which fsck.fat wrote it.
    fn recovery_can_be_cut(&self) -> bool {
        false
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Inspect>, FsError> {
        Ok(Arc::new(FatImage::open(device, OpenOptions::default())?))
    }
}

/// The same, recovered as the program does it: by our own check.
pub(crate) struct Own(pub(crate) Fat);

fn recovered(repaired: seekless_fs::check::Repaired) -> Recovered {
    Recovered { changed: repaired.writes > 0, report: repaired.report }
}

impl Target for Own {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn has_xattrs(&self) -> bool {
        false
    }

    fn has_inodes(&self) -> bool {
        false
    }

    fn image_len(&self) -> ByteLen {
        self.0.image_len()
    }

    fn make(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        self.0.make(device)
    }

    fn mount(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
    ) -> Result<Box<dyn Live>, FsError> {
        self.0.mount(device, clock, config)
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
        seekless_fat::check(device)
    }

    fn preen(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        seekless_fat::preen(device, LostChains::ByMark).map(recovered)
    }

    fn is_used_but_free(&self, _: &str) -> bool {
        false
    }

    fn asks_of_moves(&self, code: &str) -> bool {
        matches!(code, "chain.shared" | "directory.dot-dot" | "directory.dot")
    }

    fn repair(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        seekless_fat::repair(device, LostChains::ByMark).map(recovered)
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Inspect>, FsError> {
        self.0.open(device)
    }
}
