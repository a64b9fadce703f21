//! ext2 as a target whose states are recovered by e2fsck.

use crate::holes;
use seekless_cache::{Config, Counters, Discipline, JournalMode};
use seekless_crash::{Live, Recovered, Target};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_ext::{ExtImage, ExtLive, LiveOptions};
use seekless_fs::check::{Class, Finding, Preen, Problem, Report};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::Operate;
use seekless_fs::{FsError, Inspect, Location, Timestamp};
use seekless_units::{ByteLen, Lba};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A problem that e2fsck finds.
const fn of_judge(code: &'static str) -> Problem {
    Problem { code, phase: 0, preen: Preen::Stops, text: "", question: None, repair: "" }
}

const MOUNT_LEFT: &Problem = &of_judge("mount.left");
const JUDGES_DISAGREE: &Problem = &of_judge("judges.disagree");
const E2FSCK_STOPS: &Problem = &of_judge("e2fsck.stops");
const E2FSCK_LEFT: &Problem = &of_judge("e2fsck.left");

/// A volume of groups of half a megabyte with blocks of 1 KiB.
pub(crate) struct Ext {
    name: &'static str,
    empty: Vec<u8>,
    /// Changes go through a journal.
    journalled: bool,
    /// Contents wait for their place.
    delays: bool,
}

impl Ext {
    fn made(name: &'static str, size: &str, how: &[&str]) -> Self {
        let path = scratch();
        let made = Command::new("mke2fs")
            .args(["-q", "-F", "-b", "1024", "-g", "512", "-N", "256"])
            .args(how)
            .arg(&path)
            .arg(size)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let empty = holes::take(&path);
        std::fs::remove_file(&path).unwrap();
        Self { name, empty, journalled: how.contains(&"-J"), delays: false }
    }

    pub(crate) fn ext2() -> Self {
        Self::made("ext2", "2M", &["-t", "ext2", "-I", "128", "-O", "^resize_inode"])
    }

    /// With extents, as much as those ask for, and no journal.
    pub(crate) fn extents() -> Self {
        let features = "^resize_inode,extent,64bit,huge_file,flex_bg";
        Self::made("extents", "2M", &["-t", "ext2", "-I", "128", "-O", features])
    }

    /// As mke2fs makes it by default, but for room to grow.
    pub(crate) fn ext4() -> Self {
        Self::made("ext4", "3M", &["-t", "ext4", "-J", "size=1", "-O", "^resize_inode"])
    }

    /// With contents in inodes.
    pub(crate) fn inline() -> Self {
        let features = "^resize_inode,inline_data";
        Self::made("inline", "3M", &["-t", "ext4", "-I", "256", "-J", "size=1", "-O", features])
    }

    /// With a file for orphans.
    pub(crate) fn orphan_file() -> Self {
        let features = "^resize_inode,orphan_file";
        Self::made("orphan file", "3M", &["-t", "ext4", "-J", "size=1", "-O", features])
    }

    /// The same with delayed allocation.
    pub(crate) fn delayed(self) -> Self {
        let name = if self.name == "ext4" { "ext4, delalloc" } else { "inline, delalloc" };
        Self { name, delays: true, ..self }
    }

    pub(crate) fn ext3() -> Self {
        let how = ["-t", "ext3", "-I", "128", "-O", "^resize_inode", "-J", "size=1"];
        Self::made("ext3", "3M", &how)
    }
}

fn scratch() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("seekless-ext-crash-{}-{next}", std::process::id()))
}

fn bytes_of(device: &dyn BlockDevice) -> Result<Vec<u8>, FsError> {
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(Lba::ZERO, &mut bytes)?;
    Ok(bytes)
}

/// What e2fsck makes of bytes, and its exit code.
fn e2fsck(bytes: &[u8], how: &str) -> (Vec<u8>, i32, String) {
    let path = scratch();
    holes::put(&path, bytes);
    let (code, said) = e2fsck_of(&path, how);
    let after = holes::take(&path);
    std::fs::remove_file(&path).unwrap();
    (after, code, said)
}

fn e2fsck_of(path: &Path, how: &str) -> (i32, String) {
    let done = Command::new("e2fsck").arg(how).arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    (done.status.code().unwrap_or(99), said)
}

/// The result of `e2fsck -fn` for an image. Many states recover to the same image, which is judged
/// once.
fn findings(bytes: &[u8]) -> (i32, String) {
    static JUDGED: Mutex<BTreeMap<[u8; 32], (i32, String)>> = Mutex::new(BTreeMap::new());
    let digest = Sha256::digest(bytes).into();
    if let Some(known) = JUDGED.lock().unwrap().get(&digest) {
        return known.clone();
    }
    let path = scratch();
    holes::put(&path, bytes);
    let (code, said) = e2fsck_of(&path, "-fn");
    std::fs::remove_file(&path).unwrap();
    JUDGED.lock().unwrap().insert(digest, (code, said.clone()));
    (code, said)
}

/// An image without what e2fsck writes of a sound ext4 whenever it looks at it: the
/// time, kilobytes written, and the checksum of the superblock with these.
fn told(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for field in [0x30..0x34, 0x178..0x180, 0x3FC..0x400] {
        bytes[1024 + field.start..1024 + field.end].fill(0);
    }
    bytes
}

fn finding(problem: &'static Problem, what: String) -> Finding {
    let location = Location::of("image");
    Finding { problem, class: Class::Unexpected, what, location, values: None, repaired: false }
}

/// A file system in use.
struct InUse(ExtLive);

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

fn options() -> LiveOptions {
    LiveOptions {
        directories: "ext2-orlov".into(),
        inodes: None,
        areas: None,
        blocks: None,
        seed: 1,
        force: false,
        delays: None,
        moves_dirs: true,
        recover: false,
        wall: Box::new(|| Timestamp { secs: 1_700_000_000, nanos: 0 }),
    }
}

impl Ext {
    /// What a mount of ours makes of bytes: it recovers them, and e2fsck finds nothing.
    fn mounted(before: Vec<u8>) -> Result<Option<Finding>, FsError> {
        let device = Arc::new(MemoryDevice::new(before));
        let config = Config::new(Discipline::Journal(JournalMode::Ordered));
        let clock = Arc::new(VirtualClock::new());
        let mut live = ExtLive::open(device.clone(), clock, config, options())?;
        live.unmount()?;
        let (code, said) = findings(&bytes_of(device.as_ref())?);
        Ok((code != 0).then(|| finding(MOUNT_LEFT, said)))
    }

    /// Has e2fsck recover a device. What it must not say becomes findings.
    fn recover(&self, device: &dyn BlockDevice, how: &str) -> Result<Recovered, FsError> {
        let before = bytes_of(device)?;
        let (after, code, said) = e2fsck(&before, how);
        let mut report = Report::default();
        if self.journalled {
            // Without a whole check: what a journal brings home needs none.
            report.findings.extend(Self::mounted(before.clone())?);
        }
        if how == "-p" {
            let ours = Arc::new(MemoryDevice::new(holes::copy(&before)));
            let stops = seekless_ext::preen(ours)?.report.unexpected > 0;
            if stops != (code >= 4) {
                let what = format!("e2fsck -p ends with {code}, ours stops: {stops}\n{said}");
                report.findings.push(finding(JUDGES_DISAGREE, what));
            }
        }
        if code >= 4 {
            report.findings.push(finding(E2FSCK_STOPS, said));
            return Ok(Recovered { report, changed: false });
        }
        // Of a volume that seems to be clean it leaves the numbers of orphans that it has
        // deleted in their file, and `orphan_present`.
        let is_present = after[1024 + 0x66] & 1 != 0;
        let after = if is_present { e2fsck(&after, "-fp").0 } else { after };
        let (code, said) = findings(&after);
        if code != 0 {
            report.findings.push(finding(E2FSCK_LEFT, said));
        }
        if told(&before) == told(&after) {
            return Ok(Recovered { report, changed: false });
        }
        for (n, (old, new)) in before.chunks(512).zip(after.chunks(512)).enumerate() {
            if old != new {
                device.write(Lba::new(n as u64), new)?;
            }
        }
        Ok(Recovered { report, changed: before != after })
    }
}

impl Target for Ext {
    fn name(&self) -> &str {
        self.name
    }

    fn has_xattrs(&self) -> bool {
        true
    }

    fn image_len(&self) -> ByteLen {
        ByteLen::new(self.empty.len() as u64)
    }

    fn make(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        device.write(Lba::ZERO, &self.empty)?;
        Ok(())
    }

    fn prepared_under(&self) -> Discipline {
        if self.journalled {
            return Discipline::Journal(JournalMode::Writeback);
        }
        Discipline::Async
    }

    fn mount(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
    ) -> Result<Box<dyn Live>, FsError> {
        let blocks = self.delays.then(|| "ext4-goal".into());
        let options = LiveOptions { delays: Some(self.delays), blocks, ..options() };
        Ok(Box::new(InUse(ExtLive::open(device, clock, config, options)?)))
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
        seekless_ext::check(device)
    }

    fn preen(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        self.recover(device.as_ref(), "-p")
    }

    fn is_used_but_free(&self, _: &str) -> bool {
        false
    }

    fn swaps_names(&self) -> bool {
        true
    }

    fn asks_of_moves(&self, code: &str) -> bool {
        code == "e2fsck.stops"
    }

    fn repair(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        self.recover(device.as_ref(), "-fy")
    }

    /// The superblock: torn, its checksum is wrong, and neither e2fsck nor the kernel goes
    /// on.
    fn whole(&self) -> Option<(Lba, u64)> {
        (!matches!(self.name, "ext2" | "ext3" | "extents")).then_some((Lba::new(2), 2))
    }

    /// What we write back is not in the order in which e2fsck wrote it.
    fn recovery_can_be_cut(&self) -> bool {
        false
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Inspect>, FsError> {
        Ok(Arc::new(ExtImage::open(device, OpenOptions::default())?))
    }
}
